"""The `ProgramRunner` of a simulated controller's host: programs that take virtual time, and end as their scripts say.

A program dies with the process of its controller: its end is not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import StepEnd
from eslurm.ports.program_runner import CANCELLED, GRACE_US, REFUSED, TIME_LIMIT, Program

Done = Callable[[StepEnd], None]
Later = Callable[[int, Callable[[], None]], object]
_SIGKILL, _SIGTERM = 9, 15


class ProgramScript(msgspec.Struct, frozen=True):
    """A program's behaviour. `duration_us` None: it does not end by itself; `refusal`: it cannot be started."""

    duration_us: int | None = 0
    exit_code: int = 0
    ignores_term: bool = False
    refusal: str = ""


class _Run:
    def __init__(self, done: Done, script: ProgramScript, began_us: int) -> None:
        self.done = done
        self.script = script
        self.began_us = began_us
        self.cause = ""


class MemoryProgramRunner:
    """`later` calls a function after so many microseconds. `on_started` and `on_ended` hear what really happens."""

    def __init__(
        self,
        later: Later,
        now_us: Callable[[], int],
        script_of: Callable[[PhaseKey], ProgramScript],
        on_started: Callable[[PhaseKey], None] = lambda key: None,
        on_ended: Callable[[PhaseKey, StepEnd], None] = lambda key, end: None,
        grace_us: int = GRACE_US,
    ) -> None:
        self._later = later
        self._now_us = now_us
        self._script_of = script_of
        self._on_started = on_started
        self._on_ended = on_ended
        self._grace_us = grace_us
        self._runs: dict[PhaseKey, _Run] = {}

    def start(self, key: PhaseKey, program: Program, done: Done) -> None:
        """See `ProgramRunner.start`."""
        script = self._script_of(key)
        if script.refusal:
            self._later(0, partial(done, StepEnd(1, cause=REFUSED, text=script.refusal)))
            return
        run = self._runs[key] = _Run(done, script, self._now_us())
        self._on_started(key)
        if script.duration_us is not None and script.duration_us < program.limit_us:
            self._later(script.duration_us, partial(self._over, key, run, script.exit_code))
        else:
            self._later(program.limit_us, partial(self._terminate, key, run, TIME_LIMIT))

    def end(self, key: PhaseKey) -> None:
        """See `ProgramRunner.end`."""
        run = self._runs.get(key)
        if run is not None:
            self._terminate(key, run, CANCELLED)

    async def close(self) -> None:
        """See `ProgramRunner.close`."""
        self.drop()

    def drop(self) -> None:
        """The same, at once."""
        self._runs.clear()

    def _terminate(self, key: PhaseKey, run: _Run, cause: str) -> None:
        if run.cause or self._runs.get(key) is not run:
            return
        run.cause = cause
        if run.script.ignores_term:
            self._later(self._grace_us, partial(self._over, key, run, -_SIGKILL))
        else:
            self._later(0, partial(self._over, key, run, -_SIGTERM))

    def _over(self, key: PhaseKey, run: _Run, code: int) -> None:
        if self._runs.get(key) is not run:
            return
        del self._runs[key]
        cause = run.cause or "exited"
        text = "it did not end in time" if cause == TIME_LIMIT else ""
        end = StepEnd(max(code, 0), max(-code, 0), cause, text, run.began_us, self._now_us())
        self._on_ended(key, end)
        run.done(end)
