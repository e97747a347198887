"""The processes of a step beyond its tasks, and the delivery of signals to them.

A step's processes are its tasks' process groups, everything else in the tasks' sessions, and processes that left those
sessions as daemons: `procd` (a subreaper) adopts these, and they still carry the step's mark. A scan of /proc costs
milliseconds, as much as a short job, so all users of one request share it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping, Sequence

from eslurm.core.model.step_key import StepKey
from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs
from esnoded.procd.wire import Delivery

_SWEEP_INTERVAL_US = 1_000_000
_SWEEP_AGAIN_US = 20_000
_KEY_CHARS_MAX = 80
"""A process may carry any mark it likes."""


class Families:
    """Looks at `steps` (those that are not over), `tasks` (their keys by pid) and `first` (the pid of each first task),
    which its owner maintains; changes none.
    """

    def __init__(
        self,
        instance: str,
        steps: Collection[StepKey],
        tasks: Mapping[int, StepKey],
        first: Mapping[StepKey, int],
        connecting: Collection[int] = (),
        spared: int = 0,
    ) -> None:
        """`connecting` and `spared` are children that are no processes of a step."""
        self._instance = instance
        self._steps = steps
        self._tasks = tasks
        self._first = first
        self._connecting = connecting
        self._spared = {os.getpid(), spared}
        self._not_before_us = 0
        self.is_sweep_wanted = False

    @property
    def sweep_in_us(self) -> int:
        """Microseconds until a wanted sweep may begin."""
        return max(0, self._not_before_us - boot_us())

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Signal the tasks' groups at once, then all other processes of theirs that a scan of /proc shows."""
        wanted: dict[StepKey, list[Delivery]] = {}
        for one in deliveries:
            if one.key in self._steps:
                wanted.setdefault(one.key, []).append(one)
        for pid, key in self._tasks.items():
            for one in wanted.get(key, ()):
                if one.reach in ("step", "thorough"):
                    _signal_group(pid, one.signums)
                elif one.reach == "first" and self._first.get(key) == pid:
                    for signum in one.signums:
                        procfs.kill_process(pid, signum)
        reaches = {one.reach for several in wanted.values() for one in several}
        if not reaches - {"first"}:
            return
        for process in procfs.all_processes():
            in_group = self._tasks.get(process.group) or self._tasks.get(process.pid)
            owner = in_group or self._owner_outside_groups(process, is_thorough="thorough" in reaches)
            for one in wanted.get(owner, ()) if owner is not None else ():
                is_rest = one.reach == "around" and process.pid != self._first.get(one.key)
                if is_rest or (in_group is None and one.reach in ("step", "thorough")):
                    for signum in one.signums:
                        procfs.kill_exactly(process, signum)

    def _owner_outside_groups(self, process: procfs.Process, *, is_thorough: bool) -> StepKey | None:
        """The live step of a process that is in no task's group: by session, or by mark if it was adopted."""
        owner = self._tasks.get(process.session)
        if owner is not None or process.pid in self._spared:
            return owner
        if process.parent == os.getpid() or is_thorough:
            key = self._marked_key(process.pid)
            return key if key is not None and key in self._steps else None
        return None

    def _marked_key(self, pid: int) -> StepKey | None:
        """The step whose mark the process carries, live or over."""
        instance, _, text = procfs.marker_of(pid).partition("/")
        return parse_key(text) if instance == self._instance else None

    def sweep(self) -> None:
        """Kill adopted processes whose step is over.

        Looks with the first ending, then once a second at most, and again after each catch, whose own
        children are adopted in turn.
        """
        if not self.is_sweep_wanted or self.sweep_in_us:
            return
        strays = [process for process in procfs.own_children() if self._is_stray(process)]
        for process in strays:
            procfs.kill_process(process.pid, signal.SIGKILL)
        self.is_sweep_wanted = bool(strays)
        self._not_before_us = boot_us() + (_SWEEP_AGAIN_US if strays else _SWEEP_INTERVAL_US)

    def _is_stray(self, process: procfs.Process) -> bool:
        if process.parent != os.getpid() or process.state == "Z":
            return False
        if process.pid in self._spared or process.pid in self._connecting:
            return False
        if self._tasks.keys() & {process.pid, process.session, process.group}:
            return False
        key = self._marked_key(process.pid)
        # One that hides whose it is may belong to any step that lives.
        return not self._steps if key is None else key not in self._steps


def parse_key(text: str) -> StepKey | None:
    """The inverse of `str(StepKey)`; None for anything else."""
    numbers = text.split(".") if len(text) <= _KEY_CHARS_MAX else []
    if len(numbers) != 4 or not all(number.removeprefix("-").isdecimal() for number in numbers):
        return None
    return StepKey(*map(int, numbers))


def _signal_group(pid: int, signums: Sequence[int]) -> None:
    """Signal a task, which is a child that was not collected: until it leads its group it is alone."""
    for signum in signums:
        if os.getpgid(pid) == pid:
            procfs.kill_group(pid, signum)
        else:
            procfs.kill_process(pid, signum)
