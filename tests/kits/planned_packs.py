"""A cluster with packs: the waiting jobs, what runs, and one schedule that is kept from cycle to cycle.

It does what the state does: a pack whose first member is placed has begun, and each other member waits under its own id for
the start that it is owed. After each cycle it checks that no pack has places for some members only, and exact delays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Follower, Pending, PendingQueue
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import (
    Policies,
    Running,
    RunningKey,
    Snapshot,
    build_ledger,
    changes_since,
)
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import sum_per_node
from tests.kits.plan_building import NOW

LIMITS = PlanLimits(overdue_grace_us=25, promise_refresh_us=1)


def node_jobs(count: int, cores: int = 4) -> Request:
    """Whole nodes of four cores, or as many cores on each."""
    return Request(nodes_min=count, nodes_max=count, tasks=count, cpus_per_task=cores)


def single(job_id: int, request: Request | None = None, limit_us: int = 100, **more: object) -> Pending:
    job = Pending(job_id, request or node_jobs(1), "main", limit_us, submitted_us=job_id)
    return replace(job, **more)


def pack(first_id: int, *members: tuple[int, Request, int], **more: object) -> Pending:
    """A pack of (delay, request, limit); the members have consecutive ids."""
    jobs = [single(first_id + at, request, limit, **more) for at, (_, request, limit) in enumerate(members)]
    followers = [Follower(members[at][0], jobs[at]) for at in range(1, len(jobs))]
    return replace(jobs[0], followers=tuple(followers))


class PackSite:
    """Nodes of four cores, or these, in one partition; those of three amounts have GPUs, numbered ones."""

    def __init__(
        self,
        policy: str,
        nodes: int = 4,
        *,
        cores: int = 4,
        views: Sequence[NodeView] = (),
        limits: PlanLimits = LIMITS,
    ) -> None:
        self.policy = policy
        self.limits = limits
        equal = [NodeView(number, f"n{number}", (cores, 0), True, ("main",)) for number in range(nodes)]
        self.views = views or equal
        gpus = (Resource("gpu", devices=True),) if len(self.views[0].total) > 2 else ()
        self.topology = Topology(self.views, resources=gpus)
        self.schedule = Schedule()
        self.queue = PendingQueue()
        self.later = PendingQueue((), self.queue.shapes)
        self.running: dict[RunningKey, Running] = {}
        self.policies: Policies = {}
        self.policies_changed = 0
        self.out: set[int] = set()
        self.anchors: dict[int, int] = {}
        self.begun: dict[int, int] = {}
        self.delays: dict[int, int] = {}
        self.now_us = NOW

    def submit(self, *jobs: Pending) -> None:
        for job in jobs:
            (self.later if job.after or job.not_before_us else self.queue).add(job)

    def hold(self, job_id: int, node: int, cores: int, until_us: int, expected_us: int = 0) -> None:
        self.running[job_id, 1] = Running(
            job_id,
            ((node, (cores, 0)),),
            until_us,
            expected_us=expected_us,
            since_us=NOW if expected_us else 0,
        )

    def end(self, *job_ids: int) -> None:
        for job_id in job_ids:
            del self.running[job_id, 1]

    def snapshot(self) -> Snapshot:
        ledger = build_ledger(self.topology, self.running.values())
        for view in self.views:
            ledger.set_usable(view.number, view.number not in self.out)
        since = self.schedule.mark
        changes = changes_since(since, self.queue, self.later)
        return Snapshot.take(
            ledger,
            {"main": PartitionView("main")},
            self.queue,
            generation=0,
            now_us=self.now_us,
            running=self.running,
            later=self.later,
            known=self.schedule.known_jobs(changes),
            policies=self.policies,
            policies_changed=self.policies_changed,
            since=since,
        )

    def plan(self, at_us: int | None = None) -> Plan:
        """One cycle; nothing of it is placed yet."""
        self.now_us = self.now_us if at_us is None else at_us
        plan = plan_at_once(self.snapshot(), policy=self.policy, limits=self.limits, schedule=self.schedule)
        self.check()
        return plan

    def cycle(self, at_us: int | None = None) -> Plan:
        """One cycle, and what it places runs."""
        plan = self.plan(at_us)
        self.place(plan.placements)
        return plan

    def place(self, placements: Iterable[Placement]) -> None:
        for one in placements:
            job = self.queue.remove(one.job_id) if one.job_id in self.queue else None
            pairs = sum_per_node((span.node, span.amounts) for span in one.spans)
            expected_us = self.now_us + job.estimate_us if job is not None and job.estimate_us else 0
            self.running[one.job_id, 1] = Running(
                one.job_id, pairs, one.until_us, one.wide, job, expected_us=expected_us, since_us=self.now_us
            )
            self.begun[one.job_id] = self.now_us
            if job is None or not one.anchor_us:
                assert job is None or not job.followers
                continue
            self.anchors[one.job_id] = one.anchor_us
            for follower in job.followers:
                self.delays[follower.job.job_id] = follower.delay_us
                start_us = one.anchor_us + follower.delay_us
                self.queue.add(replace(follower.job, start_at_us=start_us, is_owed=True))

    def check(self) -> None:
        schedule = self.schedule
        schedule.book.check()
        for job_id, bookings in schedule.bookings.items():
            job = schedule.entries[job_id].job
            if not job.followers:
                assert {one.job_id for one in bookings} == {job_id}
                continue
            assert [one.job_id for one in bookings] == [one.job_id for one in job.members]
            assert [one.start_us - bookings[0].start_us for one in bookings] == list(job.delays_us)

    def starts(self) -> dict[int, int]:
        """Planned starts after the first instant, by job or member."""
        found = [one for bookings in self.schedule.bookings.values() for one in bookings]
        return {one.job_id: one.start_us - NOW for one in sorted(found, key=lambda one: one.job_id)}

    def starting(self) -> dict[int, list[Booking]]:
        """The places of each job and of each pack's members, in their order, by the first id: booked or beginning now."""
        found: dict[int, list[Booking]] = {}
        here = [one for _, one in self.schedule.starting]
        here += [one for bookings in self.schedule.bookings.values() for one in bookings]
        for one in sorted(here, key=lambda one: one.job_id):
            found.setdefault(one.job_id // 10 * 10 + 1, []).append(one)
        return found

    def nodes(self, job_id: int) -> list[int]:
        """The nodes planned for a job or member."""
        found = [one for bookings in self.schedule.bookings.values() for one in bookings]
        return [span.node for one in found if one.job_id == job_id for span in one.spans]

    def run_until_idle(self, limit: int = 200) -> None:
        """Cycle at each planned start and end until nothing waits; each attempt lasts as long as its latest end says."""
        for _ in range(limit):
            plan = self.cycle()
            instants = [one.until_us for one in self.running.values()]
            instants += [one.start_us for one in plan.promises()]
            later = [at_us for at_us in instants if at_us > self.now_us]
            if not later:
                return
            self.now_us = min(later)
            for key in [key for key, one in self.running.items() if one.until_us <= self.now_us]:
                del self.running[key]
        raise AssertionError("it does not come to an end")
