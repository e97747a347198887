"""`esrun`: inside a job, start tasks on its nodes, show their output and end with their highest exit code.

Steps of `_run`: listen, create the step, show output until every node has ended or is lost, report its end to the
controller.
"""

from __future__ import annotations

import os
import sys

from escli import exits, program
from escli.failures import CommandFailed
from escli.open_api import open_api
from escli.user.step_calls import COMMAND, Launch, finish, listen_host, step_request, tasks_by_source
from escli.user.step_following import follow, interrupts_of_step
from escli.user.step_output import LineWriter, StepOutput
from escli.user.step_programs import SYNONYMS, read_programs
from eslurm.compat.errors import OptionError
from eslurm.compat.jobrefs import parse_job_id, parse_job_refs
from eslurm.core.model.values import COOKIE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escli.api import Api
    from escli.options import Words


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _run, argv, options_end_at_first_word=True, excludes=SYNONYMS)


def _run(given: Words) -> int:
    _take_part(given)
    job_id = _job_id(given, os.environ)
    is_inside = str(job_id) == (os.environ.get("ESLURM_JOB_ID") or os.environ.get("SLURM_JOB_ID"))
    # The sizes of another job are not known here.
    programs = read_programs(given, os.environ if is_inside else {})
    if _spans_cells(job_id, os.environ):
        from escli.user.joint_step import run_joint

        with open_api(given, COMMAND) as api:
            _check_here(api)
            return run_joint(api, given, job_id, programs)
    cookie = os.urandom(COOKIE_BYTES)
    writer = LineWriter(sys.stdout.buffer, sys.stderr.buffer)
    with open_api(given, COMMAND) as api:
        _check_here(api)
        output = StepOutput(listen_host(os.environ), cookie, writer)
        try:
            request = step_request(given, job_id, programs, output.endpoint, cookie)
            step = api.call("CreateStep", request, request_id=os.urandom(16))
            tasks = tasks_by_source(step)
            if given.has("label"):
                writer.label_width = len(str(sum(tasks.values()) - 1))
            output.expect(tasks)
            label = f"{step.job_id}.{step.step}"
            with interrupts_of_step() as interrupts:
                launch = Launch(api, step)
                code, number = follow(output, launch, label, interrupts, quiet=given.has("quiet"))
            finish(api, step, code, number)
            launch.close()
            return code
        finally:
            output.close()


def _check_here(api: Api) -> None:
    """Check that the step's nodes can reach this process, which receives the tasks' output."""
    if api.is_remote:
        raise CommandFailed(
            exits.USAGE,
            "works within jobs and on the cluster's own hosts, where nodes can send it what the tasks say: "
            "from another host use `essubmit --wait`",
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
    """The job, from the option, else the surrounding one. Raises OptionError."""
    text = given.text("jobid") or environ.get("ESLURM_JOB_ID", "") or environ.get("SLURM_JOB_ID", "")
    if not text:
        raise OptionError(
            "esrun", None, "is not inside a job", "use it in a batch script, or give --jobid JOB"
        )
    return parse_job_id(text, given.spelling("jobid"))


def _spans_cells(job_id: int, environ: Mapping[str, str]) -> bool:
    """Check whether the surrounding job has nodes in other cells, too, and is the one that is meant."""
    return bool(environ.get("ESLURM_SPAN_CELLS")) and environ.get("ESLURM_JOB_ID") == str(job_id)
