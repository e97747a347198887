"""A step outside of jobs: one command asks for its nodes, runs it on them and gives them back (ADR 44).

Invariant: from the request on, whatever ends this process orderly gives the nodes back: the step's end, a failure, a signal.
"""

from __future__ import annotations

import contextlib
import os

from escli import exits
from escli.failures import CommandFailed
from escli.interrupts import Interrupts
from escli.user.allocated_command import PENDING, obtain, say
from escli.user.allocation import Allocation
from escli.user.step_claim import ALL, NOTHING
from escli.user.step_programs import read_programs
from escli.user.step_run import run_step
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from escli.api import Api
    from escli.options import Words
    from escli.user.step_ends import StepTexts

_OF_THE_JOB = ("nodes", "ntasks", "nodelist")
"""The step takes what its job got: a range of nodes has become a number, tasks on each node have become tasks, and
nodes that it must have may be some of its nodes."""


def check_outside(given: Words) -> None:
    """Refuse what needs a job of several parts, or no command at all. Raises OptionError."""
    if not given.rest:
        raise OptionError("COMMAND", None, "is missing", "use e.g. esrun hostname")
    for long in ("het-group", "pack-group"):
        if given.has(long):
            text = given.text(long)
            raise OptionError(
                given.spelling(long), text, "names a part of no job", "submit a job of several parts"
            )
    if ":" in given.rest:
        raise OptionError(
            "':'",
            None,
            "separates programs of a job's parts, and this is no job",
            "submit a job of several parts",
        )


def run_allocated_step(
    api: Api,
    command: str,
    job: Mapping[str, Any],
    given: Words,
    texts: StepTexts,
    *,
    immediate_s: float | None = None,
    refused: Callable[[CommandFailed], Exception] | None = None,
    granted: Callable[[Mapping[str, str]], None] | None = None,
) -> int:
    """The whole life of the allocation and its step; returns the step's exit code.

    `refused` makes the error of a refused request, `granted` gets the job's variables before the step. Raises OptionError,
    CommandFailed.
    """

    def told(text: str) -> None:
        if not given.has("quiet"):
            say(command, text)

    allocation = Allocation(api, told, announces=False)
    with Interrupts(PENDING) as interrupts:
        try:
            if not obtain(command, allocation, job, interrupts, immediate_s=immediate_s):
                return exits.FAILED
        except CommandFailed as failure:
            raise (refused(failure) if refused is not None else failure) from None
        keeper = allocation.keep()
        code = exits.FAILED
        try:
            environ = allocation.environment(os.environ, os.getcwd())
            if granted is not None:
                granted(environ)
            given.drop(_OF_THE_JOB)
            programs = read_programs(given, environ)
            entered = contextlib.nullcontext(interrupts)
            claim = NOTHING if given.has("overlap") else ALL
            code = run_step(api, given, allocation.job_id, programs, environ, entered, texts, claim)
        finally:
            had_ended = keeper.has_ended
            with contextlib.suppress(CommandFailed):
                # It is forgotten, or ends by itself once this command is not heard of.
                had_ended |= not allocation.release(code)
            if had_ended:
                told(f"Job allocation {allocation.job_id} has been revoked.")
    return code
