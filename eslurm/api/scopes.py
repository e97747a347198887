"""The methods that a token of each scope may call: one table, which the authoriser checks after rights and before anything
else.

Invariant: a method that no scope names is for scope admin only, and there its own right still counts. A scope gives no
rights over others but that of the estimator, whose methods are all that it may call.
"""

from __future__ import annotations

from typing import Any, Final

from eslurm.api.methods import Method
from eslurm.core.model.job import Principal

_READ: Final = frozenset(
    (
        "Ping",
        "Jobs",
        "WaitJobs",
        "WaitStep",
        "Nodes",
        "Satellites",
        "Accounting",
        "Config",
        "Broadcasts",
        "TreeReport",
        "Controllers",
        "Policies",
        "Why",
        "Plan",
        "Shares",
        "Tokens",
        "Federation",
        "Statistics",
        "Steps",
        # The call within is looked up by itself.
        "CallCell",
    )
)
_OWN_JOBS: Final = _READ | {
    "Cancel",
    "Hold",
    "Requeue",
    "UpdateJob",
    "FinishPart",
    "MovePack",
    "ExtendJob",
    "ResizeJob",
    "JobScript",
    "TopJob",
    "StepUsage",
}
_ALLOCATIONS: Final = frozenset({"AttendJob", "ReleaseJob"})
_CRONTABS: Final = frozenset({"Crontab", "SetCrontab"})
_SUBMIT: Final = _OWN_JOBS | {"Submit", "CreateStep", "FinishStep", "AttachStep", *_ALLOCATIONS, *_CRONTABS}
BY_LEADERS: Final = frozenset({"CreateStep", "FinishStep", "WaitStep", "TellGuest"})
"""Methods that pass between cells only when the leader itself makes the call or has checked it: guests, and their steps."""
FROM_CELLS: Final = (_SUBMIT | BY_LEADERS) - {"Tokens", "CallCell", "AttachStep", *_ALLOCATIONS, *_CRONTABS}
"""Methods that pass between cells of a federation: a user's, but for tokens, allocations, crontabs and attaching. What is
not named here does not pass."""
_ESTIMATOR: Final = frozenset(("Ping", "JobFeed", "SetForecasts"))

METHODS_OF: Final[dict[str, frozenset[str]]] = {
    "read": _READ,
    "own-jobs": _OWN_JOBS,
    "submit": _SUBMIT,
    "estimator": _ESTIMATOR,
}
"""Names of methods by scope. Scope admin may call all."""


def permits(scope: str, method: Method[Any, Any]) -> bool:
    """Check whether a caller with this scope (empty: without a token) may make the call at all."""
    return scope in ("", "admin") or method.name in METHODS_OF.get(scope, frozenset())


def grants(who: Principal, method: Method[Any, Any]) -> bool:
    """Check whether the scope itself is the right to an operator's method."""
    return who.scope == "estimator" and method.name in _ESTIMATOR
