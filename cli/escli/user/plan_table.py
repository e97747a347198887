"""`esctl plan`: running and planned jobs with their nodes, and the reservations; as a table, a chart or JSON."""

from __future__ import annotations

from escli import clock, exits, program
from escli.tables import Column, render
from escli.user.esinfo import is_login_host
from escli.user.plan_text import job_label_of, summary
from eslurm.compat.errors import OptionError, escaped, nearest, whole_number
from eslurm.compat.moments import format_moment, parse_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_TIMEOUT_S = 60.0
_FORMATS = ("table", "chart", "json")
_KEYS = ("partition", "until", "limit")
_LIMIT_MAX = 100_000
_NODES_WIDTH = 60


def plan(api: Api, words: list[str], given: Words) -> int:
    """`esctl plan [partition=NAME] [until=WHEN] [limit=N] [--format table|chart|json]`."""
    chosen = "json" if given.has("json") else given.text("format", "table").lower()
    if chosen not in _FORMATS:
        raise OptionError(
            given.spelling("format"), chosen, "is not a format", f"use one of {', '.join(_FORMATS)}"
        )
    reply = api.call("Plan", _request(words), _TIMEOUT_S)
    if chosen == "json":
        from escli.as_json import to_json

        program.say(to_json(reply))
    elif chosen == "chart":
        from escli.user.plan_chart import chart_here

        nodes = _nodes(api, words)
        program.say(chart_here(reply, nodes))
    else:
        program.say(table(reply))
    return exits.OK


def _request(words: Sequence[str]) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.PlanRequest()
    for word in words:
        key, equals, value = word.partition("=")
        if key.lower() not in _KEYS or not equals or not value:
            near = nearest(key.lower(), _KEYS)
            way_out = f"did you mean {near}=?" if near else "use partition=NAME, until=WHEN or limit=N"
            raise OptionError("plan", word, "selects nothing", way_out)
        if key.lower() == "partition":
            request.partition = value
        elif key.lower() == "until":
            request.until_us = parse_moment(value, clock.now_us(), clock.local_offset_s, "until")
            if request.until_us <= clock.now_us():
                raise OptionError("until", value, "has passed", "use e.g. until=now+6hours")
        else:
            limit = whole_number(value, 6)
            if not 0 < limit <= _LIMIT_MAX:
                raise OptionError("limit", value, "is not a number of jobs", f"use 1 to {_LIMIT_MAX}")
            request.limit = limit
    return request


def _nodes(api: Api, words: Sequence[str]) -> list[str]:
    """The names of all nodes in the configured order."""
    from eslurm.v1 import controller_pb2 as pb

    partition = next((word.partition("=")[2] for word in words if word.lower().startswith("partition=")), "")
    found = api.call("Nodes", pb.NodesRequest(partition=partition), _TIMEOUT_S).nodes
    return [node.name for node in found if not is_login_host(node)]


def table(reply: Any) -> str:
    """Running jobs, then planned ones by start; reservations among them; then one sentence."""
    columns = [
        Column("START"),
        Column("END"),
        Column("JOBID", right=True),
        Column("USER"),
        Column("PARTITION"),
        Column("NAME"),
        Column("NODES", right=True),
        Column("CORES", right=True),
        Column("NODELIST", width=0),
    ]
    entries = [(not one.running, one.start_us, 0, _job_row(one)) for one in reply.jobs]
    entries += [(True, one.start_us, 1, _reservation_row(one)) for one in reply.reservations]
    entries.sort(key=lambda entry: entry[:3])
    lines = [render(columns, [row for *_, row in entries]).rstrip("\n"), ""] if entries else []
    return "\n".join([*lines, summary(reply)])


def _job_row(one: Any) -> list[str]:
    label = job_label_of(one)
    return [
        "running" if one.running else _moment(one.start_us),
        _moment(one.end_us) if one.end_us else "no end",
        f"{label} x{one.tasks}" if one.tasks > 1 else label,
        one.user,
        one.partition,
        escaped(one.name),
        str(one.node_count),
        str(one.cores),
        _cut(one.nodes),
    ]


def _reservation_row(one: Any) -> list[str]:
    return [
        _moment(one.start_us),
        _moment(one.end_us) if one.end_us else "no end",
        "reserved",
        one.user,
        "",
        escaped(one.name),
        str(one.node_count),
        "",
        _cut(one.nodes),
    ]


def next_starts(reply: Any) -> dict[int, Any]:
    """The first planned start of each waiting job; of an array, that of its first tasks."""
    found: dict[int, Any] = {}
    for one in reply.jobs:
        if not one.running:
            found.setdefault(one.job_id, one)
    return found


def _cut(nodes: str) -> str:
    return nodes if len(nodes) <= _NODES_WIDTH else nodes[: _NODES_WIDTH - 3] + "..."


def _moment(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s)
