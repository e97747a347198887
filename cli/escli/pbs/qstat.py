"""`qstat`: jobs in PBS's tables."""

from __future__ import annotations

import sys
import time

from escli import exits
from escli.job_refs import job_refs
from escli.pbs.launch import FINISHED_JOB, UNKNOWN_JOB
from escli.slurm.frame import own_cluster
from eslurm.compat.pbs import status
from eslurm.compat.pbs.options import QSTAT
from eslurm.compat.pbs.request import job_of
from eslurm.compat.slurm.words import ENDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = QSTAT


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: the last one of a job that is not shown."""
    from eslurm.v1 import controller_pb2 as pb

    named = [(word, job_refs([job_of(word, "JOB")], "JOB")[0]) for word in given.rest]
    users = given.listed("u")
    has_ended = given.has("x")
    with context.open_api() as api:
        request = pb.JobsRequest(finished_too=has_ended or bool(named), jobs=[ref for _, ref in named])
        reply = api.call("Jobs", request)
        is_wide = given.has("a") or bool(users)
        cluster = own_cluster(api) if is_wide or given.has("f") else ""
    code = exits.OK
    for word, ref in named:
        found = [info for info in reply.jobs if _is(info, ref)]
        if not found:
            sys.stderr.write(f"qstat: Unknown Job Id {word}\n")
            code = UNKNOWN_JOB
        elif not has_ended and all(info.state in ENDED for info in found):
            sys.stderr.write(
                f"qstat: {word} Job has finished, use -x or -H to obtain historical job information\n"
            )
            code = FINISHED_JOB
    infos = [
        info
        for info in sorted(reply.jobs, key=lambda one: (one.array_job_id or one.job_id, one.job_id))
        if not info.grows
        and (given.has("t") or not info.HasField("array_task") or _is_named(info, named))
        and (has_ended or info.state not in ENDED)
        and (not users or info.user in users)
        and (not named or any(_is(info, ref) for _, ref in named))
    ]
    if given.has("f"):
        sys.stdout.write("".join(status.full(infos, reply.now_us, cluster, _moment)))
        return code
    lines = status.wide(infos, reply.now_us, cluster) if is_wide else status.plain(infos, reply.now_us)
    sys.stdout.write("".join(lines))
    return code


def _moment(us: int) -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(us // 1_000_000))


def _is_named(info: Any, named: Sequence[tuple[str, Any]]) -> bool:
    """Check whether a word names this task of an array."""
    return any(ref.HasField("task") and _is(info, ref) for _, ref in named)


def _is(info: Any, ref: Any) -> bool:
    if not ref.HasField("task"):
        return ref.job_id in (info.job_id, info.array_job_id)
    task = info.array_task if info.HasField("array_task") else -1
    return bool(info.array_job_id == ref.job_id and task == ref.task)
