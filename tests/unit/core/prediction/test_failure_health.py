"""Health reports: from heartbeats' answers to differences to predictions."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent.outcomes import alive_outcome
from eslurm.core.model.protocol import Unhealthy
from eslurm.core.prediction.health import PROBLEM_CHARS_MAX, PROBLEMS_MAX, HealthPredictor, HealthReports
from eslurm.core.prediction.predictor import BroadcastSeen, HealthSeen, NodesKnown
from eslurm.core.relay.results import OK, Outcome, Results, Status, failed, from_mapping, unreached


def answers(**problems: tuple[str, ...]) -> Results:
    """Nodes 0 to 9; `n3=("disk",)` has a problem."""
    outcomes = dict.fromkeys(range(10), OK)
    outcomes |= {int(name[1:]): alive_outcome(words) for name, words in problems.items()}
    return from_mapping(outcomes)


def test_only_differences_are_reported() -> None:
    reports = HealthReports()
    assert reports.on_answers(answers(), 1) is None
    assert reports.on_answers(answers(n3=("disk",)), 2) == HealthSeen(2, {3: ("disk",)})
    assert reports.on_answers(answers(n3=("disk",)), 3) is None
    seen = reports.on_answers(answers(n3=("disk", "memory"), n4=("load",)), 4)
    assert seen == HealthSeen(4, {3: ("disk", "memory"), 4: ("load",)})
    assert reports.problems() == {3: ("disk", "memory"), 4: ("load",)}
    assert reports.on_answers(answers(n4=("load",)), 5) == HealthSeen(5, {}, (3,))
    assert reports.on_answers(answers(), 6) == HealthSeen(6, {}, (4,))


@pytest.mark.parametrize("outcome", [unreached("no acknowledgement"), failed("the node is not served here")])
def test_a_node_that_does_not_answer_keeps_its_problems(outcome: Outcome) -> None:
    reports = HealthReports()
    reports.on_answers(answers(n3=("disk",)), 1)
    assert reports.on_answers(from_mapping({3: outcome, 4: OK}), 2) is None
    assert reports.problems() == {3: ("disk",)}


def test_equal_problems_merge_into_one_row() -> None:
    results = answers(n3=("disk",), n4=("disk",), n7=("disk",))
    assert len(results.rows) == 2


@pytest.mark.parametrize("payload", [b"\xff", b"\x91\xc0", msgspec.msgpack.encode({"problems": 3}), b"\x90"])
def test_an_answer_that_cannot_be_read_is_no_problem(payload: bytes) -> None:
    reports = HealthReports()
    assert reports.on_answers(from_mapping({1: Outcome(Status.OK, payload=payload)}), 1) is None


def test_what_a_node_says_is_bounded() -> None:
    words = tuple(f"{index:03}" * 100 for index in range(100))
    payload = msgspec.msgpack.encode(Unhealthy(("", *words)))
    seen = HealthReports().on_answers(from_mapping({1: Outcome(Status.OK, payload=payload)}), 1)
    assert seen is not None and len(seen.problems[1]) == PROBLEMS_MAX - 1
    assert max(map(len, seen.problems[1])) == PROBLEM_CHARS_MAX


def test_a_newer_agent_may_say_more() -> None:
    payload = msgspec.msgpack.encode([["disk"], 0, "sda"])
    seen = HealthReports().on_answers(from_mapping({1: Outcome(Status.OK, payload=payload)}), 1)
    assert seen == HealthSeen(1, {1: ("disk",)})


def test_nodes_that_are_no_more_are_forgotten() -> None:
    reports = HealthReports()
    reports.on_answers(answers(n3=("disk",), n4=("disk",)), 1)
    reports.keep_known(range(4))
    assert reports.problems() == {3: ("disk",)}


def test_nodes_with_problems_are_predicted_until_they_are_clear() -> None:
    predictor = HealthPredictor()
    assert set(predictor.predict(0)) == set()
    predictor.observe(HealthSeen(1, {3: ("disk",), 4: ("load",)}))
    predictor.observe(BroadcastSeen(2, (3, 4), (3,)))
    assert set(predictor.predict(2)) == {3, 4}
    predictor.observe(HealthSeen(3, {5: ("clock",)}, (4,)))
    assert set(predictor.predict(3)) == {3, 5}
    predictor.observe(NodesKnown({4: "cn4", 5: "cn5"}))
    assert set(predictor.predict(3)) == {5}
