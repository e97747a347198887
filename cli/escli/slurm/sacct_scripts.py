"""`sacct -B -j JOB`: the scripts of jobs, to their user and to operators."""

from __future__ import annotations

import sys

from escli import exits
from escli.admin.scripts import fetched, print_bytes
from escli.failures import CommandFailed
from escli.job_refs import split_jobs
from escli.slurm import frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

_RULE = "-" * 80
_JOBS_MAX = 100


def show_scripts(context: Context, given: Options) -> int:
    """Print the script of each named job; returns the exit code."""
    jobs = [word for value in given.all("jobs") for word in split_jobs(value) if word]
    if not jobs or len(jobs) > _JOBS_MAX:
        raise frame.Failed(
            f"sacct: error: --batch-script needs the jobs: use -j with 1 to {_JOBS_MAX} of them"
        )
    code = exits.OK
    with context.open_api() as api:
        for job in jobs:
            try:
                script = fetched(api, job)
            except CommandFailed as failure:
                frame.print_error(f"sacct: error: {frame.trouble(failure)}")
                code = exits.FAILED
                continue
            frame.print_line(f"Batch Script for {job}\n{_RULE}")
            print_bytes(script if script.endswith(b"\n") else script + b"\n")
            sys.stdout.flush()
    return code
