"""The daemons of a configuration, with their command lines.

Invariant: a node stays with the agent process that served it first, because its spool lies in that process's directory;
new nodes get new processes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

from escli.errors import unusable
from escli.local import ports
from escli.local.layout import MAIN, Layout, controller_daemon
from escli.local.record import AgentRecord, ClusterRecord, StandbyRecord
from eslurm.compat.hostlist import expand, fold
from eslurm.config.health import option_of
from eslurm.config.sections import AgentSection, Config

KINDS = ("esctld", "essatd", "esnoded", "esestd")
"""In the order of their start."""
ESTIMATOR = "esestd"
"""The name and the kind of the daemon that tells how long jobs will run."""

Listener = TypeVar("Listener", AgentRecord, StandbyRecord)

Programs = Mapping[str, Sequence[str]]
"""First words of the command line of each kind of daemon."""

# -P: the current directory of `eslurm up` may be another user's; `-m` alone would import from it.
PROGRAMS: Programs = {kind: (sys.executable, "-P", "-m", kind) for kind in KINDS}


WIDTH_MIN = 8
WIDTH_AUTOMATIC = 64
"""Widths that a satellite's budget of connections is made for: at least, and when the width is measured."""


class Notify(msgspec.Struct, frozen=True):
    """Socket at which a program of another project says that it is ready, as it would to systemd (sd_notify).

    `uid`: of the program, where root starts it as another user.
    """

    path: Path
    uid: int = 0


class Planned(msgspec.Struct, frozen=True):
    """A daemon to run. `arguments` follow the program; the ready descriptor's option follows them.

    `listen` is empty for one that only calls others. `notify`: in the place of the ready descriptor.
    """

    name: str
    kind: str
    listen: str
    arguments: tuple[str, ...]
    state_dir: Path | None = None
    notify: Notify | None = None


def daemons_of(layout: Layout, config: Config, record: ClusterRecord) -> list[Planned]:
    """All daemons of the cluster, in order of start."""
    controllers = ",".join([config.controller.listen, *(one.listen for one in record.standbys)])
    sockets = ":".join(layout.sockets(record))
    satellites = [satellite.listen for satellite in config.satellite]
    arguments: tuple[str, ...]
    common = (
        *("--cluster", config.cluster.name),
        *_tls_words(layout, config),
    )
    planned = _controllers(layout, config, record)
    width = config.policy.satellite_width or config.policy.relay_width or WIDTH_AUTOMATIC
    for number, satellite in enumerate(config.satellite, 1):
        # Named by position: what a satellite is called in the configuration need not be fit for a file.
        name = f"sat{number}"
        home = layout.state_of(name)
        arguments = (
            *common,
            *("--name", satellite.name, "--listen", satellite.listen),
            *("--controllers", controllers, "--sockets-max", str(4 * max(width, WIDTH_MIN))),
            *("--state-dir", str(home), "--allow-chaos"),
            *_user_words(record.satellite_uid),
        )
        planned.append(Planned(name, "essatd", satellite.listen, arguments, home))
    for agent in record.agents:
        home = layout.state_of(agent.name)
        cores, memory_mib = _size_of(config, agent)
        arguments = (
            *common,
            *("--nodes", agent.nodes, "--satellites", ",".join(satellites)),
            *("--controller", controllers, "--controller-socket", sockets),
            *("--listen", agent.listen, "--state-dir", str(home)),
            *("--cores", str(cores), "--memory-mib", str(memory_mib), "--allow-chaos"),
            *("--min-uid", str(config.agent.min_uid)),
            *(("--user", str(record.daemon_uid)) if record.daemon_uid else ()),
            *(("--allow-root-jobs",) if config.agent.allow_root_jobs else ()),
            *_phase_words(config.agent),
            *_containment_words(config.agent),
        )
        planned.append(Planned(agent.name, "esnoded", agent.listen, arguments, home))
    if record.estimator:
        home = layout.state_of(ESTIMATOR)
        arguments = (
            *("--config", str(layout.config_file), "--state-dir", str(home)),
            *("--controller-socket", sockets),
            *_user_words(record.controller_uid),
        )
        planned.append(Planned(ESTIMATOR, ESTIMATOR, "", arguments, home))
    return planned


def can_estimate(programs: Programs) -> bool:
    """Check whether the packages of `esestd` are installed."""
    return ESTIMATOR in programs and find_spec("sklearn") is not None


def _controllers(layout: Layout, config: Config, record: ClusterRecord) -> list[Planned]:
    """The first controller, which leads unless it has been away, and the standbys."""
    arguments = (
        *("--config", str(layout.config_file), "--state-dir", str(layout.directory)),
        *_user_words(record.controller_uid),
    )
    first = controller_daemon(MAIN)
    planned = [Planned(first, "esctld", config.controller.listen, arguments)]
    for one in record.standbys:
        words = (*arguments, "--name", one.name, "--listen", one.listen)
        planned.append(Planned(controller_daemon(one.name), "esctld", one.listen, words))
    return planned


