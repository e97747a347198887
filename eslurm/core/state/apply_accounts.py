"""Application of facts about policies: the only place where a policy or a usage record is written.

Each record is one row of the store under (kind, name); a usage record's kind is `usage` and its name `account/user`, a
promise's kind is `promise` and its name the job's number, a token's kind is `token` and its name the id, a crontab's kind is
`crontab` and its name the user's number; those of members are in `core/model/member.py`. Invariant: every written record is
touched, so the rows follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from eslurm.core.model import facts
from eslurm.core.model.accounts import Account, FreePool, Limit, Policy, Reservation, Usage, kind_of
from eslurm.core.model.crontab import CRONTAB, Crontab
from eslurm.core.model.member import JOIN_TOKEN, MEMBER, REVOCATION, JoinToken, Member, Revocation
from eslurm.core.model.promise import PROMISE, Promise
from eslurm.core.model.token import TOKEN, IssuedToken
from eslurm.core.state.boundaries import arm

if TYPE_CHECKING:
    from eslurm.core.state.cluster import State

USAGE: Final = "usage"

Other: TypeAlias = Usage | Promise | IssuedToken | JoinToken | Member | Revocation | Crontab
"""Records that are no policies."""
Record: TypeAlias = Policy | Other


def usage_name(account: str, user: str) -> str:
    """The name of a usage record's row. Accounts have no slash in their names."""
    return f"{account}/{user}"


def apply_policy_set(state: State, fact: facts.PolicySet) -> None:
    before = state.policies[kind_of(fact.policy)].get(fact.policy.name)
    put_policy(state, fact.policy)
    _changed(state, before, fact.policy)


def apply_policy_removed(state: State, fact: facts.PolicyRemoved) -> None:
    before = state.policies[fact.kind].pop(fact.name)
    state.policies_copy = None
    _index(state, before, None)
    state.touched.records.add((fact.kind, fact.name))
    _changed(state, before, None)


def put_policy(state: State, policy: Policy) -> None:
    """Insert or replace a policy, and set the timer of its next begin or end."""
    kind = kind_of(policy)
    _index(state, state.policies[kind].get(policy.name), policy)
    state.policies[kind][policy.name] = policy
    state.policies_copy = None
    state.touched.records.add((kind, policy.name))
    arm(state, policy, state.now_us)


def _index(state: State, before: Policy | None, after: Policy | None) -> None:
    """Keep the index `State.coordinators`."""
    if isinstance(before, Account):
        for user in before.coordinators:
            state.coordinators[user].discard(before.name)
            if not state.coordinators[user]:
                del state.coordinators[user]
    if isinstance(after, Account):
        for user in after.coordinators:
            state.coordinators.setdefault(user, set()).add(after.name)


def put_usage(state: State, usage: Usage) -> None:
    """Insert or replace the usage of a user through an account."""
    state.usage[usage.account, usage.user] = usage
    state.touched.records.add((USAGE, usage_name(usage.account, usage.user)))


def _changed(state: State, before: Policy | None, after: Policy | None) -> None:
    """Replan, under changed rules only: a new user or another share moves no job."""
    state.want_plan()
    if _binding(before) != _binding(after):
        state.policies_changed = state.generation


def _binding(policy: Policy | None) -> Policy | str | None:
    """The part of a policy that decides when jobs may run: a whole rule, or the parent whose limits bind an account."""
    if isinstance(policy, Limit | FreePool | Reservation):
        return policy
    return (policy.parent or None) if isinstance(policy, Account) else None


def records_of(state: State) -> dict[tuple[str, str], Record]:
    """Every policy and every other record by its row's kind and name."""
    found: dict[tuple[str, str], Record] = {
        (kind, name): policy for kind, named in state.policies.items() for name, policy in named.items()
    }
    found.update(((USAGE, usage_name(*key)), usage) for key, usage in state.usage.items())
    found.update(((PROMISE, str(job_id)), promise) for job_id, promise in state.promises.items())
    found.update(((TOKEN, token.id.hex()), token) for token in state.tokens.values())
    found.update(((CRONTAB, str(uid)), crontab) for uid, crontab in state.crontabs.items())
    members = state.members
    found.update(((JOIN_TOKEN, one.hex()), token) for one, token in members.tokens.items())
    found.update(((MEMBER, one.hex()), member) for one, member in members.issued.items())
    found.update(((REVOCATION, one.hex()), revoked) for one, revoked in members.revoked.items())
    return found


def find_record(state: State, kind: str, name: str) -> Record | None:
    """The policy or other record behind a row's kind and name."""
    if kind == USAGE:
        account, _, user = name.partition("/")
        return state.usage.get((account, user))
    if kind == PROMISE:
        return state.promises.get(int(name))
    if kind == TOKEN:
        return state.tokens.get(bytes.fromhex(name))
    if kind == CRONTAB:
        return state.crontabs.get(int(name))
    if kind == JOIN_TOKEN:
        return state.members.tokens.get(bytes.fromhex(name))
    if kind == MEMBER:
        return state.members.issued.get(bytes.fromhex(name))
    if kind == REVOCATION:
        return state.members.revoked.get(bytes.fromhex(name))
    return state.policies[kind].get(name)
