"""Partitions of slurm.conf as `[[partition]]`, and the sets of nodes that they name."""

from __future__ import annotations

from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import fold
from eslurm.compat.sizes import parse_memory
from eslurm.compat.slurm.conf.draft import CHANGED, LEFT
from eslurm.compat.slurm.conf.keys import PARTITION
from eslurm.compat.slurm.conf.records import read_records
from eslurm.compat.slurm.conf.scalars import names_of, read_mode, read_name, read_yes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from eslurm.compat.slurm.conf.draft import Draft
    from eslurm.compat.slurm.conf.lines import Line
    from eslurm.compat.slurm.conf.nodes import Nodes
    from eslurm.compat.slurm.conf.records import Record
    from eslurm.compat.slurm.conf.scalars import Scalars

_NUMBER_MAX = 2**31 - 1
_TIER = 1
"""The tier and the priority factor of partitions that give none."""
_BILLED = {"cpu": "cores", "mem": "memory_mib"}
_WEIGHT_MAX = 1e6


def node_sets(draft: Draft, lines: Sequence[Line], nodes: Nodes) -> dict[str, list[str]]:
    """The nodes of each NodeSet."""
    found: dict[str, list[str]] = {}
    for line in lines:
        own = found.setdefault(line.pairs[0].value, [])
        for pair in line.pairs[1:]:
            key = pair.key.lower()
            if key == "nodes":
                own += nodes.known(line, pair, pair.value, {})
            elif key == "feature":
                members = nodes.features.get(pair.value, set())
                own += [name for name in nodes.names if name in members]
            else:
                draft.add(LEFT, line, pair, "is no key that is known here: a NodeSet has Nodes and Feature")
    return found


