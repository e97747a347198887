"""Why a job waits: a kind for programs, a sentence for people (C-49).

Sentences are made once per shape of job and shared by all jobs of that shape.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from eslurm.core.plan.mapping import capacities
from eslurm.core.plan.need import Need
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.vector import describe


class WhyKind(StrEnum):
    """The reasons a plan can give."""

    PRIORITY = "priority"
    RESOURCES = "resources"
    NODES_UNAVAILABLE = "nodes_unavailable"
    PARTITION_DOWN = "partition_down"
    NOT_EXAMINED = "not_examined"


class Why(msgspec.Struct, frozen=True, gc=False):
    """One waiting reason; `planned_start_us` is set when the plan promises a start."""

    kind: WhyKind
    text: str
    planned_start_us: int | None = None


NOT_EXAMINED = Why(WhyKind.NOT_EXAMINED, "the planner has not reached this job yet")
NOTHING_IN_SERVICE = Why(WhyKind.NODES_UNAVAILABLE, "no node of any partition that is up is in service")


def behind(job_id: int) -> Why:
    """Waits its turn in a strict queue."""
    return Why(WhyKind.PRIORITY, f"waits behind job {job_id}, which is ahead in the queue")


def would_delay(job_id: int) -> Why:
    """Would fit now but run into what was promised to another job."""
    return Why(WhyKind.PRIORITY, f"fits now but would delay the promised start of job {job_id}")


def partition_down(name: str, exists: bool) -> Why:
    """Its partition starts no jobs."""
    state = "is down" if exists else "does not exist"
    return Why(WhyKind.PARTITION_DOWN, f"partition {name} {state}")


def nodes_unavailable(need: Need, ledger: Ledger) -> Why:
    """Even with everything that runs ended, too few usable nodes would be left."""
    missing = need.allowed & ~ledger.usable
    return Why(
        WhyKind.NODES_UNAVAILABLE,
        f"needs nodes that are not in service; {missing.bit_count()} of the "
        f"{need.allowed.bit_count()} nodes it may use are out",
    )


def short_of_resources(need: Need, ledger: Ledger, planned_start_us: int | None = None) -> Why:
    """Too little is free now."""
    candidates = need.allowed & ledger.usable
    if need.exclusive:
        candidates &= ledger.idle
    by_capacity = capacities(ledger, need, candidates)
    nodes = sum(mask.bit_count() for mask in by_capacity.values())
    room = sum(capacity * mask.bit_count() for capacity, mask in by_capacity.items())
    one = describe(need.amounts(1))
    state = "idle nodes" if need.exclusive else "nodes"
    if need.nodes_min > 1:
        text = f"needs {need.nodes_min} {state} with {one} each; {nodes} are free"
    elif need.include & ~candidates:
        text = "a node it must run on is not free"
    else:
        text = f"needs room for {need.tasks} tasks of {one}; {room} fit on {nodes} free {state}"
    return Why(WhyKind.RESOURCES, text, planned_start_us)
