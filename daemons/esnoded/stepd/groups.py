"""The control groups of the supervisor's steps: a group for each job on each node, and in it one for each step.

The supervisor owns the directory (`procd.groups` has made it) and does all of this as the agent's user. Invariants: a group
is there before a process of its step is made; a step is not over while its group has a process. Without a directory no
group is made, and a step ends as far as `procd` finds its processes.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from eslurm.core.model.step_key import StepKey
from esnoded.procd.groups import given, path_of, write
from esnoded.procd.options import Options
from esnoded.stepd.terms import Terms

MIB = 1 << 20
_WEIGHT_MAX = 10_000
_FILE_BYTES_MAX = 4096


class GroupUse(msgspec.Struct, frozen=True):
    """Use by all processes of a step, those that nothing has collected included.

    `peak_bytes` is 0 where memory is not counted. `oom_kills` are processes that were killed for want of memory.
    """

    user_us: int = 0
    system_us: int = 0
    peak_bytes: int = 0
    oom_kills: int = 0


class Groups:
    """The groups below `base`; empty: there are none."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._open: dict[StepKey, str] = {}
        self.controllers: tuple[str, ...] = ()
        if base:
            self.controllers = given(base)
            _enable(base, self.controllers)

    def open(self, terms: Terms, options: Options) -> None:
        """Make the step's group, and its job's with the job's limits. Raises OSError."""
        if not self._base or terms.key in self._open:
            return
        path = path_of(self._base, terms.key)
        job = os.path.dirname(path)
        with suppress(FileExistsError):
            os.mkdir(job, 0o755)
            try:
                self._limit(job, terms, options)
            except OSError:
                # The job's next step would find a group without limits.
                os.rmdir(job)
                raise
        with suppress(FileExistsError):
            # One of that name is of a step that was refused, and is empty.
            os.mkdir(path, 0o755)
        self._open[terms.key] = path
        if "memory" in self.controllers:
            # A step that has lost one of its processes is of no use to its job.
            write(f"{path}/memory.oom.group", "1")

    def _limit(self, job: str, terms: Terms, options: Options) -> None:
        _enable(job, self.controllers)
        if terms.key.is_phase:
            return
        if "pids" in self.controllers and options.job_processes:
            write(f"{job}/pids.max", str(options.job_processes))
        if "cpu" in self.controllers and terms.cores:
            write(f"{job}/cpu.weight", str(min(_WEIGHT_MAX, 100 * terms.cores)))
        if "memory" in self.controllers and terms.memory_mib:
            write(f"{job}/memory.max", str(terms.memory_mib * MIB))
            with suppress(FileNotFoundError):
                # The kernel may have no swap.
                write(f"{job}/memory.swap.max", "0")
            if options.oom_ends == "job":
                write(f"{job}/memory.oom.group", "1")

    def kill(self, key: StepKey) -> None:
        """Kill all processes of a step, whatever they did to leave it. Raises OSError."""
        if path := self._open.get(key):
            write(f"{path}/cgroup.kill", "1")

    def is_empty(self, key: StepKey) -> bool:
        """Check whether no process of the step is left. Raises OSError."""
        path = self._open.get(key)
        return path is None or "populated 0" in _read(f"{path}/cgroup.events")

    def use(self, key: StepKey) -> GroupUse | None:
        """Use by the step until now; None without a group. Raises OSError, ValueError."""
        path = self._open.get(key)
        if path is None:
            return None
        used = _numbers(f"{path}/cpu.stat")
        peak, killed = 0, 0
        if "memory" in self.controllers:
            with suppress(FileNotFoundError):
                # Kernels before 5.19 do not keep it.
                peak = int(_read(f"{path}/memory.peak"))
            killed = _numbers(f"{path}/memory.events").get("oom_kill", 0)
        return GroupUse(used.get("user_usec", 0), used.get("system_usec", 0), peak, killed)

    def close(self, key: StepKey) -> None:
        """Remove the group of a step, and its job's with the last one."""
        path = self._open.pop(key, None)
        if path is None:
            return
        with suppress(OSError):
            os.rmdir(path)
            os.rmdir(os.path.dirname(path))


def _enable(directory: str, controllers: tuple[str, ...]) -> None:
    if controllers:
        write(f"{directory}/cgroup.subtree_control", " ".join(f"+{one}" for one in controllers))


def _read(path: str) -> str:
    # A file object costs more than the kernel's answer, which is short and comes whole.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _FILE_BYTES_MAX).decode("ascii")
    finally:
        os.close(fd)


def _numbers(path: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in _read(path).splitlines())}
