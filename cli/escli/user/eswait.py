"""`eswait [STEP ...]`: wait for steps of the job, by default all of `esrun --async`, and end with their highest code."""

from __future__ import annotations

import os

from escli import program
from escli.open_api import open_api
from escli.user.step_calls import await_step
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.jobrefs import parse_job_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escli.options import Words

COMMAND = "eswait"
STEPS_MAX = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _run, argv)


def _run(given: Words) -> int:
    job_id, steps = _named(given, os.environ)
    with open_api(given, COMMAND) as api:
        reply = await_step(api, lambda reply: not reply.left, job_id=job_id, over=True, steps=steps)
    if not given.has("quiet"):
        for failed in reply.failed:
            program.warn(COMMAND, f"step {failed.what}: {failed.text}")
    return int(reply.exit_code)


def _named(given: Words, environ: Mapping[str, str]) -> tuple[int, list[int]]:
    """The job, and the numbers of the steps: `3`, or `17.3` of job 17. Raises OptionError."""
    text = given.text("jobid") or environ.get("ESLURM_JOB_ID", "") or environ.get("SLURM_JOB_ID", "")
    numbers = []
    for word in given.rest:
        job, dot, number = word.rpartition(".")
        if dot and not text:
            text = job
        if (dot and job != text) or whole_number(number) < 0:
            raise OptionError("STEP", word, "is no step of this job", "use e.g. 3, or 17.3 for job 17")
        numbers.append(whole_number(number))
    if not text:
        raise OptionError("STEP", None, "is missing", "use it inside a job, or name one: eswait --jobid 17")
    if len(numbers) > STEPS_MAX:
        raise OptionError("STEP", None, f"is given {len(numbers)} times", "name none to wait for all")
    return parse_job_id(text, given.spelling("jobid")), numbers
