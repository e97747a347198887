"""Random histories of a small cluster, cycle after cycle on one schedule: promises are kept, and nobody is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, RunningKey, Snapshot, changes_since
from eslurm.core.plan.profile.search import SearchBounds
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import sum_per_node
from tests.support.profiles import draws

NOW = 1_000
GRACE_US = 7
PARTITIONS = {name: PartitionView(name) for name in ("all", "few")}
AHEAD = ("conservative", "planned")

requests = st.builds(
    Request,
    tasks=st.integers(1, 5),
    cpus_per_task=st.integers(1, 2),
    nodes_min=st.integers(0, 2),
    memory_per_node_mib=st.sampled_from([0, 0, 3]),
    exclusive=st.sampled_from([False, False, False, True]),
)
"""Some of them fit no node: they go to the waiting room."""


class Site:
    """A cluster that plans: jobs come, run, end early or late; nodes go and come back."""

    def __init__(self, policy: str, nodes: int, limits: PlanLimits | None = None) -> None:
        self.policy = policy
        self.limits = limits or PlanLimits(overdue_grace_us=GRACE_US, promise_refresh_us=5)
        few = nodes // 2
        self.ledger = Ledger(
            Topology(
                NodeView(10 + i, f"n{i}", (4, 8), True, ("all", "few") if i < few else ("all",))
                for i in range(nodes)
            )
        )
        self.queue = PendingQueue()
        self.later = PendingQueue(shapes=self.queue.shapes)
        self.live: dict[RunningKey, Running] = {}
        self.placed: dict[RunningKey, Placement] = {}
        self.schedule = Schedule()
        self.now_us = NOW
        self.next_id = 1
        self.tasks = 0
        self.arrays: set[int] = set()
        self.parts: dict[int, tuple[PendingPart, ...]] = {}
        self.plan: Plan | None = None
        self.first_promise: dict[int, int] = {}
        self.started: dict[int, int] = {}

    # What happens

    def submit(self, request: Request, limit_us: int, **more: object) -> int:
        job = Pending(
            self.next_id,
            request,
            more.pop("partition", "all"),  # type: ignore[arg-type]
            limit_us,
            submitted_us=self.now_us,
            **more,  # type: ignore[arg-type]
        )
        self.parts[job.job_id] = job.parts
        self.next_id += 1
        waiting = job.after or job.not_before_us
        (self.later if waiting else self.queue).add(job)
        return job.job_id

    def cancel(self, job_id: int) -> None:
        for queue in (self.queue, self.later):
            if job_id in queue:
                queue.remove(job_id)

    def end(self, key: RunningKey) -> None:
        running, placement = self.live.pop(key), self.placed.pop(key)
        for node, amounts in running.spans:
            self.ledger.give_back(node, amounts, placement.until_us)

    def set_usable(self, node: int, usable: bool) -> None:
        self.ledger.set_usable(10 + node % self.ledger.topology.size, usable)

    def cycle(self) -> Plan:
        self._release()
        since = self.schedule.mark
        changes = changes_since(since, self.queue, self.later)
        snapshot = Snapshot.take(
            self.ledger,
            PARTITIONS,
            self.queue,
            generation=0,
            now_us=self.now_us,
            running=self.live,
            later=self.later,
            known=self.schedule.known_jobs(changes),
            since=since,
        )
        plan = plan_at_once(snapshot, policy=self.policy, limits=self.limits, schedule=self.schedule)
        for placement in plan.placements:
            self._place(placement)
        self._check(plan)
        self.plan = plan
        return plan

    def _release(self) -> None:
        """Jobs whose waiting is over go to the queue."""
        for job_id in sorted(self.later.ids()):
            job = self.later.find(job_id)
            assert job is not None
            open_jobs = tuple(other for other in job.after if self._is_open(other))
            not_before_us = job.not_before_us if job.not_before_us > self.now_us else 0
            if (open_jobs, not_before_us) == (job.after, job.not_before_us):
                continue
            changed = replace(job, after=open_jobs, not_before_us=not_before_us)
            if open_jobs or not_before_us:
                self.later.replace(changed)
            else:
                # In this order it keeps the number of its shape.
                self.queue.add(changed)
                self.later.remove(job_id)

    def _is_open(self, job_id: int) -> bool:
        return (
            job_id in self.queue
            or job_id in self.later
            or any(job_id in (key[0], one.array_job_id) for key, one in self.live.items())
        )

    def _place(self, placement: Placement) -> None:
        job = self.queue.find(placement.job_id)
        assert job is not None
        array = job.job_id if job.startable > 1 or job.job_id in self.arrays else 0
        if job.startable > 1:
            self.arrays.add(job.job_id)
            self.queue.replace(replace(job, startable=job.startable - 1))
            self.tasks += 1
            key = (1_000_000 + self.tasks, 1)
        else:
            self.queue.remove(job.job_id)
            key = (job.job_id, 1)
            self.started[job.job_id] = self.now_us
        pairs = sum_per_node((span.node, span.amounts) for span in placement.spans)
        for node, amounts in pairs:
            self.ledger.hold(node, amounts, placement.until_us)
        self.live[key] = Running(key[0], pairs, placement.until_us, (), job, array)
        self.placed[key] = placement

    # What must hold

    def _check_parts(self, plan: Plan) -> None:
        """Each placement and each planned start has nodes for every part, in its partition."""
        topology = self.ledger.topology
        starts = [(one.job_id, one.spans) for one in (*plan.placements, *plan.promises())]
        for job_id, spans in starts:
            parts = self.parts.get(job_id, ())
            if not parts:
                assert not any(span.component for span in spans)
                continue
            components = [span.component for span in spans]
            assert components == sorted(components)
            assert set(components) == set(range(len(parts)))
            for span in spans:
                members = topology.partitions[parts[span.component].partition]
                assert members >> topology.positions[span.node] & 1
            for number, part in enumerate(parts):
                assert sum(span.tasks for span in spans if span.component == number) == part.request.tasks

    def _check(self, plan: Plan) -> None:
        self._check_parts(plan)
        book = self.schedule.book
        book.check()
        topology = self.ledger.topology
        for position, node in enumerate(topology.numbers):
            now_free = book.free_on(node, self.now_us, self.now_us + 1)
            planned = [
                span.amounts
                for booking in plan.promises()
                if booking.start_us <= self.now_us
                for span in booking.spans
                if span.node == node
            ]
            together = tuple(a + sum(amounts[i] for amounts in planned) for i, a in enumerate(now_free))
            assert together == self.ledger.free_on(position)
        for queue in (self.queue, self.later):
            for job_id in queue.ids():
                assert plan.why(job_id).text
        for booking in plan.promises():
            assert booking.job_id in self.queue or booking.job_id in self.later
            assert all(self.ledger.usable >> topology.positions[span.node] & 1 for span in booking.spans), (
                "planned on a node that is out"
            )
            self.first_promise.setdefault(booking.job_id, booking.start_us)
        if self.policy in AHEAD:
            self._check_everybody_is_planned(plan)

    def _check_everybody_is_planned(self, plan: Plan) -> None:
        for job_id in self.queue.ids() + self.later.ids():
            why = plan.why(job_id)
            assert why.kind is not WhyKind.NOT_EXAMINED
            assert (job_id in plan.bookings) == (why.planned_start_us is not None)
        ends = self.schedule.ends()
        for job_id in self.later.ids():
            job = self.later.find(job_id)
            assert job is not None
            for booking in plan.bookings.get(job_id, ()):
                assert booking.start_us >= job.not_before_us
                for other in job.after:
                    end_us = max([ends.get(other, 0), *(one.stop_us for one in plan.bookings.get(other, ()))])
                    assert 0 < end_us <= booking.start_us

    def starts(self) -> dict[int, list[int]]:
        """The planned starts of every waiting job, task by task."""
        assert self.plan is not None
        return {
            job_id: sorted(booking.start_us for booking in bookings for _ in range(booking.tasks))
            for job_id, bookings in self.plan.bookings.items()
        }


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int, Request]]:
    kinds = ["submit"] * 5 + [
        "parts",
        "parts",
        "parts",
        "array",
        "after",
        "begin",
        "end",
        "end",
        "late",
        "out",
        "back",
        "cancel",
        "wait",
    ]
    return [
        (draw(st.sampled_from(kinds)), draw(st.integers(0, 40)), draw(st.integers(1, 15)), draw(requests))
        for _ in range(draw(st.integers(1, 25)))
    ]


def happen(site: Site, event: tuple[str, int, int, Request]) -> None:
    kind, number, length_us, request = event
    running = sorted(site.live)
    if kind == "submit":
        site.submit(request, length_us, partition="few" if number % 5 == 0 else "all")
    elif kind == "parts":
        # Of one task or of several, which may share nodes with the first part or not.
        other = Request(tasks=1 + number % 3, cpus_per_task=1 + number % 2, nodes_min=number % 4 // 3)
        names = ("few", "all") if number % 3 else ("all", "all")
        parts = tuple(map(PendingPart, (request, other), names))
        site.submit(request, length_us, partition=names[0], parts=parts, startable=1 + 2 * (number % 7 == 0))
    elif kind == "array":
        site.submit(request, length_us, startable=2 + number % 6)
    elif kind == "after":
        after = tuple({1 + number % site.next_id, 1 + (number // 2) % site.next_id} - {site.next_id})
        site.submit(request, length_us, after=after)
    elif kind == "begin":
        site.submit(request, length_us, not_before_us=site.now_us + number)
    elif kind == "end" and running:
        site.end(running[number % len(running)])
    elif kind == "late":
        site.now_us += length_us
        return
    elif kind in ("out", "back"):
        site.set_usable(number, kind == "back")
    elif kind == "cancel":
        site.cancel(1 + number % site.next_id)
    elif kind == "wait":
        site.now_us += number
    # Jobs end when their time is up, unless they are late.
    for key in running:
        if key in site.live and site.live[key].until_us <= site.now_us:
            site.end(key)


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(sorted(BUILT_IN)), st.integers(2, 5), histories())
def test_book_and_cluster_agree_whatever_happens(
    policy: str, nodes: int, history: list[tuple[str, int, int, Request]]
) -> None:
    site = Site(policy, nodes)
    for event in history:
        happen(site, event)
        site.cycle()


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(AHEAD), st.integers(2, 5), histories(), st.integers(1, 3))
def test_a_pass_that_is_spread_over_cycles_comes_to_an_end(
    policy: str, nodes: int, history: list[tuple[str, int, int, Request]], improved_max: int
) -> None:
    limits = PlanLimits(overdue_grace_us=GRACE_US, improved_max=improved_max)
    site = Site(policy, nodes, limits)
    # New jobs wait for the pass to end.
    site._check_everybody_is_planned = lambda plan: None  # type: ignore[method-assign]
    for event in history:
        happen(site, event)
        for _ in range(200):
            if not site.cycle().is_unfinished:
                break
        else:
            raise AssertionError("there is always more to do")
    plan = site.cycle()
    Site._check_everybody_is_planned(site, plan)


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(AHEAD), st.integers(2, 5), histories())
def test_nobody_gets_later_by_arrivals_or_by_what_ends(
    policy: str, nodes: int, history: list[tuple[str, int, int, Request]]
) -> None:
    """C-59, C-37: without failures and late ends a planned start only ever moves forward."""
    site = Site(policy, nodes)
    site.cycle()
    for event in history:
        if event[0] in ("out", "late", "after"):
            continue
        before = site.starts()
        # Time passes from one planned start to the next: nothing begins late.
        happen_on_time(site, event)
        site.cycle()
        for job_id, starts in site.starts().items():
            old = before.get(job_id, [])[-len(starts) :]
            assert all(new <= was for new, was in zip(starts[: len(old)], old, strict=True))


def happen_on_time(site: Site, event: tuple[str, int, int, Request]) -> None:
    kind, number, _, _ = event
    if kind != "wait":
        happen(site, event)
        return
    until_us = site.now_us + number
    while True:
        assert site.plan is not None
        ends = [running.until_us for running in site.live.values()]
        begins = [job.not_before_us for job_id in site.later.ids() if (job := site.later.find(job_id))]
        next_us = min([*ends, *begins, site.plan.next_us, until_us])
        site.now_us = max(site.now_us, min(next_us, until_us))
        for key in sorted(site.live):
            if site.live[key].until_us <= site.now_us:
                site.end(key)
        if site.now_us >= until_us:
            return
        site.cycle()


part_lists = st.one_of(
    st.just(()),
    st.just(()),
    st.lists(
        st.builds(PendingPart, requests, st.sampled_from(sorted(PARTITIONS))), min_size=2, max_size=4
    ).map(tuple),
)
jobs_over_time = st.lists(
    st.tuples(st.integers(0, 6), requests, st.integers(1, 12), part_lists), min_size=1, max_size=14
)
Arrivals: TypeAlias = list[tuple[int, Request, int, tuple[PendingPart, ...]]]


def play(site: Site, arrivals: Arrivals, share: Callable[[int], int]) -> None:
    """Jobs arrive and run to their ends, `share` percent of their limits; a cycle at each instant."""
    at_us = site.now_us
    coming = []
    for gap_us, request, limit_us, parts in arrivals:
        at_us += gap_us
        coming.append((at_us, request, limit_us, parts))
    ends: dict[RunningKey, int] = {}
    site.cycle()
    for _ in range(1_000):
        for key, running in site.live.items():
            if key not in ends:
                length_us = running.until_us - site.now_us
                ends[key] = site.now_us + max(1, length_us * share(key[0]) // 100)
        assert site.plan is not None
        nexts = [*ends.values(), *(one[0] for one in coming), site.plan.next_us]
        site.now_us = min(nexts, default=INFINITY_US)
        if site.now_us == INFINITY_US:
            return
        for key in [key for key, end_us in ends.items() if end_us <= site.now_us]:
            del ends[key]
            site.end(key)
        while coming and coming[0][0] <= site.now_us:
            _, request, limit_us, parts = coming.pop(0)
            site.submit(request, limit_us, parts=parts)
        site.cycle()
    raise AssertionError("the queue never empties")


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(AHEAD), st.integers(2, 5), jobs_over_time, st.sampled_from([100, 100, 37]))
def test_nobody_starts_later_than_first_promised(
    policy: str, nodes: int, arrivals: Arrivals, share: int
) -> None:
    site = Site(policy, nodes)
    play(site, arrivals, lambda _: share)
    for job_id, first_us in site.first_promise.items():
        assert site.started[job_id] <= first_us
        if share == 100 and policy == "conservative":
            assert site.started[job_id] == first_us
    assert not site.live
    for job_id in site.queue.ids():
        assert site.plan is not None
        assert site.plan.why(job_id).kind in {WhyKind.NODES_UNAVAILABLE, WhyKind.RESOURCES}


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(AHEAD), st.integers(2, 4), histories())
def test_what_is_remembered_of_a_shape_changes_no_plan(
    policy: str, nodes: int, history: list[tuple[str, int, int, Request]]
) -> None:
    """Hints only spare searches that would be in vain."""
    site, plain = Site(policy, nodes), Site(policy, nodes)
    for event in history:
        happen(site, event)
        site.cycle()
        with mock.patch.object(SearchBounds, "bound_us", lambda *_: 0):
            happen(plain, event)
            plain.cycle()
        assert site.starts() == plain.starts()
        assert site.live.keys() == plain.live.keys()
