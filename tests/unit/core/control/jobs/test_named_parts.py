"""A job of several parts takes an id for each of them, and all of these ids name it."""

from __future__ import annotations

import pytest

from eslurm.core.model.config import Partition
from eslurm.core.model.facts import JobSignalled
from eslurm.core.model.job import ArraySpec, JobSpec
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    HoldJobs,
    JobRef,
    RequeueJobs,
    SubmitJobs,
    Submitted,
    UpdateJob,
)
from eslurm.core.model.request import PartSpec, Request
from tests.kits.core import ALICE, ROOT, World, problem


def spec(parts: int = 3, array: ArraySpec | None = None) -> JobSpec:
    own = (PartSpec(),) * parts if parts > 1 else ()
    components = (Request(),) * parts
    return JobSpec("job", ALICE, "", components, b"s" * 32, b"e" * 32, "/tmp", array=array, parts=own)


def submit(world: World, *specs: JobSpec) -> tuple[int, ...]:
    answer = world.send(SubmitJobs(specs))
    assert isinstance(answer, Submitted), answer
    return answer.job_ids


def test_a_job_takes_an_id_for_each_part_and_the_next_job_the_id_behind_them() -> None:
    world = World()
    first, second, third = submit(world, spec(1), spec(3), spec(2))
    assert (second, third) == (first + 1, first + 4)
    assert world.state.alias == {second + 1: second, second + 2: second, third + 1: third}
    assert submit(world, spec(1)) == (third + 2,)
    world.restart()
    assert world.state.alias == {second + 1: second, second + 2: second, third + 1: third}
    assert submit(world, spec(1)) >= (third + 3,)


def test_the_ids_are_free_of_the_job_once_it_is_forgotten() -> None:
    world = World(finished_retention_s=10.0)
    (job_id,) = submit(world, spec())
    world.cancel(job_id)
    assert job_id + 1 in world.view.alias
    world.pass_time(11)
    assert world.state.alias == world.view.alias == {}


@pytest.mark.parametrize("ref", [(0, 1), (1, -1), (2, -1), (0, 0)])
def test_any_part_names_the_whole_job_and_the_answer_says_so(ref: tuple[int, int]) -> None:
    world = World()
    (job_id,) = submit(world, spec())
    named = JobRef(job_id + ref[0], part=ref[1])
    answer = world.send(HoldJobs(ALICE, (named,)))
    assert isinstance(answer, Changed) and answer.count == 1
    assert "all 3 parts" in answer.notes[0]
    assert world.job(job_id).hold == "user"
    answer = world.send(CancelJobs(ALICE, (named,)))
    assert isinstance(answer, Changed) and answer.notes
    assert world.state_of(job_id) == "CANCELLED"


def test_a_job_named_by_several_of_its_parts_is_changed_once() -> None:
    world = World()
    (job_id,) = submit(world, spec())
    refs = (JobRef(job_id), JobRef(job_id, part=1), JobRef(job_id + 2))
    answer = world.send(CancelJobs(ALICE, refs))
    assert isinstance(answer, Changed) and (answer.count, answer.problems) == (1, ())
    assert not any(isinstance(fact, JobSignalled) for fact in world.log)


def test_the_job_without_a_part_is_named_without_a_remark() -> None:
    world = World()
    (job_id,) = submit(world, spec())
    assert world.hold(job_id) == Changed(1)


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (JobRef(1, part=3), "job 1 has 3 parts: there is no part 3, name one from 0 to 2"),
        (JobRef(2, part=1), "job 2 is part 1 of job 1 and has no parts: name it 1+1"),
        (JobRef(4, part=1), "job 4 has 1 part: there is no part 1, name one from 0 to 0"),
    ],
)
def test_a_part_that_is_not_there_is_refused_by_name(ref: JobRef, text: str) -> None:
    world = World()
    submit(world, spec(), spec(1))
    assert problem(world.send(RequeueJobs(ALICE, (ref,)))) == text


def test_a_task_of_an_array_takes_one_id_and_has_its_parts() -> None:
    world = World()
    (array,) = submit(world, spec(2, ArraySpec(((0, 3),))))
    assert world.state.alias == {array + 1: array}
    answer = world.send(CancelJobs(ALICE, (JobRef(array, 2, 1),)))
    assert isinstance(answer, Changed) and "_2+1 is part 1" in answer.notes[0]
    assert world.job(array).tasks_left == ((0, 1), (3, 3))


# ---- updates ----


def two_partitions() -> World:
    names = ("cn0", "cn1", "cn2", "cn3")
    return World(partitions=(Partition("main", names, default=True), Partition("other", names)))


def update(world: World, job_id: int, part: int, **changes: object) -> Changed:
    answer = world.send(UpdateJob(ALICE, JobRef(job_id, part=part), **changes))  # type: ignore[arg-type]
    assert isinstance(answer, Changed)
    return answer


def test_an_update_of_a_part_changes_that_part_alone() -> None:
    world = two_partitions()
    (job_id,) = submit(world, spec())
    assert update(world, job_id, 1, nodes_min=2, nodes_max=2, partition="other").problems == ()
    changed = world.job(job_id).spec
    assert [one.nodes_min for one in changed.components] == [0, 2, 0]
    assert [one.partition for one in changed.parts] == ["main", "other", "main"]
    assert changed.partition == "main"
    assert update(world, job_id + 2, -1, nodes_min=3).problems == ()
    assert [one.nodes_min for one in world.job(job_id).spec.components] == [0, 2, 3]


def test_an_update_of_the_first_parts_partition_moves_the_job_but_not_its_other_parts() -> None:
    world = two_partitions()
    (job_id,) = submit(world, spec(2))
    assert update(world, job_id, 0, partition="other").problems == ()
    changed = world.job(job_id).spec
    assert (changed.partition, [one.partition for one in changed.parts]) == ("other", ["other", "main"])


def test_a_request_without_a_part_and_a_value_of_the_whole_job_with_one_are_refused() -> None:
    world = World()
    (job_id,) = submit(world, spec())
    found = update(world, job_id, -1, nodes_min=2).problems[0].text
    assert found == f"nodes: job {job_id} has 3 parts: say which one is to be changed, like {job_id}+1"
    found = update(world, job_id, 1, time_limit_s=60).problems[0].text
    assert "one for all parts" in found
    assert update(world, job_id, -1, time_limit_s=60, comment="x").problems == ()


def test_the_first_part_of_an_ordinary_job_is_the_job() -> None:
    world = World()
    (job_id,) = submit(world, spec(1))
    assert update(world, job_id, 0, nodes_min=2, comment="x").problems == ()
    assert world.send(CancelJobs(ROOT, (JobRef(job_id, part=0),))) == Changed(1)
