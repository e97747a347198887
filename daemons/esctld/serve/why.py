"""Waiting reasons, what-if starts, and the whole plan: users' queries about the plan.

Answered beside the dispatcher in slices (`time_slicing`), on copies of the planner's data, taken between two of its
cycles: no other work is delayed, and no answer comes from the middle of a plan. Invariants: nothing here changes anything;
a job is shown, and its visibility checked, as committed; results from the live state are returned when all of it is
committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.planner import Planner
from esctld.lead.time_slicing import paced
from eslurm.api.infos import job_info
from eslurm.compat.errors import quoted
from eslurm.core.control.jobs.access import get_seen
from eslurm.core.control.privacy import Visibility
from eslurm.core.explain.alternatives import Alternative
from eslurm.core.explain.easy_heads import head_starts
from eslurm.core.explain.inquiry import Answer, why_waiting, would_wait, would_wait_together
from eslurm.core.explain.lent_cores import lent_cores_text
from eslurm.core.explain.start_interval import UNKNOWN, Interval, StartIntervals
from eslurm.core.explain.why import Holder, Reason, known_us
from eslurm.core.model.accounts import Reservation, Validity
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Job, JobSpec, Principal, Span
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import RefusalCode, Refused, SubmitJobs
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.parts import partitions_of
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.resources.windows import DAY_US, HORIZON_US, STRETCH_US, Calendar, Window, clipped, merged
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.v1 import controller_pb2 as pb

T = TypeVar("T")
PLANNED_MAX = 1_000
"""Jobs told of one plan unless a number is asked for."""
PLANNED_TOP = 100_000
RESERVED_AHEAD_US = 31 * DAY_US
"""Default horizon of reservations."""
ASKING_MAX = 64
"""Queries that wait or are being answered; more are refused with a retry time."""
ASK_RETRY_S = 0.5
TESTS_MAX = 64
"""Jobs of one call that are only asked about: each is answered with a whole plan."""
OCCURRENCES_MAX = 1_000
"""Of one reservation."""


class Inquiries:
    """Answers Why and Plan, and `--test-only`."""

    def __init__(self, dispatcher: Dispatcher, planner: Planner) -> None:
        self._dispatcher = dispatcher
        self._planner = planner
        self._bids_of: Callable[[int], Mapping[str, str]] = lambda _job_id: {}
        self._asking = 0
        self._turns = asyncio.Lock()

    def attach(self, bids_of: Callable[[int], Mapping[str, str]]) -> None:
        """Set the source of other cells' answers about a waiting job that they may take, by cell."""
        self._bids_of = bids_of

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One query at a time, each with a whole plan: many at once would occupy the loop."""
        if self._asking >= ASKING_MAX:
            raise ApiError(
                Status.RESOURCE_EXHAUSTED, "too many ask about plans: try again in a moment", ASK_RETRY_S
            )
        self._asking += 1
        try:
            async with self._turns:
                await self._planner.at_rest()
                yield
        finally:
            self._asking -= 1

    async def of_plan(self, ask: Callable[[State, Schedule, int], Generator[None, None, T]]) -> T:
        """The answer of a question about the plan of now, of which it makes copies."""
        async with self._turn():
            answer = await paced(ask(self._state, self._planner.schedule, self._dispatcher.now_us()))
        await self._dispatcher.committed()
        return answer

    @property
    def _state(self) -> State:
        return self._dispatcher.state

    @property
    def _view(self) -> View:
        return self._dispatcher.view

    # ---- why ----

    async def why(self, request: pb.WhyRequest, caller: Caller) -> pb.WhyReply:
        """A job's waiting reasons, its planned start, and alternatives that start earlier."""
        async with self._turn():
            reply = await self._why(request, caller.principal)
        await self._dispatcher.committed()
        return reply

    async def _why(self, request: pb.WhyRequest, who: Principal) -> pb.WhyReply:
        state, planner = self._state, self._planner
        job = self._job(request.job, who)
        growth = self._view.find_job(state.growing.get(job.job_id, 0))
        if growth is not None:
            # What a running job waits for is its growth.
            job = growth
        now_us = self._dispatcher.now_us()
        said = planner.why(job.job_id)
        intervals = StartIntervals(state, planner.schedule, now_us)
        info = job_info(self._view, job, said if job.state is JobState.PENDING else None)
        reply = pb.WhyReply(
            job=info, priority=job.priority, revision=self._dispatcher.view.revision, now_us=now_us
        )
        live = state.find_job(job.job_id)
        if job.state is not JobState.PENDING or live is None or live.state is not JobState.PENDING:
            return reply
        factors = planner.ranking.factors(job.job_id)
        if factors is not None:
            reply.priority, reply.factors = factors.value, str(factors)
        answer = await paced(
            why_waiting(
                state,
                planner.schedule,
                live,
                now_us,
                said=said,
                ranking=planner.ranking,
                # Another request for a growth is one of its job.
                with_alternatives=not request.no_alternatives and live.grows is None,
            )
        )
        _fill(reply, answer, partial(_is_seen, state, Visibility(self._view, who)))
        reply.reasons.extend(bid_reasons(self._bids_of(job.job_id)))
        lent = lent_cores_text(state, live)
        if lent:
            reply.reasons.append(pb.Reason(kind="lent", text=lent))
        interval = await paced(_interval(state, intervals, answer, live))
        reply.start_earliest_us, reply.start_latest_us = interval
        # A booking is shown with the job, too; an estimate is no promise.
        reply.job.planned_start_us = 0 if answer.is_estimate else answer.start_us
        reply.job.planned_nodes = "" if answer.is_estimate else reply.planned_nodes
        return reply

    def _job(self, ref: pb.JobRef, who: Principal) -> Job:
        job = get_seen(self._view, who, ref.job_id)
        if ref.HasField("task"):
            # A task that has not begun waits with its array.
            for task_id in self._view.tasks_of.get(job.job_id, ()):
                task = self._view.jobs[task_id]
                if task.array_task == ref.task:
                    return task
        return job

    async def test(self, specs: Sequence[JobSpec], packs: Sequence[PackDraft] = ()) -> pb.SubmitReply:
        """`--test-only`: for each of these jobs alone, or for all as a pack, its start, its nodes, and its waiting reasons.

        Raises `Refused`: of several jobs each refused one has its refusal as its answer, a pack has one for all.
        """
        if packs:
            return await self._tested(await self._test_pack(SubmitJobs(tuple(specs), tuple(packs))))
        if len(specs) > TESTS_MAX:
            raise Refused(
                RefusalCode.INVALID,
                f"--test-only: {len(specs)} jobs in one call are more than {TESTS_MAX}: ask in several calls",
            )
        found: list[pb.TestAnswer] = []
        for spec in specs:
            try:
                found.append(await self._test(spec))
            except Refused as refused:
                if len(specs) == 1:
                    raise
                found.append(pb.TestAnswer(answer=f"would be refused: {refused.text}", refused=True))
        return await self._tested(found)

    async def _tested(self, found: Sequence[pb.TestAnswer]) -> pb.SubmitReply:
        await self._dispatcher.committed()
        first = found[0]
        return pb.SubmitReply(
            test_answer=first.answer,
            test_start_us=first.start_us,
            test_nodes=first.nodes,
            test_reasons=first.reasons,
            test_earliest_us=first.earliest_us,
            test_latest_us=first.latest_us,
            revision=self._dispatcher.view.revision,
            tests=found,
            now_us=self._dispatcher.now_us(),
        )

    async def _test(self, spec: JobSpec) -> pb.TestAnswer:
        planner = self._planner
        async with self._turn():
            now_us = self._dispatcher.now_us()
            intervals = StartIntervals(self._state, planner.schedule, now_us)
            answer = await paced(would_wait(self._state, planner.schedule, spec, now_us, planner.ranking))
            interval = UNKNOWN
            if not (spec.start_at_us or spec.begin_us or spec.dependencies):
                interval = await paced(_interval(self._state, intervals, answer))
        is_seen = partial(_is_seen, self._state, Visibility(self._view, spec.user))
        return pb.TestAnswer(
            answer=_verdict(answer, now_us),
            start_us=answer.start_us,
            nodes=fold(answer.nodes),
            reasons=[_reason(one, is_seen) for one in answer.reasons],
            earliest_us=interval.earliest_us,
            latest_us=interval.latest_us,
        )

    async def _test_pack(self, message: SubmitJobs) -> list[pb.TestAnswer]:
        if len(message.packs) > 1 or len(message.packs[0].delays_s) < len(message.specs):
            text = "--test-only: other jobs are in the call of the pack: ask about one pack alone"
            raise Refused(RefusalCode.INVALID, text)
        planner = self._planner
        async with self._turn():
            now_us = self._dispatcher.now_us()
            asked = would_wait_together(self._state, planner.schedule, message, now_us, planner.ranking)
            answers = await paced(asked)
        is_seen = partial(_is_seen, self._state, Visibility(self._view, message.specs[0].user))
        return [
            pb.TestAnswer(
                answer=_verdict(answer, now_us),
                start_us=answer.start_us,
                nodes=fold(answer.nodes),
                reasons=[_reason(one, is_seen) for one in answer.reasons],
            )
            for answer in answers
        ]

    # ---- the plan ----

    async def plan(self, request: pb.PlanRequest, caller: Caller) -> pb.PlanReply:
        """Running and planned jobs, in the order of the starts, and the reservations beside them."""
        partitions = sorted(one.name for one in self._view.config.partitions)
        if request.partition and request.partition not in partitions:
            known = ", ".join(partitions) or "none"
            raise Refused(
                RefusalCode.INVALID,
                f"partition: {quoted(request.partition)} does not exist: use one of {known}",
            )
        async with self._turn():
            reply = await paced(self._planned(request, Visibility(self._view, caller.principal)))
        await self._dispatcher.committed()
        return reply

    def _planned(self, request: pb.PlanRequest, sight: Visibility) -> Generator[None, None, pb.PlanReply]:
        state, plan, schedule = self._state, self._planner.plan, self._planner.schedule
        now_us = self._dispatcher.now_us()
        reply = pb.PlanReply(
            policy=state.config.policy,
            waiting=state.pending_count,
            made_us=plan.made_us if plan is not None else 0,
            now_us=now_us,
            nodes=state.ledger.topology.size,
            slots=schedule.book.slots,
        )
        bookings = dict(schedule.bookings)
        intervals = StartIntervals(state, schedule, now_us)
        heads = head_starts(state, schedule, now_us, self._planner.ranking)
        running = list(state.live)
        until_us = request.until_us or now_us + RESERVED_AHEAD_US
        reply.reservations.extend((yield from _reservations(state, sight, now_us, until_us)))
        limit = min(request.limit or PLANNED_MAX, PLANNED_TOP)
        for job_id, number in running:
            known = state.find_attempt(job_id, number)
            if known is None or len(reply.jobs) >= limit:
                continue
            job, attempt = known
            if _is_in(request.partition, job) and sight.job(job):
                start_us = attempt.started_us or attempt.placed_us
                stop_us = schedule.end_us((job_id, number)) or attempt.until_us
                one = _planned_job(state, job, start_us, stop_us, attempt.spans)
                one.running = True
                reply.jobs.append(one)
            yield
        starts = [booking for some in bookings.values() for booking in some]
        first = yield from heads
        starts += first
        starts.sort(key=lambda one: (one.start_us, one.job_id))
        yield
        for booking in starts:
            waiting = state.find_job(booking.job_id)
            if waiting is None or (request.until_us and booking.start_us >= request.until_us):
                continue
            if not _is_in(request.partition, waiting) or not sight.job(waiting):
                continue
            if len(reply.jobs) >= limit:
                break
            yield from intervals.follow(booking.start_us)
            one = _booked(state, waiting, booking)
            numbers = [span.node for span in booking.spans]
            one.start_earliest_us, one.start_latest_us = intervals.find(booking.start_us, numbers, waiting)
            reply.jobs.append(one)
            yield
        # The bookings of a pack stand under its first job.
        planned = {booking.job_id for booking in starts} & state.jobs.keys()
        reply.waiting = max(0, reply.waiting - len(planned))
        return reply


