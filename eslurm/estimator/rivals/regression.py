"""An estimator of one regression: the features of Table IV in, a runtime out. `svr` and `forest` are such.

Invariant: a model says by itself which features and which scale it was learnt with; settings that were changed since do not
change what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.rivals.arrays import Arrays, Floats, prefixed, under
from eslurm.estimator.rivals.features import Encoder, Scale, feature_names
from eslurm.estimator.rivals.jobs import Ended
from eslurm.estimator.rivals.windowed import Learnt, Spans


class Regression(Protocol):
    """A learnt regression, kept as arrays. A row gets the same figure whatever rows are beside it."""

    def predict(self, rows: Floats) -> Floats: ...

    def dump(self) -> dict[str, NDArray[Any]]: ...


Learner: TypeAlias = Callable[[Floats, Floats], Regression]
"""From rows and targets."""

Loader: TypeAlias = Callable[[Arrays, int], Regression]
"""From arrays, for rows of such a width. Raises `ValueError`."""


class RegressionMethod:
    """A method (see `windowed`) around one regression."""

    version = 1

    def __init__(self, name: str, learner: Learner, loader: Loader, *, scale: Scale, limits: bool) -> None:
        self.name = name
        self._learner = learner
        self._loader = loader
        self._scale = scale
        self._limits = limits

    def learn(self, window: Sequence[Ended]) -> tuple[Arrays, Mapping[str, Any]]:
        encoder, rows = Encoder.learn(window, limits=self._limits)
        learnt = self._learner(rows, self._scale.targets(window))
        arrays = {**prefixed("features.", encoder.dump()), **learnt.dump()}
        return arrays, facts_of(self._scale, self._limits)

    def load(self, arrays: Arrays, facts: Mapping[str, Any]) -> Learnt:
        scale, limits = read_facts(facts)
        encoder = Encoder.load(under("features.", arrays), limits=limits)
        return RegressionModel(encoder, self._loader(arrays, len(feature_names(limits))), scale)


class RegressionModel:
    """What such a method has learnt."""

    def __init__(self, encoder: Encoder, regression: Regression, scale: Scale) -> None:
        self._encoder = encoder
        self._regression = regression
        self._scale = scale

    def predict(self, jobs: Sequence[Submitted]) -> Spans:
        return Spans.exactly(self._scale.seconds(self._regression.predict(self._encoder.rows(jobs))))


def facts_of(scale: Scale, limits: bool) -> dict[str, Any]:
    """What a model must say of itself."""
    return {"features": feature_names(limits), "limits": limits, "scale": scale.value}


def read_facts(facts: Mapping[str, Any]) -> tuple[Scale, bool]:
    """The scale, and whether limits are a feature. Raises `ValueError`."""
    try:
        scale = Scale(facts.get("scale"))
    except ValueError:
        raise ValueError(f"the model is damaged: it has the scale {facts.get('scale')!r}") from None
    return scale, read_limits(facts)


def read_limits(facts: Mapping[str, Any]) -> bool:
    """Whether limits are a feature. Raises `ValueError`."""
    limits = facts.get("limits")
    if not isinstance(limits, bool):
        raise ValueError("the model is damaged: it does not say whether limits are a feature")
    return limits
