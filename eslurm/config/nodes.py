"""The sections about nodes, resources, switches and rules, and their translation for the core.

Raises `OptionError` for sections that contradict themselves or each other; `eslurm.config.file` adds the file's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError, nearest
from eslurm.compat.gres import GPU, parse_gres, typed
from eslurm.compat.hostlist import expand
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


def resources_of(sections: Sequence[ResourceSection], nodes: Sequence[NodesSection]) -> tuple[Resource, ...]:
    """The resources, those of nodes first, then the cluster-wide ones. GPUs need no section."""
    found: dict[str, Resource] = {}
    for section in sections:
        if section.name in RESERVED:
            raise OptionError(
                "resource.name", section.name, "means something else already", "choose another name"
            )
        if section.name in found:
            raise OptionError("resource.name", section.name, "is used twice", "give it once")
        if section.total and section.devices:
            raise OptionError(
                "resource.devices",
                section.name,
                "belongs to no node, so it has no numbered devices",
                "leave out total",
            )
        found[section.name] = Resource(section.name, section.total, section.devices)
    offered = {name for section in nodes for name, _, _ in _gres(section)}
    if GPU in offered and GPU not in found:
        found[GPU] = Resource(GPU, devices=True)
    for name in sorted(offered):
        if name not in found:
            near = nearest(name, found)
            way_out = f"did you mean {near}?" if near else f'add [[resource]] name = "{name}"'
            raise OptionError("nodes.gres", name, "is no resource", way_out)
        if found[name].wide_total:
            raise OptionError(
                "nodes.gres", name, "has a total for the whole cluster", "leave out one of the two"
            )
    return tuple(sorted(found.values(), key=lambda resource: bool(resource.wide_total)))


def nodes_of(sections: Sequence[NodesSection], resources: Sequence[Resource]) -> tuple[NodeConfig, ...]:
    """Each node with its resources, in the order of the sections."""
    found: dict[str, NodeConfig] = {}
    names = [resource.name for resource in resources if not resource.wide_total]
    for section in sections:
        counts = dict.fromkeys(names, 0)
        types: list[str] = []
        device_type = ""
        for name, kind, count in _gres(section):
            counts[name] = count
            types += [typed(name, kind)] if kind else []
            device_type = kind if name == GPU else device_type
        if section.cores_for_devices >= section.cores:
            raise OptionError(
                "nodes.cores_for_devices",
                str(section.cores_for_devices),
                f"leaves none of {section.cores} cores",
                "keep fewer",
            )
        features = tuple(dict.fromkeys((*_features(section), *types)))
        total = (section.cores, section.memory_mib, *counts.values())
        for name in expand(section.names, "nodes.names"):
            if name in found:
                raise OptionError("nodes.names", name, "is named twice", "name it in one section")
            found[name] = NodeConfig(
                name, total, features, section.weight, section.cores_for_devices, device_type
            )
    return tuple(found.values())


def login_of(section: LoginSection, nodes: Iterable[str]) -> tuple[str, ...]:
    """The login hosts' names; none of them is a compute node."""
    names = expand(section.nodes, "login.nodes") if section.nodes else ()
    compute, seen = set(nodes), set[str]()
    for name in names:
        if name in compute:
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


def switches_of(sections: Sequence[SwitchSection], nodes: Iterable[str]) -> tuple[Switch, ...]:
    """The switch tree: every node and every switch has one parent at most, and there is no cycle."""
    known = set(nodes)
    parents: dict[str, str] = {}
    names = {section.name for section in sections}
    found: list[Switch] = []
    for section in sections:
        if any(section.name == other.name for other in found):
            raise OptionError("switch.name", section.name, "is used twice", "give it once")
        leaves = expand(section.nodes, "switch.nodes") if section.nodes else ()
        below = expand(section.switches, "switch.switches") if section.switches else ()
        for child, among, key in ((leaves, known, "switch.nodes"), (below, names, "switch.switches")):
            for name in child:
                if name not in among:
                    raise OptionError(key, name, f"of {section.name} does not exist", "correct the name")
                if name in parents:
                    raise OptionError(
                        key, name, f"hangs on {parents[name]} and {section.name}", "name it once"
                    )
                parents[name] = section.name
        found.append(Switch(section.name, leaves, below))
    for name in names:
        above, steps = parents.get(name), 0
        while above is not None and steps <= len(names):
            above, steps = parents.get(above), steps + 1
        if above is not None:
            raise OptionError("switch.switches", name, "hangs on itself", "leave out the circle")
    return tuple(found)


def rules_of(
    sections: Sequence[NodeRuleSection], nodes: Iterable[str], resources: Sequence[Resource]
) -> tuple[NodeRule, ...]:
    """The restrictions of nodes (C-45)."""
    known = set(nodes)
    names = [resource.name for resource in resources if not resource.wide_total]
    found: list[NodeRule] = []
    for section in sections:
        members = expand(section.nodes, "node_rule.nodes")
        for name in members:
            if name not in known:
                raise OptionError("node_rule.nodes", name, "is not among the nodes", "correct the name")
        for name in section.resources_min:
            if name not in names:
                raise OptionError(
                    "node_rule.resources_min", name, "is no resource of nodes", "add a [[resource]]"
                )
        rule = NodeRule(
            members,
            section.cores_min,
            section.memory_min_mib,
            tuple(section.resources_min.items()),
            section.time_max_s,
        )
        if not (rule.cores_min or rule.memory_min_mib or rule.resources_min or rule.time_max_s):
            raise OptionError(
                "node_rule.nodes", section.nodes, "has no condition", "give e.g. cores_min = 17"
            )
        found.append(rule)
    return tuple(found)


def _gres(section: NodesSection) -> tuple[tuple[str, str, int], ...]:
    return parse_gres(",".join(section.gres), "nodes.gres") if section.gres else ()


def _features(section: NodesSection) -> tuple[str, ...]:
    for feature in section.features:
        if not feature or not set(feature) <= WORD_CHARS:
            raise OptionError(
                "nodes.features", feature, "is not a feature", "use letters, digits and _.:=-+@/ only"
            )
    return tuple(section.features)
