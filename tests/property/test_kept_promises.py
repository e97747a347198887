"""A planner after a crash keeps the promises of before: random clusters, queues and rules, a crash at any point.

What is kept is written as the controller writes it: with each start, and else now and then; the rest is lost.
"""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eslurm.core.model.accounts import KINDS, Access, Amount, FreePool, Limit, Policy, kind_of
from eslurm.core.model.config import Resource
from eslurm.core.model.facts import JobsPromised, decode_fact, encode_fact
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.promise import Promise
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue
from eslurm.core.plan.cycle.restored_bookings import kept_of
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, RunningKey, Snapshot, changes_since
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import sum_per_node
from tests.support.profiles import draws

NOW = 1_000
GRACE_US = 7
PARTITIONS = {name: PartitionView(name) for name in ("all", "few")}
RESOURCES = (Resource("gpu", devices=True), Resource("matlab", wide_total=3))
TOTALS = ((4, 8, 0), (8, 8, 2), (2, 16, 0), (4, 8, 1))
AHEAD = ("conservative", "planned")
USERS = ("ada", "bob")

requests = st.one_of(
    st.builds(
        Request,
        tasks=st.integers(1, 5),
        cpus_per_task=st.integers(1, 2),
        nodes_min=st.integers(0, 2),
        memory_per_node_mib=st.sampled_from([0, 0, 3]),
        per_node=st.sampled_from([(), (), (("gpu", 1),)]),
        wide=st.sampled_from([(), (), (("matlab", 2),)]),
        exclusive=st.sampled_from([False, False, False, True]),
    ),
    st.builds(
        lambda one, many: Request(tasks=1 + many, chunks=(Chunk(1, one, 0, (("gpu", 1),)), Chunk(many, 1))),
        st.integers(1, 2),
        st.integers(1, 3),
    ),
)
rules = st.lists(
    st.one_of(
        st.builds(lambda most: Limit("a", "user", "ada", "cores", Amount(most)), st.integers(2, 12)),
        st.builds(lambda most: Limit("b", "user", "bob", "jobs", Amount(most)), st.integers(1, 3)),
        st.builds(
            lambda least, ways: FreePool("p", "cores", Amount(least), ways),
            st.integers(0, 4),
            st.sampled_from([(), (Access(users=("ada",)),), (Access(items_below=3),)]),
        ),
    ),
    max_size=2,
    unique_by=lambda one: one.name,
)

Event: TypeAlias = tuple[str, int, int, Request, int]
events = st.tuples(
    st.sampled_from(
        ["submit"] * 6
        + [
            "array",
            "parts",
            "parts",
            "parts",
            "after",
            "fixed",
            "end",
            "end",
            "cancel",
            "wait",
            "wait",
            "back",
            "late",
            "out",
        ]
    ),
    st.integers(0, 40),
    st.integers(1, 15),
    requests,
    st.sampled_from([0, 0, 0, 1, 2]),
)
"""(what, a number, a time limit, a request, 1: what is promised then is written, 2: the planner dies right after it)."""


