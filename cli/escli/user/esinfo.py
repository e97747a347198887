"""`esinfo`: partitions, modules and nodes by state, nodes out of service, satellites, controllers, the federation."""

from __future__ import annotations

import sys

from escli import clock, exits, program
from escli.open_api import open_api
from escli.tables import Column, columns_of, render
from escli.user import controllers, satellites
from eslurm.compat.durations import format_time_limit
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.moments import format_moment
from eslurm.compat.sizes import format_memory
from eslurm.compat.states import NODE_STATES, node_state, partition_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    from escli.options import Words

    Table: TypeAlias = tuple[list[Column], list[list[str]]]

COMMAND = "esinfo"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _info, argv)


def _info(given: Words) -> int:
    program.no_more_words(given.rest, "is not an option; nodes are named with -n")
    states = _states(given)
    names = expand(given.text("nodes"), given.spelling("nodes")) if given.has("nodes") else ()
    from eslurm.v1 import controller_pb2 as pb

    if given.has("cells") or given.has("clusters"):
        from escli.user import cells

        if cells.cells_named(given):
            return _info_of_cells(
                given, pb.NodesRequest(names=names, partition=given.text("partition")), states
            )
    with open_api(given, COMMAND) as api:
        if given.has("satellites"):
            satellites.print_table(api, given)
            return exits.OK
        if given.has("controllers"):
            controllers.print_table(api, given)
            return exits.OK
        if given.has("federation"):
            from escli.user import federation

            federation.print_table(api, given)
            return exits.OK
        reply = api.call("Nodes", pb.NodesRequest(names=names, partition=given.text("partition")))
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
        return exits.OK
    columns, rows = _table(given, reply, states)
    sys.stdout.write(render(columns, rows, header=not given.has("noheader")))
    return exits.OK


def _info_of_cells(given: Words, request: Any, states: frozenset[str]) -> int:
    """The nodes of several cells in one table."""
    from escli.user import cells

    found = cells.ask_cells(given, COMMAND, lambda api: api.call("Nodes", request))
    if given.has("json"):
        sys.stdout.write(cells.to_json(found, "nodes", lambda reply: reply.nodes))
        return exits.OK
    replies = [(one.name, one.answer) for one in found if one.answer is not None]
    has_modules = any(node.module for _name, reply in replies for node in reply.nodes)
    tables = ((name, *_table(given, reply, states, has_modules=has_modules)) for name, reply in replies)
    columns, rows = cells.joint(tables)
    sys.stdout.write(render(columns, rows, header=not given.has("noheader")))
    return exits.OK


def _states(given: Words) -> frozenset[str]:
    if not given.has("states"):
        return frozenset()
    chosen = set()
    for word in given.text("states").lower().split(","):
        found = [state for state in NODE_STATES if word and state.startswith(word)]
        if not found:
            raise OptionError(
                given.spelling("states"), word, "is not a node state", f"use some of {', '.join(NODE_STATES)}"
            )
        chosen.update(found)
    return frozenset(chosen)


def state_of(node: Any) -> str:
    """The node's state in sinfo's words."""
    return node_state(node.state, node.flags, node.cores_used, node.cores)


def is_login_host(node: Any) -> bool:
    """Check whether the node is a login host, without jobs."""
    return "LOGIN" in node.flags


def _table(given: Words, reply: Any, states: frozenset[str], *, has_modules: bool = False) -> Table:
    nodes = [node for node in reply.nodes if not states or state_of(node) in states]
    if given.has("modules"):
        return _modules(nodes, reply.modules)
    if given.has("list-reasons"):
        return _reasons(nodes)
    if given.has("Node"):
        return _nodes(nodes, is_long=given.has("long"), has_modules=has_modules)
    return _partitions(nodes, reply.partitions, is_long=given.has("long"))


def by_partition(nodes: Sequence[Any], partitions: Sequence[Any], header: bool, *, is_long: bool) -> str:
    """One line for each partition and state of its nodes; then the login hosts, which are in none. Gateways are left out:
    no job names their partition.
    """
    columns, rows = _partitions(nodes, partitions, is_long=is_long)
    return render(columns, rows, header=header)


def _partitions(nodes: Sequence[Any], partitions: Sequence[Any], *, is_long: bool) -> Table:
    columns = columns_of("PARTITION AVAIL >TIMELIMIT >NODES STATE")
    if is_long:
        columns += columns_of(">CORES(A/T) >MEMORY GRES")
    columns.append(Column("NODELIST"))
    rows = []
    for partition in partitions:
        if partition.role:
            continue
        head = [
            partition.name + ("*" if partition.is_default else ""),
            partition_state(partition).lower(),
            format_time_limit(partition.time_limit_max_s).lower(),
        ]
        members = [node for node in nodes if partition.name in node.partitions]
        for state, group in _grouped(members):
            row = [*head, str(len(group)), state]
            rows.append([*row, *_capacity(group)] if is_long else row)
            rows[-1].append(fold(node.name for node in group))
    for state, group in _grouped(filter(is_login_host, nodes)):
        row = ["-", "-", "-", str(len(group)), state, *(["-"] * 3 if is_long else ())]
        rows.append([*row, fold(node.name for node in group)])
    return columns, rows


