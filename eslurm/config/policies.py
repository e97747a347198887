"""Planning policies that a site installs: found by entry point, registered with the core by name.

Nothing of a package is imported to learn the names. Invariant: a name is known to the core before it is planned with.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from eslurm.core.model.wording import quoted
from eslurm.core.plan.cycle import policies
from eslurm.core.plan.cycle.policy import Policy

ENTRY_POINT_GROUP = "eslurm.policies"


class PolicyError(ValueError):
    """The policy is unknown, or the package's object is none. The text names the value and the way out."""


def policy_names() -> tuple[str, ...]:
    """Every available policy: the built-in ones, then those installed."""
    return (*policies.BUILT_IN, *sorted({point.name for point in _installed()} - policies.BUILT_IN.keys()))


def load_policy(name: str) -> Policy:
    """The policy of that name; a site's is imported and registered first. Raises `PolicyError`."""
    if name in policies.names():
        return policies.get_policy(name)
    found = {point.value: point for point in _installed() if point.name == name}
    if not found:
        raise PolicyError(
            f"{quoted(name)} is unknown: use {', '.join(policy_names())}, or install the package with it"
        )
    if len(found) > 1:
        raise PolicyError(f"'{name}' is offered twice ({' and '.join(sorted(found))}): remove one package")
    (point,) = found.values()
    policy = _made(point)
    policies.register(policy)
    return policy


def _made(point: EntryPoint) -> Policy:
    try:
        policy = point.load()()
    except Exception as error:
        raise PolicyError(f"'{point.name}' ({point.value}) cannot be loaded: {error!r}") from error
    if getattr(policy, "name", None) != point.name or not callable(getattr(policy, "plan", None)):
        raise PolicyError(
            f"'{point.name}' ({point.value}) is no policy: it needs plan(cycle) and the attribute name = '{point.name}'"
        )
    made: Policy = policy
    return made


def _installed() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINT_GROUP))
