"""Dependencies on packs: the id of a pack names all of its jobs, `17+0` its first one alone."""

from __future__ import annotations

import pytest

from eslurm.core.control.jobs.dependency import settled_by
from eslurm.core.model.job import Dependency
from eslurm.core.model.messages import JobRef, RefusalCode, Refused, UpdateJob
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, World
from tests.kits.packs import begin, member, pack, run, try_pack

MET, NEVER, WAIT = "met", "never", "wait"


def verdict(world: World, job: int) -> str:
    if job not in world.state.jobs or world.state_of(job) == "CANCELLED":
        return NEVER
    return MET if job in world.state.queue else WAIT


def begun(world: World, *delays: int) -> tuple[int, ...]:
    ids = pack(world, *delays)
    begin(world, ids[0])
    world.deliver()
    world.deliver()
    return ids


@pytest.mark.parametrize(
    ("kind", "first_end", "second_end", "verdicts"),
    [
        ("afterok", 0, 0, (WAIT, MET)),
        ("afterok", 0, 1, (WAIT, NEVER)),
        ("afterok", 1, 0, (NEVER, NEVER)),
        ("afterany", 1, 0, (WAIT, MET)),
        ("afterany", 0, 0, (WAIT, MET)),
        ("afternotok", 0, 0, (WAIT, NEVER)),
        ("afternotok", 1, 0, (WAIT, MET)),
        ("afternotok", 0, 1, (WAIT, MET)),
        ("aftercorr", 0, 0, (WAIT, MET)),
        ("aftercorr", 1, 0, (NEVER, NEVER)),
    ],
)
@pytest.mark.parametrize("is_any", [False, True])
def test_each_kind_looks_at_all_jobs(
    kind: str, first_end: int, second_end: int, verdicts: tuple[str, str], is_any: bool
) -> None:
    """`verdicts`: when the first job has ended, and at the end of the pack, whose first record is forgotten meanwhile."""
    world = World(finished_retention_s=1)
    first, second = begun(world, 0, 10)
    waiting = world.submit(dependencies=(Dependency(kind, first),), dependency_any=is_any)
    assert verdict(world, waiting) == WAIT
    world.end(first, first_end)
    assert verdict(world, waiting) == verdicts[0]
    world.restart()
    world.pass_time(10)
    run(world, second, 1)
    world.end(second, second_end)
    assert verdict(world, waiting) == verdicts[1]


def test_after_is_met_when_the_pack_begins() -> None:
    world = World()
    first, _ = pack(world, 0, 10)
    waiting = world.submit(dependencies=(Dependency("after", first),))
    assert verdict(world, waiting) == WAIT
    begin(world, first)
    world.deliver()
    world.deliver()
    assert verdict(world, waiting) == MET


def test_part_0_is_the_first_job_alone() -> None:
    world = World()
    first, _ = begun(world, 0, 10)
    waiting = world.submit(dependencies=(Dependency("afterok", first, part=0),))
    assert world.job(waiting).open == (Dependency("afterok", first, part=0),)
    world.end(first)
    assert verdict(world, waiting) == MET


def test_another_job_of_the_pack_is_named_by_its_own_id() -> None:
    world = World()
    _first, second, _third = begun(world, 0, 10, 10)
    waiting = world.submit(dependencies=(Dependency("afterok", second),))
    world.pass_time(10)
    run(world, second, 1)
    world.end(second)
    assert verdict(world, waiting) == MET


def test_a_part_of_the_first_job_is_that_job_and_not_the_pack() -> None:
    world = World()
    first, _ = pack(world, 0, 10, components=(Request(), Request()))
    for named in (Dependency("afterok", first + 1), Dependency("afterok", first, part=1)):
        waiting = world.submit(dependencies=(named,))
        assert world.job(waiting).open == (Dependency("afterok", first, part=0),)


