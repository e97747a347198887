"""Lines of srun about its step on standard error, in Slurm's words."""

from __future__ import annotations

import signal
import time

from escli import program
from eslurm.compat.arrays import fold_tasks, format_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SlurmTexts:
    """The texts of Slurm 22.05 and later, one line for the tasks of a node that end alike, as they come."""

    def failed(self, node: str, tasks: Sequence[int], status: int) -> None:
        """`srun: error: cn1: tasks 0-1: Exited with exit code 7`, or the signal's text."""
        how = f"Exited with exit code {status}" if status >= 0 else _text_of(-status)
        program.warn("srun", f"error: {node}: {_tasks(tasks)}: {how}")

    def ended(self, statuses: Mapping[int, int]) -> None:
        """All is told."""

    def problem(self, label: str, text: str) -> None:
        """A text of our own in Slurm's form."""
        program.warn("srun", f"error: StepId={label}: {text}")

    def ending(self, label: str, waited_s: int, ended: Sequence[int], running: Sequence[int]) -> None:
        """As with Slurm's `--wait` and `--kill-on-bad-exit`."""
        if not waited_s:
            program.warn("srun", f"launch/slurm: _step_signal: Terminating StepId={label}")
            return
        program.warn("srun", f"First task exited {waited_s}s ago")
        program.warn("srun", f"StepId={label} {_tasks(running)}: running")
        program.warn("srun", f"StepId={label} {_tasks(ended)}: exited")
        program.warn("srun", f"Terminating StepId={label}")

    def interrupted(self, label: str, ended: Sequence[int], running: Sequence[int]) -> None:
        """The states of all tasks."""
        program.warn("srun", "interrupt (one more within 1 sec to abort)")
        for tasks, state in ((running, "running"), (ended, "exited")):
            if tasks:
                program.warn("srun", f"StepId={label} {_tasks(tasks)}: {state}")

    def waits(self, job_id: int) -> None:
        """As srun does when it is told to come again."""
        text = f"Job {job_id} step creation temporarily disabled, retrying (Requested nodes are busy)"
        program.warn("srun", text)

    def begins(self, label: str) -> None:
        """As srun does after that."""
        program.warn("srun", f"Step created for StepId={label}")

    def timed_out(self, label: str, node: str, limit_s: int) -> None:
        """As the step's manager says it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S")
        program.warn("srun", f"error: *** STEP {label} ON {node} CANCELLED AT {at} DUE TO TIME LIMIT ***")

    def refused(self, job_id: int, text: str) -> str:
        """The reason of ours behind those of Slurm that clients look for."""
        for ours, theirs in (
            ("would have to wait", "Requested nodes are busy"),
            (" are more than ", "Requested node configuration is not available"),
            ("--gres: ", "Invalid generic resource (gres) specification"),
        ):
            if ours in text:
                return f"Unable to create step for job {job_id}: {theirs} ({text})"
        return text


def _tasks(tasks: Sequence[int]) -> str:
    return f"task{'s' if len(tasks) > 1 else ''} {format_array(fold_tasks(tasks))}"


def _text_of(number: int) -> str:
    try:
        return signal.strsignal(number) or f"Signal {number}"
    except ValueError:
        return f"Signal {number}"
