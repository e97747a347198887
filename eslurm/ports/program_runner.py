"""The programs that a leading controller runs on its own host. `tests/contract/test_program_runner.py` proves the contract.

Each has a process group of its own, which is killed with it. The last of what it prints is kept, bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import StepEnd

GRACE_US: Final = 5_000_000
"""From SIGTERM to SIGKILL, at the limit and when a program is ended."""
REFUSED: Final = "refused"
"""Cause of the end of a program that was not started: the text says why."""
TIME_LIMIT: Final = "time_limit"
CANCELLED: Final = "cancelled"


class Program(msgspec.Struct, frozen=True):
    """A program, which only this user and root can change, its whole environment, and its limit in microseconds."""

    path: str
    environment: Mapping[str, str]
    limit_us: int
    arguments: tuple[str, ...] = ()
    stdin: bytes = b""


class ProgramRunner(Protocol):
    """Runs programs. `done` is called once for each start, from the loop, never from within `start` or `end`."""

    def start(self, key: PhaseKey, program: Program, done: Callable[[StepEnd], None]) -> None:
        """Run it. One that cannot be started has ended with the cause `refused`, one beyond its limit with `time_limit`."""

    def end(self, key: PhaseKey) -> None:
        """End it: SIGTERM, later SIGKILL. It has ended with the cause `cancelled`, unless it had ended before."""

    async def close(self) -> None:
        """End all of them; their ends are not reported."""
