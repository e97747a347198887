"""Stopping a cluster's processes on this machine, down to the last process of its jobs.

Step supervisors outlive agents on purpose, so that jobs survive an agent's restart; a cluster that is taken down must find
them: by the status file each leaves in its agent's directory, and their jobs' processes by the marker that every process
of a step inherits. Invariant: only processes that are surely this cluster's are signalled.

Jobs that are ended here will run again. A supervisor that is stopped by SIGTERM records its steps as ended by a signal,
which would make their jobs fail; so it is killed first, and its successor reports them as lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from escli.errors import ClusterError
from escli.local import processes
from escli.local.layout import Layout
from escli.local.plan import KINDS
from escli.local.processes import Identity
from escli.local.record import ClusterRecord, DaemonRecord
from escli.local.start import MARKER

GRACE_S = 10.0
"""Time between SIGTERM and SIGKILL for daemons, and for jobs."""

_STEP_MARKER = "ESLURM_STEP_KEY"
_ROUNDS_MAX = 5


class Stopped(msgspec.Struct, frozen=True):
    """The processes found and ended. `job_processes` counts processes of jobs, `kept`: they were left alone."""

    daemons: int = 0
    supervisors: int = 0
    job_processes: int = 0
    kept: bool = False


def ended_text(daemons: int, supervisors: int, job_processes: int) -> str:
    """The processes that were ended, in words; empty when there were none."""
    if not any((daemons, supervisors, job_processes)):
        return ""
    parts = [f"{daemons} daemons"]
    if supervisors:
        parts.append(f"{supervisors} step supervisors")
    if job_processes:
        parts.append(f"{job_processes} processes of jobs")
    return ", ".join(parts)


class _Status(msgspec.Struct):
    """The used fields of the status file that a supervisor writes (`esstepd.json`)."""

    pid: int
    start_ticks: int
    boot_id: str
    instance: str


def stop_all(
    layout: Layout,
    record: ClusterRecord,
    *,
    keep_jobs: bool = False,
    grace_s: float = GRACE_S,
    hurry: Callable[[], bool] = lambda: False,
) -> Stopped:
    """End the daemons, and the jobs unless they are kept. Idempotent. Hold the directory's lock.

    1. the controllers, so that they do not take the rest for lost nodes 2. satellites and agents 3. supervisors and jobs
    4. all else with the cluster's mark. Raises `ClusterError` when something does not end at all.
    """
    ended: set[str] = set()
    stuck: list[Identity] = []
    for is_controller in (True, False):
        group = [daemon for daemon in record.daemons if (daemon.kind == KINDS[0]) is is_controller]
        alive = [daemon for daemon in group if processes.is_alive(daemon.identity)]
        left = processes.end_all([daemon.identity for daemon in group], grace_s, hurry=hurry)
        stuck += left
        ended |= {daemon.name for daemon in alive}
        record = record.without_daemons({daemon.name for daemon in group if daemon.identity not in left})
        layout.save(record)
    supervisors = job_processes = 0
    if not keep_jobs:
        supervisors, job_processes = _end_jobs(layout, stuck, grace_s, hurry)
        stuck += processes.end_all(processes.marked(MARKER, [f"{record.cluster}\0"]), 0)
    if stuck:
        pids = " ".join(str(identity.pid) for identity in stuck)
        raise ClusterError(
            f"processes that do not end, stuck in the kernel: {pids}: run eslurm down again later"
        )
    return Stopped(len(ended), supervisors, job_processes, keep_jobs)


def _end_jobs(
    layout: Layout, stuck: list[Identity], grace_s: float, hurry: Callable[[], bool]
) -> tuple[int, int]:
    """(supervisors, processes of jobs) that were ended."""
    busy: list[Identity] = []
    idle: list[Identity] = []
    for identity, instance in supervisors_of(layout):
        (busy if processes.marked(_STEP_MARKER, [f"{instance}/"]) else idle).append(identity)
    stuck += processes.end_all(busy, 0, signum=signal.SIGKILL)
    stuck += processes.end_all(idle, grace_s, hurry=hurry)
    prefixes = [f"{instance}/" for instance in instances_of(layout)]
    found = 0
    # In rounds: a process may fork while it is looked for.
    for number in range(_ROUNDS_MAX):
        members = processes.marked(_STEP_MARKER, prefixes)
        if not members:
            break
        found += len(members)
        stuck += processes.end_all(members, 0 if number else grace_s, hurry=hurry)
    return len(busy) + len(idle), found


def take_back(
    layout: Layout, record: ClusterRecord, names: set[str], grace_s: float = GRACE_S
) -> ClusterRecord:
    """End some daemons again, and their idle step supervisors; jobs are left alone."""
    group = [daemon for daemon in record.daemons if daemon.name in names]
    processes.end_all([daemon.identity for daemon in group], grace_s)
    record = record.without_daemons(names)
    layout.save(record)
    idle = [
        identity
        for name in sorted(names)
        for identity, instance in supervisors_of(layout, name)
        if not processes.marked(_STEP_MARKER, [f"{instance}/"])
    ]
    processes.end_all(idle, grace_s)
    return record


def supervisors_of(layout: Layout, agent: str = "agent*") -> list[tuple[Identity, str]]:
    """The step supervisors of this cluster, each with the name that its steps' processes carry."""
    found = []
    for path in _files(layout, agent, "esstepd.json"):
        try:
            status = msgspec.json.decode(path.read_bytes(), type=_Status)
        except (OSError, msgspec.MsgspecError):
            continue
        identity = Identity(status.pid, status.start_ticks, status.boot_id)
        if processes.is_alive(identity):
            found.append((identity, status.instance))
    return found


def _files(layout: Layout, agent: str, name: str) -> list[Path]:
    """Files of supervisors, owned by this user only: an agent of another user may write anything."""
    paths = sorted(layout.directory.glob(f"{agent}/**/{name}"))
    return [path for path in paths if path.lstat().st_uid == os.geteuid()]


def instances_of(layout: Layout) -> list[str]:
    """The names that processes of steps carry here, also those of supervisors that are gone."""
    names = []
    for path in _files(layout, "agent*", "esstepd.instance"):
        try:
            name = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if name:
            names.append(name)
    return names


def leftovers(layout: Layout, record: ClusterRecord) -> list[Identity]:
    """Every process that still belongs to the cluster: daemons, supervisors and jobs."""
    found = [daemon.identity for daemon in record.daemons if processes.is_alive(daemon.identity)]
    found += [identity for identity, _ in supervisors_of(layout)]
    found += processes.marked(MARKER, [f"{record.cluster}\0"])
    found += processes.marked(_STEP_MARKER, [f"{instance}/" for instance in instances_of(layout)])
    return list(dict.fromkeys(found))


def alive_daemons(record: ClusterRecord) -> list[DaemonRecord]:
    """The recorded daemons that run."""
    return [daemon for daemon in record.daemons if processes.is_alive(daemon.identity)]
