"""Sorting in slices: whatever the parts, the answer is that of `sorted`, and equal ones keep their order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.request import Request
from eslurm.core.plan import slices
from eslurm.core.plan.cycle import priority
from eslurm.core.plan.cycle.priority import sorted_entries
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.slices import exhaust, sorting

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=80)


@pytest.fixture(scope="module", autouse=True)
def small_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "SORTED_PER_SLICE", 5)
        patch.setattr(slices, "SAMPLES_PER_RUN", 2)
        patch.setattr(priority, "SORTED_PER_SLICE", 5)
        yield


@given(pairs)
def test_by_a_key_equal_ones_keep_their_order(items: list[tuple[int, int]]) -> None:
    assert exhaust(sorting(items, lambda item: item[0])) == sorted(items, key=lambda item: item[0])


@given(pairs)
def test_without_a_key_items_themselves_are_compared(items: list[tuple[int, int]]) -> None:
    assert exhaust(sorting(items)) == sorted(items)


def test_no_slice_is_much_longer_than_a_part() -> None:
    items = [number * 7 % 101 for number in range(101)]
    order = sorting(items)
    assert sum(1 for _ in order) >= 2 * len(items) // 5


@given(st.lists(st.tuples(st.integers(-3, 0), st.integers(0, 9)), max_size=40), st.booleans())
def test_entries_are_sorted_as_tuples_however_they_come(
    drawn: list[tuple[int, int]], by_submission: bool
) -> None:
    entries = [entry(first, submitted_us, number) for number, (first, submitted_us) in enumerate(drawn, 1)]
    if by_submission:
        entries.sort(key=lambda one: (one.submitted_us, one.job_id))
    assert exhaust(sorted_entries(entries)) == sorted(entries, key=lambda one: one.turn)


def entry(first: int, submitted_us: int, job_id: int) -> QueueEntry:
    job = Pending(job_id, Request(), "main", 0, submitted_us=submitted_us)
    return QueueEntry(first, submitted_us, job_id, 0, job)
