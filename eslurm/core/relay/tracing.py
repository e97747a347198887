"""Traces of lists: the sends of this process and its children's traces.

Invariant: a send is reported with its list, and a child's trace with the send that it answered, so that merging on the way
up counts each once.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.relay.record import Request, Send
from eslurm.core.relay.trace import (
    ADOPTED,
    DONE,
    NEVER_US,
    OPEN,
    RECHECK,
    Trace,
    TraceSpan,
    from_root,
    from_spans,
    merge,
)


def keep(send: Send, trace: Trace) -> None:
    """Keep the trace of a child's final reply; a second copy of the reply replaces it."""
    send.trace = from_root(trace, send.to_node) if send.via else trace


def trace_of(requests: Iterable[Request]) -> Trace:
    """The trace of these lists' trees, as far as known."""
    own: list[TraceSpan] = []
    parts: list[Trace] = []
    for request in requests:
        own += request.walked or ()
        for send in request.sends or ():
            own.append(_span(send))
            if send.trace is not None:
                parts.append(send.trace)
    mine = from_spans(own)
    return merge((mine, *parts)) if parts else mine


def _span(send: Send) -> TraceSpan:
    acked_us = send.acked_us - send.sent_us if send.acked_us else NEVER_US
    done_us = send.done_us - send.sent_us if send.done_us else NEVER_US
    return TraceSpan(send.parent, send.to_node, send.hop, len(send.nodes), acked_us, done_us, _how(send))


def _how(send: Send) -> str:
    if send.cause:
        return f"{RECHECK if send.recheck else ADOPTED}: {send.cause}"
    if send.recheck:
        return RECHECK
    return DONE if send.done_us else OPEN
