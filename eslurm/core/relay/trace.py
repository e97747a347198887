"""Trace of a broadcast's tree for output: sends, durations, suspects.

Owns the span (one list given to one child), the cost of each level and how both travel and merge. Invariant: levels count
every list, also those whose spans were left out; a trace holds at most `SPANS_MAX` spans, half from the top of the tree
and half by trouble and slowness, and equal spans once.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

import msgspec

ROOT: Final = -(1 << 31)
"""The parent of a root's own sends. A controller puts a satellite's number in its place."""
NEVER_US: Final = -1
SPANS_MAX: Final = 2_048

DONE: Final = "done"
LOCAL: Final = "local"
"""A node of the same process: no message was sent."""
OPEN: Final = "open"
"""Neither answered nor given up when the broadcast ended, or another list answered for its nodes."""
RECHECK: Final = "recheck"
ADOPTED: Final = "adopted"
NO_ACK: Final = "no acknowledgement"
NO_PROGRESS: Final = "no progress"
LINK_LOST: Final = "link lost"
REFUSED: Final = "refused"
_CAUSES: Final = frozenset((NO_ACK, NO_PROGRESS, LINK_LOST))


class TraceSpan(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """One list given to one child, as its parent saw it.

    `hop` is the distance of the child from the controller; `acked_us` and `done_us` are after the send,
    `NEVER_US` if that never came. `how`: done, local, open, "adopted: <cause>" (the parent took the list
    back, E-31), recheck (a second look that was answered) or "recheck: <cause>".
    """

    parent: int
    child: int
    hop: int
    nodes: int
    acked_us: int
    done_us: int
    how: str

    @property
    def is_trouble(self) -> bool:
        """Check whether the child was a suspect."""
        return self.how not in (DONE, LOCAL, OPEN)


class LevelCost(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All lists that were sent to one distance from the controller; nodes of the same process are none."""

    hop: int
    sends: int
    acked_sum_us: int
    acked_max_us: int
    done_max_us: int
    adopted: int


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Spans in order of hop, parent, child; `omitted` more were left out because of their number."""

    spans: tuple[TraceSpan, ...] = ()
    levels: tuple[LevelCost, ...] = ()
    omitted: int = 0


def cause_of(why: str) -> str:
    """The cause of a suspicion, in one of four words; all network errors are refusals."""
    return why if why in _CAUSES else REFUSED


def from_spans(spans: Iterable[TraceSpan], spans_max: int = SPANS_MAX) -> Trace:
    """The trace of one relay's own sends."""
    known = tuple(dict.fromkeys(spans))
    kept, omitted = _keep(known, spans_max)
    return Trace(kept, _levels(known), omitted)


def merge(parts: Iterable[Trace], spans_max: int = SPANS_MAX) -> Trace:
    """The union of the parts; their order has no effect, each part must be given once."""
    parts = tuple(parts)
    known = tuple(dict.fromkeys(span for part in parts for span in part.spans))
    kept, omitted = _keep(known, spans_max)
    return Trace(
        kept, _add(level for part in parts for level in part.levels), omitted + sum(p.omitted for p in parts)
    )


def from_root(trace: Trace, number: int) -> Trace:
    """A root's trace for its controller, which knows the root's number."""
    spans = tuple(
        msgspec.structs.replace(span, parent=number) if span.parent == ROOT else span for span in trace.spans
    )
    return Trace(spans, trace.levels, trace.omitted)


def _keep(spans: tuple[TraceSpan, ...], spans_max: int) -> tuple[tuple[TraceSpan, ...], int]:
    kept = list(spans)
    if len(spans) > spans_max:
        # Half for the top of the tree, so that most of what is shown hangs together; half for trouble wherever it is.
        kept = nsmallest(spans_max // 2, spans, key=_height)
        top = set(kept)
        rest = (span for span in spans if span not in top)
        kept += nsmallest(spans_max - len(kept), rest, key=_importance)
    kept.sort(key=_place)
    return tuple(kept), len(spans) - len(kept)


def _height(span: TraceSpan) -> tuple[bool, int, bool, int, TraceSpan]:
    is_local_leaf = span.how == LOCAL and span.nodes == 1
    return (is_local_leaf, span.hop, *_importance(span))


def _importance(span: TraceSpan) -> tuple[bool, int, TraceSpan]:
    return (not span.is_trouble, -max(span.done_us, span.acked_us), span)


def _place(span: TraceSpan) -> tuple[int, TraceSpan]:
    return (span.hop, span)


def _levels(spans: Iterable[TraceSpan]) -> tuple[LevelCost, ...]:
    return _add(
        LevelCost(
            span.hop,
            1,
            max(0, span.acked_us),
            max(0, span.acked_us),
            max(0, span.done_us),
            int(span.how.startswith(ADOPTED)),
        )
        for span in spans
        if span.how != LOCAL
    )


def _add(costs: Iterable[LevelCost]) -> tuple[LevelCost, ...]:
    levels: dict[int, LevelCost] = {}
    for cost in costs:
        known = levels.get(cost.hop)
        if known is not None:
            cost = LevelCost(
                cost.hop,
                known.sends + cost.sends,
                known.acked_sum_us + cost.acked_sum_us,
                max(known.acked_max_us, cost.acked_max_us),
                max(known.done_max_us, cost.done_max_us),
                known.adopted + cost.adopted,
            )
        levels[cost.hop] = cost
    return tuple(levels[hop] for hop in sorted(levels))
