"""Bugs to plant: each takes `monkeypatch` and breaks one rule that the simulator must notice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from msgspec.structs import replace

from eslurm.core.agent import restore
from eslurm.core.agent.actions import AcknowledgeSteps, Contact
from eslurm.core.agent.attempt import Stage
from eslurm.core.agent.ends import Ends
from eslurm.core.agent.fence import Fence
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.outcomes import gone_outcome
from eslurm.core.agent.phases import Phases
from eslurm.core.agent.pipeline import AgentPipeline, WriteSpool
from eslurm.core.agent.report_queue import ReportQueue
from eslurm.core.agent.reports import Reports
from eslurm.core.agent.starts import Starts
from eslurm.core.control import configuration, decide, reactor, step_layout, steps
from eslurm.core.control.commit_pipeline import Commit, CommitPipeline, Give, Show
from eslurm.core.control.jobs import (
    dependency,
    growth_requests,
    outcomes,
    requests,
    resizing,
    retries,
    stopping,
    updating,
)
from eslurm.core.control.log_keeping import Base, LogKeeping, MakeBase
from eslurm.core.control.reactor import Batch
from eslurm.core.control.replica import Replica
from eslurm.core.dispatch import effect_delivery
from eslurm.core.dispatch.leader_lease import LeaderLease
from eslurm.core.dispatch.standby import Follow, StandbyTerm
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, JobSpec, StepEnd
from eslurm.core.model.job_states import AttemptPhase, JobState, StopCause
from eslurm.core.model.messages import ConfigLoaded, JobRef, MovePack, PlanMade
from eslurm.core.model.moves import MoveGrant
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.step_key import BATCH_STEP, PROLOG_STEP, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle import moves, schedule
from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import QueueEntry
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.wishes import WantedStarts
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.resources import shares
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.vector import Vector
from eslurm.core.state import apply_controller_phases, apply_retries, invariants
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.cluster import State
from eslurm.lab.sim import client
from eslurm.lab.sim.checks import Checks
from eslurm.lab.sim.client import Client
from eslurm.lab.sim.spool import Spool
from eslurm.lab.sim.store_image import StoreImage

Plant = Callable[[pytest.MonkeyPatch], None]


def show_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Answers and effects leave as soon as they are decided."""
    decided, committed = CommitPipeline.decided, CommitPipeline.committed

    def hasty(self: CommitPipeline[Any], batch: Batch, now_us: int, *, owes_more: bool = False) -> Any:
        actions = decided(self, batch, now_us, owes_more=owes_more)
        writes = [action for action in actions if isinstance(action, Commit)]
        return [*committed(self, now_us), *writes] if writes else actions

    patch.setattr(CommitPipeline, "decided", hasty)
    patch.setattr(CommitPipeline, "committed", lambda self, now_us: [])
    # Its own alarm is off: what leaves too early has to be noticed where it arrives.
    patch.setattr(Checks, "on_shown", lambda self, epoch, batch: None)


def acknowledge_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Answers to clients and agents leave as soon as they are decided; effects wait for the commit."""
    decided = CommitPipeline.decided

    def hasty(self: CommitPipeline[Any], batch: Batch, now_us: int, *, owes_more: bool = False) -> Any:
        entries = list(self._entries)
        actions = decided(self, batch, now_us, owes_more=owes_more)
        if not isinstance(actions[0], Commit):
            return actions
        gives = []
        for entry, answer in zip(entries, batch.answers, strict=True):
            gives += [Give(waiter, answer, entry.message) for waiter in entry.waiters]
            entry.waiters = []
        return [*gives, *actions]

    patch.setattr(CommitPipeline, "decided", hasty)


def release_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A batch is shown and answered after the one that follows it."""
    committed = CommitPipeline.committed
    held: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def swapped(self: CommitPipeline[Any], now_us: int) -> Any:
        actions = committed(self, now_us)
        if self in held:
            return [*actions, *held.pop(self)]
        if self.is_empty:
            return actions
        held[self] = actions
        show = actions[0]
        assert isinstance(show, Show)
        return [Show([], Batch(show.batch.revision_first, show.batch.now_us))]

    patch.setattr(CommitPipeline, "committed", swapped)


