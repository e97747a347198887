"""`scontrol show step`, `scontrol liststeps` and `scontrol listpids`."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.step_records import step_name, step_record
from eslurm.core.model.hostlist import holds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from escli.api import Api


def show_steps(api: Api, named: Sequence[str], moment: Callable[[int], str], *, is_oneliner: bool) -> int:
    """The steps of all jobs, of a job (17), or one of them (17.0)."""
    found, _ = steps_of(api, named)
    if named and not found:
        raise frame.Failed(f"Job step {named[0]} not found")
    if not found:
        frame.print_line("No job steps in the system")
    for info in found:
        sys.stdout.write(step_record(info, moment, is_oneliner=is_oneliner))
    return exits.OK


def list_steps(api: Api, words: Sequence[str]) -> int:
    """`scontrol liststeps [JOB]`."""
    found, _ = steps_of(api, words[:1])
    if not found:
        frame.print_error("scontrol: There are no steps" + (f" for job {words[0]}" if words else ""))
        return exits.FAILED
    frame.print_line(f"{'JOBID':<8} {'STEPID':<8}")
    for info in found:
        frame.print_line(f"{info.job_id:<8} {step_name(info).rpartition('.')[2]:<8}")
    return exits.OK


def list_pids(api: Api, words: Sequence[str]) -> int:
    """`scontrol listpids [JOB[.STEP]] [NODE]`: the processes on this node. Raises Failed."""
    named = words[:1] if words[:1] not in ([], ["*"]) else []
    node = words[1] if len(words) > 1 else node_name(os.environ)
    found, _ = steps_of(api, named)
    # Of all jobs a user sees the own ones alone.
    steps = [
        step for step in found if (named or os.getuid() in (0, step.uid)) and holds(step.node_names, node)
    ]
    rows = [row for step in steps for row in _processes(api, step, node)]
    if not rows:
        what = f"Job step {named[0]} does" if named and "." in named[0] else "Job steps do"
        what = f"Job {named[0]} does" if named and "." not in named[0] else what
        raise frame.Failed(f"scontrol: error: {what} not exist on node {node}.")
    frame.print_line(f"{'PID':<8} {'JOBID':<8} {'STEPID':<8} {'LOCALID':<7} {'GLOBALID':<8}")
    for pid, step, local, rank in rows:
        number = "batch" if step.is_batch else step.step
        frame.print_line(f"{pid:<8} {step.job_id:<8} {number:<8} {local:<7} {rank:<8}")
    return exits.OK


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node: a job's own variable, else the host's name without its domain."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]


def _processes(api: Api, step: Any, node: str) -> Iterator[tuple[int, Any, str, str]]:
    """(pid, step, local rank, rank) of the step's processes on the node."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.StepUsageRequest(
        job=pb.JobRef(job_id=step.job_id),
        steps=[-1 if step.is_batch else step.step],
        processes=True,
        node=node,
    )
    try:
        reply = api.call("StepUsage", request)
    except CommandFailed as failure:
        if failure.code == exits.UNREACHABLE:
            raise
        frame.print_error(f"scontrol: error: step {step_name(step)}: {failure.text}")
        return
    for silence in reply.silent:
        frame.print_error(f"scontrol: error: step {step_name(step)} on {silence.node_names}: {silence.why}")
    for one in (one for usage in reply.steps for one in usage.processes):
        for pid, local in zip(one.pids, one.local_ranks, strict=False):
            is_task = local >= 0
            yield pid, step, str(local) if is_task else "-", str(one.first_task + local) if is_task else "-"


def steps_of(api: Api, named: Sequence[str]) -> tuple[list[Any], int]:
    """The steps that the words name (all of them without one), and the controller's time. Raises Failed."""
    from escli.job_refs import job_refs, split_jobs
    from eslurm.v1 import controller_pb2 as pb

    words = [part for word in named for part in split_jobs(word)]
    try:
        refs = job_refs([word.partition(".")[0] for word in words], "step")
    except OptionError:
        raise frame.Failed("slurm_get_job_steps error: Invalid job id specified") from None
    reply = api.call("Steps", pb.StepsRequest(jobs=refs))
    numbers = {word for word in words if "." in word}
    whole = {word for word in words if "." not in word}
    if whole or not numbers:
        return list(reply.steps), reply.now_us
    return [info for info in reply.steps if step_name(info) in numbers], reply.now_us
