"""One application's own scheduler: chunks, idle cores, answers to requests."""

from __future__ import annotations

from itertools import pairwise

import pytest

from eslurm.lab.applications.application import CHUNK_US, Application, Computed, Core, Program
from eslurm.lab.applications.costs import Costs, drawn, from_seconds
from eslurm.loops import TECHNIQUES


def cores_of(count: int) -> list[Core]:
    return [(position, 0) for position in range(count)]


def finished(application: Application) -> list[Computed]:
    """All chunks until the loop is done."""
    found: list[Computed] = []
    while not application.is_done:
        next_us = application.next_us
        assert next_us is not None
        found += application.advance(next_us)
    return found


def even(n: int, seconds: float = 1.0) -> Costs:
    return from_seconds([seconds] * n)


@pytest.mark.parametrize("technique", sorted(TECHNIQUES))
def test_every_task_is_computed_once_on_one_core_at_a_time(technique: str) -> None:
    costs = from_seconds(drawn("exponential:0.01", 500, 3))
    application = Application(Program(costs, technique), cores_of(8), 5_000)
    chunks = finished(application)
    assert sorted(number for chunk in chunks for number in range(chunk.start, chunk.stop)) == list(range(500))
    assert sum(chunk.end_us - chunk.begin_us for chunk in chunks) == costs.total_us
    for core in cores_of(8):
        mine = sorted((chunk.begin_us, chunk.end_us) for chunk in chunks if chunk.core == core)
        assert all(end + CHUNK_US <= begin for (_, end), (begin, _) in pairwise(mine))
    idle = application.take_idle()
    # The core that ends last ends with the loop.
    assert len(idle) == len(set(idle)) == 7 and set(idle) < set(cores_of(8))
    assert application.chunks == len(chunks) and application.remaining_us == 0
    assert application.imbalance >= 1.0


def test_static_leaves_each_core_when_its_chunk_is_done() -> None:
    application = Application(Program(from_seconds([1.0, 2.0, 3.0]), "STATIC"), cores_of(3), 0)
    application.advance(1_000_000 + CHUNK_US)
    assert application.take_idle() == [(0, 0)]
    assert application.take_idle() == []
    # One of three tasks took a second: the other two are thought to take as long.
    assert application.remaining_us == 2_000_000 and application.is_uneven
    application.advance(3_000_000 + CHUNK_US)
    assert application.take_idle() == [(1, 0)] and application.is_done
    assert application.imbalance == pytest.approx(1.5, rel=1e-4)


def test_more_cores_than_tasks_are_idle_at_once() -> None:
    application = Application(Program(even(2), "STATIC"), cores_of(4), 0)
    assert application.take_idle() == [(2, 0), (3, 0)]
    assert len(finished(application)) == 2


def test_requests_are_granted_while_tasks_are_left_and_half_of_the_cores_stay() -> None:
    application = Application(Program(even(100), "SS"), cores_of(4), 0)
    assert not application.ask(3)
    assert application.ask(2)
    assert not application.ask(1)
    application.advance(1_000_000 + CHUNK_US)
    left = application.take_idle()
    assert left == [(0, 0), (1, 0)]
    chunks = finished(application)
    assert {chunk.core for chunk in chunks} == {(2, 0), (3, 0)}
    assert len(chunks) == 96


def test_static_refuses_since_all_its_tasks_are_assigned() -> None:
    application = Application(Program(even(100), "STATIC"), cores_of(4), 0)
    assert not application.ask(1)


def test_the_smallest_chunk_bounds_their_number() -> None:
    application = Application(Program(even(100_000, 1e-4), "SS"), cores_of(4), 0)
    assert len(finished(application)) <= 4 * 130
