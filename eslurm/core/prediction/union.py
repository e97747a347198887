"""The predictors in force and the union of their predictions (E-22, E-27).

Invariants: only known nodes are predicted; a predictor that raises is disabled for good with one notice that names it, its
prediction is dropped, and the others go on; one that predicts nearly all nodes is left out of the union while it does;
equal predictions are the same object, so callers may compare identities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from eslurm.core.prediction.predictor import FailurePredictor, NodesKnown, Observation

OVERPREDICTED_SHARE: Final = 0.9
"""A predictor that predicts more of the known nodes than this leaves no choice: more than there are leaves for."""
LEFT_OUT: Final = "left out while it predicts nearly all nodes"
WORDS_CHARS_MAX: Final = 200


class Prediction(msgspec.Struct, frozen=True):
    """The nodes predicted to fail: by any predictor, and by each that is on."""

    all: frozenset[int] = frozenset()
    by_name: Mapping[str, frozenset[int]] = {}


NOTHING: Final = Prediction()


class Predictors:
    """Named predictors, each isolated. `on_notice` gets texts for the log; it must not raise."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._on: dict[str, FailurePredictor] = {}
        self._off: dict[str, str] = {}
        self._known: frozenset[int] = frozenset()
        self._nodes: NodesKnown | None = None
        self._overdoing: set[str] = set()
        self._last = NOTHING
        self._answers: dict[str, object] = {}

    def add(self, name: str, predictor: FailurePredictor) -> None:
        """Add a predictor and give it the known nodes. Raises ValueError when the name is taken."""
        if name in self._on or name in self._off:
            raise ValueError(f"failure predictor '{name}' is there twice")
        self._on[name] = predictor
        if self._nodes is not None:
            self._tell(name, self._nodes)

    def observe(self, observation: Observation) -> None:
        """Pass an observation to every predictor that is on."""
        if isinstance(observation, NodesKnown):
            self._nodes = observation
            self._known = frozenset(observation.names)
            self._last = NOTHING
        for name in tuple(self._on):
            self._tell(name, observation)

    def predicted(self, now_us: int) -> Prediction:
        """The nodes predicted to fail now. Over-prediction does no harm (E-26), but is noticed."""
        by_name: dict[str, frozenset[int]] = {}
        for name in tuple(self._on):
            found = self._ask(name, now_us)
            if found is not None:
                by_name[name] = found
        if by_name != self._last.by_name:
            for name, nodes in by_name.items():
                self._check_share(name, nodes)
            useful = (nodes for name, nodes in by_name.items() if name not in self._overdoing)
            self._last = Prediction(frozenset().union(*useful), by_name)
        return self._last

    def switch_off(self, name: str, why: str) -> None:
        """Disable a predictor for good. `why` is for the log; no effect on one that is off already."""
        if self._on.pop(name, None) is not None:
            self._off[name] = why
            self._on_notice(f"failure predictor '{name}' was switched off: {why}")

    def states(self) -> dict[str, str]:
        """By name `on`, or the reason why it is off."""
        return {name: LEFT_OUT if name in self._overdoing else "on" for name in self._on} | self._off

    # ---- inside ----

    def _tell(self, name: str, observation: Observation) -> None:
        try:
            self._on[name].observe(observation)
        except Exception as error:
            self.switch_off(name, f"it raised {_words(error)}")

    def _ask(self, name: str, now_us: int) -> frozenset[int] | None:
        """Its prediction, the same object while it is equal; None when it has just been switched off."""
        last = self._last.by_name.get(name)
        try:
            answer = self._on[name].predict(now_us)
            if last is not None and answer is self._answers.get(name):
                return last
            found = self._known.intersection(answer)
        except Exception as error:
            self.switch_off(name, f"it raised {_words(error)}")
            return None
        # Most answers are the one before; only of an immutable one is identity a proof.
        self._answers[name] = answer if isinstance(answer, frozenset) else None
        return last if last == found else found

    def _check_share(self, name: str, nodes: frozenset[int]) -> None:
        overdoes = len(nodes) > len(self._known) * OVERPREDICTED_SHARE
        if overdoes and name not in self._overdoing:
            self._on_notice(
                f"failure predictor '{name}' predicts {len(nodes)} of {len(self._known)} nodes:"
                " left out until it is choosier, or the others' words would be lost in its"
            )
        (self._overdoing.add if overdoes else self._overdoing.discard)(name)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:WORDS_CHARS_MAX]
