"""The built-in policies and those that a site adds.

Others come from the entry point group `eslurm.policies`: the daemon loads them and calls `register`; the core only knows
their names. A policy holds no state between cycles, so one object serves all.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from eslurm.core.plan.cycle.policies.conservative import Conservative
from eslurm.core.plan.cycle.policies.easy import Easy
from eslurm.core.plan.cycle.policies.fcfs import Fcfs
from eslurm.core.plan.cycle.policies.planned import Planned
from eslurm.core.plan.cycle.policy import Policy

BUILT_IN: Final = MappingProxyType[str, Policy](
    {policy.name: policy for policy in (Fcfs(), Easy(), Conservative(), Planned())}
)
_added: dict[str, Policy] = {}


def register(policy: Policy) -> None:
    """Add a site's policy under its name. Raises `ValueError` for the name of a built-in one."""
    if policy.name in BUILT_IN:
        raise ValueError(f"policy {policy.name!r} is built in: give the other one another name")
    _added[policy.name] = policy


def names() -> tuple[str, ...]:
    """The known policies, the built-in ones first."""
    return (*BUILT_IN, *sorted(_added))


def get_policy(name: str) -> Policy:
    """The policy of that name. Raises `ValueError` naming the known ones."""
    policy = BUILT_IN.get(name) or _added.get(name)
    if policy is None:
        raise ValueError(f"there is no planning policy {name!r}; known are {', '.join(names())}")
    return policy
