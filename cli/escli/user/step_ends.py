"""Ends of a step's tasks: what the command says of them, and whether one of them ends all others."""

from __future__ import annotations

from typing import Protocol

from escli import program
from eslurm.compat.arrays import fold_tasks, format_array
from eslurm.compat.errors import OptionError, whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from escli.options import Words

    TaskEnd: TypeAlias = tuple[int, str, int]
    """Rank, node, and exit code or the negated number of the signal that ended it."""

_WAIT_MAX_S = 366 * 86_400
_LAUNCH_S = 0.5
"""A node counts the time from its launch on, which may precede the command's first look by so much."""


class StepTexts(Protocol):
    """Lines that a command prints of its step on standard error, in its own words. `label` names the step."""

    def failed(self, node: str, tasks: Sequence[int], status: int) -> None:
        """Tasks of one node have ended by this exit code, or by this negated signal, just now."""

    def ended(self, statuses: Mapping[int, int]) -> None:
        """All tasks have ended; with the exit code of each, or its negated signal."""

    def problem(self, label: str, text: str) -> None:
        """Something else has gone wrong."""

    def ending(self, label: str, waited_s: int, ended: Sequence[int], running: Sequence[int]) -> None:
        """The tasks that still run are ended, because one has failed, or so long after the first end."""

    def interrupted(self, label: str, ended: Sequence[int], running: Sequence[int]) -> None:
        """Ctrl-C was pressed once; once more within a second ends the step."""

    def waits(self, job_id: int) -> None:
        """Other steps of the job have what the step claims."""

    def begins(self, label: str) -> None:
        """A step of which that was told has its turn."""

    def timed_out(self, label: str, node: str, limit_s: int) -> None:
        """Its time limit has passed, and the first of its tasks, on this node, has been ended."""

    def refused(self, job_id: int, text: str) -> str:
        """The line about a step that its job does not take, or not now."""


class OwnTexts:
    """The words of `esrun`: failed tasks at the end, those of all nodes that ended alike in one line."""

    def __init__(self, command: str) -> None:
        self._command = command

    def failed(self, node: str, tasks: Sequence[int], status: int) -> None:
        """Tell it at the end."""

    def ended(self, statuses: Mapping[int, int]) -> None:
        """Tell of the tasks that failed."""
        groups: dict[int, list[int]] = {}
        for task, status in sorted(statuses.items()):
            if status:
                groups.setdefault(status, []).append(task)
        for status, tasks in groups.items():
            how = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
            program.warn(self._command, f"task {_ranks(tasks)}: {how}")

    def problem(self, label: str, text: str) -> None:
        """Tell it with the step's name."""
        program.warn(self._command, f"step {label}: {text}")

    def ending(self, label: str, waited_s: int, ended: Sequence[int], running: Sequence[int]) -> None:
        """Tell which tasks are ended, and why."""
        why = f"the first task ended {waited_s} s ago" if waited_s else "a task failed"
        program.warn(self._command, f"step {label}: {why}: ending task {_ranks(running)}")

    def interrupted(self, label: str, ended: Sequence[int], running: Sequence[int]) -> None:
        """Tell which tasks run, and how to end them."""
        text = f"task {_ranks(running)} running: one more Ctrl-C within a second ends the step"
        program.warn(self._command, f"step {label}: {text}")

    def waits(self, job_id: int) -> None:
        """Tell it, and how not to wait."""
        text = f"other steps of job {job_id} have its cores: it waits for its turn (--overlap shares them)"
        program.warn(self._command, text)

    def begins(self, label: str) -> None:
        """Tell it."""
        program.warn(self._command, f"step {label} has its turn")

    def timed_out(self, label: str, node: str, limit_s: int) -> None:
        """Tell it."""
        program.warn(self._command, f"step {label}: its time limit of {limit_s} s has passed")

    def refused(self, job_id: int, text: str) -> str:
        """The reason as it is."""
        return text


def _ranks(tasks: Sequence[int]) -> str:
    return format_array(fold_tasks(tasks))


