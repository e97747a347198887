"""topology.conf as `[[switch]]`.

Invariant: each node and each switch hangs on one switch at most, and no switch on itself.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.slurm.conf.draft import LEFT
from eslurm.compat.slurm.conf.keys import TOPOLOGY
from eslurm.compat.slurm.conf.nodes import NODES_MAX
from eslurm.compat.slurm.conf.records import read_records
from eslurm.compat.slurm.conf.scalars import read_name, treat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from eslurm.compat.slurm.conf.draft import Draft
    from eslurm.compat.slurm.conf.lines import Line
    from eslurm.compat.slurm.conf.nodes import Nodes
    from eslurm.compat.slurm.conf.records import Record


def convert_topology(draft: Draft, lines: Sequence[Line], nodes: Nodes) -> None:
    """Convert the lines of topology.conf."""
    records: dict[str, Record] = {}
    for record in read_records(draft, _switch_lines(draft, lines), TOPOLOGY):
        first = record.line.pairs[0]
        try:
            read_name(record.name, first.key)
        except OptionError as error:
            draft.refuse(record.line, first, error)
            continue
        if record.name in records:
            draft.add(LEFT, record.line, first, "is given twice: the first line counts")
            continue
        records[record.name] = record
    parents: dict[str, str] = {}
    placed: set[str] = set()
    sections: list[dict[str, Any]] = []
    for name, record in records.items():
        section: dict[str, Any] = {"name": name}
        members = nodes.known(*record.at("nodes"), record.value("nodes"), {}) if record.value("nodes") else []
        free = [node for node in members if node not in placed]
        if len(free) < len(members):
            draft.add(LEFT, *record.at("nodes"), "has nodes of another switch: the first one counts")
        placed.update(free)
        if free:
            section["nodes"] = fold(free)
        below = list(_below(draft, record, records, parents))
        if below:
            section["switches"] = fold(below)
        sections.append(section)
    if sections:
        draft.sections["switch"] = sections


def _switch_lines(draft: Draft, lines: Sequence[Line]) -> Iterator[Line]:
    for line in lines:
        if line.kind == "switchname":
            yield line
        elif line.pairs:
            row = TOPOLOGY.get(line.kind)
            if row is None or row.name in ("Nodes", "Switches"):
                draft.add(LEFT, line, line.pairs[0], "begins no line of topology.conf: SwitchName= does")
            else:
                treat(draft, row, line, line.pairs[0])


def _below(
    draft: Draft, record: Record, records: dict[str, Record], parents: dict[str, str]
) -> Iterator[str]:
    """The switches on a switch, but those that hang on another one or above it."""
    text, place = record.value("switches"), record.at("switches")
    if not text:
        return
    try:
        names = expand(text, "Switches", NODES_MAX)
    except OptionError as error:
        draft.refuse(*place, error)
        return
    for child in dict.fromkeys(names):
        above: str | None = record.name
        while above is not None and above != child:
            above = parents.get(above)
        if child not in records:
            draft.add(LEFT, *place, f"{child} is no SwitchName: leave it out")
        elif child in parents or above is not None:
            draft.add(LEFT, *place, f"{child} hangs on another switch already: the first one counts")
        else:
            parents[child] = record.name
            yield child
