"""Delivery of owed effects: what to send to which nodes, and when to retry. A pure state machine.

The state says what is owed; the effect delivery remembers effects under way, acceptances, and times of retries. It holds
nothing that a restart would miss: `resume` derives it all from the state. Invariant: a flight is under way, or has a time
of its next retry, or is forgotten.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable

import msgspec

from eslurm.core.control.effects import Effect, find_owed, owed, owed_nodes
from eslurm.core.model.messages import EffectDone
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Body, End, JobLaunch, Prepare, Start
from eslurm.core.model.step import StepState
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State, attempts_of, owed_revisions

RETRY_FIRST_US = 250_000
RETRY_MAX_US = 10 * SECOND_US
SIGNAL_TRIES = 3
"""Number of tries of a signal, which no state remembers. An orphan's `End` is sent until its node answers or is given up:
the node reports the orphan only once, and keeps it while its contact is good.
"""
_REACHABLE = (NodeState.UP, NodeState.UNREACHABLE)
END_AGAIN_US = 30 * SECOND_US
"""After which nodes that accepted an `End` are asked again, if their report of the end has not come by then."""


class Send(msgspec.Struct, frozen=True):
    """Broadcast this effect to these nodes, in this order; return the result as `EffectDone`."""

    revision: int
    nodes: tuple[int, ...]
    body: Body


class _Flight:
    """One effect that is not settled yet."""

    __slots__ = ("accepted", "asks_again", "due_us", "in_flight", "tries", "unowed")

    def __init__(self, unowed: Effect | None) -> None:
        self.in_flight: set[int] = set()
        self.accepted: set[int] = set()
        self.tries = 0
        self.due_us = 0
        self.asks_again = False
        self.unowed = unowed

    @property
    def is_signal(self) -> bool:
        """Check whether it is a signal, which loses its meaning with time and which the state does not keep."""
        return self.unowed is not None and not isinstance(self.unowed.body, End)


class EffectDelivery:
    """Call `take_due` after every batch and at `next_due_us`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._flights: dict[int, _Flight] = {}
        self._orphans: dict[tuple[tuple[int, ...], End], int] = {}
        self._due: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._flights)

    def on_effects(self, effects: Iterable[Effect], now_us: int) -> None:
        """New effects of a committed batch."""
        for effect in effects:
            if not effect.owed:
                self._forget_same(effect)
            self._flights[effect.revision] = _Flight(None if effect.owed else effect)
            self._schedule(effect.revision, now_us)

    def _forget_same(self, effect: Effect) -> None:
        """Replace the `End` under way when a node registers again with the same orphan."""
        if not isinstance(effect.body, End):
            return
        key = (effect.nodes, effect.body)
        self._flights.pop(self._orphans.get(key, -1), None)
        self._orphans[key] = effect.revision

    def resume(self, now_us: int) -> None:
        """After a restart, resume everything that the state owes."""
        self.on_effects(owed(self._state), now_us)

    def on_done(self, message: EffectDone, now_us: int) -> None:
        """The outcome of a broadcast has been committed."""
        flight = self._flights.get(message.revision)
        if flight is None:
            return
        retry = False
        for outcome in message.outcomes:
            flight.in_flight.difference_update(outcome.nodes)
            if outcome.status == "ok":
                flight.accepted.update(outcome.nodes)
            elif outcome.status == "unreached" or not flight.is_signal:
                retry = True
            else:
                flight.accepted.update(outcome.nodes)
        left = self._left(message.revision, flight)
        if not left:
            self._drop(message.revision, flight)
        elif retry:
            delay_us = min(RETRY_FIRST_US << min(flight.tries, 10), RETRY_MAX_US)
            self._schedule(message.revision, now_us + delay_us)
        elif flight.accepted.issuperset(left):
            self._ask_again(message.revision, flight, now_us)
        else:
            self._schedule(message.revision, now_us)

    def on_registered(self, number: int, now_us: int) -> None:
        """A node registered anew: it may have forgotten accepted effects, so all owed ones are sent again."""
        for revision in self._owed_to(number):
            if number not in owed_nodes(self._state, revision):
                continue
            flight = self._flights.get(revision)
            if flight is None:
                # Forgotten: its other nodes are not there either and will register themselves.
                flight = self._flights[revision] = _Flight(None)
            flight.accepted.discard(number)
            flight.tries = 0
            self._schedule(revision, now_us)

    def on_answering(self, number: int, now_us: int) -> None:
        """A node that did not answer does so again: launches have waited for that."""
        for revision in self._owed_to(number):
            if number not in owed_nodes(self._state, revision):
                continue
            flight = self._flights.setdefault(revision, _Flight(None))
            if number not in flight.accepted and number not in flight.in_flight:
                self._schedule(revision, now_us)

    def _left(self, revision: int, flight: _Flight) -> frozenset[int]:
        """The nodes on which the effect is not settled."""
        if flight.unowed is not None:
            return frozenset(flight.unowed.nodes).difference(flight.accepted)
        return owed_nodes(self._state, revision)

    def _owed_to(self, number: int) -> list[int]:
        found: list[int] = []
        for job_id in sorted(self._state.jobs_on.get(number, ())):
            for attempt in attempts_of(self._state.get_job(job_id)):
                found += owed_revisions(attempt)
            for step in sorted(self._state.steps_of.get(job_id, ())):
                record = self._state.steps[(job_id, step)]
                if record.state is StepState.LAUNCHING:
                    found.append(record.revision)
        return found

    def next_due_us(self) -> int | None:
        """Time of the next `take_due`."""
        return self._due[0][0] if self._due else None

    def take_due(self, now_us: int) -> list[Send]:
        """Effects to send now. Nodes that have not registered under this epoch wait for `on_registered`."""
        sends: list[Send] = []
        while self._due and self._due[0][0] <= now_us:
            due_us, revision = heapq.heappop(self._due)
            flight = self._flights.get(revision)
            if flight is None or flight.due_us != due_us:
                continue
            flight.due_us = 0
            effect = flight.unowed or find_owed(self._state, revision)
            nodes = self._sendable(effect, flight) if effect is not None else ()
            if effect is None or not nodes:
                self._park(effect, revision, flight, now_us)
                continue
            flight.tries += 1
            if flight.is_signal and flight.tries > SIGNAL_TRIES:
                del self._flights[revision]
                continue
            flight.in_flight.update(nodes)
            sends.append(Send(revision, nodes, effect.body))
        return sends

    def _sendable(self, effect: Effect, flight: _Flight) -> tuple[int, ...]:
        if self._is_stopped(effect.body):
            return ()
        if flight.asks_again and not flight.in_flight:
            flight.accepted.clear()
        flight.asks_again = False
        # What still is on its way to a node that has long been silent could start a job that is accounted as lost.
        states = (NodeState.UP,) if isinstance(effect.body, Prepare | Start) else _REACHABLE
        return tuple(node for node in effect.nodes if self._may_send(node, flight, states))

    def _is_stopped(self, body: Body) -> bool:
        """Check whether an `End` follows the launch and settles it alone."""
        launch: JobLaunch | Start
        if isinstance(body, Prepare):
            launch = body.launch
        elif isinstance(body, Start):
            launch = body
        else:
            return False
        found = self._state.find_attempt(launch.job_id, launch.attempt)
        return found is not None and found[1].stop is not None

    def _park(self, effect: Effect | None, revision: int, flight: _Flight, now_us: int) -> None:
        """Wait for reports, or forget the effect, when nothing can be sent now; absent nodes get it when they register."""
        if effect is not None and flight.accepted.intersection(effect.nodes):
            self._ask_again(revision, flight, now_us)
        else:
            self._drop(revision, flight)

    def _ask_again(self, revision: int, flight: _Flight, now_us: int) -> None:
        flight.asks_again = True
        self._schedule(revision, now_us + END_AGAIN_US)

    def _drop(self, revision: int, flight: _Flight) -> None:
        if flight.in_flight or flight.due_us:
            return
        del self._flights[revision]
        if flight.unowed is not None and isinstance(flight.unowed.body, End):
            self._orphans.pop((flight.unowed.nodes, flight.unowed.body), None)

    def _may_send(self, number: int, flight: _Flight, states: Container[NodeState]) -> bool:
        if number in flight.in_flight or number in flight.accepted:
            return False
        node = self._state.nodes.get(number)
        return node is not None and node.epoch == self._state.epoch and node.state in states

    def _schedule(self, revision: int, at_us: int) -> None:
        flight = self._flights[revision]
        if flight.due_us and flight.due_us <= at_us:
            return
        flight.due_us = at_us
        heapq.heappush(self._due, (at_us, revision))
