"""`bkill`: end jobs, or tasks of arrays, or send them a signal."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.job_refs import job_refs
from escli.lsf.launch import FAILED
from escli.slurm.frame import Failed
from eslurm.compat.lsf.options import BKILL
from eslurm.compat.lsf.request import job_of
from eslurm.compat.lsf.status import OVER, state_of
from eslurm.compat.signals import parse_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = BKILL
_PROBLEMS = {
    "not_found": "No matching job found",
    "conflict": "Job has already finished",
    "denied": "User permission denied",
}
_CALLS_MAX = 10_000
"""Jobs of one call."""


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    from eslurm.v1 import controller_pb2 as pb

    signal = parse_signal(given.last("s"), "-s") if given.has("s") else 0
    words = [word for word in given.rest if word != "0"]
    is_chosen = "0" in given.rest or (not words and any(given.has(letter) for letter in "Juq"))
    if not words and not is_chosen:
        raise Failed("Job ID is missing: write e.g. bkill 17, bkill 17[3], or bkill 0 for all of yours")
    with context.open_api() as api:
        named = [(word, ref) for word in words for ref in job_refs([job_of(word, "JOB")], "JOB")]
        if is_chosen:
            named += [(str(one), pb.JobRef(job_id=one)) for one in _chosen(api, given)]
        if not named:
            sys.stderr.write("No matching job found\n")
            return FAILED
        problems: list[Any] = []
        for at in range(0, len(named), _CALLS_MAX):
            refs = [ref for _, ref in named[at : at + _CALLS_MAX]]
            request = pb.CancelRequest(jobs=refs, signal=signal)
            problems += api.call("Cancel", request, request_id=os.urandom(16)).problems
    bad = {}
    for problem in problems:
        bad[_word(problem.what)] = _PROBLEMS.get(problem.code, problem.text)
    done = "signaled" if signal else "terminated"
    for word in dict.fromkeys(word for word, _ in named):
        if word in bad:
            sys.stderr.write(f"Job <{word}>: {bad[word]}\n")
        else:
            sys.stdout.write(f"Job <{word}> is being {done}\n")
    return FAILED if bad else exits.OK


def _chosen(api: Any, given: Options) -> list[int]:
    """Ids of the user's jobs that have not ended, by name and queue."""
    from eslurm.v1 import controller_pb2 as pb

    user = given.last("u")
    infos = api.call("Jobs", pb.JobsRequest(name=given.last("J"), partition=given.last("q"))).jobs
    mine = [
        one
        for one in infos
        if not one.grows
        and state_of(one) not in OVER
        and (user == "all" or (one.user == user if user else one.uid == os.getuid()))
    ]
    return sorted({int(one.array_job_id or one.job_id) for one in mine})


def _word(what: str) -> str:
    """A job as LSF writes it: `17`, or `17[3]`."""
    number, underscore, task = what.partition("_")
    return f"{number}[{task}]" if underscore else number