class Partitions:
    """The partitions while they are made."""

    def __init__(
        self, draft: Draft, nodes: Nodes, sets: Mapping[str, Sequence[str]], scalars: Scalars
    ) -> None:
        self._draft = draft
        self._nodes = nodes
        self._sets = sets
        self._scalars = scalars
        self._billing: dict[str, None] = {}

    def convert(self, lines: Sequence[Line]) -> None:
        """Convert the PartitionName lines."""
        draft = self._draft
        sections: dict[str, dict[str, Any]] = {}
        default: dict[str, Any] | None = None
        billed: list[tuple[Record, str]] = []
        for record in read_records(draft, lines, PARTITION):
            for name in names_of(record.name):
                section = self._section(record, name)
                if section is None:
                    continue
                if name in sections:
                    draft.add(
                        LEFT,
                        record.line,
                        record.line.pairs[0],
                        f"{name} is given twice: the first line counts",
                    )
                    continue
                sections[name] = section
                billed.append((record, record.value("tresbillingweights")))
                if section.get("default"):
                    if default is not None:
                        del default["default"]
                        draft.add(
                            CHANGED, *record.at("default"), f"is the default instead of {default['name']}"
                        )
                    default = section
        if {section["priority"] for section in sections.values()} <= {_TIER}:
            # Priorities that are equal order nothing.
            for section in sections.values():
                del section["priority"]
        if sections:
            draft.sections["partition"] = list(sections.values())
        self._bill(billed)

    def _section(self, record: Record, name: str) -> dict[str, Any] | None:
        draft, line = self._draft, record.line
        try:
            read_name(name, line.pairs[0].key)
        except OptionError as error:
            draft.refuse(line, line.pairs[0], error)
            return None
        section: dict[str, Any] = {"name": name}
        listed = record.value("nodes")
        members = self._nodes.known(*record.at("nodes"), listed, self._sets) if listed else []
        if not members:
            draft.add(
                LEFT,
                *record.at("nodes"),
                f"{name} has no nodes and is left out: write a [[partition]] with nodes",
            )
            return None
        if len(members) < len(self._nodes.names):
            section["nodes"] = fold(members)
        if self._yes(record, "default"):
            section["default"] = True
        self._state(record, section)
        for key, target in (("defaulttime", "time_limit_default_s"), ("maxtime", "time_limit_max_s")):
            seconds = self._time(record, key)
            if seconds:
                section[target] = seconds
        memory = self._memory(record)
        if memory:
            section["memory_per_cpu_default_mib"] = memory
        self._priorities(record, section)
        self._preemption(record, section)
        return section

    def _yes(self, record: Record, key: str) -> bool:
        try:
            return bool(record.value(key)) and read_yes(record.value(key), key)
        except OptionError as error:
            self._draft.refuse(*record.at(key), error)
            return False

    def _state(self, record: Record, section: dict[str, Any]) -> None:
        state = record.value("state").lower() or "up"
        if state != "up":
            section["up"] = False
        if state in ("drain", "inactive"):
            self._draft.add(CHANGED, *record.at("state"), "jobs are taken and wait: a partition is up or not")
        elif state not in ("up", "down"):
            self._draft.add(LEFT, *record.at("state"), "is no state of a partition: it is down")

    def _time(self, record: Record, key: str) -> int:
        text = record.value(key)
        if not text or text.lower() == "none":
            return 0
        try:
            return min(parse_time_limit(text, key), _NUMBER_MAX)
        except OptionError as error:
            self._draft.refuse(*record.at(key), error)
            return 0

    def _memory(self, record: Record) -> int:
        own = record.value("defmempercpu")
        site = self._scalars.last("DefMemPerCPU")
        line, pair = record.at("defmempercpu") if own or site is None else site
        text = own or (site[1].value if site else "")
        if not text or text.lower() == "unlimited":
            return 0
        try:
            return min(parse_memory(text, "DefMemPerCPU"), _NUMBER_MAX)
        except OptionError as error:
            self._draft.refuse(line, pair, error)
            return 0

    def _count(self, record: Record, key: str, usual: int) -> int:
        text = record.value(key) or record.value("priority")
        count = whole_number(text, 10) if text else usual
        if not 0 <= count <= _NUMBER_MAX:
            self._draft.add(LEFT, *record.at(key, "priority"), f"is not a number: {usual} is taken")
            return usual
        return count

    def _priorities(self, record: Record, section: dict[str, Any]) -> None:
        factor, tier = (
            self._count(record, "priorityjobfactor", _TIER),
            self._count(record, "prioritytier", _TIER),
        )
        section["priority"] = factor
        if not self._scalars.preempts_by_partition:
            if tier != _TIER:
                self._draft.add(
                    LEFT,
                    *record.at("prioritytier", "priority"),
                    "a tier is for preemption alone: set priority and priority.partition",
                )
            return
        section["tier"] = tier

    def _preemption(self, record: Record, section: dict[str, Any]) -> None:
        own = record.value("preemptmode")
        site = self._scalars.last("PreemptMode")
        if not self._scalars.preempts_by_partition:
            if own and read_mode(own) != "off":
                self._draft.add(
                    LEFT,
                    *record.at("preemptmode"),
                    "only with preempt/partition_prio: a QOS has a mode of its own",
                )
            return
        text = own or (site[1].value if site else "off")
        mode = read_mode(text)
        line, pair = record.at("preemptmode") if own or site is None else site
        if not mode:
            self._draft.add(LEFT, line, pair, "is no mode here and is off: use cancel, requeue or suspend")
        section["preempt_mode"] = mode or "off"

    def _bill(self, billed: Sequence[tuple[Record, str]]) -> None:
        """Convert the weights of resources where all partitions agree."""
        texts = {text for _, text in billed}
        if texts <= {""}:
            return
        if len(texts) > 1:
            for record, text in billed:
                if text:
                    self._draft.add(
                        LEFT,
                        *record.at("tresbillingweights"),
                        "differs among partitions: set one priority.billing",
                    )
            return
        record, text = billed[0]
        place = record.at("tresbillingweights")
        offered = self._draft.resources()
        found: dict[str, float] = {}
        for word in names_of(text):
            name, _, number = word.partition("=")
            bare = name.strip().lower()
            resource = _BILLED.get(bare, bare.removeprefix("gres/").removeprefix("license/"))
            weight = _weight(number.strip(), is_memory=bare == "mem")
            if (
                resource not in offered and resource not in _BILLED.values()
            ) or not 0 <= weight <= _WEIGHT_MAX:
                self._draft.add(LEFT, *place, f"{word} is no weight of a resource here: see priority.billing")
                continue
            found[resource] = weight
        if found:
            self._draft.set("priority", "billing", found)


def _weight(text: str, *, is_memory: bool) -> float:
    """A weight; that of memory is for a MiB, or for the unit behind it. -1: none."""
    unit = (
        {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}.get(text[-1:].lower()) if is_memory else None
    )
    digits = text[:-1] if unit else text
    whole, _, fraction = digits.partition(".")
    if whole_number(whole or "0", 9) < 0 or (fraction and whole_number(fraction, 9) < 0) or not digits:
        return -1
    return float(f"{whole or 0}.{fraction or 0}") / (unit or 1.0)
