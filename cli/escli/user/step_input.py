"""The input of a step: this process's own standard input, or a file, passed on to its tasks.

Invariant: nothing is read that the nodes have not made room for.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Protocol

from escli.user.step_source import InputSource, own_input
from eslurm.compat.errors import OptionError
from eslurm.compat.filenames import FileNameFields, expand_pattern
from eslurm.compat.request_checks import checked_path
from eslurm.core.model.step_input import StepInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import HasFileno

    from escli.options import Words
    from eslurm.core.model.step_input import TerminalSize

_READ_BYTES = 64 * 1024
_RANK_DIGITS_MAX = 9
_PER_TASK = ("%t", "%n", "%N", "%J", "%s")
"""Letters of a pattern whose values are not known here: such a file is opened on the nodes."""


class Taker(Protocol):
    """A node that takes input."""

    @property
    def room(self) -> int:
        """The number of bytes that may be passed on to it now."""

    def pass_on(self, data: bytes, *, eof: bool = False) -> None:
        """Send it bytes, and with `eof` their end."""

    def resize(self, size: TerminalSize) -> None:
        """Tell it the new size of the terminal."""


class Taking(Protocol):
    """The nodes of a step, as `step_following.Output` has them."""

    @property
    def is_complete(self) -> bool:
        """Check whether each node has connected, or is gone again."""

    @property
    def takers(self) -> Sequence[Taker]:
        """The nodes that take input."""

    def watch(self, readable: HasFileno | int) -> None:
        """Let another descriptor interrupt `run_once`. Raises OSError for one that cannot be waited for."""

    def unwatch(self, readable: HasFileno | int) -> None:
        """Undo `watch`."""


class InputChoice:
    """The choice of `--input`: `step` is what the nodes are told (None: no input), `path` a file to pass on."""

    __slots__ = ("path", "step")

    def __init__(self, step: StepInput | None, path: str = "") -> None:
        self.step = step
        self.path = path

    def open(self) -> InputSource | None:
        """The input that is passed on, if any is. Raises OptionError."""
        if self.step is None or self.step.path:
            return None
        if self.step.terminal is not None and sys.__stdin__ is not None and os.isatty(0):
            from escli.user.step_terminal import TerminalInput

            return TerminalInput(os.dup(0))
        if not self.path:
            return own_input()
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise OptionError("--input", self.path, f"cannot be opened: {error.strerror}") from None
        return InputSource(fd)


def read_choice(given: Words, environ: Mapping[str, str]) -> InputChoice:
    """The choice of `--input`: all, none, the number of a task, or a file's name; or `--pty`. Raises OptionError."""
    if given.has("pty"):
        return _terminal_choice(given)
    variable = environ.get("SLURM_STDINMODE", "")
    text, spelling = given.text("input", variable or "all"), given.spelling("input")
    if text in ("none", os.devnull) or (text == "all" and _is_empty()):
        return InputChoice(None)
    if text == "all":
        return InputChoice(StepInput())
    if text.isascii() and text.isdigit() and len(text) <= _RANK_DIGITS_MAX:
        return InputChoice(StepInput(int(text)))
    if not text:
        raise OptionError(spelling, text, "names no input", "use all, none, the number of a task, or a file")
    checked_path(spelling, text)
    if any(letter in text for letter in _PER_TASK):
        return InputChoice(StepInput(path=text))
    return InputChoice(StepInput(), expand_pattern(text, name_fields(environ)))


def _terminal_choice(given: Words) -> InputChoice:
    from escli.user.step_terminal import terminal_size

    for long in ("input", "label"):
        if given.has(long):
            raise OptionError(
                given.spelling(long),
                given.text(long) or None,
                "does not go with --pty: task 0 has the terminal to itself",
                "leave one of them out",
            )
    return InputChoice(StepInput(0, terminal=terminal_size()))


def _is_empty() -> bool:
    """Check whether this process's own input is at its end, as in a job's script: no node has to listen for it."""
    if sys.__stdin__ is None:
        return True
    own = os.fstat(0)
    return stat.S_ISCHR(own.st_mode) and own.st_rdev == os.stat(os.devnull).st_rdev


def name_fields(environ: Mapping[str, str]) -> FileNameFields:
    """The values of a file name's letters in the environment of a job."""
    env = environ.get
    numbers = [env(f"ESLURM_{name}") or env(f"SLURM_{name}") or "0" for name in ("JOB_ID", "ARRAY_JOB_ID")]
    job_id, array_job_id = (int(text) if text.isdigit() else 0 for text in numbers)
    task = env("SLURM_ARRAY_TASK_ID", "")
    return FileNameFields(
        job_id,
        job_name=env("SLURM_JOB_NAME", ""),
        user=env("SLURM_JOB_USER", ""),
        node_name=env("SLURMD_NODENAME", ""),
        array_job_id=array_job_id,
        array_task=int(task) if task.isdigit() else -1,
    )


class InputPump:
    """Passes input on as the nodes make room for it. Call `advance` before each wait, and `close` at the end."""

    def __init__(self, source: InputSource | None, taking: Taking) -> None:
        self._source = source
        self._taking = taking
        self._is_watched = False
        self._is_file = False
        self._is_begun = False

    def advance(self) -> bool:
        """Pass on what there is; True when there may be more at once."""
        source = self._source
        if source is None or not (self._is_begun or self._taking.is_complete):
            return False
        if not self._is_begun:
            self._is_begun = True
            source.begin()
            if source.wakes >= 0:
                self._taking.watch(source.wakes)
        takers = self._taking.takers
        if (size := source.take_size()) is not None:
            for taker in takers:
                taker.resize(size)
        if not takers:
            # All tasks that read have ended, or have closed their input.
            self.close()
            return False
        room = min(taker.room for taker in takers)
        if room <= 0 or not source.is_mine:
            self._unwatch(source)
            return False
        data = source.read(min(room, _READ_BYTES))
        if data is None:
            return self._wait_for(source)
        for taker in takers:
            taker.pass_on(data, eof=not data)
        if not data:
            self.close()
        return bool(data)

    def close(self) -> None:
        """Read no more."""
        if self._source is not None:
            self._unwatch(self._source)
            if self._is_begun and self._source.wakes >= 0:
                self._taking.unwatch(self._source.wakes)
            self._source.close()
            self._source = None

    def _wait_for(self, source: InputSource) -> bool:
        """Let what comes interrupt the wait; True where it cannot, as with a file."""
        if not self._is_watched and not self._is_file:
            try:
                self._taking.watch(source)
                self._is_watched = True
            except PermissionError:
                self._is_file = True
        return self._is_file

    def _unwatch(self, source: InputSource) -> None:
        if self._is_watched:
            self._taking.unwatch(source)
            self._is_watched = False
