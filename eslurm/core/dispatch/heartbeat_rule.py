"""The heartbeat rule: a node that misses `missed_max` heartbeats in a row is missing; one answer brings it back.

Only differences reach the core. Counts are memory of this controller process alone: after a restart every node
has to register anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.model.messages import HeartbeatDone


class HeartbeatRule:
    """Counts missed heartbeats per node number."""

    def __init__(self, missed_max: int) -> None:
        self._missed_max = missed_max
        self._missed: dict[int, int] = {}

    def on_answers(self, reached: Iterable[int], unreached: Iterable[int]) -> HeartbeatDone | None:
        """One heartbeat came back; the differences it makes, or None."""
        missing: list[int] = []
        for number in unreached:
            count = self._missed.get(number, 0) + 1
            self._missed[number] = count
            if count == self._missed_max:
                missing.append(number)
        back: list[int] = []
        if self._missed:
            back = [number for number in reached if self._missed.pop(number, 0) >= self._missed_max]
        return HeartbeatDone(tuple(back), tuple(missing)) if back or missing else None

    def doubtful(self) -> list[int]:
        """Nodes that have missed heartbeats, but not enough of them to be missing."""
        return sorted(number for number, count in self._missed.items() if count < self._missed_max)

    def on_registered(self, number: int) -> None:
        """A registration counts as an answer."""
        self._missed.pop(number, None)
