"""One live step as the supervisor sees it: its tasks, its deadlines, and how its end is put together.

Mutable, owned by `table.StepTable`, gone once its `StepOutcome` is in the journal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepEndCause, StepOutcome, StepStarted, StepState
from esnoded.procd.wire import Usage
from esnoded.stepd.groups import MIB, GroupUse
from esnoded.stepd.terms import Terms
from esnoded.stepd.timers import Timer

Waiter = Callable[[StepState], None]


class OutputPipes(Protocol):
    """The output of one step that goes into pipes, as its owner uses it (`output.OutputLink`, `phase_output.PhaseOutput`).

    `last_words` is what the outcome of a step that failed quotes of it, if anything.
    """

    def open_pipes(self, local: int) -> tuple[int, ...]: ...

    def task_ended(self, local: int, exit_status: int) -> None: ...

    def last_words(self) -> str: ...

    def finish(self) -> None: ...

    def drop(self) -> None: ...


class Delivering(Protocol):
    """The output of a step that goes to its command (`output.OutputLink`), once its tasks have ended."""

    @property
    def is_delivered(self) -> bool: ...

    def deliver(self) -> None: ...

    def hurry(self) -> None: ...


class Task(msgspec.Struct, eq=False):
    """One process that was started: the leader of its own session and process group.

    `report_fd` is open (not -1) as long as it is unknown whether the process got to run its program.
    """

    local: int
    pid: int
    report_fd: int = -1
    alive: bool = True
    is_aside: bool = False
    """It runs beside the step (a warning's script): how it ends means nothing, and it does not outlive the others."""
    is_epilog: bool = False
    """The site's program after the task of the same rank: how it ends means nothing for the step, which waits for it."""


class Step(msgspec.Struct, eq=False):
    """A step between launch and outcome. `started_us` is wall time, all others are on CLOCK_BOOTTIME.

    `begun_us` is 0 while it is queued, `stopped_us` unless it stands still, `paused_us` how long it has stood still before.
    """

    spec: Terms
    launched_us: int
    started_us: int
    tasks: list[Task] = msgspec.field(default_factory=list)
    epilogs: list[Task] = msgspec.field(default_factory=list)
    waiters: list[Waiter] = msgspec.field(default_factory=list)
    timers: list[Timer] = msgspec.field(default_factory=list)
    kill_timer: Timer | None = None
    limit_timer: Timer | None = None
    warning_timer: Timer | None = None
    begun_us: int = 0
    limit_us: int = -1
    """Its time limit as it stands, 0: none; -1 until it begins, unless it was changed by then."""
    stopped_us: int = 0
    paused_us: int = 0
    is_warned: bool = False
    warning_failure: str = ""
    has_failed_epilog: bool = False
    link: OutputPipes | None = None
    delivery: Delivering | None = None
    """Its output, which its command is to have before it is over."""
    draining: set[int] = msgspec.field(default_factory=set)
    """Process groups whose leader has ended and whose other members, already killed, are not gone yet."""
    ready: tuple[str, ...] = ()
    """Of a step of gateways: the first line of each task, once all are there."""
    spawning: bool = True
    announced: bool = False
    cause: StepEndCause | None = None
    text: str = ""
    exit_code: int = 0
    signum: int = 0
    gone_by_us: int = 0
    """Time by which its group, whose processes were killed, is to be empty; 0: none were left."""
    user_cpu_us: int = 0
    system_cpu_us: int = 0
    max_rss_kib: int = 0

    @property
    def key(self) -> StepKey:
        return self.spec.key

    @property
    def is_over(self) -> bool:
        """Check whether no process of it is left and none will follow: of one without tasks, whether it was ended."""
        return not self.spawning and not self.draining and not self.is_alive

    @property
    def is_alive(self) -> bool:
        """Check whether a process of its tasks or of their epilogs is left."""
        return any(task.alive for task in (*self.tasks, *self.epilogs))

    @property
    def is_ending(self) -> bool:
        """Check whether it was ordered to end."""
        return self.cause is not None

    @property
    def limit_due_us(self) -> int:
        """End of its time limit, if it has one and runs on."""
        return self.begun_us + self.paused_us + self.limit_us

    @property
    def warning_due_us(self) -> int:
        """Time of the warning before that."""
        return self.limit_due_us - (self.spec.warning.before_us if self.spec.warning is not None else 0)

    @property
    def has_asides_only(self) -> bool:
        """Check whether nothing of it is left or to come but what runs beside it."""
        alive = [task for task in (*self.tasks, *self.epilogs) if task.alive]
        return bool(alive) and not self.spawning and all(task.is_aside for task in alive)

    def cancel_clock(self) -> None:
        """Its time limit and warning do not fall due for now."""
        for timer in (self.limit_timer, self.warning_timer):
            if timer is not None:
                timer.cancel()

    def state(self) -> StepStarted:
        """The state to report while it lives."""
        return StepStarted(self.key, self.started_us, self.tasks[0].pid if self.tasks else 0, self.ready)

    def is_mate_of(self, batch: Step) -> bool:
        """Check whether it is another step of the same attempt on the same node."""
        mine, other = self.key, batch.key
        is_same = (mine.job_id, mine.attempt, mine.node) == (other.job_id, other.attempt, other.node)
        return is_same and mine.step != other.step

    def add_usage(self, used: Sequence[Usage]) -> None:
        """Count what collected processes used."""
        for user_s, system_s, rss_kib in used:
            self.user_cpu_us += round(user_s * 1e6)
            self.system_cpu_us += round(system_s * 1e6)
            self.max_rss_kib = max(self.max_rss_kib, rss_kib)

    def take_use(self, use: GroupUse) -> None:
        """Take the counts of its group for what was collected, and what these say of its end."""
        self.user_cpu_us, self.system_cpu_us = use.user_us, use.system_us
        if use.oom_kills and self.cause is None and (self.signum or self.exit_code):
            self.cause = StepEndCause.OUT_OF_MEMORY
            limit, node = self.spec.memory_mib, self.spec.node_name
            most = f"its job may use {limit} MiB on node {node}" if limit else f"node {node} had none left"
            peak = f", the step has used {use.peak_bytes // MIB} MiB" if use.peak_bytes else ""
            self.text = f"out of memory: {most}{peak}; ask for more with --mem"

    def add_status(self, wait_status: int) -> int:
        """Merge one task's wait status into the step's; returns the exit code or the negated signal."""
        code = os.waitstatus_to_exitcode(wait_status)
        if code < 0:
            self.signum = self.signum or -code
        else:
            self.exit_code = max(self.exit_code, code)
        return code

    def fail_spawn(self, exit_code: int, text: str) -> None:
        """Note that it could not be started; an earlier cause stands."""
        if self.cause is None:
            self.cause = StepEndCause.SPAWN_FAILED
            self.text = text
        self.exit_code = max(self.exit_code, exit_code)
        self.spawning = False

    def end(self, at_us: int) -> StepOutcome:
        """Its outcome; cancels its timers. `at_us` is CLOCK_BOOTTIME, so its duration is right whatever was done to the
        wall clock meanwhile.
        """
        self.cancel_clock()
        for timer in (*self.timers, self.kill_timer):
            if timer is not None:
                timer.cancel()
        cause = self.cause
        if cause is None:
            cause = StepEndCause.SIGNALLED if self.signum else StepEndCause.EXITED
        text = self.text
        if not text and self.signum:
            text = f"ended by signal {signal_name(self.signum)}"
        if self.link is not None and (cause is not StepEndCause.EXITED or self.exit_code):
            text = ": ".join(filter(None, (text, self.link.last_words())))
        text = "; ".join(filter(None, (text, self.warning_failure)))
        return StepOutcome(
            self.key,
            self.exit_code,
            self.signum,
            cause,
            text,
            self.started_us,
            self.started_us + at_us - self.launched_us,
            self.user_cpu_us,
            self.system_cpu_us,
            self.max_rss_kib,
        )


def signal_name(signum: int) -> str:
    """`SIGTERM` for 15; the bare number for a real-time signal."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return str(signum)
