"""Which processes belong to a step beyond its tasks, and how signals reach them.

A step's processes are its tasks' process groups, everything else in the tasks' sessions, and what left those
sessions as a daemon: that one is adopted by the supervisor (a subreaper) and still carries the step's marker.
A look at /proc costs milliseconds, as much as a short job, so it is shared by all that want it in one pass.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

import msgspec

from eslurm.ports.step_runner import StepKey
from eslurm.telemetry.clocks import boot_us
from esnoded.stepd import procfs
from esnoded.stepd.step import Step, Task
from esnoded.stepd.timers import Timers

_SWEEP_INTERVAL_US = 1_000_000
_SWEEP_AGAIN_US = 20_000


class Delivery(msgspec.Struct, frozen=True):
    """Signals to send to all processes of a step, in this order.

    `is_thorough` also reaches what has a session of its own and a parent that lives: it goes by the step's marker, for
    which the environment of every process of the node has to be looked at. Without it they end with their parents.
    """

    step: Step
    signums: tuple[int, ...]
    is_thorough: bool = False


class Reach:
    """Looks at `steps` and `tasks` (by pid), which its owner maintains; changes neither."""

    def __init__(
        self,
        instance: str,
        steps: Mapping[StepKey, Step],
        tasks: Mapping[int, tuple[Step, Task]],
        timers: Timers,
    ) -> None:
        self._instance = instance
        self._steps = steps
        self._tasks = tasks
        self._timers = timers
        self._me = os.getpid()
        self._sweep_not_before_us = 0
        self._sweep_wanted = False

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Signal the tasks' groups at once, then whatever else a look at /proc shows to be theirs."""
        wanted: dict[StepKey, list[int]] = {}
        is_thorough = any(delivery.is_thorough for delivery in deliveries)
        for delivery in deliveries:
            step = delivery.step
            if self._steps.get(step.key) is not step:
                continue
            wanted.setdefault(step.key, []).extend(delivery.signums)
            for task in step.tasks:
                if task.alive:
                    _signal_task(task, delivery.signums)
        if not wanted:
            return
        for process in procfs.all_processes():
            owner = self._owner_outside_groups(process, is_thorough=is_thorough)
            for signum in wanted.get(owner.key, ()) if owner is not None else ():
                procfs.kill_process(process.pid, signum)

    def signal_around(self, step: Step, signum: int) -> None:
        """Signal the processes of a step, all but its first task itself: what a batch shell has started."""
        first = step.tasks[0].pid
        for process in procfs.all_processes():
            owner = self._tasks.get(process.group) or self._tasks.get(process.session)
            is_its = owner[0] is step if owner is not None else self._owner_outside_groups(process) is step
            if is_its and process.pid != first:
                procfs.kill_process(process.pid, signum)

    def _owner_outside_groups(self, process: procfs.Process, *, is_thorough: bool = False) -> Step | None:
        """The live step of a process that is in no task's group: by session, or by marker if we adopted it."""
        if process.group in self._tasks or process.pid in self._tasks:
            return None
        owner = self._tasks.get(process.session)
        if owner is not None:
            return owner[0]
        if process.parent == self._me or (is_thorough and process.pid != self._me):
            return self._steps.get(key) if (key := self._marked_key(process.pid)) is not None else None
        return None

    def _marked_key(self, pid: int) -> StepKey | None:
        """The step of this supervisor whose marker the process carries, live or over."""
        instance, _, text = procfs.marker_of(pid).partition("/")
        return parse_key(text) if instance == self._instance else None

    def sweep(self, over: set[StepKey]) -> None:
        """Kill adopted processes whose step is over; `over` are those found to be so in this pass.

        Looks with the first ending, then once a second at most, and again after each catch, whose own
        children are adopted in turn.
        """
        self._sweep_wanted = self._sweep_wanted or bool(over)
        now_us = boot_us()
        if not self._sweep_wanted or now_us < self._sweep_not_before_us:
            return
        live = self._steps.keys() - over
        caught = False
        for process in procfs.all_processes():
            if self._is_stray(process, live):
                procfs.kill_process(process.pid, signal.SIGKILL)
                caught = True
        self._sweep_wanted = caught
        self._sweep_not_before_us = now_us + (_SWEEP_AGAIN_US if caught else _SWEEP_INTERVAL_US)
        # Endings within the interval are swept up behind it, even if nothing else happens by then.
        self._timers.at(self._sweep_not_before_us, lambda: None)

    def _is_stray(self, process: procfs.Process, live: set[StepKey]) -> bool:
        if process.parent != self._me or process.state == "Z":
            return False
        if process.pid in self._tasks or process.session in self._tasks or process.group in self._tasks:
            return False
        key = self._marked_key(process.pid)
        # One that hides whose it is may belong to any step that lives.
        return not live if key is None else key not in live


def parse_key(text: str) -> StepKey | None:
    """The inverse of `str(StepKey)`; None for anything else."""
    numbers = text.split(".")
    if len(numbers) != 4 or not all(number.removeprefix("-").isdecimal() for number in numbers):
        return None
    return StepKey(*map(int, numbers))


def _signal_task(task: Task, signums: tuple[int, ...]) -> None:
    for signum in signums:
        if task.report_fd >= 0:
            # It may not have made its own group yet.
            procfs.kill_process(task.pid, signum)
        procfs.kill_group(task.pid, signum)
