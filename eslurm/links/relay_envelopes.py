"""Between the relay protocol's values and protobuf items.

Invariant: node order survives (X-02). Invalid items of a peer raise `EnvelopeError` and nothing else; a status this
version does not know never passes for ok.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.relay import nodelist
from eslurm.core.relay.grouping import POSITIONAL
from eslurm.core.relay.messages import Ack, Broadcast, Reply
from eslurm.core.relay.results import Outcome, Results, Row, Status
from eslurm.core.relay.trace import SPANS_MAX, LevelCost, Trace, TraceSpan
from eslurm.v1 import link_pb2

_NAMES: Final = {Status.OK: "ok", Status.FAILED: "failed", Status.UNREACHED: "unreached"}
_STATUSES: Final = {name: status for status, name in _NAMES.items()}


class EnvelopeError(Exception):
    """A peer's item is invalid."""


def broadcast_item(broadcast: Broadcast, attachments: tuple[link_pb2.Blob, ...] = ()) -> link_pb2.Item:
    """A list to serve, with its small blobs."""
    return link_pb2.Item(
        broadcast=link_pb2.Broadcast(
            id=_number(broadcast.broadcast_id),
            nodes=_nodes(broadcast.nodes),
            width=broadcast.width,
            deadline_us=max(0, broadcast.deadline_us),
            kind=broadcast.kind,
            command=broadcast.command,
            hop=broadcast.hop,
            attachments=attachments,
            grouping=broadcast.grouping,
            traced=broadcast.traced,
            root_width=broadcast.root_width,
            predicted=_nodes(broadcast.predicted) if broadcast.predicted else None,
            differences=broadcast.differences,
            missing=_nodes(broadcast.missing) if broadcast.missing else None,
        )
    )


def read_broadcast(message: link_pb2.Broadcast) -> Broadcast:
    """Raises `EnvelopeError`."""
    return Broadcast(
        message.id,
        _read_nodes(message.nodes),
        message.width,
        message.deadline_us,
        message.kind,
        message.command,
        message.hop,
        message.grouping or POSITIONAL.name,
        message.root_width,
        _read_nodes(message.predicted),
        message.differences,
        _read_nodes(message.missing),
        message.traced,
    )


def ack_item(ack: Ack) -> link_pb2.Item:
    """Lists have arrived, or are refused."""
    return link_pb2.Item(
        broadcast_ack=link_pb2.BroadcastAck(
            id=_number(ack.broadcast_id), nodes=_nodes(ack.heads), refused=ack.refused
        )
    )


def read_ack(message: link_pb2.BroadcastAck) -> Ack:
    """Raises `EnvelopeError`."""
    return Ack(message.id, _read_nodes(message.nodes), message.refused)


def reply_item(reply: Reply) -> link_pb2.Item:
    """News of lists."""
    return link_pb2.Item(
        broadcast_reply=link_pb2.BroadcastReply(
            id=_number(reply.broadcast_id),
            final=reply.final,
            outcomes=[_outcome(row) for row in reply.results.rows],
            heads=_nodes(reply.heads),
            as_expected=reply.as_expected,
            trace=_trace(reply.trace) if reply.trace is not None else None,
        )
    )


def read_reply(message: link_pb2.BroadcastReply) -> Reply:
    """Raises `EnvelopeError`."""
    rows = tuple(_read_outcome(outcome) for outcome in message.outcomes)
    trace = _read_trace(message.trace) if message.HasField("trace") else None
    heads = _read_nodes(message.heads)
    return Reply(message.id, heads, Results(rows), message.final, message.as_expected, trace)


def _number(broadcast_id: int | bytes) -> int:
    if not isinstance(broadcast_id, int):
        raise TypeError(f"broadcast id {broadcast_id!r} cannot travel: links carry numbers")
    return broadcast_id


def _nodes(nodes: tuple[int, ...]) -> link_pb2.NodeList:
    starts, lengths = nodelist.encode(nodes)
    return link_pb2.NodeList(start=starts, length=lengths)


def _read_nodes(nodes: link_pb2.NodeList) -> tuple[int, ...]:
    try:
        return nodelist.decode(nodes.start, nodes.length)
    except ValueError as error:
        raise EnvelopeError(f"node list: {error}") from None


def _outcome(row: Row) -> link_pb2.Outcome:
    outcome = row.outcome
    return link_pb2.Outcome(
        nodes=link_pb2.NodeList(start=row.starts, length=row.lengths),
        status=_NAMES[outcome.status],
        text=outcome.text,
        payload=outcome.payload,
        code=outcome.code,
    )


def _read_outcome(message: link_pb2.Outcome) -> Row:
    status = _STATUSES.get(message.status)
    if status is None:
        raise EnvelopeError(f"outcome status {message.status!r}")
    starts, lengths = tuple(message.nodes.start), tuple(message.nodes.length)
    try:
        nodelist.check(starts, lengths)
    except ValueError as error:
        raise EnvelopeError(f"node list: {error}") from None
    # Peers of an earlier version send no code; a failure always has one.
    code = (message.code or 1) if status is Status.FAILED else 0
    return Row(Outcome(status, code, message.text, message.payload), starts, lengths)


def _trace(trace: Trace) -> link_pb2.Trace:
    return link_pb2.Trace(
        spans=[
            link_pb2.Span(
                parent=span.parent,
                child=span.child,
                hop=span.hop,
                nodes=span.nodes,
                acked_us=span.acked_us,
                done_us=span.done_us,
                how=span.how,
            )
            for span in trace.spans
        ],
        levels=[
            link_pb2.LevelCost(
                hop=level.hop,
                sends=level.sends,
                acked_sum_us=level.acked_sum_us,
                acked_max_us=level.acked_max_us,
                done_max_us=level.done_max_us,
                adopted=level.adopted,
            )
            for level in trace.levels
        ],
        omitted=trace.omitted,
    )


def _read_trace(message: link_pb2.Trace) -> Trace:
    spans = tuple(
        TraceSpan(span.parent, span.child, span.hop, span.nodes, span.acked_us, span.done_us, span.how)
        for span in message.spans[:SPANS_MAX]
    )
    levels = tuple(
        LevelCost(
            level.hop,
            level.sends,
            level.acked_sum_us,
            level.acked_max_us,
            level.done_max_us,
            level.adopted,
        )
        for level in message.levels
    )
    return Trace(spans, levels, message.omitted + max(0, len(message.spans) - SPANS_MAX))