def standbys_of(known: Sequence[StandbyRecord], controllers: int) -> tuple[StandbyRecord, ...]:
    """The controllers beside the first one, for this total number; new ones have no port yet."""
    kept = known[: controllers - 1]
    fresh = range(len(kept) + 2, controllers + 1)
    return (*kept, *(StandbyRecord(f"c{number}", "") for number in fresh))


def _user_words(uid: int) -> tuple[str, ...]:
    return ("--user", f"{uid}:{uid}") if uid else ()


def _tls_words(layout: Layout, config: Config) -> Iterator[str]:
    """TLS options for satellites and agents, which do not read the configuration."""
    for name in ("certificate", "key", "ca"):
        configured: str = getattr(config.tls, name)
        if configured:
            yield from (f"--tls-{name}", str(layout.directory / configured))
    if config.tls.require_client_certificate:
        yield "--tls-require-client-certificate"
    if config.tls.name:
        yield from ("--tls-name", config.tls.name)


def _phase_words(section: AgentSection) -> Iterator[str]:
    """The programs around each job."""
    for name in ("prolog", "epilog", "check", "task_prolog", "task_epilog", "gateway_daemon"):
        if path := getattr(section, name):
            yield from (f"--{name.replace('_', '-')}", path)
    for one in section.health_check:
        yield from ("--health-check", option_of(one))
    if section.prolog or section.epilog or section.check:
        yield from ("--phase-user", section.phase_user, "--phase-limit", str(section.phase_limit_s))


def _containment_words(section: AgentSection) -> Iterator[str]:
    """The control groups of jobs, as far as they are not as usual."""
    usual = AgentSection()
    for name in ("containment", "job_processes", "oom_ends", "private_dirs_mib"):
        if (value := getattr(section, name)) != getattr(usual, name):
            yield from (f"--{name.replace('_', '-')}", str(value))
    if section.private_dirs:
        yield from ("--private-dirs", ",".join(section.private_dirs))
    if section.bind_cores:
        yield "--bind-cores"
    if section.allow_set_user_id:
        yield "--allow-set-user-id"


def _size_of(config: Config, agent: AgentRecord) -> tuple[int, int]:
    """Cores and memory of the agent's nodes, which are all alike."""
    mine = set(expand(agent.nodes, "nodes"))
    for section in config.nodes:
        if mine & set(expand(section.names, "nodes.names")):
            return section.cores, section.memory_mib
    raise AssertionError(f"{agent.name} serves no configured node")


def assign_nodes(config: Config, known: Sequence[AgentRecord], wanted: int) -> tuple[AgentRecord, ...]:
    """The agents for the configured nodes: known nodes keep theirs, new ones get new agents without a port.

    A new cluster gets `wanted` agents, but at most one for each node and at least one for each group of nodes. Raises
    `ClusterError` when an agent's nodes have become unlike each other.
    """
    group_of = {
        name: index
        for index, section in enumerate(config.nodes)
        for name in expand(section.names, "nodes.names")
    }
    agents = []
    left = dict(group_of)
    for agent in known:
        names = [name for name in expand(agent.nodes, "nodes") if name in left]
        if len({_shape(config, left.pop(name)) for name in names}) > 1:
            raise unusable(
                f"nodes: {agent.nodes} share one agent process ({agent.name}) and must have the same cores and memory: "
                "make them alike again"
            )
        if names:
            agents.append(AgentRecord(agent.name, fold(names), agent.listen))
    number = max([int(agent.name.removeprefix("agent")) for agent in known], default=0)
    for names in _blocks(left, 1 if known else wanted):
        number += 1
        agents.append(AgentRecord(f"agent{number}", fold(names), ""))
    return tuple(agents)


def _shape(config: Config, group: int) -> tuple[int, int]:
    section = config.nodes[group]
    return section.cores, section.memory_mib


def _blocks(group_of: Mapping[str, int], wanted: int) -> list[list[str]]:
    """Neighbouring nodes of one group, in about `wanted` blocks of about equal size."""
    groups: dict[int, list[str]] = {}
    for name, group in group_of.items():
        groups.setdefault(group, []).append(name)
    blocks = []
    for names in groups.values():
        count = max(1, min(len(names), round(wanted * len(names) / len(group_of))))
        bounds = [len(names) * part // count for part in range(count + 1)]
        blocks += [names[first:last] for first, last in itertools.pairwise(bounds)]
    return blocks


def with_ports(records: Sequence[Listener], fresh: Iterable[int]) -> tuple[Listener, ...]:
    """The records with `fresh` ports for those that have none."""
    left = iter(fresh)
    return tuple(
        one if one.listen else msgspec.structs.replace(one, listen=ports.address(next(left)))
        for one in records
    )
