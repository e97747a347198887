"""What happens after each commit and around the clock: effects out, outcomes in, heartbeats, ticks, the address book.

Owns the courier and the heartbeat rule. Everything that comes back enters the dispatcher as a message.
"""

from __future__ import annotations

import asyncio
import time

from esctld.dispatcher import Dispatcher
from esctld.fanout import Fanout, Outcomes
from esctld.planner import Planner
from eslurm.core import facts
from eslurm.core.cluster import State, attempts_of
from eslurm.core.courier import Courier, Send
from eslurm.core.messages import EffectDone, Tick
from eslurm.core.node.heartbeat import HeartbeatRule
from eslurm.core.node.model import Node
from eslurm.core.reactor import Batch
from eslurm.core.timers import next_timer_us
from eslurm.relay.book import AddressBook
from eslurm.rpc.hello import LocalPeer

TICK_MAX_S = 1.0
TICK_MIN_S = 0.02
HEARTBEAT_SHARE = 0.8
"""Part of a heartbeat's period within which it has to be answered."""


class Conductor:
    """Call `on_committed` after each batch; run `tick` and `beat` as tasks."""

    def __init__(self, state: State, book: AddressBook, local: LocalPeer, planner: Planner) -> None:
        self._state = state
        self._book = book
        self._local = local
        self._planner = planner
        self._courier = Courier(state)
        self._rule = HeartbeatRule(state.config.heartbeats_missed_max)
        self._dispatcher: Dispatcher | None = None
        self._fanout: Fanout | None = None
        self._beat_now = asyncio.Event()
        self._pump_timer: asyncio.TimerHandle | None = None
        self._enter(list(state.nodes.values()))

    def attach(self, dispatcher: Dispatcher, fanout: Fanout) -> None:
        """Where messages go in and effects go out."""
        self._dispatcher = dispatcher
        self._fanout = fanout

    def resume(self) -> None:
        """After a restart: everything that the state owes is sent again, as soon as its nodes have registered."""
        self._courier.resume(_now_us())

    def beat_soon(self) -> None:
        """A satellite is linked: nodes should hear of us now, not at the next period."""
        self._beat_now.set()

    # ---- after a commit ----

    def on_committed(self, batch: Batch) -> None:
        """The batch is durable: its effects may happen now."""
        self._courier.on_effects(batch.effects, batch.now_us)
        registered = [fact.number for fact in batch.facts if isinstance(fact, facts.NodeRegistered)]
        if registered:
            self._enter([self._state.nodes[number] for number in registered])
            for number in registered:
                self._rule.on_registered(number)
                self._courier.on_registered(number, batch.now_us)
        self._planner.look()
        self.pump()

    def _enter(self, nodes: list[Node]) -> None:
        """Nodes' addresses go into the book under a new revision."""
        entries = [
            (node.number, node.name, node.endpoint, node.incarnation) for node in nodes if node.endpoint
        ]
        if entries:
            self._book.put(self._book.revision + 1, entries)
            self._local.book_revision = self._book.revision

    def pump(self) -> None:
        """Send what is due, and come back when more is."""
        assert self._fanout is not None
        for send in self._courier.take_due(_now_us()):
            self._carry(send)
        due_us = self._courier.next_due_us()
        if self._pump_timer is not None:
            self._pump_timer.cancel()
            self._pump_timer = None
        if due_us is not None:
            delay_s = max(0.001, (due_us - _now_us()) / 1_000_000)
            self._pump_timer = asyncio.get_running_loop().call_later(delay_s, self.pump)

    def _carry(self, send: Send) -> None:
        assert self._fanout is not None

        def done(outcomes: Outcomes) -> None:
            assert self._dispatcher is not None
            message = EffectDone(send.revision, 0, outcomes)
            self._dispatcher.post(message, lambda _answer: self._settled(message))

        self._fanout.send(send, done)

    def _settled(self, message: EffectDone) -> None:
        self._courier.on_done(message, _now_us())
        self.pump()

    # ---- around the clock ----

    async def tick(self) -> None:
        """Fire timers as they are due."""
        assert self._dispatcher is not None
        while True:
            due_us = next_timer_us(self._state)
            wait_s = TICK_MAX_S
            if due_us is not None:
                wait_s = min(max((due_us - _now_us()) / 1_000_000, TICK_MIN_S), TICK_MAX_S)
            await asyncio.sleep(wait_s)
            done = asyncio.get_running_loop().create_future()
            self._dispatcher.post(Tick(), lambda _answer, done=done: _finish(done))  # type: ignore[misc]
            await done

    async def beat(self) -> None:
        """Ask all nodes that ever registered whether they are there, once per period."""
        while True:
            period_s = self._state.config.heartbeat_s
            try:
                async with asyncio.timeout(period_s):
                    await self._beat_now.wait()
            except TimeoutError:
                pass
            self._beat_now.clear()
            nodes = tuple(node.number for node in self._state.nodes.values() if node.endpoint)
            if nodes:
                await self._beat(nodes, period_s * HEARTBEAT_SHARE)

    async def _beat(self, nodes: tuple[int, ...], deadline_s: float) -> None:
        assert self._fanout is not None and self._dispatcher is not None
        answered: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self._fanout.heartbeat(nodes, floor(self._state), deadline_s, answered.set_result)
        reached: list[int] = []
        unreached: list[int] = []
        for outcome in await answered:
            (unreached if outcome.status == "unreached" else reached).extend(outcome.nodes)
        difference = self._rule.on_answers(reached, unreached)
        if difference is not None:
            self._dispatcher.post(difference)


def floor(state: State) -> int:
    """The lowest revision that a live attempt or an owed effect still needs; nodes forget what lies below."""
    lowest = state.revision + 1
    for numbers in state.jobs_on.values():
        for job_id in numbers:
            for attempt in attempts_of(state.get_job(job_id)):
                lowest = min(lowest, attempt.placed_revision)
    return lowest


def _now_us() -> int:
    return time.time_ns() // 1000


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
