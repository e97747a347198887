"""`strigger`: a program that starts when a job has ended.

A trigger is a small job of the caller that waits for the other one (`afterany`): the program runs on a node with the
caller's rights, and the controller starts nothing. Invariant: a trigger is known by its comment, and belongs to its user.
"""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.errors import whole_number
from eslurm.compat.slurm import words
from eslurm.compat.slurm.small_options import STRIGGER as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

__all__ = ["ROWS", "run"]

_MARK = "strigger"
_HEADS = ("TRIG_ID", "RES_TYPE", "RES_ID", "TYPE", "OFFSET", "USER", "FLAGS", "PROGRAM")
_LINE = "{:>7} {:>9} {:>7} {:<18} {:>6} {:<8} {:<5} {}"
_PATH_MAX = 200


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    modes = [one for one in ("set", "get", "clear") if given.has(one)]
    if len(modes) != 1:
        raise frame.Failed("strigger: error: Exactly one of --set, --get or --clear must be given")
    if given.rest:
        raise frame.Failed(f"strigger: error: Unrecognized option: {given.rest[0]}")
    with context.open_api() as api:
        return {"set": _set, "get": _get, "clear": _clear}[modes[0]](api, given)


def _set(api: Api, given: Options) -> int:
    from eslurm.v1 import controller_pb2 as pb

    if not given.has("jobid") or not given.has("fini"):
        raise frame.Failed("strigger: error: --set needs a job and an event: use --jobid=JOB --fini")
    job_id = _number(given, "jobid")
    program = given.last("program")
    if not program.startswith("/") or len(program) > _PATH_MAX or not program.isprintable():
        raise frame.Failed(f"strigger: error: --program={program}: give the whole path of a program")
    if not os.path.isfile(program):
        raise frame.Failed(f"strigger: error: --program={program}: there is no such file here")
    found = api.call("Jobs", pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)], finished_too=True)).jobs
    if not found or found[0].state in words.ENDED:
        why = "Job has already ended" if found else "Invalid job id specified"
        raise frame.Failed(f"slurm_set_trigger: {why}")
    try:
        reply = api.call("Submit", pb.SubmitRequest(jobs=[_job(job_id, program)]), request_id=os.urandom(16))
    except CommandFailed as failure:
        raise frame.Failed(f"slurm_set_trigger: {frame.trouble(failure)}") from None
    if given.has("verbose"):
        frame.warn(_MARK, f"trigger {reply.job_ids[0]} set")
    return exits.OK


def _job(job_id: int, program: str) -> Any:
    """A job of one task that waits for the other one's end, with few variables, and without files of its own."""
    import shlex

    from escli.user.crontab import plain_environment
    from eslurm.compat.environment import encode_environment
    from eslurm.v1 import controller_pb2 as pb

    environment = plain_environment()
    return pb.JobRequest(
        name=os.path.basename(program),
        comment=f"{_MARK} {job_id} {program}",
        script=f"#!/bin/sh\nexec {shlex.quote(program)} {job_id}\n".encode("utf-8", "surrogateescape"),
        environment=encode_environment(environment),
        work_dir=environment["HOME"],
        umask=0o022,
        output="/dev/null",
        dependencies=[pb.Dependency(kind="afterany", job_id=job_id)],
    )


def _get(api: Api, given: Options) -> int:
    if not given.has("noheader"):
        frame.print_line(_LINE.format(*_HEADS))
    for info in _chosen(api, given):
        _, job, program = info.comment.split(" ", 2)
        cells = (info.job_id, "job", job, "fini", 0, info.user[:8], "", program)
        frame.print_line(_LINE.format(*cells).rstrip())
    return exits.OK


def _clear(api: Api, given: Options) -> int:
    from eslurm.v1 import controller_pb2 as pb

    if not any(given.has(one) for one in ("id", "jobid", "user")):
        raise frame.Failed("strigger: error: --clear needs one of --id, --jobid and --user")
    found = _chosen(api, given)
    if not found:
        if given.has("quiet"):
            return exits.OK
        raise frame.Failed("slurm_clear_trigger: there is no such trigger")
    refs = [pb.JobRef(job_id=info.job_id) for info in found]
    reply = api.call("Cancel", pb.CancelRequest(jobs=refs), request_id=os.urandom(16))
    for problem in reply.problems:
        sys.stderr.write(f"slurm_clear_trigger: {problem.text}\n")
    return exits.FAILED if reply.problems else exits.OK


def _chosen(api: Api, given: Options) -> Sequence[Any]:
    """The waiting triggers that the options choose."""
    from eslurm.v1 import controller_pb2 as pb

    found = []
    for info in api.call("Jobs", pb.JobsRequest(states=["PENDING"])).jobs:
        parts = info.comment.split(" ", 2)
        if len(parts) != 3 or parts[0] != _MARK or not parts[1].isdecimal():
            continue
        if given.has("id") and info.job_id != _number(given, "id"):
            continue
        if given.has("jobid") and int(parts[1]) != _number(given, "jobid"):
            continue
        if given.has("user") and given.last("user") not in (info.user, str(info.uid)):
            continue
        found.append(info)
    return found


def _number(given: Options, long: str) -> int:
    text = given.last(long)
    number = whole_number(text, 9)
    if number <= 0:
        raise frame.Failed(f"strigger: error: Invalid --{long}: {text}")
    return number