class TaskEnds:
    """Looks at the ends of a step's tasks. With `texts` None nothing is said of them."""

    def __init__(
        self,
        texts: StepTexts | None,
        *,
        kill_on_bad_exit: bool = False,
        wait_s: int = 0,
        quits_on_interrupt: bool = False,
    ) -> None:
        """`kill_on_bad_exit`: a task that fails ends all others; `wait_s` after the first end all are ended, 0: never.
        `quits_on_interrupt`: one Ctrl-C ends them all.
        """
        self.quits_on_interrupt = quits_on_interrupt
        self.time_limit_s = 0
        """The step's own; its nodes keep it, and what they end is told as that."""
        self._begun_s: float | None = None
        self._was_late = False
        self._texts = texts
        self._kills = kill_on_bad_exit
        self._wait_s = wait_s
        self._ended: set[int] = set()
        self._has_failed = False
        self._first_s = 0.0

    def look(self, label: str, news: Sequence[TaskEnd], tasks: int, now_s: float) -> bool:
        """Tell of new ends; True when the other ones of so many tasks are to be ended now."""
        if news and not self._ended:
            self._first_s = now_s
        failed: dict[tuple[str, int], list[int]] = {}
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        for task, node, status in news:
            if status < 0:
                self._look_at_limit(label, node, now_s - self._begun_s)
            self._ended.add(task)
            if status:
                failed.setdefault((node, status), []).append(task)
        self._has_failed |= bool(failed)
        if self._texts is not None:
            for (node, status), ranks in failed.items():
                self._texts.failed(node, sorted(ranks), status)
        if not self._ended or len(self._ended) == tasks:
            return False
        waited_s = now_s - self._first_s
        is_late = 0 < self._wait_s <= waited_s
        if not is_late and not (self._kills and self._has_failed):
            return False
        if self._texts is not None:
            running = [task for task in range(tasks) if task not in self._ended]
            self._texts.ending(label, int(waited_s) if is_late else 0, sorted(self._ended), running)
        return True

    def _look_at_limit(self, label: str, node: str, ran_s: float) -> None:
        if not 0 < self.time_limit_s <= ran_s + _LAUNCH_S or self._was_late:
            return
        self._was_late = True
        if self._texts is not None:
            self._texts.timed_out(label, node, self.time_limit_s)

    def interrupted(self, label: str, tasks: int) -> None:
        """Tell how many tasks run after one Ctrl-C."""
        if self._texts is not None:
            running = [task for task in range(tasks) if task not in self._ended]
            self._texts.interrupted(label, sorted(self._ended), running)

    def waits(self, job_id: int) -> None:
        """Tell that the step waits for its turn."""
        if self._texts is not None:
            self._texts.waits(job_id)

    def begins(self, label: str) -> None:
        """Tell that it has its turn."""
        if self._texts is not None:
            self._texts.begins(label)

    def problem(self, label: str, text: str) -> None:
        """Tell of what else went wrong."""
        if self._texts is not None:
            self._texts.problem(label, text)

    def ended(self, statuses: Mapping[int, int]) -> None:
        """All tasks have ended."""
        if self._texts is not None:
            self._texts.ended(statuses)


def read_ends(given: Words, environ: Mapping[str, str], texts: StepTexts) -> TaskEnds:
    """The choice of `--kill-on-bad-exit`, `--wait`, `--quiet` and Slurm's variables. Raises OptionError."""
    kill = environ.get("SLURM_KILL_BAD_EXIT", "0")
    if given.has("kill-on-bad-exit"):
        kill = given.text("kill-on-bad-exit") or "1"
    if kill not in ("0", "1"):
        raise OptionError("--kill-on-bad-exit", kill, "is neither 0 nor 1", "use --kill-on-bad-exit")
    text = given.text("wait") or environ.get("SLURM_WAIT", "") or "0"
    wait_s = whole_number(text)
    if not 0 <= wait_s <= _WAIT_MAX_S:
        raise OptionError("--wait", text, f"is no number of seconds from 0 (no limit) to {_WAIT_MAX_S}")
    return TaskEnds(
        None if given.has("quiet") else texts,
        kill_on_bad_exit=kill == "1",
        wait_s=wait_s,
        quits_on_interrupt=given.has("quit-on-interrupt"),
    )
