"""`scontrol show step` and `scontrol liststeps`."""

from __future__ import annotations

import sys

from escli import exits
from escli.slurm import frame
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.step_records import step_name, step_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
