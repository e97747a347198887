"""Application of facts about crontabs: a crontab without a text is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eslurm.core.model.crontab import CRONTAB, Crontab

if TYPE_CHECKING:
    from eslurm.core.model import facts
    from eslurm.core.state.cluster import State


def apply_set(state: State, fact: facts.CrontabSet) -> None:
    put_crontab(state, fact.crontab)


def put_crontab(state: State, crontab: Crontab) -> None:
    """Insert, replace or remove a user's crontab."""
    if crontab.text:
        state.crontabs[crontab.uid] = crontab
    else:
        state.crontabs.pop(crontab.uid, None)
    state.touched.records.add((CRONTAB, str(crontab.uid)))