# ---- as messages ----


def _is_in(partition: str, job: Job) -> bool:
    """Check whether a part of the job runs in a partition; "": any."""
    return not partition or partition in partitions_of(job.spec)


def _is_seen(state: State, sight: Visibility, job_id: int) -> bool:
    job = state.find_job(job_id)
    return job is None or sight.job(job)


def _fill(reply: pb.WhyReply, answer: Answer, is_seen: Callable[[int], bool]) -> None:
    reply.reasons.extend(_reason(one, is_seen) for one in answer.reasons)
    reply.planned_start_us = answer.start_us
    reply.planned_nodes = fold(answer.nodes)
    reply.ahead = answer.ahead
    reply.alternatives.extend(
        pb.Alternative(
            text=one.text,
            option=one.option,
            start_us=one.start_us,
            nodes=one.nodes,
            update=one.update,
            part=_part(one),
            job_id=one.job_id,
        )
        for one in answer.alternatives
    )


def _interval(
    state: State, intervals: StartIntervals, answer: Answer, job: Job | None = None
) -> Generator[None, None, Interval]:
    """The interval of the answered start."""
    if not answer.start_us:
        return UNKNOWN
    yield from intervals.follow(answer.start_us)
    numbers = [state.numbers[name] for name in answer.nodes if name in state.numbers]
    return intervals.find(answer.start_us, numbers, job)


