"""Visibility of others' data: the one place where `[privacy] private` is applied.

Operators see everything. Of private kinds other users see only their own data, and coordinators their accounts'.
Invariant: every read of the controller asks a `Sight`; without private kinds it lets everything through.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.control.accounts.associations import is_open_to
from eslurm.core.control.rights import Rules, coordinates, is_operator
from eslurm.core.model.accounts import EVERYONE, Account, Defaults, Limit, Policy, Reservation, User
from eslurm.core.model.job import Job, Principal

JOBS: Final = "jobs"
USAGE: Final = "usage"
USERS: Final = "users"
RESERVATIONS: Final = "reservations"
CONFIGURATION: Final = "configuration"
KINDS: Final = (JOBS, USAGE, USERS, RESERVATIONS, CONFIGURATION)


class Visibility:
    """One caller's view under these rules: for a read, those of the committed view. Cheap: one for each call."""

    def __init__(self, rules: Rules, who: Principal) -> None:
        self._rules = rules
        self._who = who
        self._private = () if is_operator(rules, who) else rules.config.private

    def is_open(self, *kinds: str) -> bool:
        """Check whether the caller sees all users' data of all these kinds."""
        return not any(kind in self._private for kind in kinds)

    def job(self, job: Job) -> bool:
        """Check whether the caller sees this job."""
        return (
            self.is_open(JOBS)
            or job.spec.user.uid == self._who.uid
            or coordinates(self._rules, self._who, job.spec.account)
        )

    def job_of(self, user: str, account: str) -> bool:
        """Check whether the caller sees jobs of this user in this account, by their names."""
        return self.is_open(JOBS) or self._is_mine(user, account)

    def run(self, user: str, account: str) -> bool:
        """Check whether the caller sees the usage of a job of this user in this account."""
        return self.is_open(JOBS, USAGE) or self._is_mine(user, account)

    @property
    def only_user(self) -> str:
        """The only user in the caller's view of runs; empty: no restriction."""
        everybody = self.is_open(JOBS, USAGE)
        return "" if everybody or self._who.name in self._rules.coordinators else self._who.name

    def share(self, user: str, account: str) -> bool:
        """Check whether the caller sees a user's shares and usage; with an empty user, the account's own."""
        if self.is_open(USAGE, USERS):
            return True
        return self._is_mine(user, account) if user else self._is_on_path(account)

    def policy(self, policy: Policy) -> bool:
        """Check whether the caller sees this record."""
        match policy:
            case Reservation():
                return self.reservation(policy)
            case _ if self.is_open(USERS):
                return True
            case User():
                return policy.name == self._who.name or self._is_coordinated(policy)
            case Account():
                return self._is_on_path(policy.name)
            case Limit() | Defaults() if policy.kind == "user":
                return policy.consumer in (EVERYONE, self._who.name) or self._is_coordinated(
                    self._rules.policies["user"].get(policy.consumer)
                )
            case Limit() if policy.kind == "account":
                return policy.consumer == EVERYONE or self._is_on_path(policy.consumer)
        return True

    def reservation(self, reservation: Reservation) -> bool:
        """Check whether the caller sees this reservation: one that is open to the caller, or maintenance."""
        if self.is_open(RESERVATIONS) or reservation.maintenance:
            return True
        return any(is_open_to(reservation, self._who, account) for account in self._accounts() or ("",))

    # ---- what is the caller's ----

    def _is_mine(self, user: str, account: str) -> bool:
        return user == self._who.name or coordinates(self._rules, self._who, account)

    def _accounts(self) -> tuple[str, ...]:
        user = self._rules.policies["user"].get(self._who.name)
        return user.accounts if isinstance(user, User) else ()

    def _is_coordinated(self, user: Policy | None) -> bool:
        return isinstance(user, User) and any(
            coordinates(self._rules, self._who, account) for account in user.accounts
        )

    def _is_on_path(self, account: str) -> bool:
        """Check whether the account is one of the caller's, above one of these, or below one that the caller coordinates."""
        if coordinates(self._rules, self._who, account):
            return True
        accounts = self._rules.policies["account"]
        mine = (*self._accounts(), *self._rules.coordinators.get(self._who.name, ()))
        for name in mine:
            while name:
                if name == account:
                    return True
                found = accounts.get(name)
                name = found.parent if isinstance(found, Account) else ""
        return False
