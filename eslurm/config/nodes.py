"""The sections about nodes, resources, switches and rules, and their translation for the core.

Sections that contradict themselves or each other are problems; `eslurm.config.file` adds the file's name and the places.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError, nearest
from eslurm.compat.gres import GPU, parse_gres, typed
from eslurm.compat.hostlist import expand
from eslurm.config.problems import Problems
from eslurm.config.values import Count, Name, Whole
from eslurm.core.model.config import NodeConfig, NodeRule, Resource, Switch
from eslurm.core.model.features import WORD_CHARS
from eslurm.core.resources.vector import RESOURCES

RESERVED = frozenset(
    (*RESOURCES, "nodes", "jobs", "arrayjobs", "ncpus", "cpus", "mem", "memory", "gpus", "ngpus", "place")
)
"""Words that mean something else where resources are named."""


class NodesSection(msgspec.Struct, forbid_unknown_fields=True):
    """A group of equal compute nodes."""

    names: str
    """Their names, folded: cn[0001-0064]. The order is the network's: neighbours are near."""
    cores: Count
    """Cores that jobs may use on each."""
    memory_mib: Count
    """Memory in MiB that jobs may use on each."""
    features: list[str] = msgspec.field(default_factory=list)
    """Words that describe them, for --constraint and chunks: ib, arch=linux, rack=8."""
    gres: list[str] = msgspec.field(default_factory=list)
    """Further resources of each node, as NAME[:TYPE][:N]: gpu:a100:4. A type is also the feature NAME:TYPE."""
    weight: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Makes them dearer; cheap nodes are taken first. 0: by the largest share they have of any resource."""
    cores_for_devices: Whole = 0
    """Cores of each that only jobs with one of its devices may use; others may not have these nodes to
    themselves. Not for gateway nodes."""


class LoginSection(msgspec.Struct, forbid_unknown_fields=True):
    """Login hosts: hosts for commands without a controller (`esnoded --login`). No job runs on them."""

    nodes: str = ""
    """Their names, folded: login[1-2]. None of them is in [[nodes]]."""


class ResourceSection(msgspec.Struct, forbid_unknown_fields=True):
    """A resource besides cores and memory. GPUs (gpu) are known without a section."""

    name: Name
    """Its name in --gres, --licenses and chunks."""
    total: Whole = 0
    """Total of a cluster-wide resource (licences); 0: nodes have it, see nodes.gres."""
    devices: bool = False
    """Its items are numbered and a job gets particular ones."""


class SwitchSection(msgspec.Struct, forbid_unknown_fields=True):
    """A network switch and its children. Jobs that fit under one switch are placed under one."""

    name: Name
    """Name of the switch."""
    nodes: str = ""
    """Folded list of the nodes on it."""
    switches: str = ""
    """Folded list of the switches on it."""


class NodeRuleSection(msgspec.Struct, forbid_unknown_fields=True):
    """Restricts nodes to jobs that meet at least one of the conditions given."""

    nodes: str
    """Folded list of the nodes."""
    cores_min: Whole = 0
    """Jobs that need at least so many cores on one node."""
    memory_min_mib: Whole = 0
    """Jobs that need at least so much memory in MiB on one node."""
    resources_min: dict[str, Count] = msgspec.field(default_factory=dict)
    """Jobs that need at least so many items of one of these resources on one node."""
    time_max_s: Whole = 0
    """Jobs whose time limit in seconds is at most this."""


def resources_of(
    sections: Sequence[ResourceSection], nodes: Sequence[NodesSection], problems: Problems
) -> tuple[Resource, ...]:
    """The resources, those of nodes first, then the cluster-wide ones. GPUs need no section."""
    found: dict[str, Resource] = {}
    for index, section in enumerate(sections):
        with problems.at("resource", index):
            if section.name in RESERVED:
                raise OptionError(
                    "resource.name", section.name, "means something else already", "choose another name"
                )
            if section.name in found:
                raise OptionError("resource.name", section.name, "is used twice", "give it once")
            found[section.name] = Resource(section.name, section.total, section.devices)
            if section.total and section.devices:
                raise OptionError(
                    "resource.devices",
                    section.name,
                    "belongs to no node, so it has no numbered devices",
                    "leave out total",
                )
    offered: dict[str, int] = {}
    for index, group in enumerate(nodes):
        with problems.at("nodes", index):
            for name, _, _ in _gres(group):
                offered.setdefault(name, index)
    if GPU in offered and GPU not in found:
        found[GPU] = Resource(GPU, devices=True)
    for name in sorted(offered):
        with problems.at("nodes", offered[name]):
            if name not in found and not problems.has("resource", "name"):
                near = nearest(name, found)
                way_out = f"did you mean {near}?" if near else f'add [[resource]] name = "{name}"'
                raise OptionError("nodes.gres", name, "is no resource", way_out)
            if name in found and found[name].wide_total:
                raise OptionError(
                    "nodes.gres", name, "has a total for the whole cluster", "leave out one of the two"
                )
    return tuple(sorted(found.values(), key=lambda resource: bool(resource.wide_total)))


def nodes_of(
    sections: Sequence[NodesSection], resources: Sequence[Resource], problems: Problems
) -> tuple[NodeConfig, ...]:
    """Each node with its resources, in the order of the sections."""
    found: dict[str, NodeConfig] = {}
    names = [resource.name for resource in resources if not resource.wide_total]
    for index, section in enumerate(sections):
        counts = dict.fromkeys(names, 0)
        types: list[str] = []
        device_type = ""
        features: tuple[str, ...] = ()
        with problems.at("nodes", index):
            for name, kind, count in _gres(section):
                counts[name] = count
                types += [typed(name, kind)] if kind else []
                device_type = kind if name == GPU else device_type
        with problems.at("nodes", index):
            _check_cores(section, problems)
        with problems.at("nodes", index):
            features = tuple(dict.fromkeys((*_features(section), *types)))
        total = (section.cores, section.memory_mib, *counts.values())
        with problems.at("nodes", index):
            for name in expand(section.names, "nodes.names"):
                if name in found:
                    raise OptionError("nodes.names", name, "is named twice", "name it in one section")
                found[name] = NodeConfig(
                    name, total, features, section.weight, section.cores_for_devices, device_type
                )
    return tuple(found.values())


def login_of(section: LoginSection, nodes: Container[str], problems: Problems) -> tuple[str, ...]:
    """The login hosts' names; none of them is a compute node."""
    names: tuple[str, ...] = ()
    with problems.at("login"):
        names = expand(section.nodes, "login.nodes") if section.nodes else ()
        seen = set[str]()
        for name in names:
            if name in nodes:
                raise OptionError(
                    "login.nodes",
                    name,
                    "is among the [[nodes]], too",
                    "a login host runs no jobs: name it in one of the two",
                )
            if name in seen:
                raise OptionError("login.nodes", name, "is named twice", "name it once")
            seen.add(name)
    return names