def test_a_pack_that_is_cancelled_before_it_begins_has_not_ended_well() -> None:
    world = World()
    first, _ = pack(world, 0, 10)
    never = world.submit(dependencies=(Dependency("afterok", first),))
    met = world.submit(dependencies=(Dependency("afternotok", first),))
    world.cancel(first)
    assert (verdict(world, never), verdict(world, met)) == (NEVER, MET)


def test_a_job_that_comes_when_the_first_one_has_ended_waits_for_the_others() -> None:
    world = World(finished_retention_s=1)
    first, second = begun(world, 0, 10)
    world.end(first)
    world.pass_time(5)
    waiting = world.submit(dependencies=(Dependency("afterok", first),))
    assert verdict(world, waiting) == WAIT
    world.pass_time(5)
    run(world, second, 1)
    world.end(second)
    assert verdict(world, waiting) == MET


@pytest.mark.parametrize("code", [0, 1])
def test_a_pack_that_has_left_memory_is_answered_by_its_last_record(code: int) -> None:
    world = World(finished_retention_s=1)
    first, second = begun(world, 0, 10)
    world.end(first)
    world.pass_time(10)
    run(world, second, 1)
    world.end(second, code)
    record = world.job(first)
    world.pass_time(5)
    assert first not in world.state.jobs
    found = settled_by((Dependency("afterok", first), Dependency("afterok", first, part=0)), {first: record})
    assert [one.settled for one in found] == [NEVER if code else MET, MET]


def test_a_pack_after_a_pack_waits_for_all_of_it() -> None:
    world = World()
    first, second = begun(world, 0, 10)
    then = try_pack(world, member(dependencies=(Dependency("aftercorr", first),)), member(), delays=(0, 5))
    assert not isinstance(then, Refused)
    other = second + 1
    world.end(first)
    assert verdict(world, other) == WAIT
    world.pass_time(10)
    run(world, second, 1)
    world.end(second)
    assert verdict(world, other) == MET


def test_aftercorr_between_packs_of_different_sizes_is_refused() -> None:
    world = World()
    first, _ = pack(world, 0, 10)
    specs = (member(dependencies=(Dependency("aftercorr", first),)), member(), member())
    answer = try_pack(world, *specs, delays=(0, 5, 5))
    assert isinstance(answer, Refused)
    assert answer.text == (
        f"--dependency: aftercorr:{first}: pack {first} has 2 jobs and this one 3: use afterok:{first}, or as many jobs"
    )
    third, _, _ = pack(world, 0, 5, 5)
    changed = world.send(UpdateJob(ALICE, JobRef(third), dependencies=(Dependency("aftercorr", first),)))
    assert "pack 1 has 2 jobs and this one 3" in str(changed)


def test_a_cycle_through_a_pack_is_named() -> None:
    world = World()
    first, _ = pack(world, 0, 10)
    job = world.submit(dependencies=(Dependency("afterok", first),))
    answer = world.send(UpdateJob(ALICE, JobRef(first), dependencies=(Dependency("afterok", job),)))
    assert f"job {first} would wait for itself: {first} -> {job} -> {first}" in str(answer)
    answer = world.send(UpdateJob(ALICE, JobRef(first), dependencies=(Dependency("afterok", first),)))
    assert f"{first} -> {first}" in str(answer)
    assert RefusalCode.CONFLICT.value in str(answer).lower()


def test_a_planned_start_is_behind_the_last_end() -> None:
    world = World()
    first, second, third = pack(world, 0, 10, 20)
    waiting = world.submit(dependencies=(Dependency("afterok", first),))

    def after() -> tuple[int, ...]:
        entry = world.state.later.find(waiting)
        assert entry is not None
        return entry.after

    assert after() == (first,), "the bookings of a pack that has not begun are those of its first job"
    begin(world, first)
    assert after() == (first, second, third)
    world.deliver()
    world.deliver()
    world.end(first)
    assert after() == (second, third)
