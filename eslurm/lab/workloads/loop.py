"""The event loop: jobs arrive and end in virtual time, and one planning cycle runs at each such instant.

The loop does not trust the planner: each placement is booked on a second account of every node's amounts, and checked
against the records of limits and reservations. Invariant (`Broken` otherwise): no node ever gives more than its total,
every job starts not before its arrival and once, or once more each time it was preempted, which is bounded; no consumer
exceeds a limit and no job uses a reserved node; under `conservative`, without rules and when no job outlives its estimate,
no job starts later than its first promise.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.workloads.account import Broken, Idle, ProcessorAccount, Promises
from eslurm.lab.workloads.changes import CUT, ENDED, REQUEUED, Change, Paused, Resumed, RunEvents
from eslurm.lab.workloads.core_driver import CoreDriver
from eslurm.lab.workloads.happened import RuleEffects, Tally
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.planner_driver import PlannerDriver
from eslurm.lab.workloads.rules import Rules
from eslurm.lab.workloads.watch import Watch
from eslurm.lab.workloads.workflows import SAYS_WHEN, Workflow
from eslurm.lab.workloads.workload import Job, Workload

__all__ = ["Broken", "Ran", "Result", "Step", "replay"]

KEEPS_PROMISES: Final = "conservative"
PROGRESS_EVENTS: Final = 256
PATIENCE_US: Final = 70 * 86_400 * 1_000_000
"""Jobs that wait after so long without a running job wait for ever: what recurs every two months has come and gone."""

ROOM_MAX: Final = 100
"""Jobs that make room from one end of a job to the next, for each that is there: if more do, they do so for ever."""


class Ran(msgspec.Struct, frozen=True, gc=False):
    """One job's last run. `spans` are (position, cores) in the order of the nodes.

    It was suspended for `paused_us` of its time. `account` and `qos` are the accepted ones.
    """

    job: Job
    start_us: int
    end_us: int
    spans: tuple[tuple[int, int], ...]
    paused_us: int = 0
    account: str = ""
    qos: str = ""

    @property
    def run_us(self) -> int:
        return self.end_us - self.start_us - self.paused_us

    @property
    def wait_us(self) -> int:
        """Time in the system without running, lost runs included."""
        return self.start_us - self.job.submit_us + self.paused_us


class Result(msgspec.Struct, frozen=True):
    """One run: jobs in the order of their start, and what can only be seen on the way.

    `lost_us` are processor microseconds idle while a job waited that would have fitted on them (see
    `metrics.Metrics.loss_of_capacity`).
    """

    policy: str
    machine: Machine
    ran: tuple[Ran, ...]
    lost_us: int
    cycles: int
    waiting_max: int
    happened: RuleEffects | None = None
    """With rules: what they did."""


class Step(msgspec.Struct, frozen=True):
    """Progress of a run, for output."""

    done: int
    jobs: int
    waiting: int
    now_us: int


def replay(
    workload: Workload,
    machine: Machine,
    policy: str,
    progress: Callable[[Step], None] | None = None,
    rules: Rules | None = None,
    workflows: Sequence[Workflow] = (),
) -> Result:
    """Runs all jobs to their end, under rules in the controller's own core. `workflows` are of its jobs, and need rules.

    Raises `Broken`, `RulesError` for rules that the core refuses, and `ValueError` for an unknown policy.
    """
    return _Loop(workload, machine, policy, progress, rules, workflows).run()


class _Live(msgspec.Struct, gc=False):
    """A job that runs. `ends` numbers its end, as all ends of the run: one with another number is none any more."""

    placement: Placement
    end_us: int
    at: int
    """Its place among those that ran."""
    ends: int
    since_us: int = 0
    """Since when it stands still; 0: it runs."""
    paused_us: int = 0


class _Loop:
    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        policy: str,
        progress: Callable[[Step], None] | None,
        rules: Rules | None,
        workflows: Sequence[Workflow],
    ) -> None:
        self._jobs = workload.jobs
        self._kills = workload.kill_at_limit
        self._machine = machine
        self._policy = policy
        self._progress = progress
        self._ruled = CoreDriver(rules, policy, workload.jobs[0].submit_us) if rules is not None else None
        self._seat = self._ruled or PlannerDriver(machine, policy)
        self._watch: Watch | None = None
        self._tally = Tally()
        if self._ruled is not None:
            self._watch = Watch(machine, self._ruled.policies, self._ruled.calendar)
        self._account = ProcessorAccount(machine)
        keeps_promises = policy == KEEPS_PROMISES and self._seat.keeps_promises
        self._promises = Promises(keeps_promises and workload.keeps_estimates)
        self._idle = Idle(machine.processors)
        # (end, job, number of the end).
        self._ends: list[tuple[int, int, int]] = []
        self._numbered = 0
        self._live: dict[int, _Live] = {}
        self._ran: list[Ran] = []
        # Places of runs that were lost: the jobs have run again since, or wait to.
        self._lost: set[int] = set()
        self._started: set[int] = set()
        self._arrived = 0
        self._cycles = 0
        self._waiting_max = 0
        self._moved_us = 0
        # Workflows of several jobs by the first of them, and what their first stages will say: (instant, workflow, stage).
        self._workflows = {one.jobs[0]: one for one in workflows if len(one.jobs) > 1}
        self._calls: list[tuple[int, int, int]] = []
        # Number of preemptions since a job last came or ended for good.
        self._made_room = 0

    def run(self) -> Result:
        now_us = self._moved_us = self._next(0)
        events = 0
        while now_us < INFINITY_US and not self._is_over(now_us):
            self._idle.advance(now_us)
            self._seat.advance(now_us)
            self._end(now_us)
            self._call(now_us)
            self._arrive(now_us)
            if self._seat.wants_cycle:
                self._cycle(now_us)
            events += 1
            if self._progress is not None and events % PROGRESS_EVENTS == 0:
                self._progress(Step(len(self._started), len(self._jobs), self._seat.waiting, now_us))
            now_us = self._next(now_us)
        self._settle()
        return Result(
            self._policy,
            self._machine,
            tuple(ran for at, ran in enumerate(self._ran) if at not in self._lost),
            self._idle.lost_us,
            self._cycles,
            self._waiting_max,
            self._tally.happened() if self._ruled is not None else None,
        )

    def _is_over(self, now_us: int) -> bool:
        """Check whether only those are left that wait for ever."""
        is_quiet = not self._live and self._arrived == len(self._jobs)
        return is_quiet and now_us - self._moved_us >= PATIENCE_US

    def _settle(self) -> None:
        """Count the jobs that have not run by now and never will."""
        for job in self._jobs:
            number = job.pending.job_id
            if number in self._started or number in self._tally.refused:
                continue
            if self._ruled is None:
                raise Broken(
                    f"job {job.name} was never started, and nothing happens any more that could change that"
                )
            self._tally.stuck(job.name, self._ruled.why(number))
        if self._live:
            name = self._jobs[next(iter(self._live)) - 1].name
            raise Broken(f"job {name} stands still, and nothing happens any more that could change that")

    def _next(self, now_us: int) -> int:
        """The next instant at which anything happens by itself; planned starts count, rules may open then."""
        while self._ends and self._is_stale(self._ends[0]):
            heapq.heappop(self._ends)
        next_us = self._ends[0][0] if self._ends else INFINITY_US
        if self._arrived < len(self._jobs):
            next_us = min(next_us, self._jobs[self._arrived].submit_us)
        if self._calls:
            next_us = min(next_us, self._calls[0][0])
        return min(next_us, self._seat.wake_us(now_us))

    def _is_stale(self, end: tuple[int, int, int]) -> bool:
        live = self._live.get(end[1])
        return live is None or live.ends != end[2]

    def _end(self, now_us: int) -> None:
        while self._ends and self._ends[0][0] <= now_us:
            end = heapq.heappop(self._ends)
            if not self._is_stale(end):
                self._leave(end[1], now_us)

    def _leave(self, number: int, now_us: int) -> None:
        live, job = self._live.pop(number), self._jobs[number - 1]
        outcome = self._seat.leave(live.placement)
        self._account.give_back(live.placement)
        self._idle.take(-job.processors)
        self._moved_us = now_us
        if self._watch is not None:
            self._watch.leave(number)
        if outcome != REQUEUED:
            self._made_room = 0
        if outcome == ENDED:
            return
        ran = self._ran[live.at]
        lost_us = job.processors * ran.run_us
        if outcome == CUT:
            self._tally.cut(lost_us)
            return
        assert outcome == REQUEUED
        self._tally.requeued(lost_us)
        self._lost.add(live.at)
        self._started.discard(number)
        self._idle.wait(job.processors)

    def _arrive(self, now_us: int) -> None:
        while self._arrived < len(self._jobs) and self._jobs[self._arrived].submit_us <= now_us:
            job = self._jobs[self._arrived]
            self._arrived += 1
            self._moved_us = now_us
            self._made_room = 0
            workflow = self._workflows.get(job.pending.job_id)
            jobs: tuple[Job, ...] = (job,)
            if workflow is None:
                refusal = self._seat.arrive(job)
            else:
                assert self._ruled is not None
                jobs = self._jobs[self._arrived - 1 : self._arrived - 1 + len(workflow.jobs)]
                self._arrived += len(jobs) - 1
                refusal = self._ruled.arrive_together(workflow, jobs)
            for one in jobs:
                if refusal:
                    self._tally.refuse(one.pending.job_id, one.name, refusal)
                    continue
                self._promises.expect(one)
                self._idle.wait(one.processors)

    def _call(self, now_us: int) -> None:
        """The times that running first stages give the later ones of their workflows."""
        while self._calls and self._calls[0][0] <= now_us:
            _, first, at = heapq.heappop(self._calls)
            stage = self._workflows[first].stages[at]
            if first in self._live and stage.job not in self._started:
                assert self._ruled is not None
                self._ruled.call(self._workflows[first], stage)

    def _cycle(self, now_us: int) -> None:
        self._cycles += 1
        for change in self._seat.plan(now_us):
            self._follow(change, now_us)
        if self._watch is not None:
            self._must_be_right(self._watch.at(now_us), now_us)
        self._promises.note(self._seat)
        self._waiting_max = max(self._waiting_max, self._seat.waiting)

    def _follow(self, change: Change, now_us: int) -> None:
        match change:
            case Placement():
                self._start(change, now_us)
            case RunEvents():
                self._make_room(now_us)
                live = self._live[change.job_id]
                if change.by_us < live.end_us:
                    self._move_end(change.job_id, live, change.by_us)
            case Paused():
                live, job = self._live[change.job_id], self._jobs[change.job_id - 1]
                self._tally.pauses += 1
                self._make_room(now_us)
                self._account.lend(live.placement)
                self._idle.take(-job.processors)
                live.since_us = now_us
                # When it ends is not known until it goes on.
                live.ends = self._number()
                self._pause(change.job_id, resumed=False)
            case Resumed():
                live, job = self._live[change.job_id], self._jobs[change.job_id - 1]
                self._account.take_back(live.placement, job, now_us)
                self._idle.take(job.processors)
                stood_us = now_us - live.since_us
                live.since_us = 0
                live.paused_us += stood_us
                self._pause(change.job_id, resumed=True)
                self._move_end(change.job_id, live, live.end_us + stood_us)

    def _make_room(self, now_us: int) -> None:
        self._made_room += 1
        if self._made_room > ROOM_MAX * (self._seat.waiting + len(self._live)):
            raise Broken(f"jobs make room for each other and none of them ends, at {now_us} us")

    def _number(self) -> int:
        self._numbered += 1
        return self._numbered

    def _pause(self, number: int, *, resumed: bool) -> None:
        if self._watch is not None:
            self._watch.pause(number, resumed=resumed)

    def _move_end(self, number: int, live: _Live, end_us: int) -> None:
        """The job ends at another time than was thought."""
        live.end_us = end_us
        live.ends = self._number()
        heapq.heappush(self._ends, (end_us, number, live.ends))
        self._ran[live.at] = msgspec.structs.replace(
            self._ran[live.at], end_us=end_us, paused_us=live.paused_us
        )

    def _start(self, placement: Placement, now_us: int) -> None:
        number = placement.job_id
        job = self._jobs[number - 1]
        if number in self._started or job.submit_us > now_us:
            raise Broken(
                f"job {job.name} was started a second time, or before it was submitted, at {now_us} us"
            )
        self._started.add(number)
        self._moved_us = now_us
        self._promises.check(job, now_us)
        spans = self._account.take(placement, job, now_us)
        account = qos = ""
        if self._ruled is not None and self._watch is not None:
            who = self._ruled.who(number)
            account, qos = who.account, who.qos
            expected_us = min(placement.until_us, now_us + job.pending.stay_us)
            self._must_be_right(self._watch.start(who, placement, now_us, expected_us), now_us, job)
        end_us = now_us + job.run_us
        if self._kills:
            end_us = min(end_us, placement.until_us)
        live = self._live[number] = _Live(placement, end_us, len(self._ran), self._number())
        heapq.heappush(self._ends, (end_us, number, live.ends))
        self._ran.append(Ran(job, now_us, end_us, spans, 0, account, qos))
        self._idle.start(job.processors)
        workflow = self._workflows.get(number)
        if workflow is not None and workflow.mode in SAYS_WHEN:
            for at, stage in enumerate(workflow.stages[1:], 1):
                heapq.heappush(self._calls, (now_us + stage.after_us, number, at))

    @staticmethod
    def _must_be_right(wrong: str, now_us: int, job: Job | None = None) -> None:
        if wrong:
            raise Broken(
                f"{wrong}, at {now_us} us" + (f", when job {job.name} starts" if job is not None else "")
            )
