"""Replies to requesters, and their times.

Invariant: a final reply holds every node of its lists, except, for a requester of differences, those that answered as
expected; a node without an outcome is unreached in it, which says nothing about the node for other requesters with a later
deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.relay.differences import surprises
from eslurm.core.relay.messages import Reply, SendReply, Tuning
from eslurm.core.relay.record import NEVER_US, Request, Requester
from eslurm.core.relay.results import EMPTY, collect, unreached
from eslurm.core.relay.tracing import trace_of

NO_OUTCOME = unreached("no outcome by the deadline")


def next_report_us(requester: Requester, tuning: Tuning, now_us: int) -> int | None:
    """Time of the next look at this requester; None when nothing is owed to it.

    Finished lists wait a moment for others to share a reply, partial results wait longer.
    """
    if not requester.open:
        return None
    due_us = min(requester.due_us, requester.keepalive_at_us)
    if requester.finished:
        if requester.gather_until_us is None:
            requester.gather_until_us = now_us + tuning.gather_us
        due_us = min(due_us, requester.gather_until_us)
    if requester.fresh:
        if requester.flush_at_us is None:
            requester.flush_at_us = now_us + tuning.flush_us
        due_us = min(due_us, requester.flush_at_us)
    return due_us


def close_overdue(requester: Requester, now_us: int) -> None:
    """Close the lists whose deadline has passed, with whatever results."""
    if requester.due_us > now_us:
        return
    still_open = []
    for request in requester.open_requests():
        if request.deadline_us <= now_us:
            requester.record.finish(request)
        else:
            still_open.append(request.deadline_us)
    requester.due_us = min(still_open, default=NEVER_US)


def take_final(requester: Requester) -> SendReply | None:
    """One reply for all finished lists of this requester; None when there is no link to it."""
    record = requester.record
    requests = requester.finished
    requester.finished = []
    requester.gather_until_us = None
    record.unreported -= len(requests)
    told = _members(requests)
    if not requester.open:
        requester.fresh.clear()
        requester.flush_at_us = None
    elif requester.fresh:
        already = set(told)
        requester.fresh = [node for node in requester.fresh if node not in already]
    audible = [request for request in requests if not request.muted]
    if not audible:
        return None
    if len(audible) < len(requests):
        told = _members(audible)
    expected = _expected(audible)
    if expected is not None:
        told = surprises(told, record.outcomes, expected)
    results = collect(told, record.outcomes, NO_OUTCOME) if told else EMPTY
    heads = tuple(request.head for request in audible)
    trace = trace_of(audible) if record.broadcast.traced else None
    reply = Reply(record.broadcast.broadcast_id, heads, results, True, expected is not None, trace)
    return SendReply(requester.source, reply)


def take_progress(requester: Requester, tuning: Tuning, now_us: int) -> SendReply | None:
    """Partial results, or the bare sign that the open lists are being worked on; None for nothing to say."""
    record = requester.record
    audible = [request for request in requester.open_requests() if not request.muted]
    heads = tuple(request.head for request in audible)
    fresh = requester.fresh
    expected = _expected(audible)
    if expected is not None:
        fresh = surprises(fresh, record.outcomes, expected)
    results = collect(fresh, record.outcomes, NO_OUTCOME) if fresh else EMPTY
    requester.fresh = []
    requester.flush_at_us = None
    if expected is not None and not fresh and now_us < requester.keepalive_at_us:
        return None
    requester.keepalive_at_us = now_us + tuning.keepalive_us
    if not heads:
        return None
    return SendReply(requester.source, Reply(record.broadcast.broadcast_id, heads, results))


def _expected(requests: Sequence[Request]) -> frozenset[int] | None:
    """The nodes of these lists that normally do not answer; None unless all requests want differences only."""
    if len(requests) == 1:
        return requests[0].expected
    sets = [request.expected for request in requests if request.expected is not None]
    if len(sets) < len(requests) or not sets:
        return None
    return frozenset().union(*sets)


def _members(requests: list[Request]) -> Sequence[int]:
    if len(requests) == 1:
        return requests[0].members
    return [node for request in requests for node in request.members]
