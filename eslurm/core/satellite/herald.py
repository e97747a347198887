"""All that a controller says to its nodes, and what their answers mean to the core.

Owns the controller's relay, the courier's sends and the heartbeats: each becomes one signed command and one
broadcast over the satellites (or by the controller itself, E-16), each answer a message for the core's inbox.
Invariants: nothing is announced before the batch it follows from is committed; the floor sent with heartbeats
is never above that of the last committed state; broadcast ids are unique for a controller's epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from eslurm.core import facts
from eslurm.core.cluster import SECOND_US, State, attempts_of
from eslurm.core.courier import Courier, Send
from eslurm.core.messages import EffectDone, HeartbeatDone, Message, NodeOutcome
from eslurm.core.node.heartbeat import HeartbeatRule
from eslurm.core.node.states import NodeState
from eslurm.core.reactor import Batch
from eslurm.core.satellite.legs import Satellites
from eslurm.core.tree import messages as tree
from eslurm.core.tree.relay import Relay
from eslurm.core.tree.results import EMPTY, Results, Status
from eslurm.core.wire import Body, Command, Heartbeat

DEADLINE_US = {
    "prepare": 10 * SECOND_US,
    "start": 10 * SECOND_US,
    "end": 5 * SECOND_US,
    "signal": 5 * SECOND_US,
    "launch_step": 30 * SECOND_US,
}
"""When an effect's answers are due. Short where one slow node would hold up what others have given back."""
HEARTBEAT_SHARE = 0.9
"""Part of the heartbeat interval after which a heartbeat's answers are counted: two never overlap."""
FLOOR_EVERY_US = SECOND_US
EPOCH_SHIFT = 40
CALLER = "herald"

Seal: TypeAlias = Callable[[Command], bytes]
"""Encodes and signs a command."""


class Cargo(Protocol):
    """What travels beside the commands of some effects: the shell's business."""

    def defers(self, send: Send) -> bool:
        """Whether this send waits for its cargo; it is then handed to `Herald.send` later."""
        ...

    def on_broadcast(self, broadcast_id: int, kind: str, send: Send | None) -> None:
        """A broadcast is about to go out; heartbeats have no send."""
        ...

    def on_answered(self, broadcast_id: int) -> None:
        """Its outcome is known."""
        ...


class _NoCargo:
    def defers(self, send: Send) -> bool:
        return False

    def on_broadcast(self, broadcast_id: int, kind: str, send: Send | None) -> None:
        pass

    def on_answered(self, broadcast_id: int) -> None:
        pass


class Deliver(msgspec.Struct, frozen=True):
    """Put this message into the core's inbox, in the lane that is never refused."""

    message: EffectDone | HeartbeatDone


Action: TypeAlias = tree.SendBroadcast | tree.SendAck | tree.SendReply | tree.Suspect | Deliver


