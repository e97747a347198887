"""The automatic width. Method: a pretended cluster that says how long a width takes; what the tuner uses then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from eslurm.core.relay.width import (
    CANDIDATES,
    HORIZON,
    TRIAL_EVERY,
    WIDTH_DEFAULT,
    WINDOW,
    WidthScore,
    WidthTuner,
)

ENOUGH = 8 * TRIAL_EVERY * len(CANDIDATES)
TIMES_US = {8: 900, 16: 1000, 32: 500, 64: 800, 128: 1200}


def run(
    tuner: WidthTuner, count: int, took_us: Callable[[int], int], rounds: int = ENOUGH, exact: bool = True
) -> list[int]:
    """Broadcast after broadcast; returns the widths that were used."""
    used = []
    for _ in range(rounds):
        width = tuner.choose(count)
        used.append(width)
        tuner.note(count, width, took_us(width), exact)
    return used


def test_it_begins_with_the_default() -> None:
    tuner = WidthTuner()
    assert [tuner.choose(count, may_try=False) for count in (0, 1, 16, 17, 4096, 10**6)] == [
        WIDTH_DEFAULT
    ] * 6
    assert tuner.table() == []


def test_lists_that_the_default_makes_all_leaves_need_no_trial() -> None:
    tuner = WidthTuner()
    assert set(run(tuner, 16, TIMES_US.__getitem__)) == {WIDTH_DEFAULT}
    assert tuner.table() == []


def test_the_fastest_width_is_found_and_used() -> None:
    tuner = WidthTuner()
    run(tuner, 4096, TIMES_US.__getitem__)
    assert tuner.choose(4096, may_try=False) == 32
    assert tuner.choose(3000, may_try=False) == 32
    assert tuner.choose(5000, may_try=False) == WIDTH_DEFAULT


@pytest.mark.parametrize("count", [17, 100, 20_480])
def test_trials_are_few_and_below_the_length_of_the_list(count: int) -> None:
    tuner = WidthTuner()
    used = run(tuner, count, lambda width: 1000)
    assert len(used) // TRIAL_EVERY == sum(width != WIDTH_DEFAULT for width in used)
    assert set(used) == {width for width in CANDIDATES if width < count}
    tried = Counter(width for width in used if width != WIDTH_DEFAULT)
    assert max(tried.values()) - min(tried.values()) <= 1


def test_a_broadcast_that_somebody_waits_for_is_never_a_trial() -> None:
    tuner = WidthTuner()
    assert {tuner.choose(4096, may_try=False) for _ in range(100)} == {WIDTH_DEFAULT}
    # The trial that became due meanwhile is made by the next broadcast that may, and by one only.
    assert tuner.choose(4096) != WIDTH_DEFAULT
    assert tuner.choose(4096) == WIDTH_DEFAULT


def test_a_little_faster_is_not_fast_enough_to_change() -> None:
    tuner = WidthTuner()
    run(tuner, 4096, lambda width: 920 if width == 64 else 1000)
    assert tuner.choose(4096, may_try=False) == WIDTH_DEFAULT
    run(tuner, 4096, lambda width: 880 if width == 64 else 1000)
    assert tuner.choose(4096, may_try=False) == 64


def test_outliers_do_not_decide() -> None:
    tuner = WidthTuner()
    rng = random.Random(7)
    run(tuner, 4096, lambda width: TIMES_US[width] * (20 if rng.random() < 0.2 else 1), 2 * ENOUGH)
    assert tuner.choose(4096, may_try=False) == 32


def test_a_slow_hour_is_not_the_fault_of_a_width() -> None:
    """All widths take the same, but the time drifts up and down by half: nothing may change."""
    tuner = WidthTuner()
    widths = set()
    for number in range(4 * ENOUGH):
        width = tuner.choose(4096)
        period = ENOUGH // 4
        slow = 1 + 0.5 * abs((number % period) - period / 2) / (period / 2)
        tuner.note(4096, width, round(1000 * slow), exact=True)
        widths.add(tuner.choose(4096, may_try=False))
    assert widths == {WIDTH_DEFAULT}


def test_it_follows_a_cluster_that_changes() -> None:
    tuner = WidthTuner()
    run(tuner, 4096, TIMES_US.__getitem__)
    run(tuner, 4096, lambda width: 100 if width == 128 else 1000, HORIZON)
    assert tuner.choose(4096, may_try=False) == 128


def test_broadcasts_that_waited_for_dead_nodes_do_not_count_against_a_width() -> None:
    tuner = WidthTuner()
    run(tuner, 4096, TIMES_US.__getitem__)
    for _ in range(WINDOW // 2):
        tuner.note(4096, 32, 10_000_000, exact=False)
    assert tuner.choose(4096, may_try=False) == 32


def test_a_cluster_that_is_never_exact_is_tuned_by_what_there_is() -> None:
    tuner = WidthTuner()
    run(tuner, 4096, TIMES_US.__getitem__, exact=False)
    assert tuner.choose(4096, may_try=False) == 32


def test_old_samples_are_forgotten() -> None:
    tuner = WidthTuner()
    tuner.note(4096, 64, 5, exact=True)
    for _ in range(HORIZON):
        tuner.note(4096, 16, 5, exact=True)
    assert [score.width for score in tuner.table()] == [16]


def test_the_table_tells_what_was_measured() -> None:
    tuner = WidthTuner()
    for took_us in (100, 300, 200):
        tuner.note(1000, 16, took_us, exact=True)
    tuner.note(1000, 64, 70, exact=True)
    tuner.note(1000, 17, 70, exact=True)
    tuner.note(30, 8, 10, exact=True)
    assert tuner.table() == [
        WidthScore(32, 8, 10, 1, False),
        WidthScore(1024, 16, 200, 3, True),
        WidthScore(1024, 64, 70, 1, False),
    ]


def test_what_is_kept_is_bounded() -> None:
    tuner = WidthTuner()
    for exponent in range(5, 21):
        run(tuner, 1 << exponent, TIMES_US.__getitem__, 200)
    table = tuner.table()
    assert len(table) <= 16 * len(CANDIDATES)
    assert max(score.samples for score in table) == WINDOW


def test_the_same_broadcasts_give_the_same_widths() -> None:
    assert run(WidthTuner(), 4096, TIMES_US.__getitem__) == run(WidthTuner(), 4096, TIMES_US.__getitem__)
