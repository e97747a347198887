"""A job on top of its user's queue: the user's other jobs step back, and no other user's job is overtaken."""

from __future__ import annotations

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, JobRef, Refused, TopJob
from tests.kits.core import ALICE, BOB, ROOT, World


def top(
    world: World, job: int, by: Principal = ALICE, ranks: tuple[tuple[int, int], ...] = ()
) -> BatchAnswer:
    there = ranks or tuple((one.job_id, one.priority) for one in world.state.jobs.values())
    return world.send(TopJob(by, JobRef(job), there))


def order(world: World) -> list[int]:
    return world.state.queue_ids()


@pytest.mark.parametrize("by", [ALICE, ROOT])
def test_its_users_other_jobs_step_back(by: Principal) -> None:
    world = World()
    first, second, third = (world.submit() for _ in range(3))
    bobs = world.submit(user=BOB)
    assert top(world, third, by) == Changed(1)
    assert order(world) == [third, bobs, first, second]
    assert [world.job(one).spec.nice for one in (first, second, third, bobs)] == [1, 1, 0, 0]
    # What is on top stays as it is.
    revision = world.state.revision
    assert top(world, third, by) == Changed(1)
    assert world.state.revision == revision


def test_jobs_of_another_kind_stay_where_they_are() -> None:
    world = World()
    other = world.submit(account="physics")
    held = world.submit(held=True)
    mine = world.submit()
    assert top(world, mine) == Changed(1)
    assert world.job(other).spec.nice == 0
    assert world.job(held).spec.nice == 1


def test_ranks_count_where_priorities_are_computed() -> None:
    world = World()
    first, second = world.submit(), world.submit()
    assert top(world, second, ranks=((first, 700), (second, 450))) == Changed(1)
    assert world.job(first).spec.nice == 251


def test_a_given_priority_becomes_a_lower_one() -> None:
    world = World()
    first, second = world.submit(user=ROOT, priority=2000), world.submit(user=ROOT)
    assert top(world, second, ROOT) == Changed(1)
    assert world.job(first).priority == 999
    assert order(world) == [second, first]


def test_who_may_and_what_waits() -> None:
    world = World()
    job = world.submit()
    for by, target, why in (
        (BOB, job, "belongs to alice"),
        (ALICE, 99, "does not exist"),
        (ALICE, world.submit(tasks=((0, 3),)), ""),
    ):
        answer = top(world, target, by)
        assert isinstance(answer, Refused) is bool(why)
        assert not isinstance(answer, Refused) or why in answer.text
    assert world.plan()
    answer = top(world, job)
    assert isinstance(answer, Refused)
    assert "is none that waits" in answer.text
