"""Results from a child, merged into a relay's record.

Invariant: only the responsible relay calls a node unreached: a satellite for its list, the direct recheck for a suspect.
Other reports of unreached nodes are doubts, and ignored while another send for the node is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from eslurm.core.relay.differences import STILL_MISSING, left_out
from eslurm.core.relay.messages import Reply
from eslurm.core.relay.record import Record, Send, SendState
from eslurm.core.relay.results import OK, Outcome, Status

Doubt = tuple[int, Outcome]


def learn(record: Record, reply: Reply, sends: Sequence[Send]) -> list[Doubt]:
    """Merge the news about `sends`. Returns the nodes that are unreached on hearsay only."""
    doubts: list[Doubt] = []
    mentioned: set[int] = set()
    longest = len(record.waiters)
    for row in reply.results.rows:
        # No request has that many nodes: a broken sender must not cost time.
        runs = [
            range(start, start + length)
            for start, length in zip(row.starts, row.lengths, strict=False)
            if length <= longest
        ]
        if row.outcome.status is Status.UNREACHED:
            doubts += _hear_unreached(record, chain.from_iterable(runs), row.outcome, sends)
        else:
            record.resolve(chain.from_iterable(runs), row.outcome)
        if reply.as_expected:
            mentioned.update(*runs)
    if reply.as_expected and reply.final:
        ok, missing = left_out(record, reply, mentioned)
        record.resolve(ok, OK)
        doubts += _hear_unreached(record, missing, STILL_MISSING, sends)
    return doubts


def _hear_unreached(
    record: Record, nodes: Iterable[int], outcome: Outcome, sends: Sequence[Send]
) -> list[Doubt]:
    about = set(sends)
    via = any(send.via for send in sends)
    doubts: list[Doubt] = []
    for node in nodes:
        if node in record.outcomes or node in record.started or node not in record.waiters:
            continue
        send = record.cover.get(node)
        if send is not None and send.state < SendState.DONE and send not in about:
            continue
        if via or (send is not None and send.recheck):
            record.resolve((node,), outcome)
        else:
            doubts.append((node, outcome))
    return doubts
