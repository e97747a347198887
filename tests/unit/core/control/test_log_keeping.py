"""Retention of the log: turns and results in, actions out. Goal: nothing goes before a base state that is durable."""

from __future__ import annotations

import pytest

from eslurm.core.control.log_keeping import (
    ANSWERS_KEPT_US,
    BASES_PER_LOG,
    BLOBS_KEPT_US,
    TURN_US,
    Base,
    LogKeeping,
    MakeBase,
    Prune,
    decode_bases,
)
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

KEPT_US = 400 * SECOND_US
NOW_US = 400 * 24 * 3600 * SECOND_US
STATE = State("ctl")


def begun(*bases: Base, kept_us: int = KEPT_US) -> LogKeeping:
    keeping = LogKeeping(kept_us)
    keeping.begin(bases)
    return keeping


def made(revision: int, at_us: int = NOW_US) -> Base:
    return Base(revision, at_us, b"%d" % revision)


def pruned(keeping: LogKeeping, committed: int, now_us: int) -> Prune:
    """The rows that may go after a turn, whose base state, if one is due, is made of the last revision."""
    action = keeping.turn(STATE, committed, now_us)
    if isinstance(action, MakeBase):
        keeping.packed(made(committed, now_us))
        return keeping.kept()
    return action


def test_a_base_state_is_made_when_the_log_has_grown_for_a_part_of_its_length() -> None:
    part_us = KEPT_US // BASES_PER_LOG
    assert isinstance(begun().turn(STATE, 1, NOW_US), MakeBase)
    assert isinstance(begun().turn(STATE, 0, NOW_US), Prune), "nothing is committed yet"
    keeping = begun(made(5))
    assert isinstance(keeping.turn(STATE, 9, NOW_US + part_us - 1), Prune)
    assert isinstance(keeping.turn(STATE, 5, NOW_US + part_us), Prune), "nothing new"
    assert isinstance(keeping.turn(STATE, 6, NOW_US + part_us), MakeBase)


def test_nothing_goes_before_the_base_state_is_committed() -> None:
    keeping = begun(made(5))
    late_us = NOW_US + 2 * KEPT_US
    assert isinstance(keeping.turn(STATE, 9, late_us), MakeBase)
    assert decode_bases(keeping.packed(made(9, late_us))) == [made(5), made(9, late_us)]
    # The turn is broken off here: the next one knows only what was committed.
    assert isinstance(keeping.turn(STATE, 9, late_us), MakeBase)
    keeping.packed(made(9, late_us))
    limits = keeping.kept()
    assert limits.facts_before_revision == 6, "the newer one is not old enough"
    assert set(limits.blobs_kept) == {b"5", b"9"}


def test_the_log_before_the_newest_base_state_that_is_old_enough_goes() -> None:
    keeping = begun(made(5), made(9, NOW_US + 1), made(12, NOW_US + 2))
    limits = pruned(keeping, 12, NOW_US + KEPT_US + 1)
    assert limits.facts_before_revision == 10 and set(limits.blobs_kept) == {b"9", b"12"}


def test_in_the_long_run_a_few_base_states_are_kept() -> None:
    keeping = begun()
    for turn in range(100):
        limits = pruned(keeping, turn + 1, NOW_US + turn * KEPT_US // 10)
        assert len(limits.blobs_kept) <= BASES_PER_LOG + 2
    assert limits.facts_before_revision >= 100 - 10 - 5


def test_answers_and_blobs_are_kept_for_a_day_by_the_clusters_time() -> None:
    limits = pruned(begun(kept_us=0), 7, NOW_US)
    assert limits.now_us == NOW_US
    assert limits.answers_before_us == NOW_US - ANSWERS_KEPT_US
    assert limits.blobs_before_us == NOW_US - BLOBS_KEPT_US
    assert limits.facts_before_revision == 0, "for ever"


@pytest.mark.parametrize(
    ("kept_us", "every_us"),
    [(0, TURN_US[1]), (KEPT_US, TURN_US[1]), (1, TURN_US[0]), (8 * SECOND_US, 2 * SECOND_US)],
)
def test_turns_are_as_often_as_a_short_log_needs(kept_us: int, every_us: int) -> None:
    assert LogKeeping(kept_us).turn_every_us == every_us
