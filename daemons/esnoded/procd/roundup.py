"""End every process of a supervisor's steps, whatever it did to get away from its step.

They are known by the marker in their environment, by a recorded pid and start time, by the session that such a process
leads, and by having been adopted. Invariant: it is done only when a look at all processes, begun after the last kill had
taken effect, finds nobody: a process may fork while it is looked for, and what a killed one leaves is adopted then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs

_PATIENCE_US = 5_000_000
_KILL_WAIT_US = 2_000_000


def end_all(instance: str, recorded: Mapping[int, int] | None = None, *, adopter: int = 0) -> list[int]:
    """Kill in rounds; returns who is left: stuck in the kernel, not ours to kill, or faster than we are.

    `recorded` are start times in ticks by pid. `adopter`: the supervisor whose children it may take for processes of its
    steps; 0: nobody's children are.
    """
    deadline_us = boot_us() + _PATIENCE_US
    stuck: set[int] = set()
    while True:
        found = _find_all(instance, recorded or {}, adopter)
        killable = [process for process in found if process.pid not in stuck]
        if not killable or boot_us() > deadline_us:
            return [process.pid for process in found]
        stuck.update(procfs.kill_and_wait(killable, _KILL_WAIT_US))


def _find_all(instance: str, recorded: Mapping[int, int], adopter: int) -> list[procfs.Process]:
    processes = [process for process in procfs.all_processes() if process.state != "Z"]
    leaders = {process.pid for process in processes if recorded.get(process.pid) == process.start_ticks}
    prefix = f"{instance}/"
    me = os.getpid()
    return [
        process
        for process in processes
        if process.pid != me
        and (
            process.pid in leaders
            or process.session in leaders
            or (adopter and process.parent == adopter)
            or procfs.marker_of(process.pid).startswith(prefix)
        )
    ]