def forget_after_unsettled(patch: pytest.MonkeyPatch) -> None:
    """A request whose caller was told that its fate is open is not known any more when the caller comes back."""
    unavailable = CommitPipeline.unavailable

    def forgetful(self: CommitPipeline[Any]) -> Any:
        gives = unavailable(self)
        for entry in self._entries:
            if entry.request_id:
                del self._under_way[entry.request_id]
                entry.request_id = b""
        return gives

    patch.setattr(CommitPipeline, "unavailable", forgetful)


def no_store_fence(patch: pytest.MonkeyPatch) -> None:
    """The store takes what any epoch writes, as long as the revisions fit."""
    led_by, committed = StoreImage._led_by, StoreImage.committed

    def anyone(self: StoreImage, owner: str, epoch: int) -> Any:
        return led_by(self, owner, self.head(owner).epoch)

    def fits(self: StoreImage, owner: str, epoch: int, batch: Any) -> bool:
        return committed(self, owner, self.head(owner).epoch, batch)

    patch.setattr(StoreImage, "_led_by", anyone)
    patch.setattr(StoreImage, "committed", fits)


def lead_with_what_was_known(patch: pytest.MonkeyPatch) -> None:
    """A standby that won the lead does not read the end of the log before it leads."""
    looked, followed = StandbyTerm.looked, StandbyTerm.followed

    def hasty(self: StandbyTerm[Any], leader: Any, now_us: int) -> Any:
        actions = looked(self, leader, now_us)
        return [Follow(0) if self.epoch and isinstance(action, Follow) else action for action in actions]

    def unchecked(self: StandbyTerm[Any], state: State) -> Any:
        self.leader = replace(self.leader, revision=state.revision)
        return followed(self, state)

    patch.setattr(StandbyTerm, "looked", hasty)
    patch.setattr(StandbyTerm, "followed", unchecked)


def skip_a_revision(patch: pytest.MonkeyPatch) -> None:
    """A standby takes the first fact of what it reads for one that it has already."""
    advance = Replica.advance

    def skip(self: Replica, logged: Any) -> Any:
        if len(logged) > 1:
            assert self.state is not None
            self.state.revision += 1
            logged = logged[1:]
        return advance(self, logged)

    patch.setattr(Replica, "advance", skip)


def renew_after_loss(patch: pytest.MonkeyPatch) -> None:
    """A leader that is told that another one leads goes on renewing its lease."""
    patch.setattr(LeaderLease, "lost", LeaderLease.unavailable)


