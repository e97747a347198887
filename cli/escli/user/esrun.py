"""`esrun`: start tasks on the nodes of a job, show their output and end with their highest exit code.

Outside of a job it asks for nodes first, and gives them back at the end.
"""

from __future__ import annotations

import os
import sys

from escli import program
from escli.open_api import open_api
from escli.option_table import OUTSIDE
from escli.user.step_calls import COMMAND, take_binding
from escli.user.step_claim import CLAIMS, LIMITS, read_claim
from escli.user.step_ends import OwnTexts
from escli.user.step_following import interrupts_of_step
from escli.user.step_mpi import list_types, read_mpi
from escli.user.step_programs import EXCLUDES, SYNONYMS, read_programs
from escli.user.step_run import check_here, run_step
from eslurm.compat.errors import OptionError
from eslurm.compat.jobrefs import parse_job_id, parse_job_refs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escli.options import Words
    from escli.user.step_ends import StepTexts


def main(argv: Sequence[str] | None = None, name: str = COMMAND, texts: StepTexts | None = None) -> int:
    """Entry point; returns the exit code. `name` begins each line about a failure, `texts` says how tasks end."""
    words = texts or OwnTexts(COMMAND)
    return program.run(
        COMMAND,
        lambda given: _run(given, words),
        argv,
        options_end_at_first_word=True,
        excludes=EXCLUDES,
        name=name,
    )


def _run(given: Words, texts: StepTexts) -> int:
    if given.text("mpi") == "list":
        sys.stdout.write(list_types())
        return 0
    take_binding(given, os.environ)
    _take_part(given)
    job_id = _job_id(given, os.environ)
    if not job_id:
        return _run_outside(given, texts)
    _check_inside(given, job_id)
    if given.has("each"):
        from escli.user.async_step import check_each

        check_each(given)
    claim = read_claim(given, os.environ, job_id)
    is_inside = str(job_id) == (os.environ.get("ESLURM_JOB_ID") or os.environ.get("SLURM_JOB_ID"))
    # The sizes of another job are not known here.
    programs = read_programs(given, os.environ if is_inside else {})
    _check_files(given)
    if given.has("async"):
        from escli.user.async_step import read_files, start

        files = read_files(given)
        with open_api(given, COMMAND) as api:
            return start(api, given, job_id, programs, os.environ, texts, claim, files)
    if _spans_cells(job_id, os.environ):
        from escli.user.joint_step import run_joint

        with open_api(given, COMMAND) as api:
            check_here(api)
            return run_joint(api, given, job_id, programs, texts)
    with open_api(given, COMMAND) as api:
        check_here(api)
        return run_step(api, given, job_id, programs, os.environ, interrupts_of_step(), texts, claim)


def _run_outside(given: Words, texts: StepTexts) -> int:
    from escli.user.allocated_step import check_outside, run_allocated_step
    from escli.user.esalloc import allocation_request, immediate_s

    if given.has("async"):
        why = "is for steps inside of jobs, which is there until they end"
        raise OptionError(given.spelling("async"), None, why, "use essubmit")
    _check_files(given)
    check_outside(given)
    read_mpi(given, os.environ)
    job = allocation_request(given, given.rest)
    give_up_s = immediate_s(given)
    with open_api(given, COMMAND) as api:
        check_here(api)
        return run_allocated_step(api, COMMAND, job, given, texts, immediate_s=give_up_s)


def _check_inside(given: Words, job_id: int) -> None:
    """Refuse what asks for nodes. Raises OptionError."""
    for long in given.names():
        if long in OUTSIDE and long not in CLAIMS | LIMITS:
            raise OptionError(
                given.spelling(long),
                given.text(long) or None,
                f"is for steps outside of jobs: inside job {job_id} they have what the job has",
                "leave it out",
            )


def _check_files(given: Words) -> None:
    """Refuse files of a step that sends its output here. Raises OptionError."""
    for long in ("output", "error", "each"):
        if given.has(long) and not given.has("async"):
            raise OptionError(
                given.spelling(long), given.text(long), "is for --async", "leave it out, or add --async"
            )


def _take_part(given: Words) -> None:
    """Read `--jobid 17+1` as `--jobid 17 --het-group 1`. Raises OptionError."""
    text, spelling = given.text("jobid"), given.spelling("jobid")
    if "+" not in text:
        return
    for long in SYNONYMS:
        if given.has(long):
            raise OptionError(spelling, text, f"names a part beside --{long}", "name it in one of them")
    job_id, _, part, cell = parse_job_refs(text, spelling)[0]
    if cell:
        raise OptionError(spelling, text, "names a cell", "run steps at the cell that runs the job")
    given.put("jobid", str(job_id), spelling)
    given.put("het-group", str(part), spelling)


def _job_id(given: Words, environ: Mapping[str, str]) -> int:
    """The job, from the option, else the surrounding one; 0: there is none. Raises OptionError."""
    text = given.text("jobid") or environ.get("ESLURM_JOB_ID", "") or environ.get("SLURM_JOB_ID", "")
    if not text:
        return 0
    return parse_job_id(text, given.spelling("jobid"))


def _spans_cells(job_id: int, environ: Mapping[str, str]) -> bool:
    """Check whether the surrounding job has nodes in other cells, too, and is the one that is meant."""
    return bool(environ.get("ESLURM_SPAN_CELLS")) and environ.get("ESLURM_JOB_ID") == str(job_id)