class Site:
    """A small cluster of all kinds of nodes, and what a log would know of its plans."""

    def __init__(self, policy: str, nodes: int, policies: list[Policy], share: int) -> None:
        self.policy = policy
        self.limits = PlanLimits(overdue_grace_us=GRACE_US, promise_refresh_us=5)
        self.policies = {kind: {one.name: one for one in policies if kind_of(one) == kind} for kind in KINDS}
        self.share = share
        views = [
            NodeView(10 + i, f"n{i}", TOTALS[i % len(TOTALS)], True, ("all", "few") if i % 2 else ("all",))
            for i in range(nodes)
        ]
        self.ledger = Ledger(Topology(views, resources=RESOURCES))
        self.queue = PendingQueue()
        self.later = PendingQueue(shapes=self.queue.shapes)
        self.live: dict[RunningKey, Running] = {}
        self.placed: dict[RunningKey, Placement] = {}
        self.schedule = Schedule()
        self.kept: dict[int, Promise] = {}
        self.now_us = NOW
        self.ids = self.tasks = 0
        self.plan: Plan | None = None

    # What happens

    def submit(self, request: Request, limit_us: int, **more: object) -> None:
        self.ids += 1
        estimate_us = max(1, limit_us * self.share // 100) if self.share < 100 else 0
        job = Pending(
            self.ids,
            request,
            "few" if self.ids % 5 == 0 and "parts" not in more else "all",
            limit_us,
            submitted_us=self.now_us,
            user=USERS[self.ids % 2],
            estimate_us=estimate_us,
            **more,  # type: ignore[arg-type]
        )
        (self.later if job.after else self.queue).add(job)

    def happen(self, event: Event) -> None:
        kind, number, length_us, request, _ = event
        running = sorted(self.live)
        if any(self.policies.values()):
            # Rules that count what a whole node has ask for more than some nodes have.
            request = replace(request, exclusive=False)
        if kind == "submit":
            self.submit(request, length_us)
        elif kind == "array":
            self.submit(request, length_us, startable=2 + number % 10)
        elif kind == "parts":
            # Licences, devices and nodes of the second part come with the number.
            wide = (("matlab", 1),) if number % 4 == 0 else ()
            other = Request(
                tasks=1 + number % 3, cpus_per_task=1 + number % 2, nodes_min=number % 2, wide=wide
            )
            parts = (PendingPart(request, "all"), PendingPart(other, "few" if number % 3 else "all"))
            self.submit(request, length_us, parts=parts, startable=1 + 2 * (number % 5 == 0))
        elif kind == "after" and self.queue.ids():
            self.submit(request, length_us, after=(min(self.queue.ids()),))
        elif kind == "fixed":
            self.submit(request, length_us, start_at_us=self.now_us + number)
        elif kind == "end" and running:
            self.end(running[number % len(running)])
        elif kind == "cancel":
            self.forget(1 + number % (self.ids + 1))
        elif kind in ("wait", "late"):
            self.now_us += number
        elif kind in ("out", "back"):
            self.ledger.set_usable(10 + number % self.ledger.topology.size, kind == "back")
        if kind != "late":
            for key in [key for key, one in self.live.items() if one.until_us <= self.now_us]:
                self.end(key)

    def end(self, key: RunningKey) -> None:
        one, placement = self.live.pop(key), self.placed.pop(key)
        for node, amounts in one.spans:
            self.ledger.give_back(node, amounts, placement.until_us)
        self.ledger.give_back_wide(placement.wide)
        for job_id in self.later.ids():
            job = self.later.find(job_id)
            assert job is not None
            if key[0] in job.after:
                self._release(job)

    def _release(self, job: Pending) -> None:
        self.later.remove(job.job_id)
        self.queue.add(replace(job, after=()))

    def forget(self, job_id: int) -> None:
        self.kept.pop(job_id, None)
        for queue in (self.queue, self.later):
            if job_id in queue:
                queue.remove(job_id)
        for other in self.later.ids():
            job = self.later.find(other)
            if job is not None and job_id in job.after:
                self._release(job)

    # Planning

    def cycle(self, *, is_written: bool = False) -> Plan:
        schedule = self.schedule
        promises = self.kept.copy() if schedule.is_new else {}
        changes = changes_since(schedule.mark, self.queue, self.later)
        snapshot = Snapshot.take(
            self.ledger,
            PARTITIONS,
            self.queue,
            generation=0,
            now_us=self.now_us,
            running=self.live,
            later=self.later,
            known=[*schedule.known_jobs(changes), *promises],
            policies=self.policies,
            since=schedule.mark,
            promises=promises,
        )
        plan = self.plan = plan_at_once(snapshot, policy=self.policy, limits=self.limits, schedule=schedule)
        schedule.book.check()
        for placement in plan.placements:
            self._place(placement)
        if plan.placements or is_written:
            self._write()
        return plan

    def _place(self, placement: Placement) -> None:
        job = self.queue.find(placement.job_id)
        assert job is not None
        key = (job.job_id, 1)
        if job.startable > 1:
            self.queue.replace(replace(job, startable=job.startable - 1))
            self.tasks += 1
            key = (job.job_id, 1 + self.tasks)
        else:
            self.queue.remove(job.job_id)
            self.kept.pop(job.job_id, None)
        pairs = sum_per_node((span.node, span.amounts) for span in placement.spans)
        for node, amounts in pairs:
            self.ledger.hold(node, amounts, placement.until_us)
        self.ledger.hold_wide(placement.wide)
        # Those who have begun are expected to stay longer than those who wait.
        expected_us = self.now_us + min(2 * job.estimate_us, job.time_limit_us) if job.estimate_us else 0
        parts = tuple((span.component, span.node, span.amounts) for span in placement.spans if job.parts)
        self.live[key] = Running(
            job.job_id,
            pairs,
            placement.until_us,
            placement.wide,
            job,
            expected_us=expected_us,
            since_us=self.now_us,
            parts=parts,
        )
        self.placed[key] = placement

    def _write(self) -> None:
        """As a fact of the log, there and back."""
        found = tuple(
            kept_of(job_id, self.schedule.bookings.get(job_id, ())) for job_id in sorted(self.schedule.moved)
        )
        self.schedule.moved.clear()
        fact = decode_fact(*encode_fact(JobsPromised(found)))
        assert fact == JobsPromised(found)
        for promise in found:
            if promise.starts:
                self.kept[promise.job_id] = promise
            else:
                self.kept.pop(promise.job_id, None)

    @property
    def is_on_time(self) -> bool:
        """Check that nothing runs longer than was expected, and no promised start has passed unseen."""
        ends = [(one.expected_us or one.until_us) for one in self.live.values()]
        return (
            min([*ends, *(one.start_us for one in self.kept.values())], default=self.now_us + 1) > self.now_us
        )

    @property
    def is_pool_short(self) -> bool:
        """Check that a pool counts less than there was: nodes are out."""
        return bool(self.policies["pool"]) and self.ledger.usable != self.ledger.topology.everything


def takes_nothing(event: Event) -> bool:
    """Check that the event can take nothing from any job."""
    return event[0] not in ("out", "late")


@settings(max_examples=draws(40), deadline=None)
@given(
    st.sampled_from(AHEAD),
    st.integers(2, 6),
    rules,
    st.sampled_from([100, 100, 40]),
    st.lists(events, min_size=4, max_size=20),
)
def test_whoever_plans_next_keeps_every_promise(
    policy: str, nodes: int, policies: list[Policy], share: int, history: list[Event]
) -> None:
    site = Site(policy, nodes, policies, share)
    site.cycle()
    for event in history:
        site.happen(event)
        if event[-1] != 2:
            is_loss = not (site.is_on_time and takes_nothing(event))
            site.cycle(is_written=is_loss or event[-1] == 1)
            continue
        must_keep = site.is_on_time and takes_nothing(event) and not site.is_pool_short
        kept = site.kept.copy()
        site.schedule = Schedule()
        plan = site.cycle(is_written=True)
        started = {placement.job_id for placement in plan.placements}
        for job_id, promise in kept.items():
            # Who waits for others follows them.
            if must_keep and job_id in site.queue and job_id not in started:
                start_us = plan.start_us(job_id)
                assert start_us is not None and start_us <= promise.start_us, site.schedule.unkept
