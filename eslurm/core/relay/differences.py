"""Replies with differences only: most nodes answer as they did before (heartbeats).

Expected is a plain ok, or unreached for a node that the requester knows to be missing. Owns both ends: what a reply leaves
out and what its receiver fills in.

Invariant: only final replies are filled in, and only for nodes of the sender's list: a list handed on to another satellite
is always a part of the one before, so the newest is in all their lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from eslurm.core.relay.messages import Broadcast, Reply
from eslurm.core.relay.record import Record, Send
from eslurm.core.relay.results import OK, Outcome, Status, unreached

STILL_MISSING = unreached("still missing")


def expected_by(broadcast: Broadcast) -> frozenset[int] | None:
    """The nodes that the sender of a list knows to be missing; None when it wants the full reply.

    A relay's own caller (no hop yet) always does.
    """
    return frozenset(broadcast.missing) if broadcast.differences and broadcast.hop > 0 else None


def surprises(nodes: Sequence[int], outcomes: Mapping[int, Outcome], missing: AbstractSet[int]) -> list[int]:
    """The nodes whose outcome must be in the reply. No outcome counts as unreached."""
    told = []
    for node in nodes:
        outcome = outcomes.get(node)
        if outcome is None or outcome.status is Status.UNREACHED:
            if node not in missing:
                told.append(node)
        elif node in missing or (outcome is not OK and outcome != OK):
            told.append(node)
    return told


def left_out(record: Record, reply: Reply, mentioned: Collection[int]) -> tuple[list[int], list[int]]:
    """The nodes that the reply leaves out as ok, and those still missing."""
    ok: list[int] = []
    missing: list[int] = []
    for head in reply.heads:
        leg = _newest_leg(record, head)
        if leg is None:
            continue
        for node in leg.nodes:
            if node not in mentioned:
                (missing if node in record.missing_nodes else ok).append(node)
    return ok, missing


def _newest_leg(record: Record, head: int) -> Send | None:
    newest = record.sends.get(head)
    if newest is None:
        return None
    return next((send for send in newest.chain() if send.via), None)
