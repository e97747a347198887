"""The use of living steps by their tasks, by the kernel's counts in /proc, which every user may read.

A task is its process, what is in its session, and all that descends from these. In a control group also processes that
have left in the way of daemons are the step's: they count as of its first task. Invariant: a look is bounded, however many
processes a user has started, and a process that ends meanwhile is no error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from eslurm.core.model.step_usage import PIDS_TOLD_MAX, STEPS_MEASURED_MAX, Amount, StepUse, amount_of
from esnoded.stepd.groups import Groups
from esnoded.stepd.step import Step

PROCESSES_MAX: Final = 1_024
"""Processes that one question looks at: together some 20 ms of the supervisor's time."""
SCANNED_MAX: Final = 16_384
"""Processes of the host that it goes through for a step without a control group."""
_ANCESTORS_MAX = 64
_STAT_BYTES_MAX = 4096
_STATUS_BYTES_MAX = 4096
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


class _Seen(NamedTuple):
    """A process: CPU time with that of its collected children, memory in KiB, faults that took the disk."""

    pid: int
    parent: int
    session: int
    cpu_us: int
    faults: int
    virtual_kib: int
    memory_kib: int


class Meter:
    """Measures steps of one table; `proc` is where the kernel shows processes."""

    def __init__(self, groups: Groups, proc: str = "/proc") -> None:
        self._groups = groups
        self._proc = proc

    def measure(self, steps: Iterable[Step], *, with_pids: bool) -> list[StepUse]:
        """The use of these steps, of the first `STEPS_MEASURED_MAX` that have living tasks."""
        found: list[StepUse] = []
        host: dict[int, _Seen] | None = None
        looks, names = PROCESSES_MAX, PIDS_TOLD_MAX if with_pids else 0
        for step in steps:
            tasks = {task.pid: task.local for task in step.tasks if task.alive and not task.is_aside}
            if not tasks or len(found) >= STEPS_MEASURED_MAX:
                continue
            members = self._group(step)
            if members is None:
                host = self._scan() if host is None else host
                seen = {pid: one for pid, one in host.items() if _task_of(one, tasks, host) is not None}
            else:
                wanted = [*tasks, *(pid for pid in members if pid not in tasks)]
                read = map(self._read, wanted[: looks + 1])
                seen = {one.pid: one for one in read if one is not None}
            chosen = dict(list(seen.items())[:looks])
            looks -= len(chosen)
            pids = tuple(sorted(chosen)[:names])
            is_partial = len(chosen) < len(seen) or (with_pids and len(pids) < len(chosen))
            names -= len(pids)
            use = self._use(step, tasks, chosen)
            ranks = tuple(tasks.get(pid, -1) for pid in pids)
            found.append(
                StepUse(step.key.step, len(tasks), *use, pids, is_partial, ranks, step.spec.first_task)
            )
        return found

    def _group(self, step: Step) -> list[int] | None:
        """The processes in its control group; None: it has none, or that cannot be read."""
        with suppress(OSError, ValueError):
            return self._groups.pids(step.key)
        return None

    def _scan(self) -> dict[int, _Seen]:
        """The processes of the host, as far as they are looked at."""
        numbers = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        # Those that have started last have the highest numbers, mostly: the others may be the system's.
        read = map(self._read, sorted(numbers, reverse=True)[:SCANNED_MAX])
        return {one.pid: one for one in read if one is not None}

    def _use(
        self, step: Step, tasks: Mapping[int, int], seen: Mapping[int, _Seen]
    ) -> tuple[Amount, Amount, Amount, Amount]:
        """CPU time, memory, virtual memory and faults."""
        first_pid = min(tasks, key=lambda pid: tasks[pid])
        cpu_us, faults = dict.fromkeys(tasks, 0), dict.fromkeys(tasks, 0)
        memory_kib, virtual_kib = dict.fromkeys(tasks, 0), dict.fromkeys(tasks, 0)
        peak_kib, virtual_peak_kib = dict.fromkeys(tasks, 0), dict.fromkeys(tasks, 0)
        for one in seen.values():
            owner = _task_of(one, tasks, seen)
            task = first_pid if owner is None else owner
            cpu_us[task] += one.cpu_us
            faults[task] += one.faults
            memory_kib[task] += one.memory_kib
            virtual_kib[task] += one.virtual_kib
            virtual, memory = self._peaks(one.pid)
            peak_kib[task] = max(peak_kib[task], memory)
            virtual_peak_kib[task] = max(virtual_peak_kib[task], virtual)
        ranks = {pid: step.spec.first_task + local for pid, local in tasks.items()}
        if len(step.tasks) == 1:
            # What left the task and has been collected elsewhere is in the group's count alone.
            cpu_us[first_pid] = max(cpu_us[first_pid], self._group_cpu_us(step))

        def by_rank(amounts: Mapping[int, int]) -> Amount:
            return amount_of([(ranks[pid], value) for pid, value in amounts.items()])

        memory_kib = {pid: max(memory_kib[pid], peak_kib[pid]) for pid in tasks}
        virtual_kib = {pid: max(virtual_kib[pid], virtual_peak_kib[pid]) for pid in tasks}
        return by_rank(cpu_us), by_rank(memory_kib), by_rank(virtual_kib), by_rank(faults)

    def _group_cpu_us(self, step: Step) -> int:
        with suppress(OSError, ValueError):
            if (use := self._groups.use(step.key)) is not None:
                return use.user_us + use.system_us
        return 0

    def _read(self, pid: int) -> _Seen | None:
        """The process; None when it is gone, or has ended and is not collected yet."""
        with suppress(OSError, ValueError, IndexError):
            line = _head(f"{self._proc}/{pid}/stat", _STAT_BYTES_MAX)
            # The command name is in parentheses and may itself hold blanks and parentheses.
            fields = line[line.rindex(b")") + 2 :].split()
            if fields[0] in (b"Z", b"X"):
                return None
            ticks = sum(int(fields[at]) for at in (11, 12, 13, 14))
            return _Seen(
                *(pid, int(fields[1]), int(fields[3])),
                *(ticks * _TICK_US, int(fields[9])),
                *(int(fields[20]) // 1024, int(fields[21]) * _PAGE_KIB),
            )
        return None

    def _peaks(self, pid: int) -> tuple[int, int]:
        """(virtual, resident) KiB at most since the process began its program; 0 where the kernel does not say."""
        found = {b"VmPeak": 0, b"VmHWM": 0}
        with suppress(OSError, ValueError, IndexError):
            for line in _head(f"{self._proc}/{pid}/status", _STATUS_BYTES_MAX).splitlines():
                name, _, value = line.partition(b":")
                if name in found:
                    found[name] = int(value.split()[0])
        return found[b"VmPeak"], found[b"VmHWM"]


def _task_of(one: _Seen, tasks: Mapping[int, int], seen: Mapping[int, _Seen]) -> int | None:
    """The pid of the task that a process belongs to; None: it has left all of them."""
    for _ in range(_ANCESTORS_MAX):
        if one.pid in tasks:
            return one.pid
        if one.session in tasks:
            return one.session
        parent = seen.get(one.parent)
        if parent is None:
            return None
        one = parent
    return None


def _head(path: str, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)
