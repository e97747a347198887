"""Who may do what: users, coordinators of accounts, operators, administrators.

Each level has what the ones before it have. Operators manage jobs, nodes, satellites and all policies; administrators also
the controllers, the log of facts, tokens and keys. A coordinator of an account manages the jobs and users of it and of
those below it. Invariant: a way in on which a node's word is taken for the caller's uid (`ATTESTED`), and a token of
another scope than admin, give a user's rights.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from eslurm.core.account.model import Account
from eslurm.core.job.model import Job, Principal, acts_for_others

if TYPE_CHECKING:
    from eslurm.core.cluster import State


class Level(enum.IntEnum):
    """What a caller is to the cluster as a whole."""

    USER = 0
    COORDINATOR = 1
    OPERATOR = 2
    ADMINISTRATOR = 3


def level_of(state: State, who: Principal) -> Level:
    """The highest level that the caller has."""
    if not acts_for_others(who):
        return Level.USER
    if who.uid in state.config.administrators:
        return Level.ADMINISTRATOR
    if who.uid in state.config.operators:
        return Level.OPERATOR
    return Level.COORDINATOR if who.name in state.coordinators else Level.USER


def is_operator(state: State, who: Principal) -> bool:
    """Whether the caller may change anything of jobs, nodes and policies."""
    return level_of(state, who) >= Level.OPERATOR


def is_administrator(state: State, who: Principal) -> bool:
    """Whether the caller may change the cluster itself, and make, see and revoke the tokens of others."""
    return level_of(state, who) >= Level.ADMINISTRATOR


def coordinates(state: State, who: Principal, account: str) -> bool:
    """Whether the caller is a coordinator of the account or of one above it."""
    mine = state.coordinators.get(who.name)
    if not mine or not acts_for_others(who):
        return False
    accounts = state.policies["account"]
    while account:
        if account in mine:
            return True
        found = accounts.get(account)
        account = found.parent if isinstance(found, Account) else ""
    return False


def may_manage(state: State, who: Principal, job: Job) -> bool:
    """Whether the caller may end, hold, requeue and change the job."""
    return (
        who.uid == job.spec.user.uid or is_operator(state, who) or coordinates(state, who, job.spec.account)
    )
