"""A simulated controller that leads: the core's reactor, broadcaster and planner over the simulated disk.

Messages go through the same `CommitPipeline` as in the daemon's dispatcher; here are virtual time, the simulated store and
network around it. Invariants: a lost fence ends the process; a leader lets go of the lead once it has committed everything
that it took on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from eslurm.core.control import planning_cycle
from eslurm.core.control.commit_pipeline import (
    Action,
    Commit,
    CommitPipeline,
    Give,
    InboxFull,
    NotNow,
    Show,
    Unsettled,
)
from eslurm.core.control.jobs.dependency import forgotten_targets, settled_by
from eslurm.core.control.planning import LIMITS, plan_slices
from eslurm.core.control.reactor import BatchAnswer, Reactor
from eslurm.core.control.timers import next_tick_in_us
from eslurm.core.dispatch.attendance import LOOK_US, Attendance
from eslurm.core.dispatch.broadcaster import Broadcaster, Deliver, Gathered
from eslurm.core.dispatch.leader_lease import LeaderLease
from eslurm.core.dispatch.local_programs import LocalPrograms, StartProgram
from eslurm.core.dispatch.satellite_pool import SatellitePool
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import Dependency, StepEnd
from eslurm.core.model.messages import (
    Changed,
    ConfigLoaded,
    ControllerPhaseDone,
    EpochStarted,
    ExtensionTaken,
    Message,
    MoveTaken,
    PartGivenBack,
    Reconfigure,
    Reports,
    Resized,
    StepCreated,
    SubmitJobs,
    Submitted,
    Tick,
    UpdateJob,
)
from eslurm.core.model.timekeeping import Timekeeper, leap_bound_us
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.relay import messages as tree
from eslurm.core.state.boundaries import set_calendar
from eslurm.core.state.cluster import State
from eslurm.core.state.rows import decode_job
from eslurm.lab.sim import wire
from eslurm.lab.sim.log_keeper import LogKeeper
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.program_runner import MemoryProgramRunner
from eslurm.lab.sim.standby import LEASE_US
from eslurm.lab.sim.store_lane import LeaseWriter, StoreLane
from eslurm.lab.sim.world_view import WorldView
from eslurm.ports import store
from eslurm.ports.program_runner import CANCELLED, Program
from eslurm.store.rows import transaction_of

TICK_US = 200
SLICE_US = 5_000
"""The longest time that others have between two slices of a planning cycle."""
INTERRUPTED_SHARE = 0.25
"""Of the slices of a cycle, so many are followed by other work."""
_answers = msgspec.msgpack.Decoder(
    Submitted | Changed | StepCreated | MoveTaken | ExtensionTaken | PartGivenBack | Resized
)
Waiter = Callable[[BatchAnswer | NotNow | Unsettled], None]


class Controller(Process):
    """One term as the leader, from the state where the log stood when the lead was won."""

    def __init__(self, world: WorldView, seat: Place, state: State, epoch: int) -> None:
        clock = Timekeeper(state.now_us, leap_bound_us(world.config))
        # Times in commands count from the first `now`: they never jump, and are not before the last commit.
        began_us = clock.read(seat.wall_us, world.scheduler.at_us)
        super().__init__(world, seat.address, began_us - world.scheduler.at_us)
        self.epoch = epoch
        self.state = state
        set_calendar(state, world.calendar)
        self.seat = seat
        self._clock = clock
        self._lane = StoreLane(self, seat)
        self._log_keeper = LogKeeper(self, self._lane, world.log_kept_us)
        self._reactor = Reactor(self.state, observe=world.checks.on_fact)
        self.roster = SatellitePool(self.state, world.satellite_names, self._ping)
        self._satellites: dict[int, str] = {}
        self._standbys: dict[str, str] = {}
        self.broadcaster = Broadcaster(self.state, self.roster, world.seal, world.tuning)
        lease = LeaderLease(LEASE_US)
        self._lease = LeaseWriter(self, self._lane, lease, epoch, self._leave, self.broadcaster.on_renewed)
        # Right or wrong: predictions may change nothing but places in trees (E-26).
        numbers = range(len(world.names))
        self.broadcaster.set_predicted(frozenset(number for number in numbers if world.random.random() < 0.2))
        self._programs = LocalPrograms(state)
        self._runner = MemoryProgramRunner(
            self.later,
            lambda: self.now_us,
            world.program_of,
            world.checks.controller_phases.on_started,
            world.checks.controller_phases.on_ended,
        )
        self._pipeline: CommitPipeline[Waiter] = CommitPipeline(world.inbox_max, follows=state.revision > 0)
        self._running: set[PhaseKey] = set()
        self._asked = 0
        self._inside: dict[str, Callable[[wire.Result], None]] = {}
        self._is_woken = False
        self._leads = False
        self._successor: str | None = None
        self._is_leaving = False
        self._attendance = Attendance()
        self._planning = planning_cycle.PlanningCycle()
        self._schedule = Schedule()
        self._ranking = Ranking()

    def start(self) -> None:
        """Begin to lead."""
        self.world.parts.on_started(self)
        if not self.seat.has_begun:
            # An administrator who starts a controller looks after its file.
            self.world.files.copy_to(self.seat.name)
        config, digest = self.world.files.on(self.seat.name)
        self._post(ConfigLoaded(config, digest, is_takeover=self.seat.has_begun))
        self.seat.has_begun = True
        self._post(EpochStarted(self.epoch))
        self._lease.turn()
        self._log_keeper.start()

    def read_again(self, then: Waiter) -> None:
        """An administrator has this leader read the file of its host again."""
        config, digest = self.world.files.on(self.seat.name)
        self._post(Reconfigure(None, config, digest), then)

    @property
    def is_idle(self) -> bool:
        """Check whether nothing waits to be decided, committed, planned or sent."""
        return not self.busy_with

    @property
    def busy_with(self) -> str:
        """The work under way; empty when idle."""
        if not self._pipeline.is_idle:
            return "messages wait to be committed"
        if not self._planning.is_idle:
            return "a plan is under way"
        if self._running:
            return f"{len(self._running)} programs run"
        return (
            f"{len(self.broadcaster.delivery)} effects are under way"
            if len(self.broadcaster.delivery)
            else ""
        )

    @property
    def profile(self) -> ResourceProfile | None:
        """The bookings from now on; None while a cycle is under way, or before the first one."""
        return self._schedule.book if self._planning.is_idle and self._planning.plan is not None else None

    # ---- in ----

    def on_message(self, source: str, message: Any) -> None:
        """Answers of relays, reports, and requests of clients."""
        if self._successor is not None:
            return
        kind = type(message)
        if kind is tree.Ack:
            self.perform(self.broadcaster.on_ack(source, message, self.now_us))
        elif kind is tree.Reply:
            self.perform(self.broadcaster.on_reply(source, message, self.now_us))
        elif kind is wire.Reports:
            self.world.coverage.on_reports(message.reports)
            self._post(Reports(message.reports), lambda acks: self._acknowledge(source, acks))
        elif kind is wire.Hello:
            self._on_hello(source, message)
        elif kind is wire.Status:
            for number in self._numbers_of(source):
                self.perform(self.broadcaster.on_satellite_status(number, message.status, self.now_us))
        elif kind is wire.Call:
            self._on_call(source, message)
        elif kind is wire.Attend:
            self._attendance.hear(message.job_id)
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
            self.perform(self.broadcaster.on_satellite_down(number, "link lost", self.now_us))
        self.perform(self.broadcaster.on_link_down(peer, self.now_us))
        self.arm()

    def on_refused(self, broadcast_id: tree.BroadcastId, heads: tuple[int, ...]) -> None:
        """No process listens at a child's address."""
        self.perform(self.broadcaster.on_refused(broadcast_id, heads, "connection refused", self.now_us))
        self.arm()

    def next_timer_us(self) -> int | None:
        """The broadcaster's."""
        return self.broadcaster.next_timer_us() if self._leads and self._successor is None else None

    def on_timer(self) -> None:
        """Heartbeats, retries, relay timers."""
        self.perform(self.broadcaster.on_timer(self.now_us))

    def perform_other(self, action: Any) -> None:
        """A message of the broadcaster for the core, or word of what became of a failed share."""
        if isinstance(action, tree.Reallocated | tree.TookOver):
            self.world.note(f"{type(action).__name__} {action.from_node} {action.nodes}")
            return
        assert isinstance(action, Deliver)
        # None asks questions here.
        assert not isinstance(action.message, Gathered)
        self._post(action.message)

    def _ping(self, number: int, seq: int) -> None:
        self.send(self._satellites[number], wire.Ping(seq))

    def _numbers_of(self, process: str) -> list[int]:
        return [number for number, name in self._satellites.items() if name == process]

    def _send_broadcast(self, action: tree.SendBroadcast) -> None:
        self.world.checks.on_given(action.to_node, self.epoch)
        super()._send_broadcast(action)

    def _acknowledge(self, source: str, acks: BatchAnswer | NotNow | Unsettled) -> None:
        assert isinstance(acks, tuple)
        self.send(source, wire.Acks(acks))

    def keep(
        self, rows: Sequence[store.RowChange], blobs: Sequence[store.BlobRow], done: Callable[[], None]
    ) -> bool:
        """Write rows that are no part of the state with the next commit; False when nothing is taken on any more."""
        return self._post(Tick(), lambda _answer: done(), rows, blobs)

    def post(self, message: Message) -> None:
        """An event of a part of this process; dropped when nothing is taken on any more."""
        self._post(message)

    def _post(
        self,
        message: Message,
        waiter: Waiter | None = None,
        rows: Sequence[store.RowChange] = (),
        blobs: Sequence[store.BlobRow] = (),
    ) -> bool:
        if not self._pipeline.post(message, waiter, rows, blobs):
            return False
        self._wake()
        return True

    def start_us(self, job_id: int) -> int | None:
        """The planned start of a waiting job; None: the plan does not say."""
        plan = self._planning.plan
        return plan.start_us(job_id) if plan is not None else None

    # ---- requests of clients ----

    def ask(self, call: wire.Call, then: Callable[[wire.Result], None]) -> None:
        """A call that a part of this process passes on. `then` gets the answer, if there ever is one."""
        if self._successor is not None:
            then(wire.Result(call.request_id))
            return
        self._asked += 1
        source = f"inside {self._asked}"
        self._inside[source] = then
        self._on_call(source, call)

    def _tell(self, source: str, result: wire.Result) -> None:
        """Answer a call, from wherever it came."""
        then = self._inside.pop(source, None)
        if then is not None:
            then(result)
        else:
            self.send(source, result)

    def _on_call(self, source: str, call: wire.Call) -> None:
        """Handle a call as the daemon's service does: jobs that have left memory are read from the store first, which
        takes time.
        """
        message = call.message
        given: tuple[Dependency, ...] = ()
        if isinstance(message, SubmitJobs):
            given = tuple(one for spec in message.specs for one in spec.dependencies)
        elif isinstance(message, UpdateJob):
            given = message.dependencies or ()
        old = forgotten_targets(given, self.state.jobs)
        if not old:
            self._look_up(source, call, message)
            return

        def settle(rows: list[store.JobRow]) -> None:
            ended = {row.job_id: decode_job(row.blob) for row in rows}
            if isinstance(message, UpdateJob):
                assert message.dependencies is not None
                self._look_up(
                    source, call, replace(message, dependencies=settled_by(message.dependencies, ended))
                )
                return
            assert isinstance(message, SubmitJobs)
            specs = [
                replace(spec, dependencies=settled_by(spec.dependencies, ended)) for spec in message.specs
            ]
            self._look_up(source, call, replace(message, specs=tuple(specs)))

        self._read(source, call, partial(self.world.disk.find_jobs, self.world.owner, old), settle)

    def _look_up(self, source: str, call: wire.Call, message: Message) -> None:
        """A retry gets the answer of its first try."""
        if not self._pipeline.must_look_up(call.request_id, self.world.scheduler.at_us, retry=call.retry):
            self._request(source, call, message)
            return

        def found(stored: bytes | None) -> None:
            if stored is None:
                self._request(source, call, message)
            else:
                self._tell(source, wire.Result(call.request_id, _answers.decode(stored)))

        self._read(source, call, partial(self.world.disk.lookup_request, call.request_id), found)

    def _read(
        self, source: str, call: wire.Call, look: Callable[[], Any], then: Callable[[Any], None]
    ) -> None:
        """Read committed data, available here a while later."""
        if self.seat.reaches_store:
            self.later(self.world.commit_delay_us(), then, look())
        else:
            self._tell(source, wire.Result(call.request_id))

    def _request(self, source: str, call: wire.Call, message: Message) -> None:
        waiter = partial(self._answer, source, call.request_id)
        try:
            known = self._pipeline.request(message, waiter, call.request_id, call.blobs)
        except (InboxFull, NotNow, Unsettled) as refusal:
            if isinstance(refusal, Unsettled):
                self.world.coverage.count("unsettled request asked again")
            self._tell(source, wire.Result(call.request_id))
            return
        if known is not None:
            known.waiter(known.answer)
        elif self._pipeline.is_ready:
            self._wake()

    def _answer(self, source: str, request_id: bytes, answer: BatchAnswer | NotNow | Unsettled) -> None:
        if isinstance(answer, NotNow | Unsettled):
            if isinstance(answer, Unsettled):
                self.world.coverage.count("request unsettled when the store went away")
            self._tell(source, wire.Result(request_id))
        else:
            self._tell(source, wire.Result(request_id, answer))

    # ---- decide, commit, release ----

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self.later(TICK_US, self._drain)

    def _drain(self) -> None:
        self._is_woken = False
        now_us = self.world.scheduler.at_us
        until_us = self._pipeline.gathers_until_us(now_us)
        if until_us:
            self.later(until_us - now_us, self._wake)
            return
        entries = self._pipeline.take()
        if not entries:
            return
        batch = self._reactor.process((entry.message for entry in entries), self._read_clock())
        owes_more = bool(self.state.unsettled)
        self._carry_out(self._pipeline.decided(batch, self.world.scheduler.at_us, owes_more=owes_more))

    def _carry_out(self, actions: Sequence[Action[Waiter]]) -> None:
        is_released = False
        for action in actions:
            match action:
                case Commit():
                    self._begin(transaction_of(self.state, action))
                case Show():
                    is_released = True
                    self._show(action)
                case Give(waiter, answer):
                    waiter(answer)
        if is_released:
            self._after_release()

    def _begin(self, durable: store.Batch) -> None:
        commit = partial(self.world.disk.commit, self.world.owner, self.epoch, durable)
        kind = "answers" if durable.answers else "commit"
        self._lane.ask(kind, commit, partial(self._finish, durable))

    def _finish(self, durable: store.Batch, result: Any) -> None:
        if isinstance(result, store.StoreUnavailable):
            self._carry_out(self._pipeline.unavailable())
            self.later(self._pipeline.pause_us, self._begin, durable)
        elif isinstance(result, store.FenceLost):
            self.lose_fence(result)
        elif isinstance(result, store.StoreError):
            raise result
        else:
            self._carry_out(self._pipeline.committed(self.world.scheduler.at_us))

    def _show(self, action: Show) -> None:
        batch = action.batch
        self.world.checks.on_shown(self.epoch, batch)
        self.world.parts.on_shown(self, batch)
        self.perform(self.broadcaster.on_committed(action.messages, batch, self.now_us))
        self._follow_programs()
        if not self._leads and self.state.epoch == self.epoch:
            self._leads = True
            self.perform(self.broadcaster.lead(self.now_us))
            self._end_rest()
            self._tick()
            self._attend()
            self.world.parts.on_leading(self)

    def _follow_programs(self) -> None:
        """Start and end programs as the state wants it."""
        for program in self._programs.follow() if self._successor is None else ():
            key = program.key
            if isinstance(program, StartProgram):
                self._running.add(key)
                limit_us = program.limit_s * SECOND_US
                self._runner.start(
                    key, Program(program.program, {}, limit_us), partial(self._program_over, key)
                )
            elif key in self._running:
                self._runner.end(key)
            else:
                self._program_over(key, StepEnd(0, cause=CANCELLED))

    def _program_over(self, key: PhaseKey, end: StepEnd) -> None:
        self._running.discard(key)
        self._post(ControllerPhaseDone(key, end))

    def _after_release(self) -> None:
        """A batch is released: what comes next."""
        if not self._pipeline.is_empty:
            self._wake()
        if self._leads:
            self._plan(self._planning.looked(self.state))
        self._leave_if_done()
        self.arm()

    # ---- the lead ----

    def lose_fence(self, error: store.FenceLost) -> None:
        """Another leads: this process ends."""
        self.world.note(f"{self.name} ends: {error}")
        self.seat.end()

    def pause(self, for_us: int) -> None:
        """See `BareProcess.pause`; with everything that runs in this process."""
        if self.alive and not self.is_paused:
            self.world.parts.on_paused(self, for_us)
        super().pause(for_us)

    def hand_over(self, to: str = "") -> None:
        """Accept nothing more, finish the work under way, and let this standby lead; "": stop, with any successor."""
        if self._successor is None:
            self._successor = to
            self.world.parts.on_leaving(self)
            self._runner.drop()
            self._pipeline.stop()
            self._wake()
            self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._successor is not None and self._pipeline.is_idle and not self._is_leaving:
            self._is_leaving = True
            self._lease.lease.let_go(self._successor)
            self._lease.turn()

    def _leave(self) -> None:
        """The lease is over: let go, or lost."""
        if self._is_leaving and self._successor:
            self.seat.stand_by()
        else:
            self.seat.end()

    # ---- planning and timers ----

    def _read_clock(self) -> int:
        now_us = self._clock.read(self.seat.wall_us, self.world.scheduler.at_us)
        if (alarm := self._clock.take_alarm()) is not None:
            self.world.note(f"{self.name}: {alarm}")
        return now_us

    def _plan(self, action: planning_cycle.Action | None) -> None:
        """Carry out what the core's `PlanningCycle` asks for."""
        match action:
            case planning_cycle.Begin():
                self._begin_cycle()
            case planning_cycle.Post(message):
                self._post(message, lambda _answer: self._plan(self._planning.decided()))
            case planning_cycle.Rest(for_us):
                self.later(for_us, self._end_rest)
            case planning_cycle.Wait(for_us):
                self.later(for_us, lambda: self._plan(self._planning.due(action, self.state)))

    def _end_rest(self) -> None:
        self._plan(self._planning.rested(self.state, self._read_clock()))

    def _begin_cycle(self) -> None:
        slices = plan_slices(
            self.state,
            max(self._read_clock(), self.state.now_us),
            self._schedule,
            LIMITS,
            ranking=self._ranking,
            keeps_promises=True,
        )
        self._go_on_planning(slices, self.now_us, self.state.revision)

    def _go_on_planning(self, slices: Generator[None, None, Plan], began_us: int, revision: int) -> None:
        """Slices of a cycle, with other work between some of them."""
        random = self.world.random.random
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan: Plan = finished.value
                break
            if random() < INTERRUPTED_SHARE:
                self.later(int(random() * SLICE_US), self._go_on_planning, slices, began_us, revision)
                return
        plans = self.world.checks.plans
        plans.on_plan(self.state, self._schedule, plan, self._ranking, is_old=self.state.revision > revision)
        self.later(int(random() * SLICE_US), self._end_cycle, plan, began_us)

    def _end_cycle(self, plan: Plan, began_us: int) -> None:
        self._plan(self._planning.planned(plan, self.now_us - began_us))

    def _attend(self) -> None:
        """Look whether the commands of allocations are there."""
        message = self._attendance.look(self.state, self._read_clock())
        if message is not None:
            self._post(message)
        self.later(LOOK_US, self._attend)

    def _tick(self) -> None:
        """Fire the core's timers as they are due."""
        wait_us = next_tick_in_us(self.state, self._read_clock())
        self.later(wait_us, self._post, Tick(), lambda _answer: self._tick())
