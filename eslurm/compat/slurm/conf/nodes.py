"""Nodes of slurm.conf and gres.conf as `[[nodes]]` and `[[resource]]`.

Invariant: each name is in one section, and each resource of a node has a section or is `gpu`.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.gres import GPU
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.sizes import parse_memory
from eslurm.compat.slurm.conf.draft import CHANGED, LEFT, WITHOUT
from eslurm.compat.slurm.conf.keys import GRES, NODE
from eslurm.compat.slurm.conf.records import Record, read_records, read_settings
from eslurm.compat.slurm.conf.scalars import names_of, read_name
from eslurm.core.model.features import WORD_CHARS
from eslurm.core.model.request_limits import COUNT_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from eslurm.compat.slurm.conf.draft import Draft
    from eslurm.compat.slurm.conf.lines import Line, Pair
    from eslurm.compat.slurm.conf.scalars import Scalars

    Devices: TypeAlias = Mapping[str, Mapping[str, tuple[str, int]]]
    """Resource -> node ("" for all) -> (type, number)."""

NODES_MAX = 200_000
"""Most nodes of a site."""
RESERVED = frozenset(
    [
        "cores",
        "memory_mib",
        "nodes",
        "jobs",
        "arrayjobs",
        "ncpus",
        "cpus",
        "cpu",
        "mem",
        "memory",
        "gpus",
        "ngpus",
        "place",
    ]
)
"""Words that mean something else where resources are named."""
_WEIGHT_MAX = 1000
_OUT = frozenset({"future", "cloud"})
_DOWN = frozenset({"down", "drain", "drained", "fail", "failing", "draining"})
_SCALE = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


class Nodes:
    """The nodes of a site and what they are known by."""

    def __init__(self, draft: Draft) -> None:
        self.names: dict[str, None] = {}
        """The nodes in their order."""
        self.out: set[str] = set()
        """Nodes of the files that are left out."""
        self.features: dict[str, set[str]] = {}
        """Feature -> nodes, for NodeSet lines."""
        self._draft = draft
        self._weights: dict[int, tuple[Line, Pair, int]] = {}

    def convert(self, lines: Sequence[Line], scalars: Scalars, devices: Sequence[Line]) -> None:
        """Convert the NodeName lines and those of gres.conf."""
        draft = self._draft
        gres, numbered = self._devices(devices)
        offered: dict[str, None] = {}
        sections: list[dict[str, Any]] = []
        for record in read_records(draft, lines, NODE):
            names = self._names(record)
            if not names:
                continue
            section: dict[str, Any] = {
                "names": "",
                "cores": self._cores(record),
                "memory_mib": self._memory(record),
            }
            features = self._features(record)
            if features:
                section["features"] = features
            kept = whole_number(record.value("restrictedcorespergpu"), 5)
            counted = self._gres(record)
            weight = whole_number(record.value("weight") or "1", 12)
            if weight < 0:
                draft.add(LEFT, *record.at("weight"), "is not a number: the weight is 1")
                weight = 1
            # Lines of gres.conf may be about a part of these nodes.
            for group, found in _grouped(names, counted, gres):
                made = {**section, "names": fold(group)}
                made["gres"] = [_gres_text(name, *one) for name, one in found.items()]
                offered.update(dict.fromkeys(found))
                gpus = found.get(GPU, ("", 0))[1]
                if kept > 0 and gpus:
                    if 0 < kept * gpus < section["cores"]:
                        made["cores_for_devices"] = kept * gpus
                    else:
                        draft.add(LEFT, *record.at("restrictedcorespergpu"), "leaves no core for others")
                if not made["gres"]:
                    del made["gres"]
                self._weights[len(sections)] = (*record.at("weight"), weight)
                sections.append(made)
            self.names.update(dict.fromkeys(names))
            for feature in features:
                self.features.setdefault(feature, set()).update(names)
        self._weigh(sections)
        if sections:
            draft.sections["nodes"] = sections
        self._resources(scalars, offered, numbered)

    def known(self, line: Line, pair: Pair, text: str, sets: Mapping[str, Sequence[str]]) -> list[str]:
        """The nodes that a list means, each once; names of sets count as their nodes. Others are reported."""
        try:
            names = expand(text, pair.key, NODES_MAX)
        except OptionError as error:
            self._draft.refuse(line, pair, error)
            return []
        found: dict[str, None] = {}
        unknown: list[str] = []
        for name in names:
            if name in self.names:
                found[name] = None
            elif name.lower() == "all":
                found.update(self.names)
            elif name in sets:
                found.update(dict.fromkeys(sets[name]))
            elif name not in self.out:
                unknown.append(name)
        if unknown:
            self._draft.add(LEFT, line, pair, f"names nodes that no NodeName line has: {fold(unknown[:32])}")
        return list(found)

    def _names(self, record: Record) -> list[str]:
        draft, first = self._draft, record.line.pairs[0]
        try:
            names = expand(record.name, first.key, NODES_MAX)
            for name in names:
                read_name(name, first.key)
        except OptionError as error:
            draft.refuse(record.line, first, error)
            return []
        found = [name for name in dict.fromkeys(names) if name not in self.names and name not in self.out]
        if len(found) < len(names):
            draft.add(LEFT, record.line, first, "names nodes again: the first line counts")
        if len(self.names) + len(found) > NODES_MAX:
            draft.add(LEFT, record.line, first, f"makes more than {NODES_MAX} nodes: leave some out")
            return []
        state, _, _ = record.value("state").lower().partition("+")
        if state in _OUT:
            self.out.update(found)
            draft.add(LEFT, *record.at("state"), "its nodes are left out: add them when they are there")
            return []
        if state in _DOWN and found:
            draft.add(
                LEFT, *record.at("state"), f"run esctl drain {fold(found)} reason=... when the cluster is up"
            )
        return found

    def _number(self, record: Record, key: str, usual: int) -> int:
        text = record.value(key)
        number = whole_number(text, 9)
        if text and number < 0:
            self._draft.add(LEFT, *record.at(key), f"is not a number: {usual} is taken")
        return number if number >= 0 else usual

    def _cores(self, record: Record) -> int:
        draft = self._draft
        threads = max(1, self._number(record, "threadspercore", 1))
        sockets = self._number(record, "sockets", 0)
        if not sockets and record.value("socketsperboard"):
            sockets = self._number(record, "socketsperboard", 0) * max(1, self._number(record, "boards", 1))
        each = self._number(record, "corespersocket", 0)
        cpus_key = "cpus" if record.value("cpus") else "procs"
        cpus = self._number(record, cpus_key, 0)
        if each or threads > 1 or sockets > 1:
            cores = max(1, sockets) * max(1, each)
            if cpus and cpus not in (cores, cores * threads):
                draft.add(CHANGED, *record.at(cpus_key), f"is not sockets x cores: {cores} cores are taken")
            elif threads > 1:
                draft.add(
                    CHANGED, *record.at("threadspercore"), f"jobs get cores with all threads: {cores} cores"
                )
        else:
            cores = cpus or max(1, sockets)
        kept = self._number(record, "corespeccount", 0)
        if record.value("cpuspeclist"):
            kept = max(kept, -(-_listed_count(record.value("cpuspeclist")) // threads))
        if kept >= cores > 0 and kept:
            draft.add(LEFT, *record.at("corespeccount", "cpuspeclist"), f"leaves none of {cores} cores")
            kept = 0
        return max(1, cores - kept)

    def _memory(self, record: Record) -> int:
        draft = self._draft
        text, kept = record.value("realmemory"), self._number(record, "memspeclimit", 0)
        try:
            mib = parse_memory(text, "RealMemory") if text else 0
        except OptionError as error:
            draft.refuse(*record.at("realmemory"), error)
            mib = 0
        mib = min(mib, 2**31 - 1)
        if not mib:
            draft.add(
                LEFT, record.line, None, "says no RealMemory, which is 1 MiB as in Slurm: write memory_mib"
            )
        elif kept >= mib:
            draft.add(LEFT, *record.at("memspeclimit"), f"leaves none of {mib} MiB")
            kept = 0
        return max(1, mib - kept)

    def _features(self, record: Record) -> list[str]:
        found = []
        for word in names_of(record.value("features", "feature")):
            if WORD_CHARS.issuperset(word):
                found.append(word)
            else:
                self._draft.add(
                    LEFT, *record.at("features", "feature"), "has words that are no features here"
                )
        return found

    def _gres(self, record: Record) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        for entry in names_of(record.value("gres")):
            name, kind, count = _read_gres(entry)
            if not name or count < 1 or count > COUNT_MAX or name.lower() in RESERVED:
                self._draft.add(LEFT, *record.at("gres"), f"{entry} is not NAME[:TYPE][:N] here")
                continue
            if name in found:
                count += found[name][1]
                kind = ""
                self._draft.add(
                    LEFT,
                    *record.at("gres"),
                    f"has several types of {name}, which are counted together: name one resource each",
                )
            found[name] = (kind, count)
        return found

    def _devices(self, lines: Sequence[Line]) -> tuple[Devices, set[str]]:
        """The lines of gres.conf by resource and node, and the resources that are files."""
        draft = self._draft
        found: dict[str, dict[str, tuple[str, int]]] = {}
        numbered: set[str] = set()
        for line in lines:
            record = Record(line, "", read_settings(draft, line, line.pairs, GRES))
            name, file = record.value("name"), record.value("file", "multiplefiles")
            if not name:
                continue
            try:
                read_name(name, "Name")
                files = len(expand(file, "File", COUNT_MAX)) if file else 0
                listed = record.value("nodename")
                nodes = expand(listed, "NodeName", NODES_MAX) if listed else ("",)
            except OptionError as error:
                draft.refuse(line, None, error)
                continue
            if file:
                numbered.add(name)
            count = _scaled(record.value("count")) if record.value("count") else max(1, files)
            of_nodes = found.setdefault(name, {})
            for node in nodes:
                kind, before = of_nodes.get(node, (record.value("type"), 0))
                kind = kind if kind == record.value("type") else ""
                of_nodes[node] = (kind, min(before + max(count, 0), COUNT_MAX))
        return found, numbered

    def _weigh(self, sections: Sequence[dict[str, Any]]) -> None:
        """Slurm's weights, where they differ; greater ones than there are here become their ranks."""
        weights = sorted({weight for _, _, weight in self._weights.values()})
        if len(weights) < 2:
            return
        rank = {weight: weight for weight in weights}
        if weights[-1] > _WEIGHT_MAX:
            rank = {weight: min(place, _WEIGHT_MAX) for place, weight in enumerate(weights, 1)}
        for at, (line, pair, weight) in self._weights.items():
            sections[at]["weight"] = rank[weight]
            if rank[weight] != weight and pair.key.lower() == "weight":
                self._draft.add(CHANGED, line, pair, f"is its rank among the weights here: {rank[weight]}")

    def _resources(self, scalars: Scalars, offered: Mapping[str, None], numbered: set[str]) -> None:
        draft = self._draft
        types = scalars.last("GresTypes")
        named = names_of(types[1].value) if types else []
        for name in named:
            if name not in offered and types:
                draft.add(WITHOUT, *types, f"no node has {name}")
        sections: list[dict[str, Any]] = [
            {"name": name, "devices": True} if name in numbered else {"name": name}
            for name in offered
            if name != GPU
        ]
        licenses = scalars.last("Licenses")
        for word in names_of(licenses[1].value) if licenses else ():
            assert licenses is not None
            name, _, number = word.replace("=", ":").partition(":")
            count = whole_number(number or "1", 9)
            try:
                read_name(name, "Licenses")
            except OptionError as error:
                draft.refuse(*licenses, error)
                continue
            if name.lower() in RESERVED or name == GPU or any(one["name"] == name for one in sections):
                draft.add(LEFT, *licenses, f"{name} is the name of something else: choose another one")
            elif count < 1 or count > COUNT_MAX:
                draft.add(LEFT, *licenses, f"{word} is not NAME:N, with N from 1 to {COUNT_MAX}")
            else:
                sections.append({"name": name, "total": count})
        if sections:
            draft.sections["resource"] = sections


