"""`eslurm up`: a state directory and its daemons become a running cluster.

Invariant: everything is checked before anything is changed, and daemons that this run started are ended again when the
rest does not come up; older ones go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from escli import exits
from escli.errors import ClusterError, Interrupted, unusable
from escli.interrupts import Interrupts
from escli.local import controller, ports, settings
from escli.local.enrol import enrol
from escli.local.layout import MAIN, Layout, check, controller_daemon, locked, make
from escli.local.plan import (
    ESTIMATOR,
    KINDS,
    Planned,
    Programs,
    assign_nodes,
    can_estimate,
    daemons_of,
    standbys_of,
    with_ports,
)
from escli.local.record import FORMAT, AgentRecord, ClusterRecord, StandbyRecord
from escli.local.settings import Wishes
from escli.local.start import log_tail, start_all
from escli.local.stop import alive_daemons, take_back
from escli.local.users import with_users
from eslurm import __version__
from eslurm.config.file import parse_config
from eslurm.config.sections import Config

TIMEOUT_S = 60.0
NODES_PER_S = 100
"""Registrations that even a slow machine manages; more nodes than fit into `TIMEOUT_S` get more patience."""
_POLL_S = 0.1
_PROGRESS_S = 1.0

Tell = Callable[[str], None]
"""Destination of progress: one line at a time."""


class Running(msgspec.Struct, frozen=True):
    """A cluster that is up. `started` names the daemons that this run started: none when it was up already."""

    layout: Layout
    record: ClusterRecord
    config: Config
    started: tuple[str, ...]
    edited: bool = False
    """True when the configuration was changed after the controller had read it."""


def bring_up(
    layout: Layout,
    wishes: Wishes,
    programs: Programs,
    interrupts: Interrupts,
    tell: Tell,
    timeout_s: float | None = None,
) -> Running:
    """Make the cluster if it is new, and start the missing daemons. Raises `ClusterError`, `Interrupted`.

    Without `timeout_s` the patience grows with the number of nodes.

    1. look 2. lock 3. look again, make or read 4. find what is missing 5. start it, stage by stage 6. wait for the nodes
    """
    check(layout)
    make(layout)
    with locked(layout, timeout_s or TIMEOUT_S):
        record = check(layout)
        if record is None:
            record, config = _create(layout, wishes, programs)
        else:
            record, config = _reopen(layout, record, wishes)
        planned = daemons_of(layout, config, record)
        alive = {daemon.name for daemon in alive_daemons(record)}
        missing = [daemon for daemon in planned if daemon.name not in alive]
        if not missing:
            return Running(layout, record, config, (), _is_edited(layout, record))
        _check_ports(missing)
        enrol(layout, config, record)
        settings.share(layout, record.controller_uid)
        patience_s = timeout_s or max(TIMEOUT_S, settings.count_nodes(config) / NODES_PER_S)
        record = _start(layout, record, missing, programs, interrupts, tell, patience_s)
    started = tuple(daemon.name for daemon in missing if record.find(daemon.name) is not None)
    return Running(layout, record, config, started)


def furnish(layout: Layout, wishes: Wishes, programs: Programs) -> None:
    """Make the cluster if it is new, and start nothing. Raises `ClusterError`."""
    check(layout)
    make(layout)
    with locked(layout):
        record = check(layout)
        if record is None:
            _create(layout, wishes, programs)
        elif not record.agents:
            _furnish(layout, record, wishes)


def ports_of(wishes: Wishes) -> int:
    """Number of ports that the daemons of a new cluster need."""
    agents = min(wishes.nodes or settings.NODES_DEFAULT, wishes.agents_wanted)
    return 1 + wishes.satellites_wanted + agents + (wishes.controllers or 1) - 1


def _create(layout: Layout, wishes: Wishes, programs: Programs) -> tuple[ClusterRecord, Config]:
    uid = os.getuid()
    agents = wishes.agents_wanted
    name = settings.cluster_name(uid, wishes.cell.name if wishes.cell else "")
    has_estimator = can_estimate(programs) if wishes.estimator is None else wishes.estimator
    created_us = time.time_ns() // 1000
    record = ClusterRecord(FORMAT, __version__, name, uid, created_us, agents, estimator=has_estimator)
    return _furnish(layout, with_users(record, is_up=False, cell=wishes.cell), wishes)


def _furnish(layout: Layout, record: ClusterRecord, wishes: Wishes) -> tuple[ClusterRecord, Config]:
    """Write keys and configuration of a new cluster. All checks come before the first write."""
    nodes = wishes.nodes or settings.NODES_DEFAULT
    satellites = wishes.satellites_wanted
    agents = min(nodes, record.agents_wanted)
    standbys = standbys_of((), wishes.controllers or 1)
    cell = wishes.cell
    count = 1 + satellites + agents + len(standbys)
    chosen = list(cell.ports) if cell else ports.choose(count, wishes.port_base)
    text = settings.compose(record.cluster, wishes, record.owner_uid, chosen[: 1 + satellites])
    config = parse_config(text.encode(), str(layout.config_file))
    left = iter(chosen[1 + satellites :])
    assigned = with_ports(assign_nodes(config, (), agents), left)
    # The record first: from here on the directory is known to be a cluster's.
    layout.save(record)
    settings.write_site_keys(layout.directory, record.cluster)
    settings.replace_file(layout.config_file, text)
    record = msgspec.structs.replace(record, agents=assigned, standbys=with_ports(standbys, left))
    layout.save(record)
    return record, config


def _reopen(layout: Layout, record: ClusterRecord, wishes: Wishes) -> tuple[ClusterRecord, Config]:
    alive = alive_daemons(record)
    if alive and record.version != __version__:
        raise ClusterError(
            f"{layout.directory}: eslurm {record.version} runs here, this is {__version__}: stop it first (eslurm down)"
        )
    if record.is_old:
        raise ClusterError(
            f"{layout.directory}: an older release made this cluster, whose daemons share one key: `eslurm convert` gives "
            "each its own, jobs stay"
        )
    if not record.agents:
        # An earlier run got no further than the first line of the record.
        return _furnish(layout, record, wishes)
    config = settings.load_config(layout, record.cluster)
    settings.check_agreement(layout, config, record.agents_wanted, wishes)
    if not config.nodes:
        raise unusable(f"{layout.config_file}: nodes: there are none: add a [[nodes]] section")
    settings.write_site_keys(layout.directory, record.cluster)
    agents = assign_nodes(config, record.agents, record.agents_wanted)
    standbys = _standbys(layout, record, wishes, is_up=bool(alive))
    base = wishes.port_base
    if base is not None and base != ports.port_of(config.controller.listen):
        if alive:
            raise unusable("--port-base: the cluster is up: stop it first (eslurm down)")
        count = 1 + len(config.satellite)
        chosen = ports.choose(count + len(agents) + len(standbys), base)
        config = settings.move_ports(layout, config, chosen[:count])
        left = iter(chosen[count:])
        agents = with_ports([AgentRecord(agent.name, agent.nodes, "") for agent in agents], left)
        standbys = with_ports([StandbyRecord(one.name, "") for one in standbys], left)
    agents, standbys = _with_free_ports(config, agents, standbys)
    has_estimator = _estimator(record, wishes, is_up=bool(alive))
    changed = msgspec.structs.replace(
        with_users(record, is_up=bool(alive)),
        version=__version__,
        agents=agents,
        standbys=standbys,
        estimator=has_estimator,
    )
    if changed != record:
        layout.save(changed)
    return changed, config


def _standbys(
    layout: Layout, record: ClusterRecord, wishes: Wishes, *, is_up: bool
) -> tuple[StandbyRecord, ...]:
    here = 1 + len(record.standbys)
    wanted = wishes.controllers or here
    if is_up and wanted != here:
        raise unusable(
            f"--controllers: {wanted} is not what the cluster in {layout.directory} has ({here}): leave the option out, "
            "or stop it first (eslurm down)"
        )
    return standbys_of(record.standbys, wanted)


def _estimator(record: ClusterRecord, wishes: Wishes, *, is_up: bool) -> bool:
    """Check whether the cluster has an estimator from now on: one can be added to a running cluster."""
    if is_up and record.estimator and wishes.estimator is False:
        raise unusable("--no-estimator: the cluster is up with one: stop it first (eslurm down)")
    return record.estimator if wishes.estimator is None else wishes.estimator


def _with_free_ports(
    config: Config, agents: tuple[AgentRecord, ...], standbys: tuple[StandbyRecord, ...]
) -> tuple[tuple[AgentRecord, ...], tuple[StandbyRecord, ...]]:
    """The agents and controllers, new ones with unused ports."""
    known = [agent.listen for agent in agents] + [standby.listen for standby in standbys]
    known += [config.controller.listen, *(satellite.listen for satellite in config.satellite)]
    fresh = iter(ports.choose(known.count(""), None, [ports.port_of(listen) for listen in known]))
    return with_ports(agents, fresh), with_ports(standbys, fresh)


def _is_edited(layout: Layout, record: ClusterRecord) -> bool:
    started = record.find("esctld")
    return started is not None and layout.config_file.stat().st_mtime_ns // 1000 > started.started_us


def _check_ports(missing: Sequence[Planned]) -> None:
    for daemon in missing:
        if daemon.listen and not ports.is_free(daemon.listen):
            port = ports.port_of(daemon.listen)
            raise ClusterError(
                f"{daemon.name}: port {port} is in use by another program: end that (ss -ltnp 'sport = :{port}' names "
                "it), or move the cluster: eslurm down; eslurm up --port-base N"
            )


def _start(
    layout: Layout,
    record: ClusterRecord,
    missing: Sequence[Planned],
    programs: Programs,
    interrupts: Interrupts,
    tell: Tell,
    timeout_s: float,
) -> ClusterRecord:
    names = {daemon.name for daemon in missing}
    try:
        for group in _stages(missing):
            try:
                record = start_all(
                    layout,
                    record,
                    group,
                    programs,
                    interrupts,
                    timeout_s,
                    lambda name, seconds: tell(f"{name} is ready ({seconds:.1f} s)"),
                )
            except ClusterError as error:
                if isinstance(error, Interrupted) or any(one.kind != ESTIMATOR for one in group):
                    raise
                record = _without_estimator(layout, error, tell)
        _await_nodes(layout, record, interrupts, tell, timeout_s)
    except ClusterError:
        # What was spawned last is in the saved record only.
        take_back(layout, layout.get_record(), names)
        raise
    return record


def _without_estimator(layout: Layout, error: ClusterError, tell: Tell) -> ClusterRecord:
    """Report that the estimator could not be started, and go on without it."""
    for line in (error.text, *(f"    {line}" for line in error.tail)):
        tell(line)
    tell("the cluster goes on without it: plans count on time limits alone")
    take_back(layout, layout.get_record(), {ESTIMATOR})
    return layout.get_record()


def _stages(missing: Sequence[Planned]) -> Iterator[list[Planned]]:
    """Groups of daemons to start together: the first controller alone, so that it leads, then kind by kind."""
    first = [daemon for daemon in missing if daemon.name == controller_daemon(MAIN)]
    yield first
    for kind in KINDS:
        yield [daemon for daemon in missing if daemon.kind == kind and daemon not in first]


def _await_nodes(
    layout: Layout, record: ClusterRecord, interrupts: Interrupts, tell: Tell, timeout_s: float
) -> None:
    """Wait until every node has registered. Raises `ClusterError` after `timeout_s`."""
    tell_at_s = time.monotonic()
    deadline_s = tell_at_s + timeout_s
    told = -1
    while True:
        reply = controller.ping(layout.sockets(record))
        if reply is not None:
            all_up = reply.nodes_up >= reply.nodes > 0
            if reply.nodes_up != told and reply.nodes and (all_up or time.monotonic() >= tell_at_s):
                told = reply.nodes_up
                tell_at_s = time.monotonic() + _PROGRESS_S
                tell(f"{told} of {reply.nodes} nodes are up")
            if all_up:
                return
        dead = sorted(set(_names(record)) - {daemon.name for daemon in alive_daemons(record)})
        if dead:
            log = layout.log_of(dead[0])
            raise ClusterError(f"{dead[0]} has ended; the end of its log, {log}:", tail=log_tail(log))
        if time.monotonic() > deadline_s:
            raise _not_all_nodes(layout, reply, timeout_s)
        interrupts.wait((), _POLL_S)


def _names(record: ClusterRecord) -> list[str]:
    """The daemons' names without the estimator, whose end has no consequence."""
    return [daemon.name for daemon in record.daemons if daemon.kind != ESTIMATOR]


def _not_all_nodes(layout: Layout, reply: object, timeout_s: float) -> ClusterError:
    if reply is None:
        return ClusterError(
            f"the controller did not answer within {timeout_s:g} s: see {layout.log_of('esctld')}",
            exits.FAILED,
        )
    return ClusterError(
        f"not all nodes came up within {timeout_s:g} s (--timeout gives them more): see the logs in {layout.logs}"
    )
