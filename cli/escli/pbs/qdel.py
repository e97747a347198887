"""`qdel`: end jobs, or tasks of arrays."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.job_refs import job_refs
from escli.pbs.launch import FINISHED_JOB, UNKNOWN_JOB
from escli.slurm.frame import Failed
from eslurm.compat.pbs.options import QDEL
from eslurm.compat.pbs.request import job_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = QDEL


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    from eslurm.v1 import controller_pb2 as pb

    if not given.rest:
        raise Failed("no job is named: write e.g. qdel 17, or qdel 17[3]", code=exits.USAGE)
    named = [job_refs([job_of(word, "JOB")], "JOB")[0] for word in given.rest]
    with context.open_api() as api:
        reply = api.call("Cancel", pb.CancelRequest(jobs=named), request_id=os.urandom(16))
    code = exits.OK
    for problem in reply.problems:
        if problem.code == "not_found":
            code, text = UNKNOWN_JOB, f"Unknown Job Id {problem.what}"
        elif problem.code == "conflict":
            code, text = FINISHED_JOB, f"Job has finished {problem.what}"
        elif problem.code == "denied":
            code, text = exits.FAILED, f"Unauthorized Request  {problem.what}"
        else:
            code, text = exits.FAILED, f"{problem.text} {problem.what}"
        sys.stderr.write(f"qdel: {text}\n")
    return code
