"""The columns of sinfo, and states of nodes in Slurm's words.

A line of sinfo stands for nodes of one partition (`Group`) that are alike in all its columns.
"""

from __future__ import annotations

from eslurm.compat.hostlist import fold
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.layout import clock_text
from eslurm.compat.states import partition_state
from eslurm.core.model.wording import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    Value: TypeAlias = Callable[["Group", "Surroundings"], str]

DEFAULT = "partition:9 ,available:.5 ,time:.10 ,nodes:.6 ,statecompact:.6 ,nodelist:0"
LONG = (
    "partition:9 ,available:.5 ,time:.10 ,size:.10 ,root:.4 ,oversubscribe:.8 ,groups:.10 ,nodes:.6 ,statelong:.11 ,"
    "reservation:.11 ,nodelist:0"
)
OLD_LONG = LONG.replace(",reservation:.11 ", "")
"""Of 22.05."""
SUMMARY = "partition:9 ,available:.5 ,time:.10 ,nodeaiot:.16 ,nodelist:0"
NODES = "nodelist:9 ,nodes:.6 ,partition:.9 ,statecompact:6"
NODES_LONG = (
    "nodelist:9 ,nodes:.6 ,partition:.9 ,statelong:.11 ,cpus:4 ,socketcorethread:.8 ,memory:.6 ,disk:.8 ,weight:.6 ,"
    "features:.8 ,reason:20"
)
REASONS = "reason:20 ,user:9 ,timestamp:19 ,nodelist:0"
REASONS_LONG = "reason:20 ,userlong:12 ,timestamp:19 ,statecompact:6 ,nodelist:0"
FLEXIBLE = frozenset({"Partition", "NodeList"})
"""Columns that get as wide as their widest cell in lists of a form of their own."""
_SHORT: Mapping[str, str] = {
    "allocated": "alloc",
    "mixed": "mix",
    "idle": "idle",
    "draining": "drng",
    "drained": "drain",
    "down": "down",
    "unknown": "unk",
    "completing": "comp",
}
_STATE_WORDS = [
    "ALLOC",
    "ALLOCATED",
    "BLOCKED",
    "CLOUD",
    "COMP",
    "COMPLETING",
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "FUTURE",
    "FUTR",
    "IDLE",
    "MAINT",
    "MIX",
    "MIXED",
    "NO_RESPOND",
    "NPC",
    "PERFCTRS",
    "PLANNED",
    "POWER_DOWN",
    "POWERING_DOWN",
    "POWERED_DOWN",
    "POWERING_UP",
    "REBOOT",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
    "RESV",
    "RESERVED",
    "UNK",
    "UNKNOWN",
]
_NUMBERS: Mapping[str, int] = {"unknown": 0, "down": 1, "idle": 2, "allocated": 3, "mixed": 5}
_DRAIN = 1 << 9
_SILENT = 1 << 11


class Surroundings:
    """The data that cells need besides the nodes."""

    __slots__ = ("cluster", "moment")

    def __init__(self, cluster: str, moment: Callable[[int], str]) -> None:
        self.cluster = cluster
        self.moment = moment


class Group:
    """Nodes of one partition on one line; `partition` is None with `-R`. `is_default` marks the partition's name."""

    __slots__ = ("_node_list", "nodes", "partition")

    def __init__(self, partition: Any, nodes: Sequence[Any]) -> None:
        self.partition = partition
        self.nodes = nodes
        self._node_list = ""

    @property
    def node_list(self) -> str:
        """The names, folded once: the width of a column is found before its cells are written."""
        if not self._node_list:
            self._node_list = fold([node.name for node in self.nodes])
        return self._node_list

    @property
    def first(self) -> Any:
        """One of the nodes, or None."""
        return self.nodes[0] if self.nodes else None


def base_state(node: Any) -> str:
    """The node's state, without its suffix: what holds for its jobs, and whether it is out of service."""
    if node.state == "LOST":
        return "down"
    if node.state == "UNKNOWN":
        return "unknown"
    if "DRAIN" in node.flags:
        return "draining" if node.cores_used else "drained"
    if not node.cores_used:
        return "idle"
    return "mixed" if node.cores_used < node.cores else "allocated"


