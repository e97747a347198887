"""End every process of a supervisor's steps, whatever it did to leave its step.

They are known by the marker in their environment, by a recorded pid and start time, by the session that such a process
leads, and by having been adopted. Invariant: it is done only when a scan of all processes, begun after the last kill,
finds none: a process may fork during a scan, and children of a killed one are adopted then.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs

_PATIENCE_US = 5_000_000
_KILL_WAIT_US = 2_000_000
_LOOK_AGAIN_S = 0.01


def end_all(instance: str, recorded: Mapping[int, int] | None = None, *, adopter: int = 0) -> list[int]:
    """Kill in rounds; returns which are left: stuck in the kernel, not ours to kill, or faster than we are.

    `recorded` are start times in ticks by pid. `adopter`: the supervisor whose children it may take for processes of its
    steps; 0: no process's children are.
    """
    began_us = boot_us()
    killed_us: dict[int, int] = {}
    while found := _find_all(instance, recorded or {}, adopter):
        now_us = boot_us()
        hopeful = [one for one in found if now_us - killed_us.setdefault(one.pid, now_us) < _KILL_WAIT_US]
        if not hopeful or now_us - began_us > _PATIENCE_US:
            break
        for process in hopeful:
            procfs.kill_exactly(process, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)
    return sorted(process.pid for process in found)


def _find_all(instance: str, recorded: Mapping[int, int], adopter: int) -> list[procfs.Process]:
    processes = [one for one in procfs.all_processes() if one.state != "Z" and one.pid != os.getpid()]
    leaders = {one.pid for one in processes if recorded.get(one.pid) == one.start_ticks}
    return [
        one
        for one in processes
        if leaders & {one.pid, one.session}
        or (adopter and one.parent == adopter)
        or procfs.marker_of(one.pid).startswith(f"{instance}/")
    ]
