"""The predictor `history`: nodes that were silent lately are likely to be silent again (E-28, X-01).

Each node that failed a broadcast has a score, as in route flap damping: a failure raises it, time halves it, and a longer
silence adds more. A node is predicted while it is silent, until it has then answered some times in a row, and for as long
as its score is above a threshold: about one half-life after a first short silence, more after each further one.

Invariant: only nodes that failed within the memory of the score take space, at most one entry a known node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2
from typing import Final

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.core.prediction.predictor import BroadcastSeen, NodesKnown, Observation

THRESHOLD: Final = 0.5
"""The score above which a node that answers is still predicted; a first failure scores 1, two half-lives less."""
FORGOTTEN: Final = 0.05
"""The score below which a node that answers is forgotten."""


class HistorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The constants, chosen by random histories of dead, flapping and healthy nodes (`tests/property`).

    A longer half-life or more answers find a few more failures of flapping nodes and predict many more
    healthy ones. Raises ValueError when one is out of range.
    """

    calm: int = 3
    """Answers in a row after which a node that failed may be trusted again."""
    half_life_s: float = 900.0
    """Seconds in which a score is halved."""
    score_max: float = 16.0
    """No history is worse than this, so every node is trusted again within some half-lives."""

    def __post_init__(self) -> None:
        if self.calm < 1:
            raise ValueError(f"calm must be at least 1, not {self.calm}")
        if not self.half_life_s > 0:
            raise ValueError(f"half_life_s must be positive, not {self.half_life_s:g}")
        if not self.score_max >= 1:
            raise ValueError(f"score_max must be at least 1, not {self.score_max:g}")


@dataclass(slots=True)
class _History:
    """History of one node; `score` is that of `scored_us`. `silent_since_us` is None while the node answers."""

    score: float = 0.0
    scored_us: int = 0
    silent_since_us: int | None = None
    answers: int = 0
    trusted_us: int = 0
    """From when on the score is below the threshold."""
    forgotten_us: int = 0


def silence_level(silent_us: int, lost_us: int) -> int:
    """Level of a silence (X-01): above 1/3, 1/2, all of the time after which nodes are lost it is 1, 2, 3, else 0."""
    return (silent_us * 3 > lost_us) + (silent_us * 2 > lost_us) + (silent_us > lost_us)


class HistoryPredictor:
    """See the module. `lost_us`: silence in microseconds after which a node is lost."""

    def __init__(self, lost_us: int, settings: HistorySettings | None = None) -> None:
        self._settings = settings if settings is not None else HistorySettings()
        self._half_life_us = self._settings.half_life_s * SECOND_US
        self._lost_us = lost_us
        self._histories: dict[int, _History] = {}
        self._predicted: set[int] = set()
        self._answer: frozenset[int] | None = frozenset()

    def __len__(self) -> int:
        """Number of nodes with a history."""
        return len(self._histories)

    def observe(self, observation: Observation) -> None:
        """See `FailurePredictor`."""
        if isinstance(observation, BroadcastSeen):
            self._on_broadcast(observation)
        elif isinstance(observation, NodesKnown):
            self._keep_known(observation.names)

    def predict(self, now_us: int) -> Iterable[int]:
        """See `FailurePredictor`. Only broadcasts change it: a node is trusted again when it answers."""
        if self._answer is None:
            self._answer = frozenset(self._predicted)
        return self._answer

    def _on_broadcast(self, seen: BroadcastSeen) -> None:
        failed = {*seen.unreached, *seen.suspects}
        # Before the failures are entered: only nodes with a history need to be looked at.
        if self._histories:
            for node in (self._histories.keys() & seen.nodes) - failed:
                self._on_answer(node, seen.at_us)
        for node in seen.unreached:
            self._on_silence(node, seen.at_us)
        for node in failed.difference(seen.unreached):
            self._on_suspicion(node, seen.at_us)

    def _on_silence(self, node: int, at_us: int) -> None:
        history = self._find_or_make(node)
        history.answers = 0
        if history.silent_since_us is None:
            history.silent_since_us = at_us
        self._set_predicted(node)

    def _on_suspicion(self, node: int, at_us: int) -> None:
        """Count a suspect that answered itself, or through another relay: a failure without duration."""
        history = self._find_or_make(node)
        self._raise_score(history, self._end_silence(history, at_us) + 1.0, at_us)
        history.answers = 0
        self._set_predicted(node)

    def _on_answer(self, node: int, at_us: int) -> None:
        history = self._histories[node]
        if history.silent_since_us is not None:
            self._raise_score(history, self._end_silence(history, at_us), at_us)
        history.answers += 1
        if history.answers < self._settings.calm or at_us < history.trusted_us:
            return
        if node in self._predicted:
            self._predicted.remove(node)
            self._answer = None
        if at_us >= history.forgotten_us:
            del self._histories[node]

    def _end_silence(self, history: _History, at_us: int) -> float:
        """End the silence; returns its addition to the score, 0 when there was none."""
        since_us, history.silent_since_us = history.silent_since_us, None
        return 1.0 + silence_level(at_us - since_us, self._lost_us) if since_us is not None else 0.0

    def _raise_score(self, history: _History, by: float, at_us: int) -> None:
        half_lives = max(0, at_us - history.scored_us) / self._half_life_us
        score = min(history.score * 0.5**half_lives + by, self._settings.score_max)
        history.score = score
        history.scored_us = at_us
        history.trusted_us = at_us + int(self._half_life_us * max(0.0, log2(score / THRESHOLD)))
        history.forgotten_us = at_us + int(self._half_life_us * log2(score / FORGOTTEN))

    def _find_or_make(self, node: int) -> _History:
        history = self._histories.get(node)
        if history is None:
            history = self._histories[node] = _History()
        return history

    def _set_predicted(self, node: int) -> None:
        if node not in self._predicted:
            self._predicted.add(node)
            self._answer = None

    def _keep_known(self, names: Mapping[int, str]) -> None:
        gone = [node for node in self._histories if node not in names]
        for node in gone:
            del self._histories[node]
        if not self._predicted.isdisjoint(gone):
            self._predicted.difference_update(gone)
            self._answer = None
