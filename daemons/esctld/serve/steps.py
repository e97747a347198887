"""The call `Steps`: what runs inside of jobs, each as its caller may see the job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from eslurm.core.control.privacy import Visibility
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import STARTED
from eslurm.core.model.step import Step, StepState
from eslurm.core.state.view import View
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb

JOBS_PER_SLICE = 500
"""Jobs that are looked at before others have their turn."""
BATCH = "batch"


async def live_steps(view: View, request: pb.StepsRequest, sight: Visibility) -> pb.StepsReply:
    """The live steps of the named jobs, or of all, by job and number; a job's script is one of them."""
    wanted = {job.job_id for ref in request.jobs for job in _named(view, ref)}
    steps: dict[int, list[Step]] = {}
    for one in view.steps.values():
        if one.state in (StepState.LAUNCHING, StepState.RUNNING):
            steps.setdefault(one.job_id, []).append(one)
    reply = pb.StepsReply(now_us=wall_us())
    for at, job in enumerate(list(view.jobs.values())):
        if not at % JOBS_PER_SLICE:
            await asyncio.sleep(0)
        is_asked = not request.jobs or job.job_id in wanted
        if not is_asked or job.state not in STARTED or job.grows is not None or not sight.job(job):
            continue
        if not job.spec.no_script:
            reply.steps.append(_script(view, job))
        for one in sorted(steps.get(job.job_id, ()), key=lambda step: step.step):
            reply.steps.append(_step(view, job, one))
    return reply


def _named(view: View, ref: pb.JobRef) -> Iterable[Job]:
    """The job of a reference, with an array's tasks, or the one that it names."""
    job = view.find_named(ref.job_id)
    if job is None:
        return ()
    tasks = [view.jobs[one] for one in view.tasks_of.get(job.job_id, ()) if one in view.jobs]
    if ref.HasField("task"):
        return [task for task in tasks if task.array_task == ref.task]
    return [job, *tasks]


def _script(view: View, job: Job) -> pb.StepInfo:
    attempt = job.attempt
    assert attempt is not None
    cores = sum(span.amounts[0] for span in attempt.spans if span.node == attempt.first)
    return _info(view, job, (attempt.first,), BATCH, job.state.value, 1, cores, job.started_us, is_batch=True)


def _step(view: View, job: Job, step: Step) -> pb.StepInfo:
    cores = step.tasks * step.launch.cpus_per_task
    info = _info(view, job, step.nodes, step.name, step.state.value, step.tasks, cores, step.created_us)
    info.step = step.step
    return info


def _info(
    view: View,
    job: Job,
    nodes: tuple[int, ...],
    name: str,
    state: str,
    tasks: int,
    cores: int,
    created_us: int,
    *,
    is_batch: bool = False,
) -> pb.StepInfo:
    return pb.StepInfo(
        job_id=job.job_id,
        array_job_id=job.array_job_id,
        array_task=job.array_task if job.array_job_id else None,
        is_batch=is_batch,
        name=name,
        state=state,
        user=job.spec.user.name,
        uid=job.spec.user.uid,
        partition=job.spec.partition,
        node_names=fold(view.node_names(nodes)),
        nodes=len(nodes),
        tasks=tasks,
        cpus=cores,
        created_us=created_us,
    )
