"""Splitting a list at one hop: nodes to start here and lists to send (E-20).

Invariant: groups are those of the tree at this place; those of an adopted list are the ones that the suspect would have
made (E-21), of which only the wanted part goes out, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from eslurm.core.relay.record import Record, Request, Send
from eslurm.core.relay.trace import LOCAL, TraceSpan


def spread(
    record: Record,
    request: Request,
    groups: Sequence[list[int]],
    parent: int,
    hop: int,
    local: AbstractSet[int],
    wanted: AbstractSet[int] | None = None,
) -> tuple[list[Send], list[int]]:
    """The sends for `groups`, which are `hop` hops away under `parent`, and the local nodes to start.

    Local heads are walked through at once. With `wanted` (an adoption) only these nodes are sent, and the
    living heads on the way to them; other heads are bypassed.
    """
    grouping, width = record.shape.grouping, record.shape.width
    started = record.started
    sends: list[Send] = []
    run: list[int] = []
    pending = [(parent, hop, groups)]
    while pending:
        parent, hop, groups = pending.pop()
        for group in groups:
            head = group[0]
            below, below_hop = parent, hop
            if head in local:
                if head not in started:
                    started.add(head)
                    run.append(head)
                if request.walked is not None:
                    request.walked.append(TraceSpan(parent, head, hop, len(group), 0, 0, LOCAL))
                below, below_hop = head, hop + 1
            elif wanted is None:
                sends.append(Send(record, head, group, request, parent, hop))
                continue
            elif head in wanted or record.is_alive(head):
                rest = [node for node in group[1:] if node in wanted]
                if rest or head in wanted:
                    sends.append(Send(record, head, [head, *rest], request, parent, hop))
                continue
            if len(group) > 1:
                pending.append((below, below_hop, grouping.split(group[1:], width)))
    return sends, run
