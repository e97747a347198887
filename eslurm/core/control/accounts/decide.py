"""Changes of policies by operators and coordinators, turned into facts or refused with a reason and the way out.

All changes of a message or none. They are merged one after another into a draft of all policies, which is then checked as
a whole: so the order within a message (a file that is loaded) has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from msgspec.structs import replace

from eslurm.core.control.accounts.coordinators import check_coordinated
from eslurm.core.control.accounts.reservations import settled
from eslurm.core.control.rights import Level, level_of
from eslurm.core.model import facts
from eslurm.core.model.accounts import (
    EVERYONE,
    Account,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Qos,
    Reservation,
    Validity,
    kind_of,
)
from eslurm.core.model.dates import format_moment
from eslurm.core.model.hostlist import fold, unfold
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import Changed, ChangePolicies, PolicyChange, RefusalCode, Refused
from eslurm.core.model.references import find_cycle, in_order, references_of, settings_of, users_of
from eslurm.core.state.cluster import State
from eslurm.core.state.references import mentioned

Decision = tuple[list[facts.Fact], Changed]

CHANGES_MAX = 10_000
DEPTH_MAX = 64
"""Accounts above each other."""
NAMED_MAX = 5
"""Bound of named users of a policy that is to be deleted."""
NODE_RESOURCES = ("cores", "memory_mib", "nodes")
COUNTED = ("jobs", "arrayjobs")


class _Draft:
    """The new policies, and the ones that this message has changed."""

    def __init__(self, state: State) -> None:
        self.policies = {kind: dict(named) for kind, named in state.policies.items()}
        self.put: dict[tuple[str, str], PolicyChange] = {}
        self.dropped: dict[tuple[str, str], None] = {}


def on_change(state: State, message: ChangePolicies, now_us: int) -> Decision:
    """All of the changes or none. Raises `Refused` naming the policy, the value and the way out."""
    level = level_of(state, message.by)
    if level < Level.COORDINATOR:
        raise Refused(
            RefusalCode.DENIED,
            f"{message.by.name} is neither an operator nor a coordinator of an account: ask one of them for this change",
        )
    if len(message.changes) > CHANGES_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"{len(message.changes)} changes at once are more than {CHANGES_MAX}: split them",
        )
    draft = _Draft(state)
    for change in message.changes:
        _merge(state, draft, change)
    if level < Level.OPERATOR:
        check_coordinated(state, message.by, draft.policies, (*draft.put, *draft.dropped))
    for (kind, name), change in draft.put.items():
        policy = draft.policies[kind][name]
        _check(state, draft, policy, now_us)
        if isinstance(policy, Reservation):
            others = [other for other in draft.policies[kind].values() if other.name != name]
            draft.policies[kind][name] = settled(state, policy, others, change, now_us)
    for kind, what in (("account", "lie below each other"), ("qos", "push each other out")):
        circle = find_cycle(draft.policies[kind])
        if circle:
            raise _refused(f"{kind} {circle[0]}: {' > '.join(circle)} {what} in a circle: break it somewhere")
    _check_depth(draft)
    for kind, name in draft.dropped:
        _check_unused(state, draft, kind, name)
    return _facts(state, draft), Changed(len(message.changes))


def _facts(state: State, draft: _Draft) -> list[facts.Fact]:
    """The facts in topological order: referenced policies are set first and removed last."""
    put = [draft.policies[kind][name] for kind, name in draft.put]
    changed = [policy for policy in put if state.policies[kind_of(policy)].get(policy.name) != policy]
    gone = [state.policies[kind][name] for kind, name in draft.dropped if name in state.policies[kind]]
    found: list[facts.Fact] = [facts.PolicySet(policy) for policy in in_order(changed)]
    found += [facts.PolicyRemoved(kind_of(policy), policy.name) for policy in reversed(in_order(gone))]
    return found


# ---- merging ----


def _merge(state: State, draft: _Draft, change: PolicyChange) -> None:
    kind, name = key = (change.kind, change.name)
    present = draft.policies[kind].get(name)
    where = f"{kind} {name}"
    if change.action == "delete" or change.action == "modify":
        if present is None:
            known = ", ".join(sorted(islice(draft.policies[kind], 20))) or "none yet"
            raise Refused(RefusalCode.NOT_FOUND, f"{where}: does not exist: there are {known}")
    elif change.action == "add" and present is not None:
        raise Refused(RefusalCode.CONFLICT, f"{where}: exists already: use modify, or another name")
    if change.action == "delete":
        del draft.policies[kind][name]
        draft.put.pop(key, None)
        draft.dropped[key] = None
        return
    assert change.policy is not None
    if change.action == "modify":
        assert present is not None
        policy = _modified(present, change)
    else:
        policy = change.policy
    draft.policies[kind][name] = policy
    draft.put[key] = change
    draft.dropped.pop(key, None)


def _modified(present: Policy, change: PolicyChange) -> Policy:
    new: Any = change.policy
    values: dict[str, Any] = {}
    for field in change.given:
        old, said = getattr(present, field), getattr(new, field)
        if field in change.added:
            values[field] = (*old, *(one for one in said if one not in old))
        elif field in change.removed:
            values[field] = tuple(one for one in old if one not in said)
        elif isinstance(present, Defaults) and field in ("values", "forced"):
            values[field] = tuple(
                (option, value) for option, value in {**dict(old), **dict(said)}.items() if value
            )
        else:
            values[field] = said
    return replace(present, **values)


# ---- checking ----


def _check(state: State, draft: _Draft, policy: Policy, now_us: int) -> None:
    where = f"{kind_of(policy)} {policy.name}"
    for setting, kind, name in references_of(policy):
        if name not in draft.policies[kind]:
            raise _refused(
                f"{where}: {setting}: {kind} '{name}' does not exist: add it first, with esctl {kind} add {name}"
            )
    if not isinstance(policy, Qos | Defaults):
        _check_validity(state, where, policy.validity, now_us)
    match policy:
        case Account():
            unknown = [user for user in policy.coordinators if user not in draft.policies["user"]]
            if unknown:
                raise _refused(
                    f"{where}: coordinators: user '{unknown[0]}' does not exist: "
                    f"add it first, with esctl user add {unknown[0]}"
                )
        case Limit():
            _check_resource(state, where, policy.resource, (*NODE_RESOURCES, *COUNTED, EVERYONE))
            if policy.kind == "partition":
                _check_partition(state, where, policy.consumer)
        case FreePool():
            _check_pool(state, where, policy)
        case Defaults():
            for setting, option, value in settings_of(policy):
                if option == "partition":
                    _check_partition(state, where, value, setting)


def _check_validity(state: State, where: str, validity: Validity, now_us: int) -> None:
    if validity.until_us and validity.until_us <= now_us:
        ended = format_moment(validity.until_us, state.calendar.offset_s)
        raise _refused(f"{where}: validity: it ended on {ended}: give a later end, or delete it")


def _check_resource(state: State, where: str, resource: str, others: Iterable[str]) -> None:
    known = [*others, *(one.name for one in state.config.resources)]
    if resource not in known:
        raise _refused(f"{where}: resource: '{resource}' is unknown: use one of {', '.join(known)}")


def _check_partition(state: State, where: str, name: str, setting: str = "partition") -> None:
    if name != EVERYONE and name not in state.partitions:
        known = ", ".join(sorted(state.partitions)) or "none"
        raise _refused(f"{where}: {setting}: '{name}' does not exist: use one of {known}")


def _check_pool(state: State, where: str, pool: FreePool) -> None:
    if pool.nodes and pool.feature:
        raise _refused(f"{where}: nodes and feature exclude each other: give one")
    _check_resource(state, where, pool.resource, NODE_RESOURCES[:2])
    topology = state.ledger.topology
    if pool.feature and not topology.mask_of_feature(pool.feature):
        raise _refused(f"{where}: feature: no node has '{pool.feature}': see esinfo -N -l")
    unknown = (
        [name for name in unfold(pool.nodes) if name not in topology.positions_by_name] if pool.nodes else []
    )
    if unknown:
        raise _refused(f"{where}: nodes: {fold(unknown)} do not exist: see esinfo -N")


def _check_depth(draft: _Draft) -> None:
    accounts = draft.policies["account"]
    for name in accounts:
        depth, at = 0, name
        while isinstance(account := accounts.get(at), Account) and account.parent:
            depth, at = depth + 1, account.parent
        if depth > DEPTH_MAX:
            raise _refused(f"account {name}: lies below {depth} others: at most {DEPTH_MAX} are possible")


def _check_unused(state: State, draft: _Draft, kind: str, name: str) -> None:
    users = users_of(draft.policies, kind, name)
    if kind == "user":
        # No reference like the others: users name accounts, and the two would form a circle.
        users += [
            f"account {account.name}"
            for account in draft.policies["account"].values()
            if isinstance(account, Account) and name in account.coordinators
        ]
    if users:
        raise Refused(
            RefusalCode.CONFLICT,
            f"{kind} {name}: is still used by {_few(users)}: change or delete {_those(users)} first",
        )
    count = state.mentions.count(kind, name)
    if count:
        ids = (
            str(job.job_id)
            for job in state.jobs.values()
            if job.state not in FINAL and (kind, name) in mentioned(job.spec)
        )
        jobs = ", ".join(islice(ids, NAMED_MAX)) + (", ..." if count > NAMED_MAX else "")
        raise Refused(
            RefusalCode.CONFLICT,
            f"{kind} {name}: {count} job{'s' * (count > 1)} that {'have' if count > 1 else 'has'} not ended "
            f"use{'s' * (count == 1)} it ({jobs}): cancel or change {'them' if count > 1 else 'it'} first",
        )


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return f"{shown} and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else shown


def _those(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _refused(text: str) -> Refused:
    return Refused(RefusalCode.INVALID, text)
