"""A simulated controller that leads: the core's reactor, herald and planner over the simulated disk.

Mirrors the daemon's dispatcher: one batch at a time, decide and apply, commit, then release. Invariants: nothing
(answer, acknowledgement, effect) leaves before the commit it belongs to has finished; a lost fence ends the process,
and who lets go of the lead has committed everything it took on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from eslurm.core.control.jobs.dependency import settled_verdict
from eslurm.core.control.planning import messages_of, plan_slices
from eslurm.core.control.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.control.timers import next_timer_us
from eslurm.core.dispatch.broadcaster import Broadcaster, Deliver
from eslurm.core.dispatch.election import RENEWS_PER_LEASE
from eslurm.core.dispatch.satellite_pool import Roster
from eslurm.core.model.job import JobSpec
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import (
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
from eslurm.core.model.timekeeping import Timekeeper, leap_bound_us
from eslurm.core.plan.cycle.policy import Plan, PlanLimits
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.relay import messages as tree
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.boundaries import set_calendar
from eslurm.core.state.cluster import State
from eslurm.lab.sim import wire
from eslurm.lab.sim.log_keeper import LogKeeper
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.standby import LEASE_US
from eslurm.lab.sim.store_lane import StoreLane
from eslurm.lab.sim.surroundings import Surroundings
from eslurm.ports import store
from eslurm.store.rows import to_store

TICK_US = 200
TIMERS_MIN_US = 20_000
TIMERS_MAX_US = 1_000_000
REPLAN_US = 30_000_000
PLAN_US = 5_000
RETRY_US = 200_000
RELEASE_TRIES = 3
BATCH_MAX = 256
LIMITS = PlanLimits(placements_max=256, examined_max=2_000, improved_max=20)

_answers = msgspec.msgpack.Decoder(Submitted | Changed | StepCreated)
_encode = msgspec.msgpack.Encoder().encode

Done = Callable[[BatchAnswer], None]


class _Entry(msgspec.Struct):
    message: Message
    done: Done | None = None
    request_id: bytes = b""
    blobs: Sequence[store.BlobRow] = ()
    rows: Sequence[store.RowChange] = ()


class Controller(Process):
    """One term as the leader, from the state where the log stood when the lead was won."""

    def __init__(self, world: Surroundings, seat: Place, state: State, epoch: int) -> None:
        clock = Timekeeper(state.now_us, leap_bound_us(world.config))
        # What the nodes are told counts from the first `now`: it never jumps, and is not before what was committed.
        began_us = clock.read(seat.wall_us, world.scheduler.at_us)
        super().__init__(world, seat.address, began_us - world.scheduler.at_us)
        self.epoch = epoch
        self.state = state
        set_calendar(state, world.calendar)
        self.seat = seat
        self._clock = clock
        self._lane = StoreLane(self, seat)
        self._log_keeper = LogKeeper(self, self._lane, world.prunes_every_us)
        self._reactor = Reactor(self.state, observe=world.checks.on_fact)
        self.roster = Roster(self.state, world.satellite_names, self._ping)
        self._satellites: dict[int, str] = {}
        self._standbys: dict[str, str] = {}
        self.herald = Broadcaster(self.state, self.roster, world.seal, world.tuning)
        # Right or wrong: predictions may change nothing but places in trees (E-26).
        numbers = range(len(world.names))
        self.herald.set_predicted(frozenset(number for number in numbers if world.random.random() < 0.2))
        self._events: deque[_Entry] = deque()
        self._requests: deque[_Entry] = deque()
        self._recent: dict[bytes, list[str] | BatchAnswer] = {}
        self._is_woken = False
        self._commit: store.Batch | None = None
        self._is_available = True
        self._leads = False
        self._successor: str | None = None
        self._is_leaving = False
        self._release_tries = 0
        self._is_planning = False
        self._schedule = Schedule()
        self._ranking = Ranking()
        self._due_at_us: int | None = None
        self._tick_at_us: int | None = None

    def start(self) -> None:
        """Begin to lead."""
        self._post(ConfigLoaded(self.world.config))
        self._post(EpochStarted(self.epoch))
        self.later(REPLAN_US, self._replan)
        self.later(LEASE_US // RENEWS_PER_LEASE, self._renew)
        self._log_keeper.start()

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
        if self._successor is not None:
            return
        kind = type(message)
        if kind is tree.Ack:
            self.perform(self.herald.on_ack(source, message, self.now_us))
        elif kind is tree.Reply:
            self.perform(self.herald.on_reply(source, message, self.now_us))
        elif kind is wire.Reports:
            self.world.coverage.on_reports(message.reports)
            self._post(Reports(message.reports), lambda acks: self._acknowledge(source, acks))
        elif kind is wire.Hello:
            self._on_hello(source, message)
        elif kind is wire.Status:
            for number in self._numbers_of(source):
                self.perform(self.herald.on_satellite_status(number, message.status, self.now_us))
        elif kind is wire.Call:
            self._on_call(source, message)
        elif kind is wire.Takeover and message.to in self._standbys.values():
            self.hand_over(message.to)
        self.arm()

    def _on_hello(self, source: str, hello: wire.Hello) -> None:
        if hello.controller:
            self._standbys[source] = hello.controller
        elif hello.number and self._satellites.get(hello.number) != source:
            self._satellites[hello.number] = source
            self.roster.on_linked(self.roster.get(hello.number).name, self.now_us)
        self.send(source, wire.Welcome(self.world.owner, self.epoch))

    def on_link_down(self, peer: str) -> None:
        """A satellite, a standby or an agent process is out of reach."""
        self._standbys.pop(peer, None)
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
        return self.herald.next_timer_us() if self._leads and self._successor is None else None

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
        self.world.checks.on_given(action.to_node, self.epoch)
        super()._send_broadcast(action)

    def _acknowledge(self, source: str, acks: BatchAnswer) -> None:
        assert isinstance(acks, tuple)
        self.send(source, wire.Acks(acks))

    def keep(
        self, rows: Sequence[store.RowChange], blobs: Sequence[store.BlobRow], done: Callable[[], None]
    ) -> bool:
        """Write rows that are no part of the state with the next commit; False when nothing is taken on any more."""
        if self._successor is not None:
            return False
        self._events.append(_Entry(Tick(), lambda _answer: done(), b"", blobs, rows))
        self._wake()
        return True

    def _post(self, message: Message, done: Done | None = None) -> None:
        self._events.append(_Entry(message, done))
        self._wake()

    # ---- requests of clients ----

    def _on_call(self, source: str, call: wire.Call) -> None:
        if call.retry:
            if not self.seat.reaches_store:
                self.send(source, wire.Result(call.request_id))
                return
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
        batch = self._reactor.process((entry.message for entry in entries), self._read_clock())
        answers = [
            store.AnswerRow(entry.request_id, _encode(answer))
            for entry, answer in zip(entries, batch.answers, strict=True)
            if entry.request_id and not isinstance(answer, Refused)
        ]
        rows = [row for entry in entries for row in entry.rows]
        acknowledges = any(isinstance(entry.message, Reports) for entry in entries)
        if not (batch.facts or answers or rows or acknowledges):
            self._release(entries, batch)
            return
        blobs = [blob for entry in entries for blob in entry.blobs]
        durable = to_store(self.state, batch, answers, blobs)
        self._commit = msgspec.structs.replace(durable, rows=[*durable.rows, *rows])
        self._begin(entries, batch)

    def _begin(self, entries: list[_Entry], batch: Batch) -> None:
        world, durable = self.world, self._commit
        assert durable is not None
        commit = partial(world.disk.commit, world.owner, self.epoch, durable)
        kind = "answers" if durable.answers else "commit"
        self._lane.ask(kind, commit, lambda result: self._finish(entries, batch, result))

    def _finish(self, entries: list[_Entry], batch: Batch, result: Any) -> None:
        if isinstance(result, store.StoreUnavailable):
            self._is_available = False
            self.later(RETRY_US, self._begin, entries, batch)
        elif isinstance(result, store.FenceLost):
            self.lose_fence(result)
        elif isinstance(result, store.StoreError):
            raise result
        else:
            self._commit = None
            self._is_available = True
            self._release(entries, batch)

    def _release(self, entries: list[_Entry], batch: Batch) -> None:
        self.world.checks.on_shown(self.epoch, batch)
        messages = [entry.message for entry in entries]
        self.perform(self.herald.on_committed(messages, batch, self.now_us))
        if not self._leads and self.state.epoch == self.epoch:
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
        self._leave_if_done()
        self.arm()

    # ---- the lead ----

    def _renew(self) -> None:
        """The leader lives: everybody who looks at the row sees it move."""
        self.later(LEASE_US // RENEWS_PER_LEASE, self._renew)
        if self._lane.is_idle and not self._is_leaving:
            renew = partial(self.world.disk.renew, self.world.owner, self.epoch)
            self._lane.ask("renew", renew, partial(self._on_renewed, self.now_us))

    def _on_renewed(self, began_us: int, result: object) -> None:
        if isinstance(result, store.FenceLost):
            self.lose_fence(result)
        elif not isinstance(result, store.StoreError):
            self.herald.on_renewed(began_us)

    def lose_fence(self, error: store.FenceLost) -> None:
        """Another leads: this process ends."""
        self.world.note(f"{self.name} ends: {error}")
        self.seat.end()

    def hand_over(self, to: str = "") -> None:
        """Take on nothing more, finish what is under way, and let this standby lead; "": stop, whoever leads then."""
        if self._successor is None:
            self._successor = to
            self._leave_if_done()

    def _leave_if_done(self) -> None:
        waits = self._events or self._requests or self._commit is not None
        if self._successor is not None and not waits and not self._is_leaving:
            self._is_leaving = True
            self._let_go()

    def _let_go(self) -> None:
        world = self.world
        assert self._successor is not None
        release = partial(world.disk.release, world.owner, self.epoch, self._successor)
        self._lane.ask("release", release, self._on_released)

    def _on_released(self, result: object) -> None:
        """A store that is away makes the others wait for the lease."""
        self._release_tries += 1
        if isinstance(result, store.StoreUnavailable) and self._release_tries < RELEASE_TRIES:
            self.later(RETRY_US, self._let_go)
        elif self._successor:
            self.seat.stand_by()
        else:
            self.seat.end()

    # ---- planning and timers ----

    def _read_clock(self) -> int:
        now_us = self._clock.read(self.seat.wall_us, self.world.scheduler.at_us)
        if (alarm := self._clock.take_alarm()) is not None:
            self.world.note(f"{self.name}: {alarm}")
        return now_us

    def _plan(self) -> None:
        if self._is_planning or not self.state.plan_wanted:
            return
        now_us = max(self._read_clock(), self.state.now_us)
        slices = plan_slices(
            self.state, now_us, self._schedule, LIMITS, ranking=self._ranking, keeps_promises=True
        )
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan: Plan = finished.value
                break
        self.world.checks.plans.on_plan(self.state, self._schedule, plan, self._ranking)
        messages = messages_of(plan)
        if messages:
            self._is_planning = True
            delay_us = int(self.world.random.random() * PLAN_US)
            for message in messages:
                self.later(delay_us, self._post, message)
        elif plan.is_unfinished:
            self.later(PLAN_US, self._plan_again)
        self._set_due(plan.next_us)

    def _plan_again(self) -> None:
        self.state.want_plan()
        self._plan()

    def _set_due(self, next_us: int) -> None:
        """A planned start is a reason to plan: nothing else may happen then."""
        if next_us < INFINITY_US and (self._due_at_us is None or next_us < self._due_at_us):
            self._due_at_us = next_us
            wait_us = min(max(next_us - self._read_clock(), TIMERS_MIN_US), REPLAN_US)
            self.later(wait_us, self._begin_due, next_us)

    def _begin_due(self, next_us: int) -> None:
        if self._due_at_us == next_us:
            self._due_at_us = None
        self._plan_again()

    def _replan(self) -> None:
        self._plan_again()
        self.later(REPLAN_US, self._replan)

    def _set_tick(self) -> None:
        """The clock may jump: it is looked at again before long."""
        due_us = next_timer_us(self.state)
        if due_us is not None and (self._tick_at_us is None or due_us < self._tick_at_us):
            self._tick_at_us = due_us
            wait_us = min(max(due_us - self._read_clock(), TIMERS_MIN_US), TIMERS_MAX_US)
            self.later(wait_us, self._tick, due_us)

    def _tick(self, due_us: int) -> None:
        if self._tick_at_us == due_us:
            self._tick_at_us = None
            self._post(Tick())
