"""Jobs of several parts in a `World`, placed by hand: parts may share nodes."""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.model.job import Attempt, JobSpec, Principal, Span
from eslurm.core.model.messages import PlanMade, SubmitJobs, Submitted
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.core import ALICE, SECOND, World


def parted(
    *requests: Request, partitions: Sequence[str] = (), user: Principal = ALICE, **others: object
) -> JobSpec:
    """A job with one part for each request, in these partitions ("" each: the job's)."""
    names = partitions or [""] * len(requests)
    parts = tuple(PartSpec(name) for name in names)
    hashes = (b"s" * 32, b"e" * 32)
    return JobSpec("job", user, "", requests, *hashes, "/tmp", parts=parts, **others)  # type: ignore[arg-type]


def submit(world: World, spec: JobSpec) -> int:
    answer = world.send(SubmitJobs((spec,)))
    assert isinstance(answer, Submitted), answer
    return answer.job_ids[0]


def span(node: int, cores: int, component: int = 0, *more: int, tasks: int = 1) -> Span:
    return Span(node, (cores, 0, *more), tasks, component)


def place(world: World, job_id: int, *spans: Span, generation: int = 0) -> Attempt | None:
    """A plan that starts the job on these spans; its attempt, if the controller agreed."""
    limit_s = world.job(job_id).spec.time_limit_s
    placement = Placement(job_id, spans, world.now_us + limit_s * SECOND if limit_s else INFINITY_US)
    world.send(PlanMade((placement,), generation or world.state.generation))
    return world.job(job_id).attempt