class Herald:
    """One per leading controller. Every input returns what the shell has to do."""

    def __init__(
        self,
        state: State,
        satellites: Satellites,
        seal: Seal,
        tuning: tree.Tuning,
        cargo: Cargo | None = None,
    ) -> None:
        self._cargo: Cargo = cargo if cargo is not None else _NoCargo()
        self.courier = Courier(state)
        self.relay = Relay(root=True, tuning=tuning)
        self.satellites = satellites
        self._state = state
        self._seal = seal
        self._rule = HeartbeatRule(state.config.heartbeats_missed_max)
        self._rule_revision = state.config_revision
        self._sends: dict[tree.BroadcastId, Send | None] = {}
        self._broadcasts = 0
        self._floor = 0
        self._floor_at_us = -FLOOR_EVERY_US
        self._heartbeat_us: int | None = None

    # ---- inputs ----

    def lead(self, now_us: int) -> list[Action]:
        """The epoch's first batch is committed: owed effects are resumed and the nodes are called."""
        self.courier.resume(now_us)
        self._heartbeat_us = now_us
        return self.on_timer(now_us)

    def on_committed(self, messages: Iterable[Message], batch: Batch, now_us: int) -> list[Action]:
        """A batch of the core is durable: what it owes may be said."""
        self.courier.on_effects(batch.effects, now_us)
        for message in messages:
            if isinstance(message, EffectDone):
                self.courier.on_done(message, now_us)
        for fact in batch.facts:
            if isinstance(fact, facts.NodeRegistered):
                self._rule.on_registered(fact.number)
                self.courier.on_registered(fact.number, now_us)
            elif isinstance(fact, facts.NodeStateChanged) and fact.state is NodeState.UP:
                self._rule.on_registered(fact.number)
        if now_us - self._floor_at_us >= FLOOR_EVERY_US:
            self._floor_at_us = now_us
            self._floor = live_floor(self._state)
        return self._send_due(now_us)

    def call_soon(self, now_us: int) -> list[Action]:
        """A satellite is there: nodes should hear of us now, not at the next period."""
        if self._heartbeat_us is None:
            return []
        return self._call_nodes(now_us)

    def send(self, send: Send, now_us: int) -> list[Action]:
        """A deferred send has its cargo."""
        kind = str(type(send.body).__struct_config__.tag)
        return self._broadcast(send, send.nodes, send.body, DEADLINE_US[kind], now_us)

    def on_ack(self, peer: tree.Peer, ack: tree.Ack, now_us: int) -> list[Action]:
        """See `Relay.on_ack`."""
        return self._told(self.relay.on_ack(peer, ack, now_us))

    def on_reply(self, peer: tree.Peer, reply: tree.Reply, now_us: int) -> list[Action]:
        """See `Relay.on_reply`."""
        return self._told(self.relay.on_reply(peer, reply, now_us))

    def on_refused(
        self, broadcast_id: tree.BroadcastId, heads: Iterable[int], why: str, now_us: int
    ) -> list[Action]:
        """See `Relay.on_refused`."""
        return self._told(self.relay.on_refused(broadcast_id, heads, why, now_us))

    def on_link_down(self, peer: tree.Peer, now_us: int) -> list[Action]:
        """See `Relay.on_link_down`."""
        return self._told(self.relay.on_link_down(peer, now_us))

    def on_timer(self, now_us: int, lag_us: int = 0) -> list[Action]:
        """Time has passed: heartbeats, retries and the relay's own timers."""
        actions = self._told(self.relay.on_timer(now_us, lag_us))
        if self._heartbeat_us is not None and self._heartbeat_us <= now_us:
            actions += self._call_nodes(now_us)
        return actions + self._send_due(now_us)

    def next_timer_us(self) -> int | None:
        """When `on_timer` is due next."""
        times = (self.relay.next_timer_us(), self.courier.next_due_us(), self._heartbeat_us)
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- inside ----

    def _call_nodes(self, now_us: int) -> list[Action]:
        interval_us = max(1, int(self._state.config.heartbeat_s * SECOND_US))
        self._heartbeat_us = now_us + interval_us
        # Who never registered has no address and will find us by itself.
        nodes = sorted(number for number, node in self._state.nodes.items() if node.endpoint)
        if not nodes:
            return []
        deadline_us = int(interval_us * HEARTBEAT_SHARE)
        return self._broadcast(None, nodes, Heartbeat(self._floor), deadline_us, now_us)

    def _send_due(self, now_us: int) -> list[Action]:
        actions: list[Action] = []
        for send in self.courier.take_due(now_us):
            if not self._cargo.defers(send):
                actions += self.send(send, now_us)
        return actions

    def _broadcast(
        self, send: Send | None, nodes: Sequence[int], body: Body, deadline_us: int, now_us: int
    ) -> list[Action]:
        state = self._state
        self._broadcasts += 1
        broadcast_id = state.epoch << EPOCH_SHIFT | self._broadcasts
        runs, incarnations = addressed(state, nodes)
        command = Command(
            cluster=state.config.cluster,
            owner=state.owner,
            epoch=state.epoch,
            revision=send.revision if send is not None else 0,
            index=0,
            nodes=runs,
            incarnations=incarnations,
            expires_us=now_us + deadline_us,
            body=body,
        )
        width = state.config.relay_width
        kind = str(type(body).__struct_config__.tag)
        sealed = self._seal(command)
        message = tree.Broadcast(broadcast_id, tuple(nodes), width, deadline_us, kind, sealed)
        self._sends[broadcast_id] = send
        self._cargo.on_broadcast(broadcast_id, kind, send)
        legs = self.satellites.legs(nodes, width)
        if legs:
            return self._told(self.relay.start(CALLER, message, legs, now_us))
        return self._told(self.relay.on_broadcast(CALLER, message, now_us))

    def _told(self, actions: Iterable[tree.Action]) -> list[Action]:
        """The relay's actions, those for its caller turned into messages for the core."""
        told: list[Action] = []
        for action in actions:
            if isinstance(action, tree.SendReply) and action.to_source == CALLER:
                if action.reply.final:
                    told += self._answered(action.reply.broadcast_id, action.reply.results)
            elif isinstance(action, tree.SendAck) and action.to_source == CALLER:
                if action.ack.refused:
                    told += self._unanswered(action.ack)
            elif not isinstance(action, tree.RunLocal):
                told.append(action)
        return told

    def _answered(self, broadcast_id: tree.BroadcastId, results: Results) -> list[Action]:
        if broadcast_id not in self._sends:
            return []
        send = self._sends.pop(broadcast_id)
        assert isinstance(broadcast_id, int)
        self._cargo.on_answered(broadcast_id)
        if send is None:
            return self._count_heartbeats(results)
        outcomes = tuple(
            NodeOutcome(
                tuple(node for run in row.ranges() for node in run),
                row.outcome.status.name.lower(),
                row.outcome.text,
                row.outcome.payload,
            )
            for row in results.rows
        )
        known = sum(len(outcome.nodes) for outcome in outcomes)
        if known < len(send.nodes):
            answered = {node for outcome in outcomes for node in outcome.nodes}
            silent = tuple(node for node in send.nodes if node not in answered)
            outcomes = (*outcomes, NodeOutcome(silent, "unreached"))
        return [Deliver(EffectDone(send.revision, 0, outcomes))]

    def _unanswered(self, ack: tree.Ack) -> list[Action]:
        """The own relay took the broadcast not at all (too many are live): nobody was reached."""
        return self._answered(ack.broadcast_id, EMPTY)

    def _count_heartbeats(self, results: Results) -> list[Action]:
        config = self._state.config
        if self._rule_revision != self._state.config_revision:
            self._rule = HeartbeatRule(config.heartbeats_missed_max)
            self._rule_revision = self._state.config_revision
        nodes = self._state.nodes
        reached = results.nodes(Status.OK)
        # A process that does not serve the node (any more) is no sign of life of the node.
        unreached = sorted(results.nodes(Status.UNREACHED) + results.nodes(Status.FAILED))
        news = self._rule.on_answers(reached, unreached)
        missing = news.missing if news is not None else ()
        # Not the rule's memory: a node may have registered while the news of its absence was on its way.
        back = tuple(
            number for number in reached if number in nodes and nodes[number].state is NodeState.UNREACHABLE
        )
        return [Deliver(HeartbeatDone(back, missing))] if back or missing else []


def live_floor(state: State) -> int:
    """The lowest revision whose effect may still matter: nodes forget what they kept for older ones."""
    jobs = {job_id for here in state.jobs_on.values() for job_id in here}
    placed = (attempt.placed_revision for job_id in jobs for attempt in attempts_of(state.get_job(job_id)))
    return min(placed, default=state.revision + 1)


def addressed(state: State, nodes: Sequence[int]) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """The list as runs of consecutive numbers with one incarnation each, and those incarnations.

    A lost node has none (0): hearing that, its agent offers it anew.
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
