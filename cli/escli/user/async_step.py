"""A step that runs without its command (`esrun --async`): its tasks write to files, and the job's nodes tell of its end."""

from __future__ import annotations

import os

from escli import exits, program
from escli.failures import CommandFailed
from escli.user.step_calls import step_request
from eslurm.compat.errors import OptionError
from eslurm.compat.request_checks import checked_arguments, checked_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words
    from escli.user.step_claim import Claim
    from escli.user.step_ends import StepTexts
    from escli.user.step_programs import PartProgram

OUTPUT = "slurm-%J.out"
SHELL = ("/bin/sh", "-c")
STEPS_MAX = 10_000
"""Steps that a job may have."""
_EACH_CHARS_MAX = 16 * 1024 * 1024
_SERVED = ("pty", "mpi", "label", "unbuffered", "kill-on-bad-exit", "wait")
"""Options that need the command while the step runs."""


def start(
    api: Api,
    given: Words,
    job_id: int,
    programs: Sequence[PartProgram],
    environ: Mapping[str, str],
    texts: StepTexts,
    claim: Claim,
    files: Any,
) -> int:
    """Create the step, or one for each line, which waits for its turn by itself, and print its number.

    Raises OptionError, CommandFailed.
    """
    request = step_request(given, job_id, programs, "", b"", environ, files=files)
    claim.put(request)
    for line in _lines(given) if given.has("each") else (None,):
        if line is not None:
            request.argv[:] = [*SHELL, line]
        try:
            step = api.call("CreateStep", request, request_id=os.urandom(16))
        except CommandFailed as failure:
            raise CommandFailed(failure.code, texts.refused(job_id, failure.text)) from None
        program.say(f"{step.job_id}.{step.step}")
    return exits.OK


def check_each(given: Words) -> None:
    """Put the shell that runs lines in the place of the command. Raises OptionError."""
    text, spelling = given.text("each"), given.spelling("each")
    if not given.has("async"):
        raise OptionError(spelling, text, "is for --async", "add --async")
    if given.rest:
        raise OptionError(spelling, text, "has the commands", "leave out the one behind the options")
    given.rest = [*SHELL, ""]


def _lines(given: Words) -> list[str]:
    """The commands of `--each`; blank lines and comments are none. Raises OptionError, CommandFailed."""
    text, spelling = given.text("each"), given.spelling("each")
    try:
        fd = 0 if text == "-" else os.open(text, os.O_RDONLY | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="surrogateescape", closefd=fd > 0) as file:
            content = file.read(_EACH_CHARS_MAX + 1)
    except OSError as error:
        raise CommandFailed(exits.FAILED, f"{spelling}: {text}: {error.strerror}") from None
    lines = [line for line in content.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if len(content) > _EACH_CHARS_MAX or len(lines) > STEPS_MAX:
        most = f"{STEPS_MAX} lines or {_EACH_CHARS_MAX} characters"
        raise OptionError(spelling, text, f"has more than {most}", "split it over several jobs")
    for line in lines:
        checked_arguments([line])
    return lines


def read_files(given: Words) -> Any:
    """The files of the step, as a `StepFiles`. Raises OptionError for options that need the command while it runs."""
    from eslurm.v1 import controller_pb2 as pb

    for long in _SERVED:
        if given.has(long):
            text = given.text(long) or None
            raise OptionError(given.spelling(long), text, "needs a command that stays", "leave out --async")
    if given.text("input", "none") != "none":
        raise OptionError(
            given.spelling("input"), given.text("input"), "has no command to come from", "use -i none"
        )
    return pb.StepFiles(
        output=checked_path("--output", given.text("output", OUTPUT)),
        error=checked_path("--error", given.text("error")) if given.has("error") else "",
    )
