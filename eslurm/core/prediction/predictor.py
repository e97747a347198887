"""The inputs and answers of a failure predictor (E-22, E-27): the protocol that built-in and third-party ones follow.

Invariant: a prediction changes a node's place in a broadcast tree and nothing else, neither its state nor
whether it gets work (E-26), so a predictor may be wrong at will.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

ENTRY_POINT_GROUP: Final = "eslurm.failure_predictors"
"""Entry point group in which a site's package names its `PredictorFactory`."""


class BroadcastSeen(msgspec.Struct, frozen=True):
    """The answer to a broadcast: the addressed nodes, and those without an answer by the deadline.

    `suspects` did not serve their list in time, though they may be alive and have answered themselves.
    """

    at_us: int
    nodes: Sequence[int]
    unreached: Sequence[int] = ()
    suspects: Sequence[int] = ()


class HealthSeen(msgspec.Struct, frozen=True):
    """Health reports of nodes, differences only.

    `problems`: nodes whose problems (short words, sorted) are new or have changed; `clear`: nodes that had reported some
    and do not any more.
    """

    at_us: int
    problems: Mapping[int, tuple[str, ...]]
    clear: Sequence[int] = ()


class NodesKnown(msgspec.Struct, frozen=True):
    """Every node's number and name: at the start and whenever the configuration changes."""

    names: Mapping[int, str]


Observation: TypeAlias = BroadcastSeen | HealthSeen | NodesKnown


class FailurePredictor(Protocol):
    """Predicts the nodes that are likely to fail a broadcast. Called from one thread at a time.

    An exception disables it; the others and the broadcast go on.
    """

    def observe(self, observation: Observation) -> None:
        """Process an observation. Unknown kinds must be ignored: more may come."""
        ...

    def predict(self, now_us: int) -> Iterable[int]:
        """The numbers of the nodes predicted to fail; unknown ones are dropped.

        Called at most once per broadcast, so it must be cheap: return what was prepared while observing.
        """
        ...


PredictorFactory: TypeAlias = Callable[[Mapping[str, object]], FailurePredictor]
"""Makes a predictor from its table in the configuration. Raises ValueError when that cannot be."""