def _grouped(
    names: Sequence[str], counted: Mapping[str, tuple[str, int]], devices: Devices
) -> list[tuple[list[str], dict[str, tuple[str, int]]]]:
    """The nodes in their order, split where gres.conf gives them other types: [(names, resource -> (type, number))]."""
    found: list[tuple[list[str], dict[str, tuple[str, int]]]] = []
    for node in names:
        own = dict(counted)
        for name, (kind, count) in counted.items():
            if kind or name not in devices:
                continue
            known = devices[name].get(node) or devices[name].get("")
            if known:
                own[name] = (known[0], count)
        if found and found[-1][1] == own:
            found[-1][0].append(node)
        else:
            found.append(([node], own))
    return found


def _gres_text(name: str, kind: str, count: int) -> str:
    return f"{name}:{kind}:{count}" if kind else f"{name}:{count}"


def _read_gres(entry: str) -> tuple[str, str, int]:
    """(name, type or empty, number) of `gpu:a100:4(S:0-1)`; the name is empty for what is none."""
    bare, _, _ = entry.partition("(")
    name, *more = [part for part in bare.split(":") if part.lower() != "no_consume"]
    count = 1
    if more and _scaled(more[-1]) >= 0:
        count = _scaled(more.pop())
    kind = more[0] if more else ""
    try:
        read_name(name, "Gres")
        if kind:
            read_name(kind, "Gres")
    except OptionError:
        return "", "", 0
    return (name, kind, count) if len(more) < 2 else ("", "", 0)


def _scaled(text: str) -> int:
    """A number, with K, M, G or T behind it; -1: none."""
    scale = _SCALE.get(text[-1:].lower(), 1)
    number = whole_number(text[:-1] if scale > 1 else text, 9)
    return number * scale if number >= 0 else -1


def _listed_count(text: str) -> int:
    """Count of the numbers in `0-3,8`."""
    count = 0
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first, last = whole_number(low.strip(), 6), whole_number((high if dash else low).strip(), 6)
        count += last - first + 1 if 0 <= first <= last else 0
    return count
