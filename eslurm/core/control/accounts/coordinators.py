"""Changes of policies by a coordinator: membership of users in the coordinator's accounts, and limits of users.

Invariant: a coordinator's change never gives a user more than the site gives everyone: no QOS, no shares, no account of
others, no limit above that on each user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from eslurm.core.control.rights import coordinates
from eslurm.core.model.accounts import EVERYONE, UNLIMITED, Amount, Limit, Policy, User
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.plan.rules.limits import COUNTED, NODES
from eslurm.core.state.cluster import State

Policies = Mapping[str, Mapping[str, Policy]]


def check_coordinated(
    state: State, by: Principal, after: Policies, changed: Iterable[tuple[str, str]]
) -> None:
    """Raise `Refused` unless a coordinator may change each of the policies, in its old and its new form."""
    for kind, name in changed:
        was, new = state.policies[kind].get(name), after[kind].get(name)
        if kind == "user":
            _check_user(state, by, name, was, new)
        elif kind == "limit":
            for one in (was, new):
                if one is not None:
                    _check_limit(state, by, after, one)
            if isinstance(new, Limit):
                _check_bound(after, new)
        else:
            raise _denied(
                f"{kind} {name}: {by.name} coordinates accounts, and changes users and limits of users only"
            )


def _check_user(state: State, by: Principal, name: str, was: Policy | None, new: Policy | None) -> None:
    where = f"user {name}"
    if new is None:
        raise _denied(
            f"{where}: the record goes with all that binds the user: take the account away instead (accounts-=)"
        )
    assert isinstance(new, User)
    if was is None:
        if not state.config.accounts_enforced:
            raise _denied(f"{where}: is not registered, and users need no accounts here")
        was = User(name)
    assert isinstance(was, User)
    if replace(was, accounts=new.accounts) != new:
        raise _denied(f"{where}: a coordinator changes the user's accounts only")
    # The first account is the default: another one in its place is a change of both.
    changed = set(was.accounts) ^ set(new.accounts) | _first(was, new)
    for account in sorted(changed):
        if not coordinates(state, by, account):
            raise _denied(f"{where}: accounts: {by.name} is no coordinator of '{account}'")


def _first(was: User, new: User) -> set[str]:
    if not was.accounts or was.accounts[:1] == new.accounts[:1]:
        return set()
    return {*was.accounts[:1], *new.accounts[:1]}


def _check_limit(state: State, by: Principal, after: Policies, limit: Policy) -> None:
    assert isinstance(limit, Limit)
    where = f"limit {limit.name}"
    if limit.kind != "user" or limit.consumer in (EVERYONE, by.name):
        raise _denied(f"{where}: a coordinator sets limits on single other users only")
    for named in (state.policies["user"], after["user"]):
        user = named.get(limit.consumer)
        accounts = user.accounts if isinstance(user, User) else ()
        others = [account for account in accounts if not coordinates(state, by, account)]
        if not accounts or others:
            why = f"is in account '{others[0]}', too" if others else "is in no account"
            raise _denied(f"{where}: user {limit.consumer} {why}: {by.name} coordinates none of it")


def _check_bound(after: Policies, limit: Limit) -> None:
    """Check a limit on a name, which precedes that on each: it may not allow more."""
    for each in _on_each(after, limit.resource):
        looser = (
            _is_more(limit.amount, each.amount)
            or _is_longer(limit.duration_s, each.duration_s)
            or _is_longer(limit.area_s, each.area_s)
        )
        if looser:
            raise _denied(
                f"limit {limit.name}: allows more than limit {each.name} allows each user: give no more, or ask an operator"
            )


def _on_each(after: Policies, resource: str) -> Iterator[Limit]:
    """Limits on each user that a limit on the resource precedes."""
    for one in after["limit"].values():
        if not isinstance(one, Limit) or (one.kind, one.consumer) != ("user", EVERYONE):
            continue
        special = {resource, one.resource} & {*COUNTED, NODES}
        if one.resource == resource or (EVERYONE in (resource, one.resource) and not special):
            yield one


def _is_more(mine: Amount, each: Amount) -> bool:
    if each.items == UNLIMITED and not each.percent:
        return False
    if mine.items == UNLIMITED and not mine.percent:
        return True
    return mine.items > each.items or mine.percent > each.percent


def _is_longer(mine: int, each: int) -> bool:
    """Compare two durations; 0 is no bound."""
    return bool(each) and (not mine or mine > each)


def _denied(text: str) -> Refused:

    return Refused(RefusalCode.DENIED, text)