def by_module(nodes: Sequence[Any], modules: Sequence[Any], header: bool) -> str:
    """One line for each module and state of its nodes, and for the nodes of no module."""
    columns, rows = _modules(nodes, modules)
    return render(columns, rows, header=header)


def _modules(nodes: Sequence[Any], modules: Sequence[Any]) -> Table:
    columns = columns_of("MODULE KIND REACHES >NODES STATE NODELIST")
    heads = [(one.name, one.kind, ",".join(one.reaches) or "-") for one in modules]
    rows = []
    for head in (*heads, ("", "-", "-")):
        members = [node for node in nodes if node.module == head[0] and not is_login_host(node)]
        for state, group in _grouped(members):
            row = [head[0] or "-", *head[1:], str(len(group)), state]
            rows.append([*row, fold(node.name for node in group)])
    return columns, rows


def _grouped(nodes: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """Nodes by state, in the order of NODE_STATES."""
    groups: dict[str, list[Any]] = {}
    for node in nodes:
        groups.setdefault(state_of(node), []).append(node)
    order = {state: index for index, state in enumerate(NODE_STATES)}
    return sorted(groups.items(), key=lambda item: order.get(item[0], len(order)))


def _capacity(group: Sequence[Any]) -> list[str]:
    used, total = sum(node.cores_used for node in group), sum(node.cores for node in group)
    smallest, largest = min(node.memory_mib for node in group), max(node.memory_mib for node in group)
    more = "+" if largest > smallest else ""
    kinds = {_offers(node) for node in group}
    gres = kinds.pop() if len(kinds) == 1 else "various"
    return [f"{used}/{total}", format_memory(smallest) + more, gres]


def _offers(node: Any) -> str:
    """One node's resources besides cores and memory, as `--gres` writes them."""
    return ",".join(f"{_kind(one)}:{one.total}" for one in node.resources) or "-"


def _kind(resource: Any) -> str:
    return f"{resource.name}:{resource.device_type}" if resource.device_type else str(resource.name)


def _uses(node: Any) -> str:
    """The same with the used number: `gpu:a100:1/4`."""
    return ",".join(f"{_kind(one)}:{one.used}/{one.total}" for one in node.resources) or "-"


def by_node(nodes: Sequence[Any], header: bool, *, is_long: bool) -> str:
    """One line for each node."""
    columns, rows = _nodes(nodes, is_long=is_long)
    return render(columns, rows, header=header)


def _nodes(nodes: Sequence[Any], *, is_long: bool, has_modules: bool = False) -> Table:
    columns = columns_of("NODE PARTITION STATE >CORES(A/T)")
    has_modules = has_modules or any(node.module for node in nodes)
    if has_modules:
        columns.insert(2, Column("MODULE"))
    if is_long:
        columns += columns_of(">MEMORY(A/T) GRES(A/T) FEATURES JOBS")
        columns += columns_of("CONTAINED SINCE REASON")
    rows = []
    for node in nodes:
        partitions = "-" if is_login_host(node) else ",".join(node.partitions)
        row = [node.name, partitions, state_of(node), f"{node.cores_used}/{node.cores}"]
        if has_modules:
            row.insert(2, node.module or "-")
        if is_long:
            row += [
                f"{format_memory(node.memory_used_mib)}/{format_memory(node.memory_mib)}",
                _uses(node),
                ",".join(node.features) or "-",
                ",".join(map(str, node.jobs[:8])) + (",..." if len(node.jobs) > 8 else "") or "-",
                ",".join(node.contained) or "-",
                format_moment(node.since_us, clock.local_offset_s),
                escaped(node.reason) or "-",
            ]
        rows.append(row)
    return columns, rows


def _reasons(nodes: Sequence[Any]) -> Table:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in nodes:
        state = state_of(node)
        if node.reason or state not in ("idle", "mixed", "allocated", "login"):
            since = format_moment(node.reason_since_us or node.since_us, clock.local_offset_s)
            groups.setdefault((escaped(node.reason) or "none", since, state), []).append(node.name)
    rows = [[*key, fold(names)] for key, names in groups.items()]
    return columns_of("REASON SINCE STATE NODELIST"), rows
