"""The differences between two configurations in words, one line for a thing that changed, as people name it in the file.

`LIVE` are the parts that a running controller takes from a file that is read again; all others wait for its next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.hostlist import fold
from eslurm.core.resources.vector import RESOURCES

INVENTORY: Final = (
    *("nodes", "login_nodes", "partitions", "resources", "node_rules", "switches", "modules"),
)
"""Nodes and how they are grouped."""
NUMBERS: Final = (
    *("requeue_delay_s", "launch_failures_max", "extension_percent", "finished_retention_s"),
    *("finished_jobs_max", "pending_jobs_max", "pending_jobs_user_max", "array_tasks_max"),
    *("script_bytes_max", "delay_max_s", "retries_max", "inactive_limit_s"),
)
"""Keys of [policy] that are looked at each time they are needed, so that another value counts at once."""
LIVE: Final = (*INVENTORY, *NUMBERS)
LINES_MAX: Final = 200
NAMES_CHARS_MAX: Final = 400

_Named = TypeVar("_Named", bound=msgspec.Struct)


def merged(running: ClusterConfig, read: ClusterConfig) -> ClusterConfig:
    """The running configuration with the live parts of the one that was read."""
    return msgspec.structs.replace(running, **{name: getattr(read, name) for name in LIVE})


def amounts_of(node: NodeConfig, config: ClusterConfig) -> dict[str, int]:
    """A node's amounts by name. Resources that it has none of are left out, so that new ones change no node."""
    further = (one.name for one in config.resources if not one.wide_total)
    return {name: count for name, count in zip((*RESOURCES, *further), node.total, strict=False) if count}


def change_lines(before: ClusterConfig, after: ClusterConfig) -> tuple[str, ...]:
    """Lines about all that differs in the live parts; at most `LINES_MAX`, the last of them with the number of others."""
    lines = [
        *_node_lines(before, after),
        *_set_lines("login host", before.login_nodes, after.login_nodes),
        *_partition_lines(before, after),
        *_record_lines("resource", before.resources, after.resources),
        *_record_lines("switch", before.switches, after.switches),
        *_record_lines("module", before.modules, after.modules),
    ]
    if before.node_rules != after.node_rules:
        lines.append(f"node rules: {len(before.node_rules)} before, {len(after.node_rules)} now")
    for name in NUMBERS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            lines.append(f"policy.{name}: {old:g} -> {new:g}")
    if len(lines) > LINES_MAX:
        more = len(lines) - LINES_MAX + 1
        lines = [*lines[: LINES_MAX - 1], f"and {more} more changes"]
    return tuple(lines)


def short(names: Iterable[str]) -> str:
    """Folded names for a line; of a long list the beginning."""
    names = tuple(names)
    text = fold(names)
    if len(text) <= NAMES_CHARS_MAX:
        return text
    kept = text[:NAMES_CHARS_MAX].rpartition(",")[0] or text[:NAMES_CHARS_MAX]
    return f"{kept},... ({len(names)} in all)"


def _node_lines(before: ClusterConfig, after: ClusterConfig) -> list[str]:
    old = {node.name: node for node in before.nodes}
    new = {node.name: node for node in after.nodes}
    lines = _set_lines("node", old, new)
    groups: dict[str, list[str]] = {}
    for name, node in new.items():
        known = old.get(name)
        if known is not None and known != node:
            text = _node_text(known, node, before, after)
            if text:
                groups.setdefault(text, []).append(name)
    lines += [f"node {short(names)}: {text}" for text, names in groups.items()]
    if [name for name in old if name in new] != [name for name in new if name in old]:
        lines.append("nodes: in another order")
    return lines


def _node_text(old: NodeConfig, new: NodeConfig, before: ClusterConfig, after: ClusterConfig) -> str:
    parts = _map_texts(amounts_of(old, before), amounts_of(new, after))
    if old.features != new.features:
        parts.append(f"features {' '.join(old.features) or 'none'} -> {' '.join(new.features) or 'none'}")
    for name in ("weight", "cores_for_devices"):
        if getattr(old, name) != getattr(new, name):
            parts.append(f"{name} {getattr(old, name)} -> {getattr(new, name)}")
    for name, spoken in (("device_type", "type of devices"), ("module", "module")):
        if getattr(old, name) != getattr(new, name):
            parts.append(f"{spoken} {getattr(old, name) or 'none'} -> {getattr(new, name) or 'none'}")
    return ", ".join(parts)


def _map_texts(old: Mapping[str, int], new: Mapping[str, int]) -> list[str]:
    return [
        f"{name} {old.get(name, 0)} -> {new.get(name, 0)}"
        for name in dict.fromkeys((*old, *new))
        if old.get(name, 0) != new.get(name, 0)
    ]


def _partition_lines(before: ClusterConfig, after: ClusterConfig) -> list[str]:
    # The hidden partition of gateways follows from the modules.
    old = {one.name: one for one in before.partitions if not one.role}
    new = {one.name: one for one in after.partitions if not one.role}
    lines = _set_lines("partition", old, new)
    for name, partition in new.items():
        known = old.get(name)
        if known is not None and known != partition:
            lines.append(f"partition {name}: {_partition_text(known, partition)}")
    return lines


def _partition_text(old: Partition, new: Partition) -> str:
    parts = []
    before, after = frozenset(old.nodes), frozenset(new.nodes)
    added = [name for name in new.nodes if name not in before]
    removed = [name for name in old.nodes if name not in after]
    if added:
        parts.append(f"nodes added: {short(added)}")
    if removed:
        parts.append(f"nodes removed: {short(removed)}")
    if old.nodes != new.nodes and not added and not removed:
        parts.append("nodes in another order")
    for name in Partition.__struct_fields__:
        was, now = getattr(old, name), getattr(new, name)
        if name not in ("name", "nodes") and was != now:
            parts.append(f"{name} {_value(was)} -> {_value(now)}")
    return ", ".join(parts)


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _set_lines(kind: str, old: Iterable[str], new: Iterable[str]) -> list[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    lines = []
    for some, others, verb in ((after, before, "added"), (before, after, "removed")):
        names = [name for name in some if name not in others]
        if kind in ("partition", "resource", "switch", "module"):
            lines += [f"{kind} {name}: {verb}" for name in names]
        elif names:
            lines.append(f"{kind} {short(names)}: {verb}")
    return lines


def _record_lines(kind: str, old: Sequence[_Named], new: Sequence[_Named]) -> list[str]:
    before = {str(getattr(one, "name", "")): one for one in old}
    after = {str(getattr(one, "name", "")): one for one in new}
    lines = _set_lines(kind, before, after)
    return lines + [
        f"{kind} {name}: changed" for name, one in after.items() if name in before and before[name] != one
    ]
