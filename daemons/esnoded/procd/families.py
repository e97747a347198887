"""The processes of a step beyond its tasks, and the delivery of signals to them.

A step's processes are its tasks' process groups, everything else in the tasks' sessions, and processes that left those
sessions as daemons: `procd` (a subreaper) adopts these, and they still carry the step's mark. A scan of /proc costs
milliseconds, as much as a short job, so all users of one request share it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence, Set

import msgspec

from eslurm.core.model.step_key import StepKey
from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs
from esnoded.procd.request_checks import Allowed
from esnoded.procd.wire import Delivery

_SWEEP_INTERVAL_US = 1_000_000
_SWEEP_AGAIN_US = 20_000
_KEY_CHARS_MAX = 80
"""A process may carry any mark it likes."""


class Step(msgspec.Struct, eq=False):
    """An admitted step that is not over."""

    allowed: Allowed
    started: set[int] = msgspec.field(default_factory=set)
    """Local ranks of the tasks that were started."""
    followed: set[int] = msgspec.field(default_factory=set)
    """Those of them whose epilog was started."""
    asides: int = 0
    is_begun: bool = False
    connects: int = 1_000
    """Connections to its listener that may still be made: they are made again when the network has cut them."""

    @property
    def uid(self) -> int:
        """Its user."""
        return self.allowed.user.uid


class Families:
    """The steps that are not over, the tasks (their keys by pid) and the pid of each first task, which its owner maintains.

    `former` are the users of steps that are over.
    """

    def __init__(self, instance: str, server: int) -> None:
        """`server` is a child that is no process of a step, and so are those `connecting`."""
        self.steps: dict[StepKey, Step] = {}
        self.tasks: dict[int, StepKey] = {}
        self.first: dict[StepKey, int] = {}
        self.connecting: dict[int, int] = {}
        self.former: set[int] = set()
        self._instance = instance
        self._spared = {os.getpid(), server}
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
            if one.key in self.steps:
                wanted.setdefault(one.key, []).append(one)
        for pid, key in self.tasks.items():
            for one in wanted.get(key, ()):
                if one.reach in ("step", "thorough"):
                    _signal_group(pid, one.signums)
                elif one.reach == "first" and self.first.get(key) == pid:
                    for signum in one.signums:
                        procfs.kill_process(pid, signum)
        reaches = {one.reach for several in wanted.values() for one in several}
        if not reaches - {"first"}:
            return
        users = {self.steps[key].uid for key in wanted}
        for process in procfs.all_processes():
            in_group = self.tasks.get(process.group) or self.tasks.get(process.pid)
            owner = in_group or self.tasks.get(process.session)
            if owner is None and ("thorough" in reaches or process.parent == os.getpid()):
                owner = self._live_owner(process.pid, users)
            for one in wanted.get(owner, ()) if owner is not None else ():
                is_rest = one.reach == "around" and process.pid != self.first.get(one.key)
                if is_rest or (in_group is None and one.reach in ("step", "thorough")):
                    for signum in one.signums:
                        procfs.kill_exactly(process, signum)

    def _live_owner(self, pid: int, users: Set[int]) -> StepKey | None:
        """The live step, of one of these users, whose mark the process carries."""
        uid = procfs.uid_of(pid)
        # What is in the environments of other users' processes is theirs to choose: also how long it takes to read.
        if pid in self._spared or (uid and not users & {uid, 0}):
            return None
        key = self._marked_key(pid)
        return key if key is not None and self._is_of(key, uid) else None

    def _marked_key(self, pid: int) -> StepKey | None:
        """The step whose mark the process carries, live or over."""
        instance, _, text = procfs.marker_of(pid).partition("/")
        return parse_key(text) if instance == self._instance else None

    def _is_of(self, key: StepKey, uid: int) -> bool:
        """Check whether the step lives and may have processes of this user; one of root's may have those of any."""
        return key in self.steps and (not uid or self.steps[key].uid in (uid, 0))

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
        if process.pid in self._spared or process.pid in self.connecting:
            return False
        if self.tasks.keys() & {process.pid, process.session, process.group}:
            return False
        uid, key = procfs.uid_of(process.pid), self._marked_key(process.pid)
        if key is not None and (key not in self.steps or self._is_of(key, uid)):
            return key not in self.steps
        # It hides whose it is: it may belong to any live step of its user, or if that is root or has never had one, to any.
        return not self.steps or (uid > 0 and uid in self.former - {step.uid for step in self.steps.values()})


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
