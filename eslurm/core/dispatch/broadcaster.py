"""The controller's side of all broadcasts: commands to its nodes, and their answers as messages to the core.

Owns the controller's relay, the effect delivery's sends, the heartbeats and questions: each becomes one signed command and
one broadcast over the satellites (or by the controller itself, E-16), each answer a message for the core's inbox, or for
the one that has asked. Invariants:
nothing is announced before the batch it follows from is committed; the floor sent with heartbeats is never above that of
the last committed state; broadcast ids are unique for a controller's epoch; broadcasts that wait for a satellite go out in
order of arrival, and none waits for longer than a part of its deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from eslurm.core.control.reactor import Batch
from eslurm.core.dispatch.effect_delivery import EffectDelivery, Send
from eslurm.core.dispatch.heartbeats import Call, NodeCalls
from eslurm.core.dispatch.inflight import Answered, Counters, Flight, Observer, TraceLog
from eslurm.core.dispatch.satellite_pool import SatellitePool, SatelliteStatus
from eslurm.core.model import facts
from eslurm.core.model.contact import HeardRounds
from eslurm.core.model.messages import EffectDone, HeartbeatDone, Message, NodeOutcome, SatelliteSilent
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Body, Command, Heartbeat, Measure
from eslurm.core.model.request_limits import COMMAND_BYTES_MAX
from eslurm.core.model.timekeeping import proof_lasts_us
from eslurm.core.model.units import SECOND_US
from eslurm.core.relay import messages as tree
from eslurm.core.relay.command_dates import CommandDates, clocks_ahead
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import EMPTY, Results, Status
from eslurm.core.relay.trace import Trace
from eslurm.core.relay.width import WidthScore, WidthTuner
from eslurm.core.state.cluster import State, attempts_of

DEADLINE_US = {
    "prepare": 10 * SECOND_US,
    "start": 10 * SECOND_US,
    "end": 5 * SECOND_US,
    "signal": 5 * SECOND_US,
    "suspend": 5 * SECOND_US,
    "set_time": 5 * SECOND_US,
    "launch_step": 30 * SECOND_US,
    "exclude": 5 * SECOND_US,
    "ask_cores": 5 * SECOND_US,
    "measure": 5 * SECOND_US,
}
"""Deadlines of the answers to effects and questions. Short where one slow node would delay the release of the others'
resources.
"""
HEARTBEAT_DATE_US = min(DEADLINE_US.values())
"""Validity of a heartbeat, at most: a node that would refuse any command says so in its answer."""
FLOOR_EVERY_US = SECOND_US
EPOCH_SHIFT = 40
CALLER = "herald"
WAITING_MAX = 1_024
"""Broadcasts that may wait for a satellite; further ones go straight from here."""
WAIT_SHARE = 0.25
"""Part of its deadline that a broadcast may wait."""
WAIT_MAX_US = 2 * SECOND_US

Seal: TypeAlias = Callable[[Sequence[Command]], Sequence[bytes]]
"""Encodes commands that go out together and signs them, with one signature for all; in the same order."""


class Attachments(Protocol):
    """Attachments that travel beside the commands of some effects; the daemon implements it."""

    def defers(self, send: Send) -> bool:
        """Check whether this send waits for its attachments; the daemon hands it to `Broadcaster.send` later."""
        ...

    def on_broadcast(self, broadcast_id: int, kind: str, send: Send | None) -> None:
        """A broadcast is about to go out; heartbeats have no send."""
        ...

    def on_answered(self, broadcast_id: int) -> None:
        """Its outcome is known."""
        ...


class _NoAttachments:
    def defers(self, send: Send) -> bool:
        return False

    def on_broadcast(self, broadcast_id: int, kind: str, send: Send | None) -> None:
        pass

    def on_answered(self, broadcast_id: int) -> None:
        pass


class Gathered(msgspec.Struct, frozen=True):
    """The answers to a question (`Broadcaster.ask`): nodes that are not in the results, or unreached, are silent."""

    question: int
    results: Results


class Deliver(msgspec.Struct, frozen=True):
    """Put this message into the core's inbox, in the lane that is never refused; answers go to the one that has asked."""

    message: EffectDone | HeartbeatDone | SatelliteSilent | Gathered


