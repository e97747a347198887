"""Bugs of lending to plant: each takes `monkeypatch` and breaks one rule that the simulator must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.control import lending
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.lending import Exclusion
from eslurm.core.state import apply, apply_nodes
from eslurm.core.state.cluster import State


def lent_before_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A core is lent as soon as its application reports it idle: its node may not know of that yet."""
    free_of = lending._free_of

    def hasty(state: State, job: Job, attempt: Attempt, one: Exclusion) -> int:
        return free_of(state, job, attempt, replace(one, cores=one.wanted))

    patch.setattr(lending, "_free_of", hasty)
    # Its own alarm is off: what starts too early has to be noticed on the node.
    patch.setattr("eslurm.core.state.invariants._check_lending", lambda *_: None)


def kept_after_the_grace(patch: pytest.MonkeyPatch) -> None:
    """A borrower that is asked for the cores of another job goes on."""
    patch.setattr(lending, "recalled", lambda state, borrower, owner, now_us: [])


def ownership_changed_by_a_crash(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes what jobs have borrowed for their own."""
    apply_epoch = apply_nodes.apply_epoch

    def forgetful(state: State, fact: facts.EpochBegan) -> None:
        apply_epoch(state, fact)
        for job in list(state.jobs.values()):
            attempt = job.attempt
            if attempt is None or attempt.more is None or not attempt.more.loans:
                continue
            loans = tuple(
                [replace(loan, until_us=loan.until_us or state.now_us) for loan in attempt.more.loans]
            )
            own = replace(attempt, more=replace(attempt.more, loans=loans))
            # As if the ledger had not counted them before.
            state.put_job(replace(job, attempt=own))

    known: dict[type, Callable[[State, Any], None]] = dict(apply._APPLY)
    known[facts.EpochBegan] = forgetful
    patch.setattr(apply, "_APPLY", known)
