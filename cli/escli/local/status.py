"""`eslurm status`: the daemons as the kernel sees them, the cluster as its controller sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from escli.errors import ClusterError
from escli.local import controller, processes
from escli.local.layout import Layout, controller_daemon
from escli.local.plan import daemons_of
from escli.local.record import ClusterRecord, DaemonRecord
from escli.local.settings import load_config
from escli.local.stop import supervisors_of
from escli.tables import Column, columns_of, render

State = Literal["up", "degraded", "down"]


class DaemonStatus(msgspec.Struct, frozen=True):
    """One daemon. `pid`, `uptime_s` and `rss_mib` are 0 when it does not run.

    `role`: of one of several controllers, leader or standby; empty when the leader does not know it.
    """

    name: str
    kind: str
    running: bool
    pid: int
    uptime_s: int
    rss_mib: float
    listen: str
    log: str
    role: str = ""


class ClusterStatus(msgspec.Struct, frozen=True):
    """The object of `eslurm status --json`. `controller` is the PingReply, None when there is no answer."""

    state: State
    cluster: str
    version: str
    state_dir: str
    socket: str
    daemons: tuple[DaemonStatus, ...]
    step_supervisors: int
    controller: dict[str, Any] | None
    sockets: tuple[str, ...] = ()


def look(layout: Layout, record: ClusterRecord) -> ClusterStatus:
    """The status now. Changes nothing."""
    daemons = tuple(look_at(layout, daemon) for daemon in record.daemons) + _missing(layout, record)
    reply = None
    if any(daemon.kind == "esctld" and daemon.running for daemon in daemons):
        if record.standbys:
            reply, roles = controller.ping_and_roles(layout.sockets(record))
            daemons = tuple(_with_role(daemon, roles) for daemon in daemons)
        else:
            reply = controller.ping(layout.socket)
    return ClusterStatus(
        state=_state(daemons, reply),
        cluster=record.cluster,
        version=record.version,
        state_dir=str(layout.directory),
        socket=str(layout.socket),
        daemons=daemons,
        step_supervisors=len(supervisors_of(layout)),
        controller=None if reply is None else _fields(reply),
        sockets=tuple(layout.sockets(record)),
    )


def _with_role(daemon: DaemonStatus, roles: Mapping[str, str]) -> DaemonStatus:
    for name, role in roles.items():
        if daemon.running and daemon.name == controller_daemon(name):
            return msgspec.structs.replace(daemon, role=role)
    return daemon


def _fields(reply: Any) -> dict[str, Any]:
    from escli.as_json import fields_of

    return fields_of(reply)


def look_at(layout: Layout, daemon: DaemonRecord) -> DaemonStatus:
    """A daemon of the record, as the kernel sees it."""
    usage = processes.usage_of(daemon.identity)
    return DaemonStatus(
        name=daemon.name,
        kind=daemon.kind,
        running=usage is not None,
        pid=daemon.identity.pid if usage else 0,
        uptime_s=int(usage.uptime_s) if usage else 0,
        rss_mib=round(usage.rss_mib, 1) if usage else 0.0,
        listen=daemon.listen,
        log=str(layout.log_of(daemon.name)),
    )


def _missing(layout: Layout, record: ClusterRecord) -> tuple[DaemonStatus, ...]:
    """Daemons that should run but that an `up` could not bring up."""
    if not record.daemons:
        return ()
    try:
        planned = daemons_of(layout, load_config(layout, record.cluster), record)
    except ClusterError:
        return ()  # The configuration is being edited; `eslurm up` will say what is wrong with it.
    return tuple(
        not_running(layout, one.name, one.kind, one.listen)
        for one in planned
        if record.find(one.name) is None
    )


def not_running(layout: Layout, name: str, kind: str, listen: str) -> DaemonStatus:
    """A daemon that should run."""
    return DaemonStatus(name, kind, False, 0, 0, 0.0, listen, str(layout.log_of(name)))


def _state(daemons: tuple[DaemonStatus, ...], reply: Any) -> State:
    if not any(daemon.running for daemon in daemons):
        return "down"
    if reply is None or not all(daemon.running for daemon in daemons) or reply.nodes_up < reply.nodes:
        return "degraded"
    return "up"


def describe(status: ClusterStatus) -> str:
    """The status as text, every line ended by a newline."""
    if status.state == "down" and not status.daemons:
        return (
            f"Cluster {status.cluster} ({status.state_dir}) is down; `eslurm up` starts it with the jobs it has.\n"
            + _supervisors(status)
        )
    head = f"Cluster {status.cluster} ({status.state_dir}) is {status.state}."
    return f"{head}\n\n{table_of(status.daemons)}\n{_nodes(status)}"


def table_of(daemons: Sequence[DaemonStatus]) -> str:
    """One line for each daemon."""
    from eslurm.compat.durations import format_duration

    columns = columns_of("DAEMON STATE >PID >UPTIME >RSS LISTENS LOG")
    has_roles = any(daemon.role for daemon in daemons)
    if has_roles:
        columns.insert(2, Column("ROLE"))
    rows = []
    for daemon in daemons:
        name = daemon.name if daemon.name == daemon.kind else f"{daemon.name} ({daemon.kind})"
        if daemon.running:
            life = [
                "running",
                str(daemon.pid),
                format_duration(daemon.uptime_s),
                f"{daemon.rss_mib:.0f} MiB",
            ]
        else:
            life = ["dead", "-", "-", "-"]
        if has_roles:
            life.insert(1, daemon.role or "-")
        rows.append([name, *life, daemon.listen or "-", daemon.log])
    return render(columns, rows)


def _nodes(status: ClusterStatus) -> str:
    reply = status.controller
    if reply is None:
        return "The controller does not answer.\n" + _supervisors(status)
    return (
        f"nodes {reply['nodes_up']} of {reply['nodes']} up; jobs {reply['jobs_running']} running, "
        f"{reply['jobs_pending']} pending\n"
    )


def _supervisors(status: ClusterStatus) -> str:
    if not status.step_supervisors:
        return ""
    return (
        f"{status.step_supervisors} step supervisors are running: jobs may be, too (eslurm down ends them).\n"
    )