def is_silent(node: Any) -> bool:
    """Check whether the node does not respond: `*` behind its state."""
    return node.state in ("UNREACHABLE", "LOST", "UNKNOWN")


def long_state(node: Any) -> str:
    """`idle*`, `draining`."""
    return base_state(node) + ("*" if is_silent(node) else "")


def short_state(node: Any) -> str:
    """`idle*`, `drng`."""
    return _SHORT[base_state(node)] + ("*" if is_silent(node) else "")


def matches(node: Any, word: str) -> bool:
    """Check a node against a state of `-t`: `idle`, `DOWN*`, `drain`, `no_respond`. Raises UsageProblem."""
    name = word.strip().lower().rstrip("*~#!%$@^-+")
    if name.upper() not in _STATE_WORDS:
        raise UsageProblem(
            f'error: Bad state string: "{word}"\nsinfo: error: valid states: {",".join(_STATE_WORDS).lower()}'
        )
    base = base_state(node)
    if name in ("no_respond",):
        return is_silent(node)
    if name == "drain":
        return base in ("draining", "drained")
    long = {"alloc": "allocated", "mix": "mixed", "unk": "unknown", "comp": "completing"}.get(name, name)
    return base == long


def state_number(node: Any) -> int:
    """The number of a state, by which lists are sorted: the highest first."""
    base = base_state(node)
    number = _NUMBERS.get(base, 2 if not node.cores_used else 5 if node.cores_used < node.cores else 3)
    if base in ("draining", "drained"):
        number |= _DRAIN
    return number | (_SILENT if is_silent(node) else 0)


def node_counts(nodes: Iterable[Any]) -> tuple[int, int, int, int]:
    """Nodes that are allocated, idle, other, and in all."""
    allocated = idle = other = 0
    for node in nodes:
        base = base_state(node)
        if base in ("allocated", "mixed", "draining", "completing"):
            allocated += 1
        elif (base == "idle" and not is_silent(node)) or base in ("idle", "unknown"):
            idle += 1
        else:
            other += 1
    return allocated, idle, other, allocated + idle + other


def cpu_counts(nodes: Iterable[Any]) -> tuple[int, int, int, int]:
    """Cores that are allocated, idle, other, and in all."""
    allocated = idle = other = 0
    for node in nodes:
        allocated += node.cores_used
        free = node.cores - node.cores_used
        if base_state(node) in ("down", "draining", "drained"):
            other += free
        else:
            idle += free
    return allocated, idle, other, allocated + idle + other


def _range(numbers: Iterable[int]) -> str:
    """`4`, or `4+` where they differ."""
    found = sorted(set(numbers))
    return f"{found[0]}{'+' if len(found) > 1 else ''}" if found else "0"


def gres_text(node: Any, *, used: bool = False) -> str:
    """`gpu:a100:4`, or what is used of it: `gpu:a100:2(IDX:N/A)`; empty: none."""
    found = []
    for one in node.resources:
        kind = f"{one.name}:{one.device_type}" if one.device_type else str(one.name)
        found.append(f"{kind}:{one.used}(IDX:N/A)" if used else f"{kind}:{one.total}")
    return ",".join(found)


def features_text(node: Any) -> str:
    """The features, without those that only name the types of resources; empty: none."""
    return ",".join(word for word in node.features if ":" not in word)


def partition_limit(seconds: int) -> str:
    """`infinite`, `1:00:00`."""
    return clock_text(seconds) if seconds else "infinite"


def _usual_limit(partition: Any) -> str:
    return clock_text(partition.time_limit_default_s) if partition.time_limit_default_s else "n/a"


def _complete_state(node: Any) -> str:
    return base_state(node) + ("+not_responding" if is_silent(node) else "")


def _partition(group: Group, _: Surroundings) -> str:
    if group.partition is None:
        return "n/a"
    return str(group.partition.name) + ("*" if group.partition.is_default else "")


def _of_first(show: Callable[[Any], str], none: str = "n/a") -> Value:
    return lambda group, _: show(group.first) if group.first is not None else none


_AVAILABLE: Mapping[str, str] = {"UP": "up", "DOWN": "down", "DRAIN": "drain", "INACTIVE": "inact"}


def _of_partition(show: Callable[[Any], str]) -> Value:
    return lambda group, _: show(group.partition) if group.partition is not None else "n/a"


