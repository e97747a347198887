"""From a booking back to an assignment: what rules, closures and intervals are checked against.

Invariant: an assignment names each node once, with what all parts of the job have there.
"""

from __future__ import annotations

from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.resources.nodes import Topology


def assignment_of(booking: Booking, topology: Topology) -> Assignment:
    """The booking's nodes as an assignment; all of them are in the topology."""
    positions = topology.positions
    if not booking.has_parts:
        return [(positions[span.node], span.amounts, span.tasks) for span in booking.spans]
    tasks: dict[int, int] = {}
    for span in booking.spans:
        tasks[span.node] = tasks.get(span.node, 0) + span.tasks
    return sorted([(positions[node], amounts, tasks[node]) for node, amounts in booking.pairs])
