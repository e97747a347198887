"""Actions of a federation's machines as calls of the port, and errors of the port as the machines' word for them."""

from __future__ import annotations

from eslurm.core.federation.actions import Failure, Problem, SwapKeys, Write
from eslurm.ports.kv import (
    Delete,
    Expect,
    KvAmbiguous,
    KvDenied,
    KvError,
    KvFull,
    KvUnavailable,
    LeaseLost,
    Operation,
    Put,
    WatchBroken,
)

_PROBLEMS = (
    (KvUnavailable, Problem.UNAVAILABLE),
    (KvFull, Problem.FULL),
    (KvAmbiguous, Problem.AMBIGUOUS),
    (KvDenied, Problem.DENIED),
    (LeaseLost, Problem.LEASE_LOST),
    (WatchBroken, Problem.BROKEN),
)


def conditions_of(action: SwapKeys) -> list[Expect]:
    """The conditions of a swap."""
    return [Expect(key, version) for key, version in action.expect]


def operations_of(action: SwapKeys) -> list[Operation]:
    """The changes of a swap."""
    return [_operation(write) for write in action.then]


def failure_of(error: KvError) -> Failure:
    """The machines' word for an error."""
    for kind, problem in _PROBLEMS:
        if isinstance(error, kind):
            return Failure(problem, str(error))
    return Failure(Problem.REFUSED, str(error))


def _operation(write: Write) -> Operation:
    return Delete(write.key) if write.value is None else Put(write.key, write.value, write.lease)