def _fixed(text: str) -> Value:
    return lambda _group, _around: text


def _reason(node: Any) -> str:
    return escaped(node.reason) or "none"


def _since(group: Group, around: Surroundings) -> str:
    node = group.first
    since_us = reason_since_us(node) if node is not None else 0
    return around.moment(since_us) if since_us else "Unknown"


def reason_since_us(node: Any) -> int:
    """Time since which the node has its reason; 0: it has none."""
    return (node.reason_since_us or node.since_us) if node.reason else 0


def _reason_by(node: Any) -> str:
    return node.reason_by or "Unknown"


FIELDS: Mapping[str, tuple[str, str, Value]] = {
    "AllocMem": ("", "ALLOCMEM", lambda g, _: _range(node.memory_used_mib for node in g.nodes)),
    "AllocNodes": ("S", "ALLOCNODES", _fixed("all")),
    "Available": ("a", "AVAIL", _of_partition(lambda p: _AVAILABLE[partition_state(p)])),
    "Cluster": ("V", "CLUSTER", lambda _, a: a.cluster or "N/A"),
    "Comment": ("", "COMMENT", _fixed("(null)")),
    "Cores": ("Y", "CORES", _fixed("1")),
    "CPUs": ("c", "CPUS", lambda g, _: _range(node.cores for node in g.nodes)),
    "CPUsLoad": ("O", "CPU_LOAD", _fixed("N/A")),
    "CPUsState": ("C", "CPUS(A/I/O/T)", lambda g, _: "/".join(map(str, cpu_counts(g.nodes)))),
    "DefaultTime": ("L", "DEFAULTTIME", _of_partition(_usual_limit)),
    "Disk": ("d", "TMP_DISK", _fixed("0")),
    "Extra": ("", "EXTRA", _fixed("(null)")),
    "Features": ("f", "AVAIL_FEATURES", _of_first(lambda n: features_text(n) or "(null)")),
    "features_act": ("b", "ACTIVE_FEATURES", _of_first(lambda n: features_text(n) or "(null)")),
    "FreeMem": ("e", "FREE_MEM", _fixed("N/A")),
    "Gres": ("G", "GRES", _of_first(lambda n: gres_text(n) or "(null)")),
    "GresUsed": ("", "GRES_USED", _of_first(lambda n: gres_text(n, used=True) or "(null)")),
    "Groups": ("g", "GROUPS", _of_partition(lambda _: "all")),
    "MaxCPUsPerNode": ("B", "MAX_CPUS_PER_NODE", _fixed("UNLIMITED")),
    "Memory": ("m", "MEMORY", lambda g, _: _range(node.memory_mib for node in g.nodes)),
    "NodeAddr": ("o", "NODE_ADDR", _of_first(lambda n: n.name)),
    "NodeAI": ("A", "NODES(A/I)", lambda g, _: "/".join(map(str, node_counts(g.nodes)[:2]))),
    "NodeAIOT": ("F", "NODES(A/I/O/T)", lambda g, _: "/".join(map(str, node_counts(g.nodes)))),
    "NodeHost": ("n", "HOSTNAMES", _of_first(lambda n: n.name)),
    "NodeList": ("N", "NODELIST", lambda g, _: g.node_list),
    "Nodes": ("D", "NODES", lambda g, _: str(len(g.nodes))),
    "OverSubscribe": ("h", "OVERSUBSCRIBE", _of_partition(lambda _: "NO")),
    "Partition": ("P", "PARTITION", _partition),
    "PartitionName": ("R", "PARTITION", _of_partition(lambda p: str(p.name))),
    "PreemptMode": ("M", "PREEMPT_MODE", _of_partition(lambda _: "OFF")),
    "PriorityJobFactor": ("I", "PRIO_JOB_FACTOR", _of_partition(lambda _: "1")),
    "PriorityTier": ("p", "PRIO_TIER", _of_partition(lambda _: "1")),
    "Reason": ("E", "REASON", _of_first(_reason, "none")),
    "Reservation": ("i", "RESERVATION", _fixed("")),
    "Root": ("r", "ROOT", _of_partition(lambda _: "no")),
    "Share": ("", "OVERSUBSCRIBE", _of_partition(lambda _: "NO")),
    "Size": ("s", "JOB_SIZE", _of_partition(lambda _: "1-infinite")),
    "Sockets": ("X", "SOCKETS", lambda g, _: _range(node.cores for node in g.nodes)),
    "SocketCoreThread": ("z", "S:C:T", lambda g, _: f"{_range(node.cores for node in g.nodes)}:1:1"),
    "StateCompact": ("t", "STATE", _of_first(short_state)),
    "StateComplete": ("", "STATECOMPLETE", _of_first(_complete_state)),
    "StateLong": ("T", "STATE", _of_first(long_state)),
    "Threads": ("Z", "THREADS", _fixed("1")),
    "Time": ("l", "TIMELIMIT", _of_partition(lambda p: partition_limit(p.time_limit_max_s))),
    "TimeStamp": ("H", "TIMESTAMP", _since),
    "User": ("u", "USER", _of_first(_reason_by, "Unknown")),
    "UserLong": ("U", "USER", _of_first(_reason_by, "Unknown")),
    "Version": ("v", "VERSION", _fixed("N/A")),
    "Weight": ("w", "WEIGHT", lambda g, _: _range(node.weight for node in g.nodes)),
}  # fmt: skip
BY_LETTER: Mapping[str, str] = {letter: name for name, (letter, _, _) in FIELDS.items() if letter}
ALL = "|".join(
    [f"%{letter}" for letter in "abcdefghlmnoprstuvwz"]
    + [f"%{letter} " for letter in "ABCDEFGHILMNOPRSTUVXYZ"]
)
"""The format `%all`: a blank stands behind each of the later columns."""
BY_LOWER: Mapping[str, str] = {name.lower(): name for name in FIELDS}
ALIKE: Mapping[str, Callable[[Any], object]] = {
    "StateCompact": short_state,
    "StateComplete": long_state,
    "StateLong": long_state,
    "Features": features_text,
    "features_act": features_text,
    "Gres": gres_text,
    "GresUsed": lambda node: gres_text(node, used=True),
    "NodeAddr": lambda node: node.name,
    "NodeHost": lambda node: node.name,
    "Reason": _reason,
    "TimeStamp": reason_since_us,
    "User": _reason_by,
    "UserLong": _reason_by,
}
"""In which nodes on one line have to be alike, where such a column is shown."""
EXACTLY_ALIKE: Mapping[str, Callable[[Any], object]] = {
    "CPUs": lambda node: node.cores,
    "Memory": lambda node: node.memory_mib,
    "Weight": lambda node: node.weight,
    "Sockets": lambda node: node.cores,
    "SocketCoreThread": lambda node: node.cores,
}
"""The same with `--exact`."""


