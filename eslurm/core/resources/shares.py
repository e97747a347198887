"""Amounts by node of an allocation whose parts may share nodes.

Spans come in the order of (component, position), and the spans of one component are on different nodes. So the last span
tells in one look that a job has one part, and what is right for jobs of several parts costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from eslurm.core.model.job import Span
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.vector import Vector, sum_per_node

Share: TypeAlias = tuple[int, Vector]
"""(node number, amounts): all that one job has there."""


def by_node(spans: Sequence[Span]) -> list[Share]:
    """Each node once, with the sum of its spans, in the order of the nodes' first spans."""
    if not spans or not spans[-1].component:
        return [(span.node, span.amounts) for span in spans]
    return list(sum_per_node([(span.node, span.amounts) for span in spans]))


def fits_together(ledger: Ledger, spans: Sequence[Span]) -> bool:
    """Check whether every node exists, is usable, and has free what all the spans on it need together."""
    return all(ledger.fits_on(node, amounts) for node, amounts in by_node(spans))
