"""`sattach`: `esattach` under Slurm's name, with Slurm's texts."""

from __future__ import annotations

from escli.failures import CommandFailed
from escli.slurm import frame
from escli.user.attachment import Choice, Texts, attach, find_attachment, find_step, layout_text
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.slurm.small_options import SATTACH
from eslurm.core.model.step_attach import EVERY_TASK, AttachHello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = SATTACH
STOPS = True
COMMAND = "sattach"
_RANK_DIGITS_MAX = 9


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: the highest of the tasks."""
    if len(given.rest) != 1:
        raise frame.Failed("sattach: error: too many parameters" if given.rest else "sattach: error: no step")
    word = given.rest[0]
    if "." not in word:
        raise frame.Failed("sattach: error: Did not find a period in the step ID string")
    output = _rank(given, "output-filter", EVERY_TASK)
    choice = Choice(AttachHello(output, _rank(given, "error-filter", output)), given.has("label"))
    with context.open_api() as api:
        try:
            job_id, number = find_step(api, word)
            found = find_attachment(api, job_id, number)
        except OptionError:
            raise frame.Failed(f'sattach: error: "{word}" does not look like a stepid') from None
        except CommandFailed as failure:
            raise frame.Failed(
                f"sattach: error: Could not get job step info: {frame.trouble(failure)}"
            ) from None
    if given.has("layout"):
        frame.print_line(layout_text(found, "\t"))
        return 0
    return attach(found, f"{job_id}.{number}", choice, _texts(given.has("quiet")))


def _rank(given: Options, long: str, default: int) -> int:
    if not given.has(long):
        return default
    text = given.last(long)
    rank = EVERY_TASK if text == "-" else whole_number(text, _RANK_DIGITS_MAX)
    if rank < 0 and text != "-":
        raise frame.Failed(f'sattach: error: Invalid numeric value "{text}" for {long}.')
    return rank


def _texts(is_quiet: bool) -> Texts:
    def failed(task: int, status: int) -> None:
        # Slurm tells of a signal only when it is asked to be verbose.
        if status > 0 and not is_quiet:
            frame.warn(COMMAND, f"error: task {task} exited with exit code {status}")

    return Texts(failed, lambda text: frame.warn(COMMAND, f"error: {text}"))
