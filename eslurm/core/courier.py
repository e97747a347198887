"""Which effects have to be sent to whom, and when again. A pure state machine beside the state.

The state says what is owed; the courier remembers what is under way, who has already accepted, and when
to try again. It holds nothing that a restart would miss: `resume` derives it all from the state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec

from eslurm.core.cluster import SECOND_US, State, attempts_of, owed_revisions
from eslurm.core.effects import Effect, find_owed, owed
from eslurm.core.messages import EffectDone
from eslurm.core.node.states import NodeState
from eslurm.core.wire import Body

RETRY_FIRST_US = 250_000
RETRY_MAX_US = 10 * SECOND_US
UNOWED_TRIES = 3


class Send(msgspec.Struct, frozen=True):
    """Broadcast this effect to these nodes, in this order; bring the result back as `EffectDone`."""

    revision: int
    nodes: tuple[int, ...]
    body: Body


class _Flight:
    """One effect that is not settled yet."""

    __slots__ = ("accepted", "due_us", "in_flight", "tries", "unowed")

    def __init__(self, unowed: Effect | None) -> None:
        self.in_flight: set[int] = set()
        self.accepted: set[int] = set()
        self.tries = 0
        self.due_us = 0
        self.unowed = unowed


class Courier:
    """Ask `take_due` after every batch and at `next_due_us`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._flights: dict[int, _Flight] = {}
        self._due: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._flights)

    def on_effects(self, effects: Iterable[Effect], now_us: int) -> None:
        """New effects of a committed batch."""
        for effect in effects:
            self._flights[effect.revision] = _Flight(None if effect.owed else effect)
            self._schedule(effect.revision, now_us)

    def resume(self, now_us: int) -> None:
        """After a restart: everything the state owes."""
        self.on_effects(owed(self._state), now_us)

    def on_done(self, message: EffectDone, now_us: int) -> None:
        """A broadcast came back and what it means has been committed."""
        flight = self._flights.get(message.revision)
        if flight is None:
            return
        retry = False
        for outcome in message.outcomes:
            flight.in_flight.difference_update(outcome.nodes)
            if outcome.status == "ok":
                flight.accepted.update(outcome.nodes)
            elif outcome.status == "unreached" or flight.unowed is None:
                retry = True
            else:
                flight.accepted.update(outcome.nodes)
        if not self._wanted(message.revision, flight):
            if not flight.accepted or not self._is_owed(message.revision):
                del self._flights[message.revision]
        elif retry:
            delay_us = min(RETRY_FIRST_US << min(flight.tries, 10), RETRY_MAX_US)
            self._schedule(message.revision, now_us + delay_us)
        else:
            self._schedule(message.revision, now_us)

    def on_registered(self, number: int, now_us: int) -> None:
        """A node is there anew: whatever it accepted before may be forgotten, so all it is owed is sent again."""
        for job_id in self._state.jobs_on.get(number, ()):
            for attempt in attempts_of(self._state.get_job(job_id)):
                for revision in owed_revisions(attempt):
                    flight = self._flights.setdefault(revision, _Flight(None))
                    flight.accepted.discard(number)
                    flight.tries = 0
                    self._schedule(revision, now_us)

    def next_due_us(self) -> int | None:
        """When `take_due` has to be asked next."""
        return self._due[0][0] if self._due else None

    def take_due(self, now_us: int) -> list[Send]:
        """What is to be sent now. Nodes that have not registered under this epoch wait for `on_registered`."""
        sends: list[Send] = []
        while self._due and self._due[0][0] <= now_us:
            due_us, revision = heapq.heappop(self._due)
            flight = self._flights.get(revision)
            if flight is None or flight.due_us != due_us:
                continue
            flight.due_us = 0
            effect = flight.unowed or find_owed(self._state, revision)
            if effect is None:
                if not flight.in_flight:
                    del self._flights[revision]
                continue
            nodes = tuple(node for node in effect.nodes if self._may_send(node, flight))
            if not nodes:
                continue
            flight.tries += 1
            if flight.unowed is not None and flight.tries > UNOWED_TRIES:
                del self._flights[revision]
                continue
            flight.in_flight.update(nodes)
            sends.append(Send(revision, nodes, effect.body))
        return sends

    def _may_send(self, number: int, flight: _Flight) -> bool:
        if number in flight.in_flight or number in flight.accepted:
            return False
        node = self._state.nodes.get(number)
        return (
            node is not None
            and node.epoch == self._state.epoch
            and node.state in (NodeState.UP, NodeState.UNREACHABLE)
        )

    def _wanted(self, revision: int, flight: _Flight) -> bool:
        effect = flight.unowed or find_owed(self._state, revision)
        return effect is not None and any(node not in flight.accepted for node in effect.nodes)

    def _is_owed(self, revision: int) -> bool:
        return revision in self._state.owed or revision in self._state.step_owed

    def _schedule(self, revision: int, at_us: int) -> None:
        flight = self._flights[revision]
        if flight.due_us and flight.due_us <= at_us:
            return
        flight.due_us = at_us
        heapq.heappush(self._due, (at_us, revision))