def bid_reasons(bids: Mapping[str, str]) -> list[pb.Reason]:
    """Reasons why other cells do not get a waiting job that they may take."""
    return [pb.Reason(kind="cell", text=f"cell {cell}: {text}") for cell, text in sorted(bids.items())]


def _reason(one: Reason, is_seen: Callable[[int], bool]) -> pb.Reason:
    return pb.Reason(
        kind=one.kind,
        text=one.text,
        nodes_failing=one.nodes_failing,
        nodes_of=one.nodes_of,
        until_us=one.until_us,
        holders=[_holder(holder, is_seen) for holder in one.holders],
        part=_part(one),
    )


def _part(one: Reason | Alternative) -> int | None:
    return one.part if one.part >= 0 else None


def _holder(one: Holder, is_seen: Callable[[int], bool]) -> pb.Holder:
    """A holder; of a job that the caller may not see, no number and no amounts."""
    if one.job_id and not is_seen(one.job_id):
        what = "another job, planned" if one.what.endswith(", planned") else "another job"
        return pb.Holder(what=what, nodes=one.nodes, until_us=one.until_us)
    return pb.Holder(job_id=one.job_id, what=one.what, nodes=one.nodes, until_us=one.until_us)


def _verdict(answer: Answer, now_us: int) -> str:
    if answer.start_us:
        now = answer.start_us <= now_us
        return "would be accepted and start at once" if now else "would be accepted and wait"
    if any(one.kind == "hold" for one in answer.reasons):
        return "would be accepted and held"
    return "would be accepted, but its start cannot be foretold"


