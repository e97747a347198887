"""Lent cores, for a waiting job that accepts them (R-02, R-03)."""

from __future__ import annotations

from eslurm.core.control.lending import lendable
from eslurm.core.model.job import Job
from eslurm.core.state.cluster import State


def lent_cores_text(state: State, job: Job) -> str:
    """The lent cores that there are for the job; empty for one that accepts none."""
    if not job.spec.borrow:
        return ""
    ready = sum(one.cores for one in lendable(state))
    lent = sum(sum(borrowers.values()) for borrowers in state.loans.values())
    idle = state.reports.idle
    return (
        f"it accepts lent cores (--borrow={job.spec.borrow}): running jobs report {idle} idle ones, of which {ready} are "
        f"ready for it and other jobs have borrowed {lent}"
    )
