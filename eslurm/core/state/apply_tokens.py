"""Application of facts about tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eslurm.core.model import facts
    from eslurm.core.state.cluster import State


def apply_issued(state: State, fact: facts.TokenIssued) -> None:
    state.put_token(fact.token)


def apply_gone(state: State, fact: facts.TokensRevoked | facts.TokensExpired) -> None:
    for identifier in fact.ids:
        state.drop_token(identifier)
