"""The sections about modules, and what they make of nodes and partitions (D-01).

A module's name is a feature of its nodes. The nodes of all modules of the kind `gateway` are a partition of their own, which
no user names, and in no other one. Sections that contradict each other are problems.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.config.nodes import NodesSection
from eslurm.config.problems import Problems
from eslurm.config.values import Name
from eslurm.core.model.config import Module, NodeConfig, Partition
from eslurm.core.model.gateways import GATEWAY, PARTITION


class ModuleSection(msgspec.Struct, forbid_unknown_fields=True):
    """A module: nodes of one kind with a network of their own. A node is in one module at most; those of no section are one
    together."""

    name: Name
    """Its name in --module. It is also a feature of its nodes, for --constraint."""
    nodes: str
    """Folded list of its nodes."""
    kind: Literal["cluster", "booster", "data", "gateway"] = "cluster"
    """Kind of its nodes. Those of the kind gateway are for --gateways only, and in no partition."""
    reaches: list[str] = msgspec.field(default_factory=list)
    """Modules that exchange data with it directly: jobs over both need no gateways between them."""


def modules_of(sections: Sequence[ModuleSection], problems: Problems) -> tuple[Module, ...]:
    """The modules. Each reaches others that exist."""
    kinds: dict[str, str] = {}
    for index, section in enumerate(sections):
        with problems.at("module", index):
            if section.name in kinds:
                raise OptionError("module.name", section.name, "is used twice", "give it once")
            kinds[section.name] = section.kind
    are_all = not problems.has("module", "name") and not problems.has("module", "kind")
    for index, section in enumerate(sections if are_all else ()):
        for name in section.reaches:
            with problems.at("module", index):
                if name not in kinds:
                    raise OptionError(
                        "module.reaches", name, f"of {section.name} does not exist", "correct the name"
                    )
                if GATEWAY in (section.kind, kinds[name]):
                    raise OptionError(
                        "module.reaches",
                        name,
                        f"of {section.name}: gateways reach every module",
                        "leave it out",
                    )
    return tuple(Module(section.name, section.kind, tuple(section.reaches)) for section in sections)


def with_modules(
    nodes: tuple[NodeConfig, ...],
    known: Container[str],
    sections: Sequence[ModuleSection],
    problems: Problems,
) -> tuple[NodeConfig, ...]:
    """The nodes with their modules, whose names are features of theirs. `known` has all names of nodes."""
    if not sections:
        return nodes
    module: dict[str, str] = {}
    for index, section in enumerate(sections):
        with problems.at("module", index):
            for name in expand(section.nodes, "module.nodes"):
                if name not in known:
                    raise OptionError(
                        "module.nodes", name, f"of {section.name} is not among the nodes", "correct the name"
                    )
                if name in module:
                    raise OptionError(
                        "module.nodes",
                        name,
                        f"is in {module[name]} and {section.name}",
                        "name it in one module",
                    )
                module[name] = section.name
    places = {section.name: index for index, section in enumerate(sections)}
    for node in nodes:
        taken = next((word for word in node.features if word in places and word != module.get(node.name)), "")
        if taken and not problems.has("module"):
            with problems.at("module", places[taken]):
                raise OptionError(
                    "module.name",
                    taken,
                    f"is also a feature of {node.name}, which is not in it",
                    "give one of the two another name",
                )
    return tuple([_in_module(node, module.get(node.name, "")) for node in nodes])


def _in_module(node: NodeConfig, module: str) -> NodeConfig:
    if not module:
        return node
    return replace(node, module=module, features=tuple(dict.fromkeys((*node.features, module))))


def gateways_of(
    nodes: Iterable[NodeConfig],
    groups: Sequence[NodesSection],
    modules: Sequence[Module],
    problems: Problems,
) -> dict[str, str]:
    """The gateway nodes, each with its module. A group that keeps cores of one for jobs with devices is a problem."""
    kinds = {module.name for module in modules if module.kind == GATEWAY}
    gateways = {node.name: node.module for node in nodes if node.module in kinds}
    for index, group in enumerate(groups if gateways else ()):
        with problems.at("nodes", index):
            members = expand(group.names, "nodes.names") if group.cores_for_devices else ()
            hidden = next((name for name in members if name in gateways), "")
            if hidden:
                raise OptionError(
                    "nodes.cores_for_devices",
                    str(group.cores_for_devices),
                    f"of {hidden} in the gateway module {gateways[hidden]} would refuse every --gateways job: a gateway is "
                    "a whole node",
                    "leave it out there",
                )
    return gateways


def with_gateways(
    partitions: tuple[Partition, ...], gateways: Iterable[str], modules: Sequence[Module], problems: Problems
) -> tuple[Partition, ...]:
    """The partitions and the hidden one of the gateways. Gateways that are in another one, too, are a problem."""
    hidden = tuple(gateways)
    if not any(module.kind == GATEWAY for module in modules):
        return partitions
    with problems.at("module", 0):
        if not any(module.kind != GATEWAY for module in modules) and not problems.has("module"):
            raise OptionError(
                "module.kind", GATEWAY, "is that of all modules", "add the modules that the gateways connect"
            )
    for index, partition in enumerate(partitions):
        with problems.at("partition", index):
            if partition.name == PARTITION:
                raise OptionError(
                    "partition.name",
                    PARTITION,
                    "is the hidden partition of the gateways",
                    "choose another name",
                )
    return (*partitions, Partition(PARTITION, hidden, role=GATEWAY))
