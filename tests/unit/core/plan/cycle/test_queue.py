"""The pending queue: order, shapes, and what it refuses."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.queue import Pending, PendingQueue
from tests.kits.plan_building import job


def ids(queue: PendingQueue) -> list[int]:
    return [entry.job_id for entry in queue.first(len(queue))]


def test_priority_then_age_then_id() -> None:
    queue = PendingQueue([job(3), job(1), job(2, priority=5)])
    queue.add(Pending(9, Request(), "main", 100, submitted_us=1))
    assert ids(queue) == [2, 1, 9, 3]
    assert [entry.job_id for entry in queue.first(2)] == [2, 1]
    assert len(queue) == 4
    assert 9 in queue
    assert 4 not in queue


def test_a_job_waits_once() -> None:
    queue = PendingQueue([job(1)])
    with pytest.raises(ValueError, match="job 1 waits already"):
        queue.add(job(1, priority=3))
    with pytest.raises(KeyError):
        queue.remove(2)
    assert queue.find(2) is None
    assert queue.remove(1) == job(1)
    assert len(queue) == 0


def test_equal_shapes_share_a_number_until_the_last_is_gone() -> None:
    queue = PendingQueue([job(1), job(2), job(3, limit_us=7)])
    shapes = {entry.job_id: entry.shape for entry in queue.first(3)}
    assert shapes[1] == shapes[2] != shapes[3]
    queue.remove(1)
    queue.add(job(4))
    assert {entry.job_id: entry.shape for entry in queue.first(3)}[4] == shapes[2]
    queue.remove(2)
    queue.remove(4)
    queue.add(job(5))
    after = {entry.job_id: entry.shape for entry in queue.first(2)}
    assert after[5] not in set(shapes.values())


def test_another_priority_is_no_other_shape() -> None:
    queue = PendingQueue([job(1), job(2, limit_us=7)])
    shapes = {entry.job_id: entry.shape for entry in queue.first(2)}
    queue.replace(job(2, limit_us=7, priority=5))
    assert ids(queue) == [2, 1]
    assert {entry.job_id: entry.shape for entry in queue.first(2)} == shapes
    queue.remove(2)
    assert len(queue.shapes) == 1


def test_replacing_keeps_or_changes_the_place() -> None:
    queue = PendingQueue([job(1), job(2), job(3)])
    queue.replace(job(2, startable=4))
    found = queue.find(2)
    assert found is not None
    assert found.startable == 4
    assert ids(queue) == [1, 2, 3]
    queue.replace(job(3, priority=9))
    assert ids(queue) == [3, 1, 2]
    queue.replace(job(1, limit_us=5))
    assert [entry.job.time_limit_us for entry in queue.first(3)] == [100, 5, 100]
    with pytest.raises(KeyError):
        queue.replace(job(7))


def test_a_copy_of_the_front_does_not_follow_the_queue() -> None:
    queue = PendingQueue([job(1), job(2)])
    front = queue.first(2)
    queue.remove(1)
    assert [entry.job_id for entry in front] == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2), st.booleans()), max_size=40))
def test_any_sequence_leaves_it_sorted(steps: list[tuple[int, int, bool]]) -> None:
    queue = PendingQueue()
    model: dict[int, Pending] = {}
    for job_id, priority, keep in steps:
        wanted = job(job_id, priority=priority)
        if job_id not in model:
            queue.add(wanted)
            model[job_id] = wanted
        elif keep:
            changed = msgspec.structs.replace(wanted, startable=2)
            queue.replace(changed)
            model[job_id] = changed
        else:
            assert queue.remove(job_id) == model.pop(job_id)
        expected = sorted(model.values(), key=lambda one: (-one.priority, one.submitted_us, one.job_id))
        assert [entry.job for entry in queue.first(99)] == expected
