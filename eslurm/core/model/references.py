"""References among policies: accounts to their parents, users to their accounts, and so on.

Invariant: `references_of` lists every reference once, so that no policy in use can be deleted and no policy can refer to a
missing one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from typing import TypeVar

from eslurm.core.model.accounts import (
    EVERYONE,
    Account,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    kind_of,
)

Policies = Mapping[str, Mapping[str, Policy]]
Reference = tuple[str, str, str]
"""(the setting that names it, kind, name)"""

_N = TypeVar("_N", bound=Hashable)


def references_of(policy: Policy) -> Iterator[Reference]:
    """Every policy to which this one refers."""
    match policy:
        case Account():
            if policy.parent:
                yield "parent", "account", policy.parent
        case User():
            yield from _each("accounts", "account", policy.accounts)
            yield from _each("qos", "qos", policy.qos)
        case Qos():
            yield from _each("preempts", "qos", policy.preempts)
        case Limit():
            if policy.kind in ("account", "qos") and policy.consumer != EVERYONE:
                yield policy.kind, policy.kind, policy.consumer
        case FreePool():
            for way in policy.access:
                yield from _each("access", "account", way.accounts)
                yield from _each("access", "qos", way.qos)
        case Reservation():
            yield from _each("accounts", "account", policy.accounts)
        case Defaults():
            for setting, option, value in settings_of(policy):
                if option in ("account", "qos"):
                    yield setting, option, value


def settings_of(defaults: Defaults) -> Iterator[tuple[str, str, str]]:
    """(key in the file, option, value) of each default and each forced value."""
    for prefix, pairs in (("", defaults.values), ("force.", defaults.forced)):
        for option, value in pairs:
            yield prefix + option, option, value


def _each(setting: str, kind: str, names: Iterable[str]) -> Iterator[Reference]:
    for name in names:
        yield setting, kind, name


def users_of(policies: Policies, kind: str, name: str) -> list[str]:
    """The policies that refer to this one, as `user ada`, in order."""
    return [
        f"{kind_of(policy)} {policy.name}"
        for named in policies.values()
        for policy in named.values()
        if any(reference[1:] == (kind, name) for reference in references_of(policy))
    ]


def find_cycle(named: Mapping[str, Policy]) -> list[str]:
    """The names along a cycle among policies of one kind, the first one repeated at the end; empty when there is none."""
    below = _below(named)
    rest = below.keys() - _heights(below).keys()
    if not rest:
        return []
    path = [min(rest)]
    places: dict[str, int] = {}
    while path[-1] not in places:
        places[path[-1]] = len(path) - 1
        path.append(min(below[path[-1]] & rest))
    return path[places[path[-1]] :]


def heights_of(named: Mapping[str, Policy]) -> dict[str, int]:
    """Height of each policy's subtree, for policies of one kind; those on a cycle or above one are left out."""
    return _heights(_below(named))


def in_order(policies: Iterable[Policy]) -> list[Policy]:
    """The policies in topological order, referenced ones first. They form no cycle."""
    rest = {(kind_of(policy), policy.name): policy for policy in policies}
    heights = _heights(
        {key: {one[1:] for one in references_of(policy)} & rest.keys() for key, policy in rest.items()}
    )
    assert len(heights) == len(rest), "policies name each other in a circle"
    return [rest[key] for key in sorted(rest, key=heights.__getitem__)]


def _below(named: Mapping[str, Policy]) -> dict[str, set[str]]:
    return {
        name: {to for _, kind, to in references_of(policy) if kind == kind_of(policy) and to in named}
        for name, policy in named.items()
    }


def _heights(below: Mapping[_N, Set[_N]]) -> dict[_N, int]:
    """Height of each node's subtree; nodes on a cycle or above one are left out. Linear in the references."""
    left = {name: len(names) for name, names in below.items()}
    above: dict[_N, list[_N]] = {}
    for name, names in below.items():
        for one in names:
            above.setdefault(one, []).append(name)
    heights = {name: 0 for name, count in left.items() if not count}
    settled = list(heights)
    for name in settled:
        for one in above.get(name, ()):
            left[one] -= 1
            if not left[one]:
                heights[one] = heights[name] + 1
                settled.append(one)
    return heights