def _booked(state: State, job: Job, booking: Booking) -> pb.PlannedJob:
    one = _planned_job(state, job, booking.start_us, booking.stop_us, booking.spans)
    one.tasks = booking.tasks
    return one


def _planned_job(state: State, job: Job, start_us: int, stop_us: int, spans: Sequence[Span]) -> pb.PlannedJob:
    # Two parts may share a node.
    numbers = list(dict.fromkeys([span.node for span in spans]))
    one = pb.PlannedJob(
        job_id=job.job_id,
        array_job_id=job.array_job_id,
        user=job.spec.user.name,
        name=job.spec.name,
        partition=",".join(partitions_of(job.spec)),
        start_us=start_us,
        end_us=known_us(stop_us),
        nodes=fold(state.node_names(numbers)),
        node_count=len(numbers),
        cores=sum(span.amounts[0] for span in spans),
    )
    if job.array_task >= 0:
        one.array_task = job.array_task
    return one


def _reservations(
    state: State, sight: Visibility, now_us: int, until_us: int
) -> Generator[None, None, list[pb.PlannedJob]]:
    """Each occurrence of each reservation until then; `name` is the reservation's."""
    found: list[pb.PlannedJob] = []
    for policy in list(state.policies["reservation"].values()):
        if not isinstance(policy, Reservation) or not sight.reservation(policy):
            continue
        for start_us, stop_us in (yield from _occurrences(state.calendar, policy.validity, now_us, until_us)):
            found.append(
                pb.PlannedJob(
                    name=policy.name,
                    user="(maintenance)" if policy.maintenance else ",".join(policy.users),
                    start_us=start_us,
                    end_us=stop_us,
                    nodes=fold(policy.nodes),
                    node_count=len(policy.nodes),
                )
            )
    return sorted(found, key=lambda one: (one.start_us, one.name))


def _occurrences(
    calendar: Calendar, validity: Validity, now_us: int, until_us: int
) -> Generator[None, None, list[Window]]:
    """The windows until then; recurring ones within the planning horizon, and a bounded number."""
    if not validity.cron:
        return clipped(calendar.windows(validity, now_us, until_us), now_us, until_us)
    until_us = min(until_us, now_us + HORIZON_US)
    found: list[Window] = []
    for at_us in range(now_us, until_us, STRETCH_US):
        stop_us = min(at_us + STRETCH_US, until_us)
        found = merged([*found, *clipped(calendar.windows(validity, at_us, stop_us), at_us, stop_us)])
        yield
        if len(found) > OCCURRENCES_MAX:
            break
    return found[:OCCURRENCES_MAX]