def switches_of(
    sections: Sequence[SwitchSection], nodes: Container[str], problems: Problems
) -> tuple[Switch, ...]:
    """The switch tree: every node and every switch has one parent at most, and there is no cycle."""
    parents: dict[str, str] = {}
    names = {section.name for section in sections}
    are_all = not problems.has("switch", "name")
    found: dict[str, Switch] = {}
    for index, section in enumerate(sections):
        with problems.at("switch", index):
            if section.name in found:
                raise OptionError("switch.name", section.name, "is used twice", "give it once")
            found[section.name] = Switch(section.name, (), ())
            leaves = expand(section.nodes, "switch.nodes") if section.nodes else ()
            below = expand(section.switches, "switch.switches") if section.switches else ()
            for child, among, key in ((leaves, nodes, "switch.nodes"), (below, names, "switch.switches")):
                for name in child:
                    if name not in among and (are_all or among is not names):
                        raise OptionError(key, name, f"of {section.name} does not exist", "correct the name")
                    if name in parents:
                        raise OptionError(
                            key, name, f"hangs on {parents[name]} and {section.name}", "name it once"
                        )
                    parents[name] = section.name
            found[section.name] = Switch(section.name, leaves, below)
    for index, section in enumerate(sections):
        above, steps = parents.get(section.name), 0
        while above is not None and steps <= len(names):
            above, steps = parents.get(above), steps + 1
        if above is not None:
            with problems.at("switch", index):
                raise OptionError("switch.switches", section.name, "hangs on itself", "leave out the circle")
            break
    return tuple(found.values())


def rules_of(
    sections: Sequence[NodeRuleSection],
    nodes: Container[str],
    resources: Sequence[Resource],
    problems: Problems,
) -> tuple[NodeRule, ...]:
    """The restrictions of nodes (C-45)."""
    names = [resource.name for resource in resources if not resource.wide_total]
    found: list[NodeRule] = []
    for index, section in enumerate(sections):
        members: tuple[str, ...] = ()
        with problems.at("node_rule", index):
            members = expand(section.nodes, "node_rule.nodes")
            for name in members:
                if name not in nodes:
                    raise OptionError("node_rule.nodes", name, "is not among the nodes", "correct the name")
        for name in section.resources_min:
            if name not in names and not problems.has("resource"):
                problems.add(
                    ("node_rule", index, "resources_min", name),
                    OptionError(
                        "node_rule.resources_min", name, "is no resource of nodes", "add a [[resource]]"
                    ),
                )
        rule = NodeRule(
            members,
            section.cores_min,
            section.memory_min_mib,
            tuple(section.resources_min.items()),
            section.time_max_s,
        )
        has_condition = rule.cores_min or rule.memory_min_mib or rule.resources_min or rule.time_max_s
        if not has_condition and not problems.has("node_rule"):
            with problems.at("node_rule", index):
                raise OptionError(
                    "node_rule.nodes", section.nodes, "has no condition", "give e.g. cores_min = 17"
                )
        found.append(rule)
    return tuple(found)


def _check_cores(section: NodesSection, problems: Problems) -> None:
    if section.cores_for_devices >= section.cores and not problems.has("nodes", "cores"):
        raise OptionError(
            "nodes.cores_for_devices",
            str(section.cores_for_devices),
            f"leaves none of {section.cores} cores",
            "keep fewer",
        )


def _gres(section: NodesSection) -> tuple[tuple[str, str, int], ...]:
    return parse_gres(",".join(section.gres), "nodes.gres") if section.gres else ()


def _features(section: NodesSection) -> tuple[str, ...]:
    for feature in section.features:
        if not feature or not set(feature) <= WORD_CHARS:
            raise OptionError(
                "nodes.features", feature, "is not a feature", "use letters, digits and _.:=-+@/ only"
            )
    return tuple(section.features)
