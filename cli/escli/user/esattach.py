"""`esattach`: show what the tasks of a running step write, from now on, and end with the step's exit code."""

from __future__ import annotations

import sys

from escli import program
from escli.open_api import open_api
from escli.user.attachment import Choice, Texts, attach, find_attachment, find_step, layout_text
from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model.step_attach import EVERY_TASK, AttachHello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.options import Words

COMMAND = "esattach"
_RANK_DIGITS_MAX = 9


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _run, argv)


def _run(given: Words) -> int:
    if len(given.rest) != 1:
        shown = given.rest[1] if given.rest else None
        raise OptionError("JOB.STEP", shown, "is not one step", "use e.g. esattach 17.0")
    choice = Choice(filters(given), given.has("label"))
    with open_api(given, COMMAND) as api:
        job_id, number = find_step(api, given.rest[0])
        found = find_attachment(api, job_id, number)
    if given.has("layout"):
        sys.stdout.write(layout_text(found) + "\n")
        return 0
    return attach(found, f"{job_id}.{number}", choice, _texts(given.has("quiet")))


def filters(given: Words) -> AttachHello:
    """The tasks whose output is shown; that of errors is the other's, unless it is chosen, too. Raises OptionError."""
    output = _rank(given, "output-filter", EVERY_TASK)
    return AttachHello(output, _rank(given, "error-filter", output))


def _rank(given: Words, long: str, default: int) -> int:
    if not given.has(long):
        return default
    text = given.text(long)
    rank = EVERY_TASK if text == "-" else whole_number(text, _RANK_DIGITS_MAX)
    if rank < EVERY_TASK or (rank == EVERY_TASK and text != "-"):
        raise OptionError(
            given.spelling(long), text, "is not the number of a task", "use e.g. 3, or - for all"
        )
    return rank


def _texts(is_quiet: bool) -> Texts:
    def failed(task: int, status: int) -> None:
        if not is_quiet:
            how = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
            program.warn(COMMAND, f"task {task}: {how}")

    return Texts(failed, lambda text: program.warn(COMMAND, text))
