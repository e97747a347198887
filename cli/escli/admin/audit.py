"""`esctl audit`: changes and refusals with their callers, from the leading controller's audit log."""

from __future__ import annotations

from escli import clock, exits, program
from escli.tables import Column, render
from eslurm.compat.errors import escaped
from eslurm.compat.moments import format_moment, parse_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from escli.api import Api
    from escli.options import Words

COMMAND = "esctl"
_TIMEOUT_S = 60.0


def audit(api: Api, words: list[str], given: Words) -> int:
    """`esctl audit [--since TIME] [--user USER] [--refused] [--json]`."""
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words)
    request = pb.AuditRequest(user=given.text("user"), refused=given.has("refused"))
    if given.has("since"):
        request.since_us = parse_moment(
            given.text("since"), clock.now_us(), clock.local_offset_s, given.spelling("since"), past=True
        )
    reply = api.call("Audit", request, _TIMEOUT_S)
    if given.has("json"):
        program.say("\n".join(reply.lines))
    else:
        program.say(table(reply.lines).rstrip("\n"))
    return exits.OK


def table(lines: Any) -> str:
    """One line per change or refusal, the oldest first."""
    import json

    columns = [Column(name) for name in ("TIME", "USER", "FROM", "METHOD", "RESULT", "WHAT")]
    return render(columns, [_row(json.loads(line)) for line in lines])


def _row(line: Mapping[str, Any]) -> list[str]:
    user = line.get("user", "")
    uid = line.get("uid", -1)
    if not user:
        user = f"uid {uid}" if uid >= 0 else "-"
    way = line.get("identified", "")
    if line.get("token"):
        way += f" {line['token']}"
    if line.get("origin"):
        way = f"{line['origin']} ({way})" if way else str(line["origin"])
    said = [part for part in (line.get("what", ""), line.get("reason", "")) if part]
    result = line.get("result", "")
    if line.get("count") and result in ("lost", "repeated"):
        result += f" {line['count']}"
    cells = [_time(line.get("time", "")), user, way or "-", line.get("method", "-"), result, ": ".join(said)]
    return [escaped(str(cell)) for cell in cells]


def _time(text: str) -> str:
    """In the zone of this host, to the second."""
    from datetime import datetime

    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return format_moment(int(at.timestamp()) * 1_000_000, clock.local_offset_s)
