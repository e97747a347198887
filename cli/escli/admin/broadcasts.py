"""`esctl broadcast`: the trees of recent broadcasts: slow nodes, adoptions, the cost of each level."""

from __future__ import annotations

from escli import clock, exits, program
from escli.as_json import to_json
from escli.failures import CommandFailed
from escli.tables import columns_of, render
from eslurm.compat.errors import OptionError
from eslurm.compat.moments import format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_LISTED_MAX = 1_000
_NAMES_CHARS_MAX = 1_000
_NONE = "no broadcast's trace is kept yet: heartbeats are traced now and then, try again in a minute"


def broadcast(api: Api, words: list[str], given: Words) -> int:
    """The action `broadcast`: `list`, `last`, or a broadcast's id."""
    from eslurm.v1 import controller_pb2 as pb

    which = words[0].lower() if words else "last"
    program.no_more_words(words[1:])
    as_json, with_tree = given.has("json"), given.has("tree")
    if which == "list":
        request = pb.BroadcastsRequest(limit=_LISTED_MAX)
    elif which == "last":
        request = pb.BroadcastsRequest(with_tree=with_tree)
    elif which.isdecimal():
        request = pb.BroadcastsRequest(id=int(which), with_tree=with_tree)
    else:
        raise OptionError("broadcast", words[0], "names no broadcast", "use list, last, or an id from list")
    reply = api.call("Broadcasts", request)
    if not reply.broadcasts and which.isdecimal():
        raise CommandFailed(
            exits.FAILED, f"broadcast {which}: no trace of it is kept (see esctl broadcast list)"
        )
    if as_json:
        program.say(to_json(reply))
    elif not reply.broadcasts:
        program.say(_NONE)
    elif which == "list":
        program.say(listed(reply.broadcasts))
    else:
        program.say(described(reply.broadcasts[0], with_tree=with_tree))
    return exits.OK


def listed(broadcasts: Any) -> str:
    """One line for each, newest first."""
    columns = columns_of("ID KIND AT >TOOK >NODES >UNREACHED >PREDICTED SATELLITES")
    rows = [
        [
            str(one.id),
            one.kind,
            format_moment(one.started_us, clock.local_offset_s),
            f"{one.took_us / 1000:.1f} ms",
            str(one.nodes),
            str(one.unreached),
            str(one.predicted),
            ",".join(one.satellites) or "-",
        ]
        for one in broadcasts
    ]
    return render(columns, rows).rstrip("\n")


def described(one: Any, *, with_tree: bool) -> str:
    """One broadcast in full; with its tree on request."""
    by = ", ".join(one.satellites) or "the controller itself"
    lines = [
        f"Broadcast {one.id}: {one.kind} to {one.nodes} nodes at {format_moment(one.started_us, clock.local_offset_s)}, "
        f"answered after {one.took_us / 1000:.1f} ms.",
        f"{one.ok} ok, {one.failed} failed, {one.unreached} unreached; {one.predicted} were predicted to fail.",
        f"Sent by {by}; {one.grouping} tree of width {one.width}; "
        f"{one.reallocations} shares given to another satellite, {one.takeovers} taken over by the controller.",
    ]
    if one.unreached_nodes:
        lines.append(f"Unreached: {_cut(one.unreached_nodes)}")
    if with_tree:
        lines += ["", _tree(one)]
    else:
        lines.append("Its tree: esctl broadcast --tree " + str(one.id))
    return "\n".join(lines)


def _cut(names: str) -> str:
    """Shorten a long list: thousands of failed nodes at random places fold badly."""
    if len(names) <= _NAMES_CHARS_MAX:
        return names
    return names[:_NAMES_CHARS_MAX].rpartition(",")[0] + ",... (all of them: --json)"


def _tree(one: Any) -> str:
    """The tree as the core renders it, over names that this command numbers for itself."""
    from eslurm.core.relay.trace import ROOT, LevelCost, Trace, TraceSpan
    from eslurm.core.relay.trace_text import render as draw

    names: list[str] = []
    numbers = {"controller": ROOT}

    def number(name: str) -> int:
        if name not in numbers:
            numbers[name] = len(names)
            names.append(name)
        return numbers[name]

    spans = tuple(
        TraceSpan(number(s.parent), number(s.child), s.hop, s.nodes, s.acked_us, s.done_us, s.how)
        for s in one.spans
    )
    levels = tuple(
        LevelCost(
            level.hop,
            level.sends,
            level.acked_mean_us * level.sends,
            level.acked_max_us,
            level.done_max_us,
            level.adopted,
        )
        for level in one.levels
    )
    return draw(Trace(spans, levels, one.spans_omitted), names.__getitem__)
