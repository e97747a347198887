"""Output of the federation: the tables of `esinfo --federation` and `esctl federation status`."""

from __future__ import annotations

import sys

from escli import exits, program
from escli.failures import CommandFailed
from escli.tables import columns_of, render
from eslurm.compat.durations import format_duration
from eslurm.compat.errors import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_MIB = 1 << 20


def print_table(api: Api, given: Words) -> None:
    """Print the cells of the federation. Raises `CommandFailed` where there is none."""
    reply = ask(api)
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
        return
    sys.stdout.write(text(reply, header=not given.has("noheader")))


def status(api: Api, given: Words) -> int:
    """`esctl federation status`: the cells, and the servers of the store."""
    reply = ask(api)
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        sys.stdout.write(text(reply) + "\n" + ids_text(reply) + "\n" + store_table(reply))
    return exits.OK


def ask(api: Api) -> Any:
    """The controller's word. Raises `CommandFailed` when the cluster is no member of a federation."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Federation", pb.FederationRequest())
    if not reply.name:
        raise CommandFailed(
            exits.FAILED,
            "this cluster is no member of a federation: give its configuration a section [federation]"
            " (docs/guide/federation.md)",
        )
    return reply


def text(reply: Any, *, header: bool = True) -> str:
    """A line about the federation, and the table of its cells."""
    name, cell, state = (escaped(text) for text in (reply.name, reply.cell, reply.state))
    head = f"FEDERATION {name}   CELL {cell}   STORE {_store(reply)}   STATE {state}\n"
    if reply.problem:
        head += f"{escaped(reply.problem)}\n"
    return (head if header else "") + table(reply, header=header)


def table(reply: Any, *, header: bool = True) -> str:
    """One line for each cell; a star marks this cluster's own."""
    rows = [
        [
            one.name + ("*" if one.name == reply.cell else ""),
            one.state + ("+drain" if one.draining else ""),
            _share(one, one.nodes_free, one.nodes),
            _share(one, one.cores_free, one.cores),
            _share(one, one.jobs_running, one.jobs_waiting),
            _age(one.age_ms),
            escaped(one.endpoint) or "-",
            escaped(one.problem) or silence(one) or "-",
        ]
        for one in reply.cells
    ]
    columns = columns_of("CELL STATE >NODES(F/T) >CORES(F/T) >JOBS(R/W) >AGE ENDPOINT PROBLEM")
    return render(columns, rows, header=header)


def _share(one: Any, first: int, second: int) -> str:
    return f"{first}/{second}" if one.age_ms >= 0 else "-"


def silence(one: Any) -> str:
    """The time since a cell's lease ended; empty for a live cell, and for one that was never seen alive here."""
    return f"lease ended {format_duration(one.silent_ms // 1000)} ago" if one.silent_ms >= 0 else ""


def _age(age_ms: int) -> str:
    return f"{age_ms / 1000:.1f}s" if age_ms >= 0 else "-"


def _store(reply: Any) -> str:
    if not reply.members:
        return "away"
    well = sum(not one.error for one in reply.members)
    return f"{well} of {len(reply.members)} answer"


def ids_text(reply: Any) -> str:
    """The job ids that this cell has in hand, and how many each cell has leased."""
    ids = reply.ids
    ranges = ", ".join(f"{one.first}-{one.last}" for one in ids.in_hand)
    head = f"IDS {ids.left} left in hand{f' ({ranges})' if ranges else ''}, {ids.unleased} not leased yet\n"
    if ids.problem:
        head += f"{escaped(ids.problem)}\n"
    leased = [f"{escaped(one.name)} {one.ids}" for one in reply.cells if one.ids]
    return head + (f"LEASED {', '.join(leased)}\n" if leased else "")


def store_table(reply: Any) -> str:
    """One line for each server of the store."""
    rows = [
        [
            escaped(one.endpoint),
            "away" if one.error else "leader" if one.is_leader else "follower",
            escaped(one.version) or "-",
            f"{-(-one.size_bytes // _MIB)}M" if one.size_bytes else "-",
            escaped(",".join(one.alarms)) or "-",
            escaped(one.error) or "-",
        ]
        for one in reply.members
    ]
    return render(columns_of("STORE STATE VERSION >SIZE ALARMS PROBLEM"), rows)
