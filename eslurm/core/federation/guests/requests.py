"""A guest as its cells see it: the request that its home makes, and the look that the other cell takes at it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eslurm.core.federation.actions import CellAnswer
from eslurm.core.model.guests import GATHER_US, GuestOf, share_of
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import JobSpec
from eslurm.core.model.job_states import FINAL, STARTED, JobState
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.pending_reason import pending_reason
from eslurm.core.state.view import View

GUEST_SCRIPT: Final = b"#!/bin/sh\nexec sleep 2147483647\n"
"""A guest's own process: the time limit, or the end of its job, ends it."""
MARGIN_S: Final = GATHER_US // SECOND_US + 5
"""A guest begins before its job, and must not end before it."""
NAME_MAX: Final = 200


def as_guest(spec: JobSpec, job_id: int, home: str, nodes: int) -> JobSpec:
    """The request for so many nodes of a spanning job: without what only its script needs."""
    return replace(
        spec,
        name=f"{spec.name[:NAME_MAX]}-of-{job_id}@{home}",
        components=(share_of(spec.components[0], nodes),),
        time_limit_s=spec.time_limit_s + MARGIN_S if spec.time_limit_s else 0,
        output="/dev/null",
        error="",
        input="",
        arguments=(),
        begin_us=0,
        deadline_us=0,
        held=False,
        requeue=False,
        dependencies=(),
        dependency_any=False,
        warn_signal=0,
        warn_before_s=0,
        warn_script="",
        cells=(),
        span=False,
        retry=None,
    )


def look(view: View, job_id: int, given: GuestOf) -> CellAnswer:
    """The state of a guest here, for its home."""
    job = view.jobs.get(job_id)
    known = job.guest_of if job is not None else None
    if job is None or known is None:
        return CellAnswer(is_done=True, is_ended=True, text="it is not known there (any more)")
    if not known.is_of(given.home, given.job_id, given.serial):
        return CellAnswer(is_done=True, is_ended=True, text="it holds nodes for another job")
    if job.state in FINAL or job.outcome is not None:
        text = job.exit_text or f"it ended there: {(job.outcome or job.state).value}"
        return CellAnswer(is_done=True, is_ended=job.state in FINAL, text=text)
    if job.state in STARTED and job.attempt is not None and job.attempt.stop is None:
        names = fold(view.node_names(job.attempt.nodes))
        return CellAnswer(is_done=True, is_held=True, node_list=names)
    waits = job.state is JobState.PENDING
    text = (waits and pending_reason(view, job)) or "its nodes are not there yet"
    return CellAnswer(is_done=True, text=text, is_waiting=waits)