Action: TypeAlias = tree.SendBroadcast | tree.SendAck | tree.SendReply | tree.Notice | Deliver


class Broadcaster:
    """One per leading controller. Every input returns actions for the daemon."""

    def __init__(
        self,
        state: State,
        satellites: SatellitePool,
        seal: Seal,
        tuning: tree.Tuning,
        attachments: Attachments | None = None,
        on_bug: Callable[[Exception], None] | None = None,
        asleep_us: Callable[[], int] = int,
    ) -> None:
        """`on_bug` gets an exception that failed an effect. `asleep_us`: total sleep of the host, if the inputs' time does
        not include it.
        """
        self._asleep_us = asleep_us
        self._on_bug = on_bug
        self._attachments: Attachments = attachments if attachments is not None else _NoAttachments()
        self.delivery = EffectDelivery(state)
        self.relay = Relay(root=True, tuning=tuning, keeper=satellites)
        self.satellites = satellites
        self.counters = Counters()
        self.dating = CommandDates()
        self._state = state
        self._seal = seal
        self._calls = NodeCalls(state)
        self._rounds = HeardRounds(lambda: proof_lasts_us(state.config))
        self._widths = WidthTuner()
        self._traces = TraceLog()
        self._observers: list[Observer] = [self._traces]
        self._predicted: frozenset[int] = frozenset()
        self._flights: dict[tree.BroadcastId, Flight] = {}
        self._waiting: deque[Flight] = deque()
        self._broadcasts = 0
        self._floor = 0
        self._floor_at_us = -FLOOR_EVERY_US

    # ---- what others may know and say ----

    def observe(self, observer: Observer) -> None:
        """Add an observer of every broadcast's outcome."""
        self._observers.append(observer)

    def set_predicted(self, nodes: frozenset[int]) -> None:
        """Put these nodes on leaves from now on (E-24); nothing else changes for them (E-26)."""
        self._predicted = nodes

    def traces(self) -> tuple[Answered, ...]:
        """The last broadcasts that were traced, newest first."""
        return self._traces.traces()

    def widths(self) -> list[WidthScore]:
        """Measurements of the automatic width; empty while the width is configured."""
        return self._widths.table()

    @property
    def waiting(self) -> int:
        """Number of broadcasts that wait for a satellite."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """Number of broadcasts that are sent and not answered yet."""
        return len(self._flights) - len(self._waiting)

    # ---- inputs ----

    def lead(self, now_us: int) -> list[Action]:
        """The epoch's first batch is committed: resume owed effects and call the nodes."""
        self.delivery.resume(now_us)
        self.satellites.begin(now_us)
        self._calls.begin(now_us)
        return self.on_timer(now_us)

    def on_renewed(self, began_us: int) -> None:
        """A renewal of the lead that began then succeeded: no other controller had won it before. `began_us` is in the
        time of the inputs, plus the host's sleep by then.
        """
        self._rounds.on_proved(began_us)

    def on_committed(self, messages: Iterable[Message], batch: Batch, now_us: int) -> list[Action]:
        """A batch of the core is durable: its effects may be sent."""
        self.delivery.on_effects(batch.effects, now_us)
        for message in messages:
            if isinstance(message, EffectDone):
                self.delivery.on_done(message, now_us)
        for fact in batch.facts:
            if isinstance(fact, facts.NodeRegistered):
                self._calls.on_registered(fact.number)
                self.delivery.on_registered(fact.number, now_us)
            elif isinstance(fact, facts.NodeStateChanged) and fact.state is NodeState.UP:
                self._calls.on_registered(fact.number)
                self.delivery.on_answering(fact.number, now_us)
            elif isinstance(fact, facts.SatelliteChanged):
                self.satellites.on_changed(fact, now_us)
        if now_us - self._floor_at_us >= FLOOR_EVERY_US:
            self._floor_at_us = now_us
            self._floor = live_floor(self._state)
        return self._send_due(now_us) + self._send_waiting(now_us)

    def call_soon(self, now_us: int) -> list[Action]:
        """Call the nodes now instead of at the next period, because a new peer is linked."""
        if not any(flight.call is not None for flight in self._waiting):
            self._calls.call_soon(now_us)
        return self._call_due(now_us)

    def on_satellite_status(self, number: int, status: SatelliteStatus, now_us: int) -> list[Action]:
        """A satellite answered a ping. The first one that is fit for work opens the way to the nodes."""
        was_alone = not self.satellites.has_running
        is_fit = self.satellites.on_status(number, status, now_us)
        actions = self.call_soon(now_us) if is_fit and was_alone else []
        return actions + self._send_waiting(now_us)

    def on_satellite_down(self, number: int, why: str, now_us: int) -> list[Action]:
        """The link to a satellite ended. Call it before `on_link_down`: its shares must not come back to it."""
        self.satellites.on_unlinked(number, why, now_us)
        return self._send_waiting(now_us)

    def send(self, sends: Sequence[Send], now_us: int) -> list[Action]:
        """Send effects together (deferred ones: with their attachments). An exception fails its effect and no other one."""
        try:
            sealed = self._seal([self._command(send, now_us) for send in sends])
        except Exception as bug:
            if len(sends) == 1:
                return self._not_sent(sends[0], bug)
            return [action for send in sends for action in self.send((send,), now_us)]
        actions: list[Action] = []
        for send, command in zip(sends, sealed, strict=True):
            try:
                actions += self._send_one(send, command, now_us)
            except Exception as bug:
                actions += self._not_sent(send, bug)
        return actions

    def ask(self, nodes: tuple[int, ...], question: Measure, now_us: int) -> tuple[int, list[Action]]:
        """Ask nodes something that changes nothing: the number of the question, which its `Gathered` names.

        It goes out once; nodes that do not hear it, or of an earlier epoch, are silent.
        """
        deadline_us = _deadline_us(question)
        (sealed,) = self._seal([self._addressed(nodes, question, deadline_us, now_us)])
        actions = self._broadcast(nodes, question, deadline_us, now_us, sealed)
        return self._last_id, actions

    def on_ack(self, peer: tree.Peer, ack: tree.Ack, now_us: int) -> list[Action]:
        """See `Relay.on_ack`."""
        return self._relayed(self.relay.on_ack(peer, ack, now_us), now_us)

    def on_reply(self, peer: tree.Peer, reply: tree.Reply, now_us: int) -> list[Action]:
        """See `Relay.on_reply`."""
        return self._relayed(self.relay.on_reply(peer, reply, now_us), now_us)

    def on_refused(
        self, broadcast_id: tree.BroadcastId, heads: Iterable[int], why: str, now_us: int
    ) -> list[Action]:
        """See `Relay.on_refused`."""
        return self._relayed(self.relay.on_refused(broadcast_id, heads, why, now_us), now_us)

    def on_link_down(self, peer: tree.Peer, now_us: int) -> list[Action]:
        """See `Relay.on_link_down`."""
        return self._relayed(self.relay.on_link_down(peer, now_us), now_us)

    def on_timer(self, now_us: int, lag_us: int = 0) -> list[Action]:
        """Time has passed: calls, retries, satellites and the relay's own timers."""
        actions: list[Action] = [Deliver(SatelliteSilent(name)) for name in self.satellites.on_timer(now_us)]
        actions += self._relayed(self.relay.on_timer(now_us, lag_us), now_us)
        return actions + self._call_due(now_us) + self._send_due(now_us)

    def next_timer_us(self) -> int | None:
        """Time of the next `on_timer`."""
        times = (
            self.relay.next_timer_us(),
            self.delivery.next_due_us(),
            self._calls.next_us(),
            self.satellites.next_timer_us(),
            _patience_ends_us(self._waiting[0]) if self._waiting else None,
        )
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- what is due ----

    def _call_due(self, now_us: int) -> list[Action]:
        call = self._calls.take_due(now_us)
        if call is None:
            return []
        number = self._rounds.next_number()
        heartbeat = Heartbeat(self._floor, number, *self._rounds.told(call.nodes, self._is_up))
        valid_us = min(call.deadline_us, HEARTBEAT_DATE_US)
        (sealed,) = self._seal([self._addressed(call.nodes, heartbeat, valid_us, now_us)])
        return self._broadcast(call.nodes, heartbeat, call.deadline_us, now_us, sealed, call=call)

    def _is_up(self, number: int) -> bool:
        node = self._state.nodes.get(number)
        return node is not None and node.state is NodeState.UP

    def _send_due(self, now_us: int) -> list[Action]:
        due = [send for send in self.delivery.take_due(now_us) if not self._attachments.defers(send)]
        return self.send(due, now_us) if due else []

    # ---- out ----

    @property
    def _last_id(self) -> int:
        """The number of the latest broadcast."""
        return self._state.epoch << EPOCH_SHIFT | self._broadcasts

    def _command(self, send: Send, now_us: int) -> Command:
        return self._addressed(send.nodes, send.body, _deadline_us(send.body), now_us, send.revision)

    def _addressed(
        self, nodes: tuple[int, ...], body: Body, deadline_us: int, now_us: int, revision: int = 0
    ) -> Command:
        state = self._state
        runs, incarnations = addressed(state, nodes)
        return Command(
            cluster=state.config.cluster,
            owner=state.owner,
            epoch=state.epoch,
            revision=revision,
            index=0,
            nodes=runs,
            incarnations=incarnations,
            expires_us=self.dating.expires_us(now_us, deadline_us),
            body=body,
        )

    def _send_one(self, send: Send, sealed: bytes, now_us: int) -> list[Action]:
        if len(sealed) > COMMAND_BYTES_MAX:
            # No link would take it. What is answered here ends as any other launch that fails everywhere.
            self.counters.too_large += 1
            why = f"the command has {len(sealed)} bytes, at most {COMMAND_BYTES_MAX} can be sent"
            return [Deliver(_failed(send, why))]
        return self._broadcast(send.nodes, send.body, _deadline_us(send.body), now_us, sealed, send=send)

    def _not_sent(self, send: Send, bug: Exception) -> list[Action]:
        if self._on_bug is None:
            raise bug
        self._on_bug(bug)
        return [Deliver(_failed(send, f"the controller could not send this ({bug}): see its log"))]

    def _broadcast(
        self,
        nodes: tuple[int, ...],
        body: Body,
        deadline_us: int,
        now_us: int,
        sealed: bytes,
        *,
        send: Send | None = None,
        call: Call | None = None,
    ) -> list[Action]:
        state = self._state
        config = state.config
        kind = _kind(body)
        self._broadcasts += 1
        broadcast_id = self._last_id
        predicted = self._predicted.intersection(nodes) if self._predicted else self._predicted
        message = tree.Broadcast(
            broadcast_id,
            nodes,
            config.relay_width or self._widths.choose(len(nodes), may_try=call is not None),
            deadline_us,
            kind,
            sealed,
            grouping=config.relay_grouping,
            root_width=config.satellite_width,
            predicted=tuple(sorted(predicted)),
            missing=call.missing if call is not None else (),
            traced=self._traces.wants(kind, now_us),
        )
        flight = self._flights[broadcast_id] = Flight(message, predicted, send, call, now_us)
        if isinstance(body, Heartbeat):
            flight.round = body.round
            flight.ahead_us = self.dating.ahead_us
        self._attachments.on_broadcast(broadcast_id, kind, send)
        self.counters.broadcasts += 1
        return self._launch(flight, now_us)

    def _launch(self, flight: Flight, now_us: int) -> list[Action]:
        """Send over satellites, or directly when small, or queue it behind waiting ones."""
        if len(flight.message.nodes) <= self._state.config.relay_direct_max:
            self.counters.direct += 1
            return self._send_straight(flight, now_us)
        if not self._waiting and not self._must_wait():
            return self._send_out(flight, now_us)
        if len(self._waiting) >= WAITING_MAX:
            self.counters.waiting_full += 1
            return self._take_over(flight, now_us)
        self.counters.waited += 1
        self._waiting.append(flight)
        return []

    def _must_wait(self) -> bool:
        return not self.satellites.has_running and self.satellites.has_prospects

    def _send_waiting(self, now_us: int) -> list[Action]:
        """Send the waiting broadcasts whose time is over, that have a satellite, or that have none to wait for."""
        actions: list[Action] = []
        while self._waiting and (not self._must_wait() or _patience_ends_us(self._waiting[0]) <= now_us):
            flight = self._waiting.popleft()
            waited_us = now_us - flight.queued_us
            flight.started_us = now_us
            flight.message = msgspec.structs.replace(
                flight.message, deadline_us=flight.message.deadline_us - waited_us
            )
            actions += self._send_out(flight, now_us)
        return actions

    def _send_out(self, flight: Flight, now_us: int) -> list[Action]:
        message = flight.message
        width = message.root_width or message.width
        legs = self.satellites.legs(message.nodes, flight.predicted, width, now_us)
        if not legs:
            return self._take_over(flight, now_us)
        flight.message = message = msgspec.structs.replace(
            message,
            nodes=tuple(node for leg in legs for node in leg.nodes),
            differences=flight.call is not None,
        )
        flight.shares = tuple(len(leg.nodes) for leg in legs)
        flight.satellites = dict.fromkeys(leg.to_node for leg in legs)
        return self._told(self.relay.start(CALLER, message, legs, now_us), now_us)

    def _take_over(self, flight: Flight, now_us: int) -> list[Action]:
        """No satellite is available: the controller itself is the root (E-16)."""
        if self.satellites.satellites:
            flight.takeovers += 1
            self.counters.takeovers += 1
        return self._send_straight(flight, now_us)

    def _send_straight(self, flight: Flight, now_us: int) -> list[Action]:
        return self._told(self.relay.on_broadcast(CALLER, flight.message, now_us), now_us)

    # ---- in ----

    def _relayed(self, actions: Iterable[tree.Action], now_us: int) -> list[Action]:
        """The relay's actions for an input, then those of waiting broadcasts."""
        return self._told(actions, now_us) + self._send_waiting(now_us)

    def _told(self, actions: Iterable[tree.Action], now_us: int) -> list[Action]:
        """The relay's actions, those for its caller turned into messages for the core."""
        told: list[Action] = []
        for action in actions:
            match action:
                case tree.SendReply(source, reply) if source == CALLER:
                    if reply.final:
                        told += self._answered(reply.broadcast_id, reply.results, reply.trace, now_us)
                case tree.SendAck(source, ack) if source == CALLER:
                    if ack.refused:
                        told += self._turned_down(ack.broadcast_id, now_us)
                case tree.RunLocal():
                    pass
                case tree.Suspect() | tree.Reallocated() | tree.TookOver():
                    self._note(action)
                    told.append(action)
                case _:
                    told.append(action)
        return told

    def _note(self, notice: tree.Notice) -> None:
        flight = self._flights.get(notice.broadcast_id)
        match notice:
            case tree.Reallocated(_, _, to_node, nodes):
                self.counters.reallocations += 1
                self.satellites.on_reallocated(to_node, nodes)
                if flight is not None:
                    flight.reallocations += 1
                    flight.satellites[to_node] = None
            case tree.TookOver():
                self.counters.takeovers += 1
                if flight is not None:
                    flight.takeovers += 1
            case tree.Suspect(_, node, _):
                if flight is not None and node >= 0:
                    flight.suspects[node] = None

    def _turned_down(self, broadcast_id: tree.BroadcastId, now_us: int) -> list[Action]:
        """The own relay refused the broadcast (too many are live): no node was reached."""
        flight = self._flights.get(broadcast_id)
        for number in flight.satellites if flight is not None else ():
            self.satellites.on_leg_done(number, now_us)
        return self._answered(broadcast_id, EMPTY, None, now_us)

    def _answered(
        self, broadcast_id: tree.BroadcastId, results: Results, trace: Trace | None, now_us: int
    ) -> list[Action]:
        flight = self._flights.pop(broadcast_id, None)
        if flight is None:
            return []
        message = flight.message
        assert isinstance(broadcast_id, int)
        self._attachments.on_answered(broadcast_id)
        answered = flight.answered(results, trace, now_us)
        self._widths.note(len(message.nodes), message.width, answered.took_us, answered.is_exact)
        for observer in self._observers:
            observer.on_answered(answered)
        if flight.send is not None:
            return [Deliver(effect_done(flight.send, results))]
        if flight.call is None:
            return [Deliver(Gathered(broadcast_id, results))]
        self.dating.on_answers(results, lambda: sum(map(self._is_up, self._state.nodes)), now_us)
        self._rounds.on_answers(flight.round, results.nodes(Status.OK), now_us + self._asleep_us())
        # What refused a heartbeat that was dated otherwise may take the next one.
        is_current = flight.ahead_us == self.dating.ahead_us
        done = self._calls.on_results(
            flight.call, results, now_us, clocks_ahead(results, now_us) if is_current else None
        )
        return [Deliver(done)] if done is not None else []


