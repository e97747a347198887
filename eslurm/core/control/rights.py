"""Rights: users, coordinators of accounts, operators, administrators.

Each level has the rights of the ones before it. Operators manage jobs, nodes, satellites and all policies; administrators
also the controllers, the log of facts, tokens and keys. A coordinator of an account manages the jobs and users of it and
of those below it. Invariant: a way in on which a node or another cell vouches for the caller (`ATTESTED`), and a token of
another scope than admin, give a user's rights only.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Protocol

from eslurm.core.model.accounts import Account, Policy
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import Job, Principal, acts_for_others


class Rules(Protocol):
    """The records behind rights: of the state for decisions, of the committed view for reads."""

    @property
    def config(self) -> ClusterConfig:
        """The configuration, with operators, administrators and private kinds."""
        ...

    @property
    def policies(self) -> Mapping[str, Mapping[str, Policy]]:
        """Policies by kind and name."""
        ...

    @property
    def coordinators(self) -> Mapping[str, Collection[str]]:
        """By user the accounts that name the user as a coordinator."""
        ...


class Level(enum.IntEnum):
    """A caller's level in the whole cluster."""

    USER = 0
    COORDINATOR = 1
    OPERATOR = 2
    ADMINISTRATOR = 3


def level_of(rules: Rules, who: Principal) -> Level:
    """The highest level that the caller has."""
    if not acts_for_others(who):
        return Level.USER
    if who.uid in rules.config.administrators:
        return Level.ADMINISTRATOR
    if who.uid in rules.config.operators:
        return Level.OPERATOR
    return Level.COORDINATOR if who.name in rules.coordinators else Level.USER


def is_operator(rules: Rules, who: Principal) -> bool:
    """Check whether the caller may change all jobs, nodes and policies."""
    return level_of(rules, who) >= Level.OPERATOR


def is_administrator(rules: Rules, who: Principal) -> bool:
    """Check whether the caller may change the cluster itself, and make, see and revoke the tokens of others."""
    return level_of(rules, who) >= Level.ADMINISTRATOR


def coordinates(rules: Rules, who: Principal, account: str) -> bool:
    """Check whether the caller is a coordinator of the account or of one above it."""
    mine = rules.coordinators.get(who.name)
    if not mine or not acts_for_others(who):
        return False
    accounts = rules.policies["account"]
    while account:
        if account in mine:
            return True
        found = accounts.get(account)
        account = found.parent if isinstance(found, Account) else ""
    return False


def may_manage(rules: Rules, who: Principal, job: Job) -> bool:
    """Check whether the caller may end, hold, requeue and change the job."""
    return (
        who.uid == job.spec.user.uid or is_operator(rules, who) or coordinates(rules, who, job.spec.account)
    )
