"""Firing alerts of nodes by source, and the predictor `alerts` over them (E-27: any alert counts, E-28).

A polled source gives its whole answer each time (`set_firing`); a pushing one gives changes (`change`), and alerts that it
does not repeat in time expire, so that a lost "resolved" does not last.

Invariant: an alert is kept under its source and key and names a known node; at most `alerts_max` per source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from eslurm.core.prediction.predictor import NodesKnown, Observation

ALERTS_MAX: Final = 200_000
UNKNOWN_REMEMBERED_MAX: Final = 1_000
"""Names of no node that a message was given for; when there are more, no further messages."""
NEVER_US: Final = 1 << 62


class FiringAlerts:
    """The firing alerts of all sources. Returned messages are for logs: each is given once."""

    def __init__(self, alerts_max: int = ALERTS_MAX) -> None:
        self._alerts_max = alerts_max
        self._numbers: dict[str, int] = {}
        self._firing: dict[str, dict[str, tuple[str, int]]] = {}
        self._strangers: set[str] = set()
        self._full: set[str] = set()
        self._answer: frozenset[int] | None = frozenset()
        self._next_expiry_us = NEVER_US

    def set_nodes(self, names: Mapping[int, str]) -> None:
        """Set the known nodes. Alerts for others are dropped; alerts of unknown names may match now."""
        self._numbers = {name: number for number, name in names.items()}
        self._strangers.clear()
        for alerts in self._firing.values():
            for key in [key for key, (name, _) in alerts.items() if name not in self._numbers]:
                del alerts[key]
        self._answer = None

    def set_firing(self, source: str, alerts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Set all (key, node name) that fire at `source` now; older ones are over. Returns new messages."""
        return self._replace(source, {}, ((key, name, NEVER_US) for key, name in alerts))

    def change(
        self, source: str, firing: Iterable[tuple[str, str, int]], resolved: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Add or renew alerts (key, node name, expires_us), and remove the keys of resolved ones.

        Returns new messages.
        """
        alerts = self._firing.get(source, {})
        for key in resolved:
            alerts.pop(key, None)
        return self._replace(source, alerts, firing)

    def drop(self, source: str) -> None:
        """Drop the alerts of a source that has been silent for too long."""
        if self._firing.pop(source, None):
            self._answer = None

    def nodes(self, now_us: int) -> frozenset[int]:
        """The nodes with an alert that fires and has not expired. Cheap while nothing changes."""
        if self._answer is None or now_us >= self._next_expiry_us:
            self._expire(now_us)
            found = {self._numbers[name] for alerts in self._firing.values() for name, _ in alerts.values()}
            self._answer = frozenset(found)
        return self._answer

    def counts(self) -> dict[str, int]:
        """Alerts kept by source, as of the last `nodes`."""
        return {source: len(alerts) for source, alerts in self._firing.items()}

    # ---- inside ----

    def _replace(
        self, source: str, alerts: dict[str, tuple[str, int]], firing: Iterable[tuple[str, str, int]]
    ) -> tuple[str, ...]:
        """Replace the source's alerts, with `firing` added; returns the messages."""
        messages: list[str] = []
        overflow = False
        for key, name, expires_us in firing:
            if name not in self._numbers:
                messages += self._meet_stranger(source, name)
            elif key in alerts or len(alerts) < self._alerts_max:
                alerts[key] = (name, expires_us)
            else:
                overflow = True
        if overflow and source not in self._full:
            messages.append(f"{source}: more than {self._alerts_max} alerts fire, the rest is ignored")
        (self._full.add if overflow else self._full.discard)(source)
        self._firing[source] = alerts
        self._answer = None
        return tuple(messages)

    def _meet_stranger(self, source: str, name: str) -> list[str]:
        if name in self._strangers or len(self._strangers) > UNKNOWN_REMEMBERED_MAX:
            return []
        self._strangers.add(name)
        if len(self._strangers) > UNKNOWN_REMEMBERED_MAX:
            return [
                f"{source}: alerts for more than {UNKNOWN_REMEMBERED_MAX} unknown nodes, no more are named"
            ]
        return [f"{source}: an alert for '{name}' was ignored: no such node"]

    def _expire(self, now_us: int) -> None:
        self._next_expiry_us = NEVER_US
        for alerts in self._firing.values():
            for key in [key for key, (_, expires_us) in alerts.items() if expires_us <= now_us]:
                del alerts[key]
            soonest = min((expires_us for _, expires_us in alerts.values()), default=NEVER_US)
            self._next_expiry_us = min(self._next_expiry_us, soonest)


class AlertPredictor:
    """Predicts the nodes with a firing alert; the adapters of the sources fill the book."""

    def __init__(self, book: FiringAlerts) -> None:
        self._book = book

    def observe(self, observation: Observation) -> None:
        """See `FailurePredictor`."""
        if isinstance(observation, NodesKnown):
            self._book.set_nodes(observation.names)

    def predict(self, now_us: int) -> Iterable[int]:
        """See `FailurePredictor`."""
        return self._book.nodes(now_us)
