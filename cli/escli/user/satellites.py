"""Output of satellites: the table of `esinfo --satellites`, `esctl show satellite`, `esctl satellite down|resume`."""

from __future__ import annotations

import os

from escli import changes, clock, exits, program
from escli.failures import CommandFailed
from escli.tables import columns_of, render
from eslurm.compat.durations import format_duration
from eslurm.compat.errors import OptionError, escaped, nearest
from eslurm.compat.hostlist import expand
from eslurm.compat.moments import format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words

COMMAND = "esctl"
ACTIONS = ("down", "resume")
_MIB = 1 << 20


def table(reply: Any, *, header: bool = True) -> str:
    """One line per satellite; `RUNNING*` has missed its last heartbeat."""
    rows = [
        [
            one.name,
            state(one),
            _for(one, reply.now_us),
            str(one.tasks_running),
            str(one.broadcasts - one.tasks_running),
            str(one.nodes_given),
            str(one.failures),
            _memory(one),
            str(one.sockets) if one.heard_us else "-",
            one.endpoint,
        ]
        for one in reply.satellites
    ]
    columns = columns_of("SATELLITE STATE >FOR >TASKS >DONE >NODES >FAILURES >MEMORY >SOCKETS ENDPOINT")
    return render(columns, rows, header=header)


def state(one: Any) -> str:
    """The state, with a star while one heartbeat is missing."""
    return f"{one.state}*" if one.suspect else str(one.state)


def _for(one: Any, now_us: int) -> str:
    return format_duration((now_us - one.since_us) // 1_000_000) if one.since_us else "N/A"


def _memory(one: Any) -> str:
    return f"{-(-one.rss_bytes // _MIB)}M" if one.rss_bytes else "-"


def show(api: Api, words: Sequence[str], as_json: bool) -> str:
    """`esctl show satellite [NAME ...]`."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Satellites", pb.SatellitesRequest())
    names = _names(words, "show satellite")
    known = [one.name for one in reply.satellites]
    for name in names:
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "there are none"
            raise CommandFailed(exits.FAILED, f"satellite {name} is not known: {there}")
    chosen = [one for one in reply.satellites if not names or one.name in names]
    if as_json:
        from escli.as_json import to_json

        return to_json(pb.SatellitesReply(satellites=chosen, now_us=reply.now_us))
    return "\n\n".join(_block(one, reply.now_us) for one in chosen) or "no satellites"


def _block(one: Any, now_us: int) -> str:
    lines = [
        f"SatelliteName={one.name} State={state(one)}",
        f"Since={_moment(one.since_us)} For={_for(one, now_us)} Reason={escaped(one.reason) or 'None'}",
        f"TasksRunning={one.tasks_running} TasksDone={one.broadcasts - one.tasks_running} "
        f"NodesGiven={one.nodes_given} Failures={one.failures}",
        f"Memory={_memory(one)} Sockets={one.sockets} LoopLag={one.lag_us / 1000:.1f}ms "
        f"LastHeard={_moment(one.heard_us)}",
        f"Endpoint={one.endpoint}",
    ]
    return "\n   ".join(lines)


def _moment(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s) if at_us else "never"


def control(api: Api, words: list[str], given: Words) -> int:
    """`esctl satellite down|resume NAME[,NAME...] [reason=TEXT]`."""
    from eslurm.v1 import controller_pb2 as pb

    if not words:
        raise OptionError("satellite", None, "needs an action", f"use {' or '.join(ACTIONS)}")
    action, *rest = words
    if action.lower() not in ACTIONS:
        near = nearest(action.lower(), ACTIONS)
        way_out = f"did you mean {near}?" if near else f"use {' or '.join(ACTIONS)}"
        raise OptionError("satellite", action, "is not an action", way_out)
    reasons = [word.partition("=")[2] for word in rest if word.lower().startswith("reason=")]
    names = _names([word for word in rest if not word.lower().startswith("reason=")], f"satellite {action}")
    if not names:
        raise OptionError(
            f"satellite {action}", None, "needs satellites", f"use e.g. esctl satellite {action} sat1"
        )
    if reasons and action.lower() == "resume":
        raise OptionError("reason", reasons[0], "is not expected with resume", "leave it out")
    request = pb.UpdateSatellitesRequest(
        names=names, action=action.lower(), reason=reasons[-1] if reasons else ""
    )
    reply = api.call("UpdateSatellites", request, request_id=os.urandom(16))
    nothing = f"nothing changed: {', '.join(names)} {'is' if len(names) == 1 else 'are'} " + (
        "not DOWN" if action.lower() == "resume" else "DOWN already"
    )
    return changes.report(COMMAND, reply, as_json=given.has("json"), nothing=nothing)


def print_table(api: Api, given: Words) -> None:
    """`esinfo --satellites`."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Satellites", pb.SatellitesRequest())
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        program.say(table(reply, header=not given.has("noheader")).rstrip("\n"))


def _names(words: Sequence[str], action: str) -> list[str]:
    return [name for word in words for name in expand(word, action)]