def prune_before_base(patch: pytest.MonkeyPatch) -> None:
    """The log's beginning goes before the base state that holds it is committed."""

    def hasty(self: LogKeeping, state: State, committed: int, now_us: int) -> Any:
        action = turn(self, state, committed, now_us)
        if isinstance(action, MakeBase):
            self.packed(Base(committed, 0, b""))
            return self.kept()
        return action

    turn = LogKeeping.turn
    patch.setattr(LogKeeping, "turn", hasty)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Nodes obey every epoch and every incarnation."""

    def own_incarnations(self: Agent, command: Any, nodes: Any) -> list[int | None]:
        served = self.registry.by_number
        return [served[number].incarnation if number in served else None for number in nodes]

    patch.setattr(Agent, "_command_refusal", lambda self, command: "")
    patch.setattr(Agent, "_incarnations", own_incarnations)


def launch_again(patch: pytest.MonkeyPatch) -> None:
    """A second copy of a launch is taken for a new one."""
    patch.setattr(Starts, "_refusal", lambda self, node, launch, waiter: "")
    patch.setattr(Fence, "keep", lambda self, effect, outcome: None)


def drop_completions(patch: pytest.MonkeyPatch) -> None:
    """Some completions are acknowledged and forgotten."""
    on_step_ended = outcomes.on_step_ended

    def drop(state: State, report: StepEnded, now_us: int) -> Any:
        return [] if report.job_id % 5 == 0 else on_step_ended(state, report, now_us)

    patch.setattr(outcomes, "on_step_ended", drop)


def forget_reports(patch: pytest.MonkeyPatch) -> None:
    """An agent does not send again what was lost on the way."""
    patch.setattr(ReportQueue, "_requeue", lambda self, seqs: [self._in_flight.pop(seq) for seq in seqs])


def acknowledge_at_once(patch: pytest.MonkeyPatch) -> None:
    """The agent tells its supervisor to forget how a script ended before anybody else has it on disk."""
    on_batch_ended = Ends.on_batch_ended

    def forget(self: Ends, attempt: Any, end: Any) -> None:
        on_batch_ended(self, attempt, end)
        self._buffer.emit(AcknowledgeSteps((StepKey(*attempt.key, BATCH_STEP, attempt.node),)))

    patch.setattr(Ends, "on_batch_ended", forget)


def never_synced(patch: pytest.MonkeyPatch) -> None:
    """The agent goes on before its disk has what it says is durable."""
    write = Spool.write
    patch.setattr(Spool, "write", lambda self, record, *, durable: write(self, record, durable=False))


def lose_what_does_not_fit(patch: pytest.MonkeyPatch) -> None:
    """The agent answers and goes on although its disk is full and took no record of it."""
    append = Spool.append

    def careless(self: Spool, records: Any, durable: bool, /) -> None:
        if not self.is_full:
            append(self, records, durable)

    patch.setattr(Spool, "append", careless)


def forget_before_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """The agent forgets its records when it hands them to the spool, which has not acknowledged them."""
    write = AgentPipeline._write

    def forgetful(self: AgentPipeline) -> WriteSpool:
        order = write(self)
        self._records.clear()
        return order

    patch.setattr(AgentPipeline, "_write", forgetful)


def adopt_any_attempt(patch: pytest.MonkeyPatch) -> None:
    """A restarted agent takes a running process for that of the first attempt it remembers."""
    attempt_of = restore._attempt_of

    def first(agent: Agent, node: Any, step: StepKey) -> Any:
        return next(iter(node.attempts.values()), None) or attempt_of(agent, node, step)

    patch.setattr(restore, "_attempt_of", first)


def credit_another_attempt(patch: pytest.MonkeyPatch) -> None:
    """A restarted agent credits how an adopted script ended to another one that still runs, on any of its nodes."""
    restore_end = restore._restore_end

    def elsewhere(agent: Agent, step: StepKey, end: Any) -> None:
        running = (
            attempt
            for node in agent.registry.by_number.values()
            for attempt in node.attempts.values()
            if attempt.stage is Stage.RUNNING and attempt.key != (step.job_id, step.attempt)
        )
        other = next(running, None)
        if other is not None:
            step = StepKey(*other.key, BATCH_STEP, other.node)
            other.live.discard(BATCH_STEP)
        restore_end(agent, step, end)

    patch.setattr(restore, "_restore_end", elsewhere)


def one_core_too_few(patch: pytest.MonkeyPatch) -> None:
    """Holding several cores books one less."""
    hold = Ledger.hold

    def less(self: Ledger, node: int, amounts: Any, until_us: int) -> None:
        hold(self, node, (amounts[0] - 1, *amounts[1:]) if amounts[0] > 1 else amounts, until_us)

    patch.setattr(Ledger, "hold", less)


def steps_counted_once(patch: pytest.MonkeyPatch) -> None:
    """A step is given cores that other steps of its job have."""
    patch.setattr(step_layout, "_free", lambda span, claim, taken: span.amounts)


def requeue_at_once(patch: pytest.MonkeyPatch) -> None:
    """A requeued job waits again while its old attempt still runs."""
    stop = stopping.stop

    def hasty(state: State, job: Any, cause: StopCause, now_us: int, by: str) -> Any:
        attempt = job.attempt
        if cause is StopCause.REQUEUE and attempt is not None and attempt.phase is AttemptPhase.RUNNING:
            over = stopping.ended(state, job, attempt, now_us, outcome=JobState.PENDING)
            return [replace(over, released=tuple(attempt.held))]
        return stop(state, job, cause, now_us, by)

    patch.setattr(requests, "stop", hasty)


def tombstones_unwritten(patch: pytest.MonkeyPatch) -> None:
    """The agent's spool loses the records that say an attempt is over."""
    write = Spool.write

    def lossy(self: Spool, record: Any, *, durable: bool) -> None:
        if type(record).__name__ != "Buried":
            write(self, record, durable=durable)

    patch.setattr(Spool, "write", lossy)


