"""Idle cores that wait for their report."""

from __future__ import annotations

from eslurm.lab.applications.unreported import PATIENCE_SHARE, PATIENCE_US, Unreported

FIRST, SECOND = (0, 0), (1, 0)


def test_a_core_is_due_once_it_has_been_idle_for_long_enough() -> None:
    unreported = Unreported(1_000)
    assert unreported.next_us is None
    due_us = unreported.add([FIRST], 2_000)
    assert due_us == 2_000 + PATIENCE_US == unreported.next_us
    later_us = unreported.add([SECOND], 5_000)
    assert unreported.next_us == due_us
    assert unreported.take(due_us - 1) == []
    assert unreported.take(due_us) == [FIRST]
    assert unreported.next_us == later_us
    assert unreported.take(later_us) == [SECOND]
    assert unreported.take(later_us) == [] and unreported.next_us is None


def test_a_core_of_a_long_run_waits_for_a_share_of_it() -> None:
    unreported = Unreported(0, 10)
    now_us = 1_000_000
    assert unreported.add([FIRST, SECOND], now_us) == now_us + round(PATIENCE_SHARE * now_us)
    assert unreported.take(2 * now_us) == [FIRST, SECOND]
