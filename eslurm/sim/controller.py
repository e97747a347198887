"""A simulated controller: the core's reactor, herald and planner over the simulated disk.

Mirrors the daemon's dispatcher: one batch at a time, decide and apply, commit, then release. Invariant: nothing
(answer, acknowledgement, effect) leaves before the commit it belongs to has finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from eslurm.core.job.dependency import settled_verdict
from eslurm.core.job.model import JobSpec
from eslurm.core.job.states import JobState
from eslurm.core.messages import (
    Changed,
    ConfigLoaded,
    EpochStarted,
    Message,
    PlanMade,
    Refused,
    Reports,
    StepCreated,
    SubmitJobs,
    Submitted,
    Tick,
)
from eslurm.core.plan.policy import PlanLimits
from eslurm.core.plan.promise import Promise
from eslurm.core.planning import plan_slices
from eslurm.core.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.satellite.herald import Deliver, Herald
from eslurm.core.satellite.roster import Roster
from eslurm.core.timers import next_timer_us
from eslurm.core.tree import messages as tree
from eslurm.ports import store
from eslurm.sim import wire
from eslurm.sim.process import Process
from eslurm.store.rows import to_store

if TYPE_CHECKING:
    from eslurm.sim.world import World

TICK_US = 200
REPLAN_US = 30_000_000
PLAN_US = 5_000
RETRY_US = 200_000
BATCH_MAX = 256
LIMITS = PlanLimits(placements_max=256, examined_max=2_000)

_answers = msgspec.msgpack.Decoder(Submitted | Changed | StepCreated)
_encode = msgspec.msgpack.Encoder().encode

Done = Callable[[BatchAnswer], None]


class _Entry(msgspec.Struct):
    message: Message
    done: Done | None = None
    request_id: bytes = b""
    blobs: tuple[store.BlobRow, ...] = ()


class Controller(Process):
    """One start of the controller, from the rows on the disk."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "controller")
        self._epoch = world.disk.open(world.owner)
        self.state = world.load_state()
        self._reactor = Reactor(self.state, observe=world.checks.on_fact)
        self.roster = Roster(self.state, world.ways_up[:-1], self._ping)
        self._satellites: dict[int, str] = {}
        self.herald = Herald(self.state, self.roster, world.seal, world.tuning)
        # Right or wrong: predictions may change nothing but places in trees (E-26).
        numbers = range(len(world.names))
        self.herald.set_predicted(frozenset(number for number in numbers if world.random.random() < 0.2))
        self._events: deque[_Entry] = deque()
        self._requests: deque[_Entry] = deque()
        self._recent: dict[bytes, list[str] | BatchAnswer] = {}
        self._is_woken = False
        self._commit: store.Batch | None = None
        self._ticket = 0
        self._is_available = True
        self._leads = False
        self._is_planning = False
        self._promises: tuple[Promise, ...] = ()
        self._tick_at_us: int | None = None

    def start(self) -> None:
        """Begin to lead."""
        self._post(ConfigLoaded(self.world.config))
        self._post(EpochStarted(self._epoch))
        self.later(REPLAN_US, self._replan)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be decided, committed, planned or sent."""
        return not self.busy_with

    @property
    def busy_with(self) -> str:
        """What is under way; empty when idle."""
        if self._events or self._requests or self._commit is not None:
            return "messages wait to be committed"
        if self._is_planning:
            return "a plan is under way"
        return f"{len(self.herald.courier)} effects are under way" if len(self.herald.courier) else ""

    # ---- in ----

    def on_message(self, source: str, message: Any) -> None:
        """Answers of relays, reports, and requests of clients."""
        kind = type(message)
        if kind is tree.Ack:
            self.perform(self.herald.on_ack(source, message, self.now_us))
        elif kind is tree.Reply:
            self.perform(self.herald.on_reply(source, message, self.now_us))
        elif kind is wire.Reports:
            self._post(Reports(message.reports), lambda acks: self._acknowledge(source, acks))
        elif kind is wire.Hello:
            if message.number and self._satellites.get(message.number) != source:
                self._satellites[message.number] = source
                self.roster.on_linked(self.roster.get(message.number).name, self.now_us)
            self.send(source, wire.Welcome(self.world.owner, self._epoch))
        elif kind is wire.Status:
            for number in self._numbers_of(source):
                self.perform(self.herald.on_satellite_status(number, message.status, self.now_us))
        elif kind is wire.Call:
            self._on_call(source, message)
        self.arm()

    def on_link_down(self, peer: str) -> None:
        """A satellite or an agent process is out of reach."""
        for number in self._numbers_of(peer):
            del self._satellites[number]
            self.perform(self.herald.on_satellite_down(number, "link lost", self.now_us))
        self.perform(self.herald.on_link_down(peer, self.now_us))
        self.arm()

    def on_refused(self, broadcast_id: tree.BroadcastId, heads: tuple[int, ...]) -> None:
        """Nobody listens at a child's address."""
        self.perform(self.herald.on_refused(broadcast_id, heads, "connection refused", self.now_us))
        self.arm()

    def next_timer_us(self) -> int | None:
        """The herald's."""
        return self.herald.next_timer_us() if self._leads else None

    def on_timer(self) -> None:
        """Heartbeats, retries, relay timers."""
        self.perform(self.herald.on_timer(self.now_us))

    def perform_other(self, action: Any) -> None:
        """A message of the herald for the core, or word of what became of a failed share."""
        if isinstance(action, tree.Reallocated | tree.TookOver):
            self.world.note(f"{type(action).__name__} {action.from_node} {action.nodes}")
            return
        assert isinstance(action, Deliver)
        self._post(action.message)

    def _ping(self, number: int, seq: int) -> None:
        self.send(self._satellites[number], wire.Ping(seq))

    def _numbers_of(self, process: str) -> list[int]:
        return [number for number, name in self._satellites.items() if name == process]

    def _send_broadcast(self, action: tree.SendBroadcast) -> None:
        self.world.checks.on_given(action.to_node)
        super()._send_broadcast(action)

    def _acknowledge(self, source: str, acks: BatchAnswer) -> None:
        assert isinstance(acks, tuple)
        self.send(source, wire.Acks(acks))

    def _post(self, message: Message, done: Done | None = None) -> None:
        self._events.append(_Entry(message, done))
        self._wake()

    # ---- requests of clients ----

    def _on_call(self, source: str, call: wire.Call) -> None:
        if call.retry:
            stored = self.world.disk.lookup_request(call.request_id)
            if stored is not None:
                self.send(source, wire.Result(call.request_id, _answers.decode(stored)))
                return
        if call.request_id in self._recent:
            known = self._recent[call.request_id]
            if isinstance(known, list):
                known.append(source)
            else:
                self.send(source, wire.Result(call.request_id, known))
        elif not self._is_available:
            self.send(source, wire.Result(call.request_id))
        else:
            self._recent[call.request_id] = [source]
            message = call.message
            if isinstance(message, SubmitJobs):
                message = SubmitJobs(tuple(map(self._settled, message.specs)))
            done = lambda answer: self._answer(call.request_id, answer)  # noqa: E731
            self._requests.append(_Entry(message, done, call.request_id, call.blobs))
            self._wake()

    def _settled(self, spec: JobSpec) -> JobSpec:
        """Dependencies on jobs that have left memory are settled at the door, from the store."""
        old = [one.job_id for one in spec.dependencies if one.job_id and one.job_id not in self.state.jobs]
        if not old:
            return spec
        rows = {row.job_id: row for row in self.world.disk.find_jobs(self.world.owner, old)}
        settled = tuple(
            settled_verdict(one, JobState(rows[one.job_id].state)) if one.job_id in rows else one
            for one in spec.dependencies
        )
        return msgspec.structs.replace(spec, dependencies=settled)

    def _answer(self, request_id: bytes, answer: BatchAnswer) -> None:
        waiting = self._recent[request_id]
        assert isinstance(waiting, list)
        self._recent[request_id] = answer
        for source in waiting:
            self.send(source, wire.Result(request_id, answer))

    # ---- decide, commit, release ----

    def _wake(self) -> None:
        if not self._is_woken and self._commit is None:
            self._is_woken = True
            self.later(TICK_US, self._drain)

    def _drain(self) -> None:
        self._is_woken = False
        if self._commit is not None:
            return
        entries: list[_Entry] = []
        for lane in (self._events, self._requests):
            while lane and len(entries) < BATCH_MAX:
                entries.append(lane.popleft())
        if not entries:
            return
        batch = self._reactor.process((entry.message for entry in entries), self.now_us)
        answers = [
            store.AnswerRow(entry.request_id, _encode(answer))
            for entry, answer in zip(entries, batch.answers, strict=True)
            if entry.request_id and not isinstance(answer, Refused)
        ]
        if not batch.facts and not answers:
            self._release(entries, batch)
            return
        blobs = [blob for entry in entries for blob in entry.blobs]
        self._commit = to_store(self.state, batch, answers, blobs)
        self._begin(entries, batch)

    def _begin(self, entries: list[_Entry], batch: Batch) -> None:
        world = self.world
        assert self._commit is not None
        fate = world.faults.next_commit(bool(self._commit.answers))
        if fate == "before":
            world.crash_controller(fate)
            return
        self._ticket = world.disk.begin(world.owner, self._epoch, self._commit)
        if fate == "torn":
            world.crash_controller(fate)
        elif world.store_is_out:
            world.disk.tear(self._ticket)
            self._is_available = False
            self.later(RETRY_US, self._begin, entries, batch)
        else:
            self.later(world.commit_delay_us(), self._finish, entries, batch, fate)

    def _finish(self, entries: list[_Entry], batch: Batch, fate: str) -> None:
        self.world.disk.finish(self._ticket)
        self.world.checks.on_commit(batch)
        self._commit = None
        self._is_available = True
        if fate == "after":
            self.world.crash_controller(fate)
            return
        self._release(entries, batch)

    def _release(self, entries: list[_Entry], batch: Batch) -> None:
        messages = [entry.message for entry in entries]
        self.perform(self.herald.on_committed(messages, batch, self.now_us))
        if not self._leads and self.state.epoch == self._epoch:
            self._leads = True
            self.perform(self.herald.lead(self.now_us))
        for entry, answer in zip(entries, batch.answers, strict=True):
            if entry.done is not None:
                entry.done(answer)
        if any(isinstance(message, PlanMade) for message in messages):
            self._is_planning = False
        if self._events or self._requests:
            self._wake()
        self._plan()
        self._set_tick()
        self.arm()

    # ---- planning and timers ----

    def _plan(self) -> None:
        if self._is_planning or not self.state.plan_wanted:
            return
        slices = plan_slices(self.state, max(self.now_us, self.state.now_us), self._promises, LIMITS)
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan = finished.value
                break
        self._promises = plan.promises
        if plan.placements:
            self._is_planning = True
            delay_us = int(self.world.random.random() * PLAN_US)
            self.later(delay_us, self._post, PlanMade(plan.placements, plan.generation))

    def _replan(self) -> None:
        self.state.want_plan()
        self._plan()
        self.later(REPLAN_US, self._replan)

    def _set_tick(self) -> None:
        due_us = next_timer_us(self.state)
        if due_us is not None and (self._tick_at_us is None or due_us < self._tick_at_us):
            self._tick_at_us = due_us
            self.later(max(0, due_us - self.now_us), self._tick, due_us)

    def _tick(self, due_us: int) -> None:
        if self._tick_at_us == due_us:
            self._tick_at_us = None
            self._post(Tick())