def effects_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A restarted controller does not send again what it owes."""
    patch.setattr(effect_delivery, "owed", lambda state: [])
    patch.setattr(effect_delivery.EffectDelivery, "on_registered", lambda self, number, now_us: None)


def hearing_is_contact(patch: pytest.MonkeyPatch) -> None:
    """An agent takes each heartbeat that arrives for contact, whether or not it is heard itself."""

    def hear(self: Agent, command: Any, body: Any, served: Any, now_us: int) -> None:
        for number in served:
            self.registry.by_number[number].contact_us = now_us
        self.buffer.emit(Contact(tuple(served), now_us))

    patch.setattr(Agent, "_note_contact", hear)


def phase_twice(patch: pytest.MonkeyPatch) -> None:
    """An agent keeps no record of a prolog that runs, and lets the runner forget it."""
    patch.setattr(Phases, "write_owed", lambda self, attempt: None)
    patch.setattr(Phases, "on_unknown", lambda self, step: self._buffer.emit(AcknowledgeSteps((step,))))


def prepared_before_the_prolog(patch: pytest.MonkeyPatch) -> None:
    """A node says that its prolog has ended well as soon as it has begun."""
    ready = Starts.on_ready

    def hasty(self: Starts, attempt: Any) -> None:
        ready(self, attempt)
        if attempt.stage is Stage.PREPARING:
            attempt.live.discard(PROLOG_STEP)
            self._phases.report_prolog(attempt, StepEnd(0))
            self.on_prepared(attempt)

    patch.setattr(Starts, "on_ready", hasty)


def launched_before_the_controller_prolog(patch: pytest.MonkeyPatch) -> None:
    """A launch does not wait for the prolog on the controller's host."""
    patch.setattr(Attempt, "awaits_prolog", property(lambda self: False))
    # Its own alarm is off: it has to be noticed on the nodes.
    patch.setattr(invariants, "_check_controller_phase", lambda attempt, name: None)


