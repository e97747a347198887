"""What a new supervisor owes to its predecessor's steps: end what still runs of them, and say that they are lost.

A predecessor ends in a crash only (an orderly stop ends its steps first). Its steps' processes are found by
the pid and start time it recorded, by the sessions those lead, and by the marker in their environment. Their exit
status belongs to a parent that is gone, so the outcome is `lost`, never a guess.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from eslurm.ports.step_runner import StepEndCause, StepEnded
from esnoded.stepd import procfs
from esnoded.stepd.journal import Unfinished

_ROUNDS_MAX = 5
_KILL_WAIT_US = 2_000_000


def end_lost_steps(
    unfinished: Iterable[Unfinished], instance: str, boot_id: str, now_us: int
) -> list[StepEnded]:
    """Kill every process of an earlier supervisor and return the outcomes of its steps. `now_us` is wall time."""
    lost = list(unfinished)
    recorded = dict(task for step in lost if step.boot_id == boot_id for task in step.tasks)
    survivors = _kill_all(instance, recorded)
    outcomes = []
    for step in lost:
        if step.boot_id != boot_id:
            text = "the node was rebooted while it ran"
        else:
            text = "its step supervisor died while it ran"
            if survivors:
                text += f"; processes that did not end: {' '.join(map(str, survivors))}"
        outcomes.append(
            StepEnded(step.key, 0, 0, StepEndCause.LOST, text, started_us=step.at_us, ended_us=now_us)
        )
    return outcomes


def _kill_all(instance: str, recorded: dict[int, int]) -> list[int]:
    """Kill in rounds, because a process may fork while it is looked for; returns who is left."""
    for _ in range(_ROUNDS_MAX):
        found = _find_all(instance, recorded)
        if not found:
            return []
        survivors = procfs.kill_and_wait(found, _KILL_WAIT_US)
        if survivors:
            return survivors
    return _find_all(instance, recorded)


def _find_all(instance: str, recorded: dict[int, int]) -> list[int]:
    processes = [process for process in procfs.all_processes() if process.state != "Z"]
    leaders = {process.pid for process in processes if recorded.get(process.pid) == process.start_ticks}
    prefix = f"{instance}/"
    me = os.getpid()
    return [
        process.pid
        for process in processes
        if process.pid != me
        and (
            process.pid in leaders
            or process.session in leaders
            or procfs.marker_of(process.pid).startswith(prefix)
        )
    ]
