"""Allocations without a script, and their commands, in a simulated cluster; in most worlds there are none.

They have a random source of their own: they move no other draw. Invariant: each command releases its allocation, or is gone
and never heard of again; an allocation is ended for its silence only where it was silent.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.violation import require

WORLDS_SHARE: Final = 0.25
SUBMISSIONS: Final = 8
LIMIT_S: Final = 3_600
"""No allocation comes to its end by its limit before the world does."""
INACTIVE_LIMIT_S: Final = 20.0
EVERY_US: Final = 3 * SECOND_US
"""Interval at which a command says that it is there."""
LIVES_US: Final = (0, 40 * SECOND_US)
HEARD_SURELY: Final = 2
GONE_SHARE: Final = 0.35
"""Share of the commands that are killed: they release nothing."""


class Command:
    """The command of an allocation: until `until_us` it says that it is there."""

    __slots__ = ("exit_code", "heard", "is_killed", "job_id", "until_us")

    def __init__(self, job_id: int, begun_us: int, rng: random.Random) -> None:
        self.job_id = job_id
        self.heard = 0
        """Looks at which nothing was lost and its allocation was not being ended."""
        self.until_us = begun_us + rng.randint(*LIVES_US)
        self.is_killed = rng.random() < GONE_SHARE
        self.exit_code = rng.choice((0, 0, 1, 255))


class AllocationDraws:
    """The draws of one world."""

    def __init__(self, seed: float) -> None:
        self._random = random.Random(f"{seed}/allocations")
        self.is_on = self._random.random() < WORLDS_SHARE
        self.random = self._random

    def times_us(self, last_us: int) -> list[int]:
        """Times of submissions."""
        return [self._random.randint(SECOND_US, last_us) for _ in range(SUBMISSIONS)] if self.is_on else []

    def spec(self, spec: JobSpec) -> JobSpec:
        """The job as an allocation: without all that needs a script, or has a time of its own."""
        return replace(
            spec,
            no_script=True,
            attended=self._random.random() < 0.9,
            script_hash=b"",
            environment_hash=b"",
            arguments=(),
            array=None,
            cells=(),
            span=False,
            retry=None,
            gateway=None,
            warn_script="",
            start_at_us=0,
            deadline_us=0,
            dependencies=(),
            reservation="",
            held=False,
            elastic=False,
            cooperate="",
            borrow="",
            time_limit_s=LIMIT_S,
        )

    def command(self, job_id: int, now_us: int) -> Command:
        """The command of an allocation that was accepted."""
        return Command(job_id, now_us, self._random)

    def check_heard(self, job: Job | None, command: Command) -> None:
        """Check, once nothing is lost any more, that a command which is there keeps its allocation."""
        if job is None:
            return
        if job.state not in FINAL:
            is_ending = job.attempt is not None and job.attempt.stop is not None
            command.heard += not is_ending
            return
        is_silence = job.state is JobState.CANCELLED and "not been heard of" in job.exit_text
        require(
            not is_silence or command.heard < HEARD_SURELY,
            f"allocation {job.job_id} was ended though its command is there: {job.exit_text}",
        )