def controller_epilog_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An attempt whose controller prolog was ended with it has no epilog."""
    ended = apply_controller_phases.ended

    def forgetful(state: State, fact: facts.ControllerPhaseEnded) -> Job:
        job = ended(state, fact)
        attempt = job.attempt
        is_owed = attempt is not None and attempt.phase is AttemptPhase.SETTLING
        return replace(job, attempt=None) if is_owed else job

    patch.setattr(apply_controller_phases, "ended", forgetful)


def released_before_the_epilog(patch: pytest.MonkeyPatch) -> None:
    """A node says with the end of the script that nothing is left, and runs the epilog after it."""
    owe_end = Reports.owe_end

    def hasty(self: Reports, node: Any, attempt: Any, end: StepEnd, *, gone: bool = True) -> None:
        owe_end(self, node, attempt, end, gone=True)

    patch.setattr(Reports, "owe_end", hasty)


def leave_out_a_part(patch: pytest.MonkeyPatch) -> None:
    """A placement of a job of several parts loses the nodes of its last part on the way into the log."""
    on_plan_made = decide.on_plan_made

    def forgetful(state: State, message: PlanMade, now_us: int) -> Any:
        placements = tuple(
            replace(
                one, spans=tuple([span for span in one.spans if span.component != one.spans[-1].component])
            )
            if one.spans[-1].component
            else one
            for one in message.placements
        )
        return on_plan_made(state, replace(message, placements=placements), now_us)

    patch.setattr(decide, "on_plan_made", forgetful)


def count_two_parts_once(patch: pytest.MonkeyPatch) -> None:
    """Of two parts on one node the plan and the ledger see the last one only."""

    def once(pairs: Iterable[tuple[int, Vector]]) -> tuple[tuple[int, Vector], ...]:
        return tuple(dict(pairs).items())

    patch.setattr(shares, "sum_per_node", once)
    patch.setattr(schedule, "sum_per_node", once)


def delay_ignored(patch: pytest.MonkeyPatch) -> None:
    """A member whose planned place is lost while its pack runs is planned again without its delay."""
    fix = ForwardPlanner._fix

    def hasty(self: ForwardPlanner, entry: QueueEntry) -> Any:
        if entry.job.is_owed:
            entry = replace(entry, job=replace(entry.job, start_at_us=self.cycle.now_us))
        yield from fix(self, entry)

    patch.setattr(ForwardPlanner, "_fix", hasty)


def member_left(patch: pytest.MonkeyPatch) -> None:
    """A pack is cancelled without its last member."""
    with_others = requests._with_others

    def forgetful(state: State, by: Any, job: Any, refs: Any) -> Any:
        found = with_others(state, by, job, refs)
        return found[1:] if job.pack is not None and len(found) > 1 else found

    patch.setattr(requests, "_with_others", forgetful)


def half_placed(patch: pytest.MonkeyPatch) -> None:
    """Of the members that begin together the first one begins alone."""
    on_plan_made = decide.on_plan_made

    def half(state: State, message: PlanMade, now_us: int) -> Any:
        found = on_plan_made(state, message, now_us)
        begun = {one.job_id for one in found if isinstance(one, facts.JobPlaced) and one.anchor_us}
        late = {job_id for pack_id in begun for job_id in state.packs[pack_id]} - begun
        return [one for one in found if not isinstance(one, facts.JobPlaced) or one.job_id not in late]

    patch.setattr(decide, "on_plan_made", half)


def take_all_for_any(patch: pytest.MonkeyPatch) -> None:
    """A job that waits for all of several jobs is let go by the first of them."""
    reconsider = dependency.reconsider

    def hasty(state: State, job_id: int) -> Any:
        return [
            replace(fact, open=()) if isinstance(fact, facts.DependenciesChanged) else fact
            for fact in reconsider(state, job_id)
        ]

    patch.setattr(reactor, "reconsider", hasty)


def close_cycles(patch: pytest.MonkeyPatch) -> None:
    """A change may make jobs wait for each other."""
    patch.setattr(updating, "check_cycles", lambda *_: None)


def move_over_others(patch: pytest.MonkeyPatch) -> None:
    """Members of a pack are moved over what is planned for others; there are many packs, and their users ask often."""
    move = moves.move

    def rude(cycle: Cycle, wanted: WantedStarts) -> Any:
        members = moves._members(cycle, wanted) if wanted.starts else ""
        if isinstance(members, str):
            return (yield from move(cycle, wanted))
        schedule, first_us = cycle.schedule, min(start_us for _, start_us in wanted.starts)
        for member in members:
            yield from schedule.removing(member.entry.job_id)
        others = [one.start_us for bookings in schedule.bookings.values() for one in bookings]
        for start_us in sorted(set(others)):
            if not max(wanted.to_us, cycle.now_us + moves.SOON_US) < start_us < first_us:
                continue
            if (yield from take(schedule, members, first_us - start_us)):
                starts = tuple([(job_id, at_us - first_us + start_us) for job_id, at_us in wanted.starts])
                return MoveGrant(wanted.pack_id, wanted.serial, starts, "over others")
        yield from moves._put_back(schedule, members)
        return (yield from move(cycle, wanted))

    def take(plan: Schedule, members: Sequence[moves.Member], earlier_us: int) -> Any:
        """Give members earlier places; False if what runs is in the way."""
        taken: list[tuple[moves.Member, Booking]] = []
        for member in members:
            old = member.place
            times = (
                at_us - earlier_us if at_us else 0 for at_us in (old.start_us, old.stop_us, old.until_us)
            )
            start_us, stop_us, until_us = times
            place = replace(old, start_us=start_us, stop_us=stop_us, until_us=until_us)
            try:
                yield from plan.claiming(member.entry.job, place)
            except ProfileError:
                for other, there in taken:
                    yield from plan.giving(other.entry.job, there)
                return False
            taken.append((member, place))
        for member, place in taken:
            job = replace(member.entry.job, start_at_us=place.start_us)
            plan.note(QueueEntry(*member.entry.turn, -job.job_id, job), (place,), ())
            plan.followers.add(job.job_id)
            plan.granted[job.job_id] = place.start_us, member.place
        return True

    def ask(self: Client, job_ids: Sequence[int]) -> None:
        for second in range(1, 20, 2):
            self.later(second * SECOND_US, self.call, MovePack(self.operator, JobRef(job_ids[0])))

    patch.setattr(moves, "move", rude)

    def draw(rng: random.Random, drawn: Sequence[JobSpec]) -> Any:
        members, _ = draw_pack(rng, drawn)
        return members, (0, *(rng.choice((20, 40)) for _ in members[1:]))

    draw_pack = client.draw_pack
    patch.setattr(client, "draw_pack", draw)
    patch.setattr(client, "PACKS_SHARE", 0.5)
    patch.setattr(Client, "_move_pack", ask)


def retry_uncounted(patch: pytest.MonkeyPatch) -> None:
    """A retry is not counted, so that a job has them without end; its own alarm is off."""
    noted = apply_retries.noted

    def forgetful(job: Job, attempt: Attempt, fact: facts.AttemptEnded, now_us: int) -> Any:
        record = noted(job, attempt, fact, now_us)
        return replace(record, count=0) if record is not None and fact.retry is not None else record

    patch.setattr(apply_retries, "noted", forgetful)


def retried_though_cancelled(patch: pytest.MonkeyPatch) -> None:
    """A job that was told to end, and runs into its limit before it does, is retried."""
    cause_of = retries.cause_of

    def stubborn(attempt: Attempt, end: StepEnd | None) -> str:
        return cause_of(replace(attempt, stop=None), end)

    patch.setattr(retries, "cause_of", stubborn)


def grown_limits_lost(patch: pytest.MonkeyPatch) -> None:
    """A retried job has its old limit on the nodes."""
    patch.setattr(apply_retries, "grown_spec", lambda spec, grown: spec)


def shrink_forgets_a_step(patch: pytest.MonkeyPatch) -> None:
    """A node that its job gives back says that nothing is left there while a step of the job runs."""
    end, outcome = Ends.end, gone_outcome(True)

    def forgetful(self: Ends, node: Any, command: Any, waiter: Any) -> None:
        attempt = node.attempts.get((command.job_id, command.attempt))
        tasks = attempt is not None and any(step >= 0 for step in attempt.live)
        if command.cause != "released" or not tasks or attempt.batch_was_started:
            end(self, node, command, waiter)
            return
        before = self._buffer.answer
        self._buffer.answer(waiter.ref, node.number, outcome)
        patch.setattr(self._buffer, "answer", lambda *_: None)
        end(self, node, command, waiter)
        patch.setattr(self._buffer, "answer", before)

    patch.setattr(Ends, "end", forgetful)


def join_before_prepared(patch: pytest.MonkeyPatch) -> None:
    """A running job uses nodes that it gets before all of them are ready."""

    def hasty(attempt: Attempt, *, with_joining: bool = False) -> Sequence[Any]:
        return spans_to_come(attempt, with_joining=True)

    patch.setattr(steps, "spans_to_come", hasty)


def grow_onto_itself(patch: pytest.MonkeyPatch) -> None:
    """A growth may get a node that its job has given back."""
    asked = growth_requests.growth_facts

    def careless(*given: Any) -> Any:
        found = asked(*given)
        return [
            replace(one, apart=one.apart[:1]) if isinstance(one, facts.GrowthAsked) else one for one in found
        ]

    patch.setattr(resizing, "growth_facts", careless)


def older_file_obeyed(patch: pytest.MonkeyPatch) -> None:
    """A standby that takes over brings its file into force, whatever was read since."""
    on_config = configuration.on_config

    def trusting(state: State, message: ConfigLoaded) -> list[facts.Fact]:
        return on_config(state, replace(message, is_takeover=False))

    patch.setattr(configuration, "on_config", trusting)


def node_number_given_twice(patch: pytest.MonkeyPatch) -> None:
    """A new node gets the number of one that was removed."""
    accepted = configuration._accepted

    def thrifty(state: State, config: Any, digest: bytes) -> list[facts.Fact]:
        found = accepted(state, config, digest)
        fact = found[0]
        assert isinstance(fact, facts.ConfigAccepted)
        free = [
            number for number in range(state.next_number + len(fact.numbers)) if number not in state.nodes
        ]
        numbers = tuple((name, number) for (name, _), number in zip(fact.numbers, free, strict=False))
        return [replace(fact, numbers=numbers), *found[1:]]

    patch.setattr(configuration, "_accepted", thrifty)
