"""`sinfo`: partitions and nodes by their state, in columns of letters or names, or as JSON."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.hostlist import expand
from eslurm.compat.slurm import layout, node_fields
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.release import has_wrapped_numbers
from eslurm.compat.slurm.sinfo_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options
    from eslurm.compat.slurm.layout import Column
    from eslurm.compat.slurm.node_fields import Group, Surroundings

COMMAND = "sinfo"
_OUT_OF_SERVICE = ("down", "drained", "draining")


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    if given.has("helpFormat"):
        frame.print_line("\n".join(node_fields.FIELDS))
        return exits.OK
    if given.rest:
        raise UsageProblem(f"error: Unrecognized option: {given.rest[0]}", has_hint=True)
    pause = given.last("iterate")
    if pause and not pause.isdecimal():
        raise UsageProblem(f"error: --iterate={pause}")
    while True:
        frame.without_collection(lambda: _show(context, given))
        if not pause:
            return exits.OK
        sys.stdout.flush()
        time.sleep(max(1, int(pause)))
        frame.print_line("")


def _show(context: Context, given: Options) -> None:
    clusters = frame.clusters_of(given, os.environ)
    try:
        with context.open_api() as api:
            if not clusters:
                _show_one(context, given, api)
                return
            own = frame.own_cluster(api)
            for name in frame.cell_names(api, clusters, own):
                with context.cluster_api(name, own) as cell:
                    if not given.has("noheader"):
                        frame.print_line(f"CLUSTER: {name}")
                    _show_one(context, given, cell)
    except CommandFailed as failure:
        raise frame.Failed(f"slurm_load_partitions: {frame.trouble(failure)}") from None


def _show_one(context: Context, given: Options, api: Api) -> None:
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Nodes", pb.NodesRequest())
    wanted = given.listed("partition") or [
        one for one in os.environ.get("SINFO_PARTITION", "").split(",") if one
    ]
    partitions = [one for one in reply.partitions if not one.role and (not wanted or one.name in wanted)]
    nodes = _chosen(reply.nodes, given)
    around = node_fields.Surroundings("", frame.moment_writer(os.environ))
    if frame.wants_document(given):
        from eslurm.compat.slurm.node_json import sinfo_document

        frame.write_document(given, sinfo_document(partitions, nodes, context.release, sys.argv))
        return
    columns, is_own_form = _columns(given, context.release)
    found = _groups(partitions, nodes, columns, given)
    if is_own_form:
        _widen(columns, found, around, given)
    if given.has("long") and not given.has("noheader"):
        frame.print_line(frame.now_line())
    sys.stdout.write("".join(table(columns, found, around, has_header=not given.has("noheader"))))


def _chosen(nodes: Iterable[Any], given: Options) -> list[Any]:
    """The nodes that the options choose. Raises UsageProblem."""
    found = [node for node in nodes if "LOGIN" not in node.flags]
    names = {name for text in given.all("nodes") for name in expand(text, "--nodes")}
    if names:
        found = [node for node in found if node.name in names]
    states = given.listed("states")
    words = [word for word in states if word.lower() != "all"]
    if words:
        # Every word is looked at: a wrong one is told, whatever the others are.
        found = [node for node in found if True in [node_fields.matches(node, word) for word in words]]
    if given.has("list-reasons") and not states:
        found = [node for node in found if node.reason and node_fields.base_state(node) in _OUT_OF_SERVICE]
    if given.has("dead"):
        found = [node for node in found if node_fields.is_silent(node)]
    if given.has("responding"):
        found = [node for node in found if not node_fields.is_silent(node)]
    return found


def _columns(given: Options, release: str) -> tuple[list[Column], bool]:
    """The columns, and whether they are of a form of sinfo's own, whose widths fit. Raises UsageProblem."""
    shapes = [row.long for row, _, _ in given.found if row.long in ("format", "Format")]
    if shapes:
        return _named(given.last(shapes[-1]), are_letters=shapes[-1] == "format"), False
    is_long = given.has("long")
    if given.has("summarize"):
        text = node_fields.SUMMARY
    elif given.has("Node"):
        text = node_fields.NODES_LONG if is_long else node_fields.NODES
    elif given.has("list-reasons"):
        text = node_fields.REASONS_LONG if is_long else node_fields.REASONS
    elif os.environ.get("SINFO_FORMAT"):
        return _named(os.environ["SINFO_FORMAT"], are_letters=True), False
    else:
        longer = node_fields.LONG if has_wrapped_numbers(release) else node_fields.OLD_LONG
        text = longer if is_long else node_fields.DEFAULT
    return _named(text, are_letters=False), True


