"""The segments of a run: stretches of time between two changes of its nodes, for accounting.

Invariant: segments follow each other without gap or overlap, from the begin of the run to its end, and the sum of nodes
times length over them is the time for which nodes were held.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from eslurm.core.model.growth import Joined
from eslurm.core.model.job import Attempt, Span
from eslurm.core.model.segment import Segment


def segments_of(attempt: Attempt, until_us: int) -> tuple[Segment, ...]:
    """The segments of a run that ended then, or of one that goes on, until then; empty where its nodes never changed."""
    more = attempt.more
    if more is None or attempt.has_parts or not (more.grown or more.shrunk):
        return ()
    from_us = attempt.started_us or attempt.placed_us
    since = _since(more.grown)
    until = {node: at_us for at_us, nodes in more.shrunk for node in nodes}
    changes = {from_us, until_us, *since.values(), *until.values()}
    moments = sorted(at_us for at_us in changes if from_us <= at_us <= until_us)
    found: list[Segment] = []
    for begin_us, end_us in itertools.pairwise(moments):
        held = [
            span
            for span in attempt.spans
            if since.get(span.node, from_us) <= begin_us and end_us <= until.get(span.node, until_us)
        ]
        found.append(_segment(begin_us, end_us, held))
    return tuple(found)


def _since(grown: tuple[Joined, ...]) -> Mapping[int, int]:
    return {node: joined.at_us for joined in grown for node in joined.nodes}


def _segment(begin_us: int, end_us: int, held: list[Span]) -> Segment:
    cores = sum(span.amounts[0] for span in held)
    return Segment(begin_us, end_us, tuple([span.node for span in held]), cores)
