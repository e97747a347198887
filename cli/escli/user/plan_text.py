"""Texts shared by the table and the chart of a plan."""

from __future__ import annotations

from escli.user.why import when

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def summary(reply: Any) -> str:
    """The policy, the counts of the plan, and its time."""
    running = sum(one.running for one in reply.jobs)
    planned = len(reply.jobs) - running
    text = f"policy {reply.policy}: {running} running, {planned} planned, {reply.waiting} without a planned start"
    if not reply.made_us:
        return f"{text}; no plan has been made yet"
    return f"{text}; made {when(reply.made_us, reply.made_us).removesuffix(' (now)')}, {reply.slots} slots"


def job_label_of(one: Any) -> str:
    """`17`, or a task `17_4`."""
    return f"{one.array_job_id}_{one.array_task}" if one.HasField("array_task") else str(one.job_id)