def _named(text: str, *, are_letters: bool) -> list[Column]:
    text = node_fields.ALL if are_letters and text.lower() == "%all" else text
    return layout.fields(text, node_fields.BY_LETTER, node_fields.BY_LOWER, "node", are_letters=are_letters)


def _groups(
    partitions: Sequence[Any], nodes: Sequence[Any], columns: Sequence[Column], given: Options
) -> list[Group]:
    shown = [column.key for column in columns if column.key]
    if given.has("Node"):
        found = [
            node_fields.Group(partition, [node])
            for node in nodes
            for partition in partitions
            if partition.name in node.partitions
        ]
        if not given.has("format") and not given.has("Format"):
            return _sorted(found, given, partitions, "N")
        return _sorted(_joined(found, shown), given, partitions, "N")
    found = node_fields.groups(partitions, nodes, shown, is_exact=given.has("exact"))
    if not partitions:
        return []
    if given.has("states") or given.has("nodes"):
        full = [group for group in found if group.nodes]
        found = full if given.has("states") and full else full or found
    return _sorted(found, given, partitions, "#P,-t")


def _joined(found: Sequence[Group], shown: Sequence[str]) -> list[Group]:
    """Lines for each node: once where no column tells its partitions apart."""
    if node_fields.tell_partitions(shown):
        return list(found)
    by_name = {group.nodes[0].name: group for group in reversed(found)}
    return [by_name[name] for name in dict.fromkeys(group.nodes[0].name for group in found)]


def _sorted(found: Sequence[Group], given: Options, partitions: Sequence[Any], usual: str) -> list[Group]:
    places = {one.name: place for place, one in enumerate(partitions)}
    result = list(found)
    for word in reversed((given.last("sort") or os.environ.get("SINFO_SORT", "") or usual).split(",")):
        letter = word.lstrip("+-#")
        key = _key(letter, places if "#" in word else None)
        result.sort(key=key, reverse=word.startswith("-"))
    return result


def _key(letter: str, places: dict[str, int] | None) -> Callable[[Group], Any]:
    """The key of sorting by a letter. Raises UsageProblem."""
    keys: dict[str, Callable[[Group], Any]] = {
        "P": lambda group: _place(group, places),
        "R": lambda group: _place(group, places),
        "t": lambda group: node_fields.state_number(group.first) if group.first else -1,
        "T": lambda group: node_fields.state_number(group.first) if group.first else -1,
        "N": lambda group: _natural(group.first.name) if group.first else (),
        "n": lambda group: _natural(group.first.name) if group.first else (),
        "D": lambda group: len(group.nodes),
        "c": lambda group: group.first.cores if group.first else 0,
        "m": lambda group: group.first.memory_mib if group.first else 0,
        "w": lambda group: group.first.weight if group.first else 0,
        "E": lambda group: group.first.reason if group.first else "",
        "H": lambda group: group.first.since_us if group.first else 0,
        "a": lambda group: bool(group.partition and group.partition.up),
        "l": lambda group: (group.partition.time_limit_max_s or 1 << 40) if group.partition else 0,
    }
    if letter not in keys:
        raise UsageProblem(f"error: Invalid sort specification: {letter}")
    return keys[letter]


def _place(group: Group, places: dict[str, int] | None) -> Any:
    if group.partition is None:
        return 0 if places is not None else ""
    return places[group.partition.name] if places is not None else group.partition.name


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits else -1, name


def _widen(columns: Sequence[Column], found: Sequence[Group], around: Surroundings, given: Options) -> None:
    """Make the columns of names as wide as their widest cell."""
    for column in columns:
        if column.width and column.key in node_fields.FLEXIBLE:
            show = node_fields.FIELDS[column.key][2]
            column.width = max([column.width, *(len(show(group, around)) for group in found)])


def table(
    columns: Sequence[Column], found: Sequence[Group], around: Surroundings, *, has_header: bool
) -> list[str]:
    """The lines, each with its end; equal ones once."""
    fields = [node_fields.FIELDS[column.key] if column.key else ("", "", None) for column in columns]
    lines = []
    if has_header:
        lines.append(
            "".join(column.show(head) for column, (_, head, _) in zip(columns, fields, strict=True)) + "\n"
        )
    for group in found:
        cells = [
            column.show(show(group, around) if show else "")
            for column, (_, _, show) in zip(columns, fields, strict=True)
        ]
        lines.append("".join(cells) + "\n")
    return lines
