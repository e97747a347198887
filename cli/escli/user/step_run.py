"""One step of one job: listen, create it, show output until every node has ended or is lost, report its end."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.failures import CommandFailed
from escli.user.step_calls import Launch, finish, layout_of, listen_host, step_request, tasks_by_source
from escli.user.step_ends import read_ends
from escli.user.step_following import follow
from escli.user.step_input import InputPump, read_choice
from escli.user.step_mpi import StepMpi, check_alone, read_mpi
from escli.user.step_output import LineWriter, StepOutput
from escli.user.step_turn import begin
from eslurm.core.model.values import COOKIE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from escli.api import Api
    from escli.interrupts import Interrupts
    from escli.options import Words
    from escli.user.step_claim import Claim
    from escli.user.step_ends import StepTexts
    from escli.user.step_programs import PartProgram


def check_here(api: Api) -> None:
    """Check that the step's nodes can reach this process, which receives the tasks' output. Raises CommandFailed."""
    if api.is_remote:
        raise CommandFailed(
            exits.USAGE,
            "works within jobs and on the cluster's own hosts, where nodes can send it what the tasks say: "
            "from another host use `essubmit --wait`",
        )


def run_step(
    api: Api,
    given: Words,
    job_id: int,
    programs: Sequence[PartProgram],
    environ: Mapping[str, str],
    entering: AbstractContextManager[Interrupts],
    texts: StepTexts,
    claim: Claim,
) -> int:
    """The whole life of a step; returns its exit code. `environ` is the job's; signals count from `entering` on.

    Raises OptionError, CommandFailed.
    """
    choice, ends = read_choice(given, environ), read_ends(given, environ, texts)
    ends.time_limit_s = claim.time_limit_s
    cookie = os.urandom(COOKIE_BYTES)
    writer = LineWriter(
        sys.stdout.buffer, sys.stderr.buffer, is_unbuffered=given.has("unbuffered") or given.has("pty")
    )
    word = read_mpi(given, environ)
    check_alone(word, given, len(programs) == 1)
    mpi = StepMpi(word) if word else None
    output = StepOutput(listen_host(environ), cookie, writer, mpi)
    pump = InputPump(choice.open(), output)
    try:
        request = step_request(given, job_id, programs, output.endpoint, cookie, environ, choice.step, word)
        claim.put(request)
        with entering as interrupts:
            step = begin(api, request, interrupts, ends, texts, claim)
            if step is None:
                return 128 + interrupts.last
            tasks = tasks_by_source(step)
            if given.has("label"):
                writer.label_width = len(str(sum(tasks.values()) - 1))
            output.expect(tasks)
            label = f"{step.job_id}.{step.step}"
            if mpi is not None:
                mpi.begin(label, [(name, count) for _, name, count in layout_of(step)])
            launch = Launch(api, step)
            code, number = follow(output, launch, label, interrupts, pump, ends)
        finish(api, step, code, number)
        launch.close()
        return code
    finally:
        pump.close()
        output.close()
