"""`esctl tree report`: quality of failure predictions, and their gain over random places (E-34, E-b)."""

from __future__ import annotations

from escli import clock, exits, program
from escli.as_json import to_json
from escli.tables import Column, columns_of, render
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.moments import format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_UNKNOWN = "-"


def tree(api: Api, words: list[str], given: Words) -> int:
    """The action `tree`: its one subject is `report`."""
    from eslurm.v1 import controller_pb2 as pb

    if words[:1] != ["report"]:
        raise OptionError("tree", words[0] if words else None, "is nothing to show", "use esctl tree report")
    program.no_more_words(words[1:])
    reply = api.call("TreeReport", pb.TreeReportRequest())
    program.say(to_json(reply) if given.has("json") else report(reply))
    return exits.OK


def report(reply: Any) -> str:
    """The table of predictors, the counts behind it, and the measurements of the automatic width."""
    since = format_moment(reply.since_us, clock.local_offset_s)
    width = "automatic" if not reply.width else str(reply.width)
    parts = [
        f"Trees: {reply.grouping}, width {width}. Counted since {since}: {reply.broadcasts} broadcasts, "
        f"which met {reply.failed_nodes} failed nodes.",
        "",
        _predictors(reply.predictors),
        "LEAVES: failed nodes that were on leaves, where they delay no other node. RANDOM: what random places would have",
        "given; a LIFT of 1.00 is no better than that. NEW: recall of nodes that had answered when last asked. In",
        "brackets: 95 % intervals.",
    ]
    notes = [
        f"{one.name} does not count: {escaped(one.state)}"
        for one in reply.predictors
        if one.state not in ("", "on")
    ]
    parts += ["", *notes] if notes else []
    if reply.widths:
        parts += ["", _widths(reply.widths)]
    return "\n".join(parts).rstrip()


def _predictors(predictors: Any) -> str:
    columns = columns_of("PREDICTOR STATE >NOW >PRECISION >RECALL >NEW >LEAVES >RANDOM >LIFT")
    rows = [
        [
            one.name,
            "on" if one.state in ("", "on") else "off",
            str(one.predicted_now),
            _share(one.precision),
            _share(one.recall),
            _share(one.recall_new),
            _share(one.leaf_share),
            _percent(one.random_leaf_share) if one.leaf_share.of else _UNKNOWN,
            f"{one.lift:.2f}" if one.lift else _UNKNOWN,
        ]
        for one in predictors
    ]
    return render(columns, rows)


def _share(share: Any) -> str:
    if not share.of:
        return _UNKNOWN
    return f"{_percent(share.value)} ({share.low * 100:.0f}-{share.high * 100:.0f})"


def _percent(value: float) -> str:
    return f"{value * 100:.1f}%"


def _widths(widths: Any) -> str:
    columns = [*columns_of(">NODES >WIDTH >MEDIAN >SAMPLES"), Column("")]
    rows = [
        [
            f"<={one.nodes_up_to}",
            str(one.width),
            f"{one.median_us / 1000:.0f} ms",
            str(one.samples),
            "chosen" if one.chosen else "",
        ]
        for one in widths
    ]
    return render(columns, rows)
