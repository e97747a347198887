"""Health reports of the nodes themselves, and the predictor `health` over them (E-28).

Owns the way from a heartbeat's answers to differences (`HealthReports`) and from those to a prediction: a node
that says it has a problem is predicted until it says that it has none. One that falls silent meanwhile stays
predicted. Invariant: only nodes with problems take space.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eslurm.core.model.protocol import Unhealthy
from eslurm.core.prediction.predictor import HealthSeen, NodesKnown, Observation
from eslurm.core.relay.results import Results, Status

PROBLEMS_MAX = 8
PROBLEM_CHARS_MAX = 32
"""A node's words come from outside: excess or longer ones are cut."""

_decoder = msgspec.msgpack.Decoder(Unhealthy)


class HealthReports:
    """Turns the answers to heartbeats into differences."""

    def __init__(self) -> None:
        self._problems: dict[int, tuple[str, ...]] = {}

    def problems(self) -> dict[int, tuple[str, ...]]:
        """The problems of every node that has some, as last reported."""
        return dict(self._problems)

    def on_answers(self, results: Results, at_us: int) -> HealthSeen | None:
        """Process one heartbeat; returns the differences, or None. Silent nodes make none."""
        reported: dict[int, tuple[str, ...]] = {}
        clear: list[int] = []
        for row in results.rows:
            if row.outcome.status is not Status.OK:
                continue
            problems = _read(row.outcome.payload)
            for run in row.ranges():
                if problems:
                    reported.update(dict.fromkeys(run, problems))
                elif self._problems:
                    clear += self._problems.keys() & run
        news = {node: words for node, words in reported.items() if self._problems.get(node) != words}
        for node in clear:
            del self._problems[node]
        self._problems.update(news)
        return HealthSeen(at_us, news, tuple(sorted(clear))) if news or clear else None

    def keep_known(self, numbers: Iterable[int]) -> None:
        """Forget nodes that are not in the new configuration."""
        known = set(numbers)
        self._problems = {node: words for node, words in self._problems.items() if node in known}


class HealthPredictor:
    """Predicts the nodes with reported problems."""

    def __init__(self) -> None:
        self._unwell: frozenset[int] = frozenset()

    def observe(self, observation: Observation) -> None:
        """See `FailurePredictor`."""
        if isinstance(observation, HealthSeen):
            self._unwell = self._unwell.difference(observation.clear).union(observation.problems)
        elif isinstance(observation, NodesKnown):
            self._unwell = self._unwell.intersection(observation.names)

    def predict(self, now_us: int) -> Iterable[int]:
        """See `FailurePredictor`."""
        return self._unwell


def _read(payload: bytes) -> tuple[str, ...]:
    """The problems in a heartbeat's answer; none when it is not readable, which is no sign of bad health."""
    if not payload:
        return ()
    try:
        problems = _decoder.decode(payload).problems
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(sorted({word[:PROBLEM_CHARS_MAX] for word in problems[:PROBLEMS_MAX] if word}))
