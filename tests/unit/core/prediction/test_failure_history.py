"""The predictor `history`: when a node is predicted, for how long, and what is kept of it."""

from __future__ import annotations

import pytest

from eslurm.core.prediction.history import HistoryPredictor, HistorySettings, silence_level
from eslurm.core.prediction.predictor import BroadcastSeen, HealthSeen, NodesKnown

SECOND = 1_000_000
LOST_US = 600 * SECOND
HALF_LIFE_S = 100
NODES = tuple(range(10))


class Nodes:
    """Asks all nodes once in ten seconds."""

    def __init__(self, **settings: float) -> None:
        values = {"half_life_s": HALF_LIFE_S} | settings
        self.predictor = HistoryPredictor(LOST_US, HistorySettings(**values))
        self.now_us = 0

    def ask(self, silent: tuple[int, ...] = (), suspects: tuple[int, ...] = (), times: int = 1) -> set[int]:
        """The prediction after so many broadcasts."""
        for _ in range(times):
            self.now_us += 10 * SECOND
            self.predictor.observe(BroadcastSeen(self.now_us, NODES, silent, suspects))
        return set(self.predictor.predict(self.now_us))

    def seconds_predicted(self) -> int:
        """The seconds for which all must answer until no node is predicted any more."""
        begun_us = self.now_us
        while self.ask():
            assert self.now_us - begun_us < 10_000 * SECOND
        return (self.now_us - begun_us) // SECOND


def test_nodes_that_answer_are_never_predicted_and_take_no_space() -> None:
    nodes = Nodes()
    assert nodes.ask(times=5) == set() and len(nodes.predictor) == 0


def test_a_silent_node_is_predicted_as_long_as_it_is_silent() -> None:
    assert Nodes().ask((3,), times=1_000) == {3}


def test_a_first_short_silence_is_held_against_a_node_for_one_half_life() -> None:
    nodes = Nodes()
    nodes.ask((3,))
    # The node is back with the first answer, ten seconds on.
    assert nodes.seconds_predicted() == 10 + HALF_LIFE_S


def test_each_further_failure_counts_for_longer() -> None:
    nodes = Nodes()
    times = []
    for _ in range(4):
        nodes.ask((3,))
        nodes.ask()
        nodes.ask((3,))
        times.append(nodes.seconds_predicted())
    assert times == sorted(times) and times[-1] > times[0] > HALF_LIFE_S


@pytest.mark.parametrize(
    ("silent_s", "level"), [(0, 0), (200, 0), (201, 1), (300, 1), (301, 2), (600, 2), (601, 3), (9_999, 3)]
)
def test_silence_is_graded_by_thirds_halves_and_the_whole_of_the_lost_time(silent_s: int, level: int) -> None:
    assert silence_level(silent_s * SECOND, LOST_US) == level


def test_a_longer_silence_counts_for_longer() -> None:
    seconds = []
    for rounds in (10, 25, 40, 90):
        nodes = Nodes()
        nodes.ask((3,), times=rounds)
        seconds.append(nodes.seconds_predicted())
    assert seconds == sorted(set(seconds)), "each level adds"


def test_the_worst_history_is_forgiven_too() -> None:
    nodes = Nodes(score_max=4)
    for _ in range(50):
        nodes.ask((3,))
        nodes.ask()
    # log2(4 / 0.5) half-lives from the last return.
    assert nodes.seconds_predicted() == 3 * HALF_LIFE_S


def test_rare_broadcasts_need_calm_answers_as_well_as_time() -> None:
    nodes = Nodes(calm=4, half_life_s=1)
    nodes.ask((3,))
    assert [nodes.ask() for _ in range(4)] == [{3}, {3}, {3}, set()]


def test_a_failure_among_the_calm_answers_starts_the_count_again() -> None:
    nodes = Nodes(calm=3, half_life_s=1)
    nodes.ask((3,))
    nodes.ask(times=2)
    nodes.ask((3,))
    assert [nodes.ask() for _ in range(3)] == [{3}, {3}, set()]


def test_a_suspect_counts_though_it_answered() -> None:
    nodes = Nodes()
    assert nodes.ask(suspects=(4,)) == {4}
    assert nodes.seconds_predicted() == HALF_LIFE_S


def test_a_suspect_that_is_silent_counts_once() -> None:
    both, silent = Nodes(), Nodes()
    both.ask((4,), (4,))
    silent.ask((4,))
    assert both.seconds_predicted() == silent.seconds_predicted()


def test_a_suspicion_ends_a_silence_with_what_that_adds() -> None:
    nodes, short = Nodes(), Nodes()
    nodes.ask((4,), times=70)
    nodes.ask(suspects=(4,))
    short.ask(suspects=(4,))
    assert nodes.seconds_predicted() > short.seconds_predicted()


def test_a_node_that_was_not_asked_has_neither_failed_nor_answered() -> None:
    predictor = HistoryPredictor(LOST_US, HistorySettings(half_life_s=1))
    predictor.observe(BroadcastSeen(0, NODES, (3,)))
    for at_s in range(100):
        predictor.observe(BroadcastSeen(at_s * SECOND, (1, 2)))
    assert set(predictor.predict(100 * SECOND)) == {3}


def test_what_is_long_past_is_forgotten() -> None:
    nodes = Nodes()
    nodes.ask((3, 4))
    nodes.ask(times=1 + HALF_LIFE_S // 10)
    assert nodes.ask() == set() and len(nodes.predictor) == 2, "the next failure counts for more"
    nodes.ask(times=10 * HALF_LIFE_S // 10)
    assert len(nodes.predictor) == 0


def test_nodes_that_are_no_more_are_forgotten() -> None:
    nodes = Nodes()
    nodes.ask((3, 4))
    nodes.predictor.observe(NodesKnown({number: f"cn{number}" for number in NODES if number != 3}))
    assert set(nodes.predictor.predict(nodes.now_us)) == {4} and len(nodes.predictor) == 1


def test_an_unchanged_prediction_is_the_same_object_and_other_observations_are_ignored() -> None:
    nodes = Nodes()
    nodes.ask((3,))
    first = nodes.predictor.predict(nodes.now_us)
    nodes.predictor.observe(HealthSeen(nodes.now_us, {5: ("disk",)}))
    nodes.ask((3,))
    assert nodes.predictor.predict(nodes.now_us) is first


@pytest.mark.parametrize("bad", [{"calm": 0}, {"half_life_s": 0.0}, {"score_max": 0.5}])
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        HistorySettings(**bad)