def _kind(body: Body) -> str:
    return str(type(body).__struct_config__.tag)


def _deadline_us(body: Body) -> int:
    """Deadline of the answers to an effect, in microseconds."""
    return DEADLINE_US[_kind(body)]


def _patience_ends_us(flight: Flight) -> int:
    """Time at which a waiting broadcast goes out without a satellite."""
    return flight.queued_us + min(WAIT_MAX_US, int(flight.message.deadline_us * WAIT_SHARE))


def effect_done(send: Send, results: Results) -> EffectDone:
    """The outcome of an effect on each of its nodes; nodes missing in the results are unknown."""
    outcomes = tuple(
        NodeOutcome(
            tuple(node for run in row.ranges() for node in run),
            row.outcome.status.name.lower(),
            row.outcome.text,
            row.outcome.payload,
            row.outcome.code,
        )
        for row in results.rows
    )
    known = sum(len(outcome.nodes) for outcome in outcomes)
    if known < len(send.nodes):
        answered = {node for outcome in outcomes for node in outcome.nodes}
        silent = tuple(node for node in send.nodes if node not in answered)
        outcomes = (*outcomes, NodeOutcome(silent, "unreached"))
    return EffectDone(send.revision, 0, outcomes)


def _failed(send: Send, why: str) -> EffectDone:
    return EffectDone(send.revision, 0, (NodeOutcome(send.nodes, "failed", why),))


def live_floor(state: State) -> int:
    """The lowest revision whose effect may still matter: nodes forget older outcomes."""
    jobs = {job_id for here in state.jobs_on.values() for job_id in here}
    placed = (attempt.placed_revision for job_id in jobs for attempt in attempts_of(state.get_job(job_id)))
    return min(placed, default=state.revision + 1)


def addressed(state: State, nodes: Sequence[int]) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """The list as runs of consecutive numbers with one incarnation each, and those incarnations.

    A lost node has none (0): its agent then registers anew.
    """
    runs: list[tuple[int, int]] = []
    incarnations: list[int] = []
    for number in nodes:
        node = state.nodes.get(number)
        incarnation = 0 if node is None or node.state is NodeState.LOST else node.incarnation
        if runs and incarnations[-1] == incarnation and sum(runs[-1]) == number:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
            incarnations.append(incarnation)
    return tuple(runs), tuple(incarnations)
