"""Packs of jobs in a small cluster: submitted, and placed by hand as a planner would."""

from __future__ import annotations

from eslurm.core.control.reactor import Batch, BatchAnswer
from eslurm.core.model.facts import JobPlaced
from eslurm.core.model.job import JobSpec, Span
from eslurm.core.model.messages import PlanMade, SubmitJobs, Submitted
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.core import ALICE, SECOND, World


def member(name: str = "part", **more: object) -> JobSpec:
    """One job of a pack: one core."""
    values = {"user": ALICE, "partition": "", "components": (Request(),), **more}
    return JobSpec(name=name, script_hash=b"s" * 32, environment_hash=b"e" * 32, work_dir="/tmp", **values)  # type: ignore[arg-type]


def try_pack(world: World, *specs: JobSpec, delays: tuple[int, ...], cancels: bool = False) -> BatchAnswer:
    return world.send(SubmitJobs(specs, (PackDraft(0, delays, cancels),)))


def pack(world: World, *delays: int, cancels: bool = False, **more: object) -> tuple[int, ...]:
    """The ids of a pack of jobs of one core with these delays in seconds, each with a time limit of 100 s.

    With `cancels` the end of one of them otherwise than well cancels those that have not begun.
    """
    more = {"time_limit_s": 100, **more}
    specs = [member(f"part{at}", **more) for at in range(len(delays))]
    answer = try_pack(world, *specs, delays=delays, cancels=cancels)
    assert isinstance(answer, Submitted), answer
    return answer.job_ids


def placement(world: World, job_id: int, node: int, *, begins: bool = False) -> Placement:
    """The job on one core of this node from now on; with `begins` its pack begins with it."""
    limit_s = world.job(job_id).spec.time_limit_s
    until_us = world.now_us + limit_s * SECOND if limit_s else INFINITY_US
    return Placement(job_id, (Span(node, (1, 0)),), until_us, anchor_us=world.now_us if begins else 0)


def place(world: World, *placements: Placement, older: bool = False) -> list[int]:
    """Send a plan; the ids of the jobs that it placed. With `older` the state has changed since it was made."""
    generation = world.state.generation - 1 if older else world.state.generation
    batch: Batch = world.batch(PlanMade(placements, generation))
    return [fact.job_id for fact in batch.facts if isinstance(fact, JobPlaced)]


def begin(world: World, first: int, *others: int) -> list[int]:
    """Begin a pack with its first member on node 0, and others, each on the next node."""
    found = [placement(world, first, 0, begins=True)]
    found += [placement(world, one, at) for at, one in enumerate(others, 1)]
    return place(world, *found)


def run(world: World, job_id: int, node: int) -> None:
    """Place a job of a pack that has begun on this node, and let it start."""
    assert place(world, placement(world, job_id, node)) == [job_id]
    world.deliver()
    world.deliver()
