"""From a booking back to an assignment: what rules, closures and intervals are checked against.

Invariant: an assignment names each node once, with what all parts of the job have there.
"""

from __future__ import annotations

from itertools import groupby

from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import Span
from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.plan.placement.protocols import Assignment, JointAssignment
from eslurm.core.resources.nodes import Topology


def assignment_of(booking: Booking, topology: Topology, parts: int = 0) -> Assignment:
    """The booking's nodes as an assignment; all of them are in the topology.

    With `parts` it is one of so many parts, of which some may hold nothing any more.
    """
    positions = topology.positions
    if parts > 1:
        members: list[list[tuple[int, Vector, int]]] = [[] for _ in range(parts)]
        for span in booking.spans:
            members[span.component].append((positions[span.node], span.amounts, span.tasks))
        return JointAssignment(members)
    if not booking.has_parts:
        return [(positions[span.node], span.amounts, span.tasks) for span in booking.spans]
    return JointAssignment(
        [
            [(positions[span.node], span.amounts, span.tasks) for span in spans]
            for _, spans in groupby(booking.spans, component_of)
        ]
    )


def component_of(span: Span) -> int:
    """The part of the job that a span belongs to: spans come part by part."""
    return span.component