def tell_partitions(shown: Sequence[str]) -> bool:
    """Check whether a column is of partitions, so that each has lines of its own."""
    return any(name in _OF_PARTITIONS for name in shown)


def groups(
    partitions: Sequence[Any], nodes: Sequence[Any], shown: Sequence[str], *, is_exact: bool
) -> list[Group]:
    """The lines, in the order of the partitions and then of their nodes."""
    alike = [ALIKE[name] for name in shown if name in ALIKE]
    if is_exact:
        alike += [EXACTLY_ALIKE[name] for name in shown if name in EXACTLY_ALIKE]
    if not tell_partitions(shown):
        by_key: dict[tuple[object, ...], list[Any]] = {}
        for node in nodes:
            by_key.setdefault(tuple([one(node) for one in alike]), []).append(node)
        return [Group(None, some) for some in by_key.values()]
    members: dict[str, dict[tuple[object, ...], list[Any]]] = {one.name: {} for one in partitions}
    for node in nodes:
        key = tuple([one(node) for one in alike])
        for name in node.partitions:
            if name in members:
                members[name].setdefault(key, []).append(node)
    return [
        Group(partition, some)
        for partition in partitions
        for some in members[partition.name].values() or ((),)
    ]


_OF_PARTITIONS = frozenset(
    [
        "Available",
        "DefaultTime",
        "Groups",
        "OverSubscribe",
        "Partition",
        "PartitionName",
        "PreemptMode",
        "PriorityJobFactor",
        "PriorityTier",
        "Root",
        "Share",
        "Size",
        "Time",
    ]
)
