"""The controller's own core in place of the planner alone: jobs are submitted to it, and all its rules apply.

Its messages are those of a cluster whose nodes answer at once: a placed job runs in the same instant, and a stopped one
uses its whole grace. Invariant: between two calls the core owes nothing to any node but the ends of preempted jobs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from eslurm.core.control.effects import Effect
from eslurm.core.control.jobs.preemption import ROOM_KEPT_US, is_possible
from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.control.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.model import facts
from eslurm.core.model.accounts import Policy, Qos
from eslurm.core.model.job import Dependency, JobSpec, Principal, StepEnd
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import (
    ChangePolicies,
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    JobRef,
    Message,
    MovePack,
    NodeOutcome,
    PlanMade,
    Refused,
    Reports,
    SetForecasts,
    SubmitJobs,
    Submitted,
    Tick,
    UpdateJob,
)
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import (
    AGENT_PROTOCOL,
    End,
    Gone,
    Prepare,
    Registration,
    Report,
    ReportBody,
    Start,
    Started,
    StepEnded,
    Suspend,
)
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.priority import Ranking, weighs
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.boundaries import set_calendar
from eslurm.core.state.cluster import State
from eslurm.lab.workloads.changes import CUT, ENDED, REQUEUED, Change, Paused, Resumed, RunEvents
from eslurm.lab.workloads.overdue import Overdue
from eslurm.lab.workloads.planner_driver import LIMITS
from eslurm.lab.workloads.rules import Rules, RulesError, calendar_of
from eslurm.lab.workloads.swf import Record
from eslurm.lab.workloads.watch import Who
from eslurm.lab.workloads.workflows import Stage, Workflow
from eslurm.lab.workloads.workload import Job

RANKED_AGAIN_US: Final = 3_600 * SECOND_US
"""Priorities that grow with time are computed again after so long, though nothing else happens."""
RETRIED_US: Final = SECOND_US
RETRIED_MAX_US: Final = 60 * SECOND_US
"""A start that was planned for at once and could not be is tried again after so long, and after twice as long each time."""
NOBODY: Final = "unknown"
UNKNOWN_ID: Final = 2**31
_OPERATOR = Principal("operator", -1, -1)
"""No user of a log has this number."""
_encode = msgspec.msgpack.Encoder().encode


class CoreDriver:
    """One policy on one cluster under its rules. Raises `RulesError` for records that the core refuses."""

    def __init__(self, rules: Rules, policy: str, now_us: int) -> None:
        self._policy = policy
        self._now_us = now_us
        self.calendar = calendar_of(rules.zone)
        self._state = State("simulate")
        set_calendar(self._state, self.calendar)
        self._reactor = Reactor(self._state)
        self._schedule = Schedule()
        self._ranking = Ranking()
        self._overdue = Overdue()
        self._plan: Plan | None = None
        self._news: deque[Change] = deque()
        # The core's numbers of the jobs in the system, and the workload's: refused jobs have none of the core's.
        self._numbers: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self._seq = 0
        self._retry_us = RETRIED_US
        # Instants at which a core that is asked again may decide otherwise.
        self._alarms: list[int] = []
        self._set_up(rules)
        self._preempts = is_possible(self._state)
        self._ages = weighs(self._state.config.priority)

    def _set_up(self, rules: Rules) -> None:
        # Given forecasts are used, whatever the cluster does with its own.
        config = replace(
            rules.config,
            operators=(_OPERATOR.uid,),
            zone=rules.zone,
            use_forecasts=True,
            # Users of a log are numbers of its own, not accounts of a host.
            min_uid=0,
            allow_root_jobs=True,
        )
        self._must(ConfigLoaded(config))
        self._must(EpochStarted(1))
        for node in config.nodes:
            self._report(
                Registration(
                    node.name, node.name, "boot", "session", 1, "", node.total, protocol=AGENT_PROTOCOL
                )
            )
        changes = rules.changes(self._now_us)
        if changes:
            self._must(ChangePolicies(_OPERATOR, changes))

    # ---- reading ----

    keeps_promises = False
    """Jobs of priority may come in front, and jobs that make room wait again."""

    @property
    def policies(self) -> dict[str, dict[str, Policy]]:
        """The records as the core has them."""
        return self._state.policies

    @property
    def waiting(self) -> int:
        """Number of waiting jobs."""
        return self._state.pending_count

    @property
    def wants_cycle(self) -> bool:
        """Check whether a planning cycle could do anything, or there is news of jobs that run."""
        return bool(self._state.pending_count or self._news)

    def promised_us(self, job_id: int) -> int | None:
        """The start that the last cycle planned for a waiting job; None: it has none."""
        found = self._schedule.bookings.get(self._ids[job_id], ())
        return min((booking.start_us for booking in found), default=None)

    def who(self, job_id: int) -> Who:
        """A job's owner, with its accepted account and QOS."""
        spec = self._state.get_job(self._ids[job_id]).spec
        return Who(spec.user.name, (str(spec.user.gid),), spec.account, spec.qos, spec.partition)

    def why(self, job_id: int) -> str:
        """The last plan's reason of a waiting job."""
        if self._plan is None:
            return "no plan was made"
        return self._plan.waiting.get(self._ids[job_id], self._plan.rest).text

    def wake_us(self, now_us: int) -> int:
        """The next instant at which to plan though nothing comes or ends; `INFINITY_US` without one."""
        state = self._state
        found = [INFINITY_US]
        for job_id in state.lending:
            attempt = state.get_job(job_id).attempt
            if attempt is not None and attempt.suspended_us + ROOM_KEPT_US > now_us:
                found.append(attempt.suspended_us + ROOM_KEPT_US)
        if state.pending_count:
            while self._alarms and self._alarms[0] <= now_us:
                heapq.heappop(self._alarms)
            found += self._alarms[:1]
            found.append(self._schedule.next_push_us(now_us))
            if state.policy_due_us > now_us:
                found.append(state.policy_due_us)
            if self._ages and state.live:
                found.append(now_us + RANKED_AGAIN_US)
            planned_us = self._overdue.wake_us(self._schedule, now_us)
            found.append(now_us + self._retry_us if planned_us < now_us + RETRIED_US else planned_us)
        return min(found)

    # ---- what happens ----

    def advance(self, now_us: int) -> None:
        """Time has passed: what is due in the core happens."""
        self._now_us = now_us
        self._send(Tick())

    def spec_of(self, job: Job) -> JobSpec:
        """The job that is submitted for one of the log."""
        return JobSpec(
            name=job.name,
            user=user_of(job),
            partition=job.asked_partition,
            components=job.requests or (job.pending.request,),
            script_hash=b"",
            environment_hash=b"",
            work_dir="/",
            time_limit_s=job.pending.time_limit_us // SECOND_US,
            account=job.account,
            qos=job.qos,
        )

    def arrive(self, job: Job) -> str:
        """A job is submitted; why it is refused, "" if it is not."""
        return self._submit((job,), SubmitJobs((self.spec_of(job),)))

    def arrive_together(self, workflow: Workflow, jobs: Sequence[Job]) -> str:
        """The stages of a workflow are submitted; why they are refused, "" if they are not."""
        specs = tuple([self.spec_of(job) for job in jobs])
        if workflow.mode in ("pack", "moved"):
            delays_s = tuple([stage.delay_us // SECOND_US for stage in workflow.stages])
            return self._submit(jobs, SubmitJobs(specs, (PackDraft(0, delays_s),)))
        before: tuple[Dependency, ...] = ()
        for job, spec in zip(jobs, specs, strict=True):
            refusal = self._submit((job,), SubmitJobs((replace(spec, dependencies=before),)))
            if refusal:
                # A first stage that is accepted has the shape of the others, which are no larger.
                raise RulesError(f"job {job.name}: a stage is refused beside the first: {refusal}")
            before = (Dependency("afterok", self._ids[job.pending.job_id]),)
        return ""

    def _submit(self, jobs: Sequence[Job], message: SubmitJobs) -> str:
        answer = self._send(message)
        if isinstance(answer, Refused):
            return answer.text
        assert isinstance(answer, Submitted)
        for job, job_id in zip(jobs, answer.job_ids, strict=True):
            self._numbers[job_id] = job.pending.job_id
            self._ids[job.pending.job_id] = job_id
            if job.forecast is not None:
                self._must(SetForecasts(_OPERATOR, ((job_id, job.forecast),), "file"))
        return ""

    def call(self, workflow: Workflow, stage: Stage) -> None:
        """The first stage has reached the point at which this one can begin, and says so to the controller."""
        first, later = self._ids[workflow.stages[0].job], self._ids[stage.job]
        if workflow.mode == "moved":
            # Refused while an earlier demand is open; the next cycle grants that as far as it can.
            self._send(MovePack(_OPERATOR, JobRef(first)))
        else:
            beside = (Dependency("after", first),)
            self._must(UpdateJob(_OPERATOR, JobRef(later), dependencies=beside, dependency_any=False))

    def leave(self, placement: Placement) -> str:
        """A job has ended; what becomes of it."""
        job_id = self._ids[placement.job_id]
        attempt = self._state.get_job(job_id).attempt
        assert attempt is not None
        self._overdue.leave((job_id, attempt.number))
        node = self._state.nodes[attempt.first]
        end = StepEnd(0, started_us=attempt.started_us, ended_us=self._now_us)
        self._report(StepEnded(attempt.first, node.incarnation, job_id, attempt.number, end, True))
        job = self._state.get_job(job_id)
        if job.state is JobState.PENDING:
            heapq.heappush(self._alarms, job.not_before_us)
            return REQUEUED
        del self._ids[placement.job_id], self._numbers[job_id]
        return CUT if job.state is JobState.PREEMPTED else ENDED

    def plan(self, now_us: int) -> Iterator[Change]:
        """Cycles until nothing is left to do at this instant; what they place starts now, in the order told."""
        yield from self._told()
        self._retry_us = min(2 * self._retry_us, RETRIED_MAX_US)
        while True:
            slices = plan_slices(
                self._state, now_us, self._schedule, LIMITS, ranking=self._ranking, policy=self._policy
            )
            plan = self._plan = exhaust(slices)
            message = message_of(plan)
            if message is not None:
                placed = self._carry_out(message)
                for placement in plan.placements:
                    if placement.job_id in placed:
                        yield replace(placement, job_id=self._numbers[placement.job_id])
                yield from self._told()
            # A suspended job has released its cores at once.
            has_room = message is not None and bool(message.preemptions) and self._state.plan_wanted
            if not plan.is_unfinished and not has_room:
                break
        self._overdue.follow(self._schedule, now_us)

    def _carry_out(self, message: PlanMade) -> set[int]:
        """The jobs that a plan has made run."""
        placed = {fact.job_id for fact in self._process(message).facts if isinstance(fact, facts.JobPlaced)}
        for job_id in placed:
            self._retry_us = RETRIED_US
            job = self._state.get_job(job_id)
            assert job.attempt is not None
            live = self._state.live[job_id, job.attempt.number]
            self._overdue.start((job_id, job.attempt.number), live.expected_us, live.until_us)
            if self._preempts:
                qos = self._state.policies["qos"].get(job.spec.qos)
                if isinstance(qos, Qos) and qos.preempt_exempt_s:
                    heapq.heappush(self._alarms, self._now_us + qos.preempt_exempt_s * SECOND_US)
        return placed

    def _told(self) -> Iterator[Change]:
        while self._news:
            yield self._news.popleft()

    # ---- the core, and nodes that answer at once ----

    def _must(self, message: Message) -> None:
        answer = self._send(message)
        if isinstance(answer, Refused):
            raise RulesError(answer.text)

    def _report(self, body: ReportBody) -> None:
        self._seq += 1
        self._send(Reports((Report("nodes", self._seq, body),)))

    def _send(self, message: Message) -> BatchAnswer:
        return self._process(message).answers[0]

    def _process(self, message: Message) -> Batch:
        """Process a message, with all its effects on nodes carried out."""
        batch = self._reactor.process((message,), self._now_us)
        self._answer(batch.effects)
        return batch

    def _answer(self, effects: list[Effect]) -> None:
        """Answer effects as nodes would, until nothing more follows."""
        left = deque(effects)
        while left:
            effect = left.popleft()
            payload = self._payload(effect)
            if payload is None:
                continue
            done = EffectDone(effect.revision, 0, (NodeOutcome(effect.nodes, "ok", "", payload),))
            left += self._reactor.process((done,), self._now_us).effects

    def _payload(self, effect: Effect) -> bytes | None:
        """The answer of all its nodes; None: it comes later, when the job has ended."""
        match effect.body:
            case Prepare(start=True) | Start():
                return _encode(Started(self._now_us))
            case Prepare():
                return b""
            case End(cause="released"):
                return _encode(Gone(started=True))
            case End(job_id=job_id, grace_s=grace_s):
                by_us = self._now_us + int(grace_s * SECOND_US)
                self._news.append(RunEvents(self._numbers[job_id], by_us))
                return None
            case Suspend(job_id=job_id, attempt=number, resume=is_resumed):
                self._overdue.leave((job_id, number))
                live = self._state.live[job_id, number]
                self._overdue.start((job_id, number), live.expected_us, live.until_us)
                name = self._numbers[job_id]
                self._news.append(Resumed(name) if is_resumed else Paused(name))
                return b""
            case body:
                raise TypeError(f"no node of a replay is ever told {type(body).__name__}")


def user_of(job: Job) -> Principal:
    """The owner of a log's job: user 12 of group 3 is u12, with the group's number 3."""
    record = job.record
    if record.user < 0:
        return Principal(NOBODY, UNKNOWN_ID, _group(record))
    return Principal(f"u{record.user}", record.user, _group(record))


def _group(record: Record) -> int:
    return record.group if record.group >= 0 else UNKNOWN_ID
