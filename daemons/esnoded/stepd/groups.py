"""The control groups of the supervisor's steps: a group for each job on each node, and in it one for each step.

The supervisor owns the directory (`procd.groups` has made it) and does all of this as the agent's user. Invariants: a group
is there before a process of its step is made; a step is not over while its group has a process. Without a directory no
group is made, and a step ends as far as `procd` finds its processes.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress

import msgspec

from eslurm.core.model.step_key import StepKey
from esnoded.procd.groups import CONTROLLERS, path_of, write
from esnoded.procd.log import complain
from esnoded.procd.options import Options
from esnoded.stepd.core_sets import CoreSets
from esnoded.stepd.terms import Terms
from esnoded.topology import SYSTEM, format_cpus, parse_cpus, read_cores

MIB = 1 << 20
_WEIGHT_MAX = 10_000
_FILE_BYTES_MAX = 16_384
_CPUSET = "cpuset"
_TOLD_MAX = 256
"""Latest jobs without cores of their own, of which the log has a line."""


class GroupUse(msgspec.Struct, frozen=True):
    """Use by all processes of a step, those that nothing has collected included.

    `peak_bytes` is 0 where memory is not counted. `oom_kills` are processes that were killed for want of memory.
    """

    user_us: int = 0
    system_us: int = 0
    peak_bytes: int = 0
    oom_kills: int = 0


def given_controllers(base: str) -> tuple[str, ...]:
    """The controllers that the groups below may have. Raises OSError."""
    found = _read(f"{base}/cgroup.controllers").split()
    return tuple(one for one in CONTROLLERS if one in found)


class Groups:
    """The groups below `base`; empty: there are none. `system` is where the kernel shows the cores of the host."""

    def __init__(self, base: str, system: str = SYSTEM) -> None:
        self._base = base
        self._system = system
        self._open: dict[StepKey, str] = {}
        self._cores: CoreSets | None = None
        self._told: deque[str] = deque(maxlen=_TOLD_MAX)
        self.controllers: tuple[str, ...] = ()
        if base:
            self.controllers = given_controllers(base)
            _enable(base, self._usual)

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
            if terms.own_memory_mib:
                write(f"{path}/memory.max", str(terms.own_memory_mib * MIB))

    def _limit(self, job: str, terms: Terms, options: Options) -> None:
        _enable(job, self._usual)
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
        if _CPUSET in self.controllers and options.bind_cores and terms.cores:
            try:
                self._confine(job, terms)
            except (OSError, ValueError) as error:
                self._let_run(job, terms, f"that cannot be set: {error}")

    @property
    def _usual(self) -> tuple[str, ...]:
        """Controllers of all groups."""
        return tuple(one for one in self.controllers if one != _CPUSET)

    def _confine(self, job: str, terms: Terms) -> None:
        """Give the job cores of its own, if there are enough. Raises OSError, ValueError."""
        if self._cores is None:
            _enable(self._base, (_CPUSET,))
            cpus = parse_cpus(_read(f"{self._base}/cpuset.cpus.effective"))
            self._cores = CoreSets(read_cores(cpus, self._system))
        if terms.cores > self._cores.free:
            self._remove_left(self._cores)
        chosen = self._cores.take(job, terms.cores)
        if not chosen:
            has = f"of the {self._cores.total} cores of this host {self._cores.free} are of no job"
            self._let_run(job, terms, f"it has {terms.cores} on node {terms.node_name}, and {has}")
            return
        try:
            write(f"{job}/cpuset.cpus", format_cpus([cpu for core in chosen for cpu in core.cpus]))
        except OSError:
            self._cores.give_back(job)
            raise
        # By it a task knows that its job has cores (`task.cpu_binding`); steps share them.
        with suppress(OSError):
            _enable(job, (_CPUSET,))

    def _remove_left(self, cores: CoreSets) -> None:
        """Free the cores of jobs whose last process was still there when their last step was given up."""
        used = {os.path.dirname(path) for path in self._open.values()}
        for job in cores.groups:
            if job not in used:
                with suppress(OSError):
                    for step in list(os.scandir(job)):
                        if step.is_dir(follow_symlinks=False):
                            os.rmdir(step.path)
                    os.rmdir(job)
                    cores.give_back(job)

    def _let_run(self, job: str, terms: Terms, why: str) -> None:
        # Its group may come and go with each of its steps.
        if job not in self._told:
            self._told.append(job)
            complain(f"job {terms.key.job_id} has no cores of its own: {why}")

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

    def pids(self, key: StepKey) -> list[int] | None:
        """The processes in the step's group, as many as one read shows; None without a group. Raises OSError, ValueError."""
        path = self._open.get(key)
        if path is None:
            return None
        # What is behind the last end of a line may be a part of a number.
        return [int(line) for line in _read(f"{path}/cgroup.procs").rpartition("\n")[0].splitlines()]

    def close(self, key: StepKey) -> None:
        """Remove the group of a step, and its job's with the last one."""
        path = self._open.pop(key, None)
        if path is None:
            return
        with suppress(OSError):
            os.rmdir(path)
            os.rmdir(job := os.path.dirname(path))
            if self._cores is not None:
                self._cores.give_back(job)


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
