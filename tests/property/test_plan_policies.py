"""Whole cycles on small random clusters: nothing given twice, order kept, promises kept."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once, plan_cycle
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, Snapshot
from eslurm.core.plan.placement.avoided import compile_job_avoiding
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.placement.mapping import place, revalidate
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, fits, sum_per_node
from tests.support.profiles import draws

NOW = 100
PARTITIONS = {name: PartitionView(name, up=name != "down") for name in ("a", "b", "all", "down")}

request_strategy = st.builds(
    Request,
    tasks=st.integers(1, 6),
    cpus_per_task=st.integers(1, 2),
    nodes_min=st.integers(0, 2),
    nodes_max=st.integers(0, 3),
    memory_per_node_mib=st.integers(0, 8),
    exclusive=st.sampled_from([False, False, False, True]),
)


@st.composite
def node_lists(draw: st.DrawFn) -> list[NodeView]:
    count = draw(st.integers(2, 5))
    split = draw(st.integers(1, count))
    return [
        NodeView(
            10 + i,
            f"n{i}",
            draw(st.sampled_from([(4, 8), (4, 8), (2, 8), (4, 16)])),
            draw(st.sampled_from([True] * 7 + [False])),
            ("a", "all", "down") if i < split else ("b", "all", "down"),
        )
        for i in range(count)
    ]


part_strategy = st.builds(PendingPart, request_strategy, st.sampled_from(["a", "b", "all", "all", "down"]))
part_lists = st.one_of(st.just(()), st.just(()), st.lists(part_strategy, min_size=2, max_size=3).map(tuple))


@st.composite
def pending_lists(draw: st.DrawFn, startable_max: int = 3, limit_min: int = 0) -> list[Pending]:
    count = draw(st.integers(1, 9))
    return [
        Pending(
            job_id=1 + i,
            request=draw(request_strategy),
            partition=draw(st.sampled_from(["a", "a", "b", "all", "down"])),
            time_limit_us=draw(st.integers(limit_min, 12)),
            priority=draw(st.integers(0, 2)),
            submitted_us=draw(st.integers(0, 3)),
            avoid=draw(st.sampled_from([frozenset[int](), frozenset[int](), frozenset([10])])),
            startable=draw(st.integers(1, startable_max)),
            parts=draw(part_lists),
        )
        for i in range(count)
    ]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    nodes = draw(node_lists())
    running: list[Running] = []
    for node in nodes:
        cores, memory = node.total
        for _ in range(draw(st.integers(0, 3))):
            held = (draw(st.integers(1, 3)), draw(st.integers(0, 6)))
            if held[0] > cores or held[1] > memory:
                continue
            cores, memory = cores - held[0], memory - held[1]
            until = draw(st.integers(NOW + 1, NOW + 15))
            running.append(Running(1000 + len(running), ((node.number, held),), until))
    return Snapshot.build(nodes, PARTITIONS.values(), running, draw(pending_lists()), now_us=NOW)


policies = st.sampled_from(sorted(BUILT_IN))


def pairs_of(spans: Sequence[Span]) -> tuple[tuple[int, Vector], ...]:
    return sum_per_node((span.node, span.amounts) for span in spans)


def book(ledger: Ledger, placements: Sequence[Placement]) -> None:
    for placement in placements:
        assert revalidate(placement, ledger)
        for node, amounts in pairs_of(placement.spans):
            ledger.hold(node, amounts, placement.until_us)
    ledger.check()


def free_then(ledger: Ledger, position: int, at_us: int) -> Vector:
    total = ledger.topology.totals[position]
    held = [amounts for until, amounts in ledger.holds_on(position) if until > at_us]
    return (total[0] - sum(a[0] for a in held), total[1] - sum(a[1] for a in held))


def need_of(job: Pending, topology: Topology) -> CompiledRequest:
    asked = job.parts or (job,)
    return compile_job_avoiding(
        [one.request for one in asked],
        [PARTITIONS[one.partition] for one in asked],
        topology,
        job.avoid,
        0,
        lambda: empty_ledger(topology),
    )


def members_of(job: Pending, topology: Topology) -> int:
    found = 0
    for name in job.partitions:
        found |= topology.partitions.get(name, 0)
    return found


def at_instant(ledger: Ledger, at_us: int) -> Ledger:
    """A fresh ledger with only what is still held then, built hold by hold."""
    later = ledger.emptied()
    for position, number in enumerate(ledger.topology.numbers):
        for until, amounts in ledger.holds_on(position):
            if until > at_us:
                later.hold(number, amounts, until)
        assert later.free_on(position) == free_then(ledger, position, at_us)
    return later


def naive_start(ledger: Ledger, job: Pending) -> int | None:
    """Tries every instant at which something ends, one after the other."""
    need = need_of(job, ledger.topology)
    ends = {
        until for p in range(ledger.topology.size) for until, _ in ledger.holds_on(p) if until < INFINITY_US
    }
    for at_us in sorted({NOW} | {end for end in ends if end > NOW}):
        if place(at_instant(ledger, at_us), need) is not None:
            return at_us
    return None


@given(snapshots(), policies)
def test_no_node_is_over_allocated_and_every_placement_is_right(snapshot: Snapshot, policy: str) -> None:
    plan = plan_at_once(snapshot, policy=policy)
    jobs = {entry.job_id: entry.job for entry in snapshot.pending}
    book(snapshot.ledger.fork(), plan.placements)
    topology = snapshot.ledger.topology
    for placement in plan.placements:
        job = jobs[placement.job_id]
        assert placement.until_us == (NOW + job.time_limit_us if job.time_limit_us else INFINITY_US)
        asked = job.parts or (job,)
        assert "down" not in job.partitions
        for number, part in enumerate(asked):
            own = [span for span in placement.spans if span.component == number]
            assert sum(span.tasks for span in own) == part.request.tasks
            for span in own:
                assert topology.partitions[part.partition] >> topology.positions[span.node] & 1
        for span in placement.spans:
            assert span.component < len(asked)
            assert need_of(job, topology).allowed >> topology.positions[span.node] & 1
    for job_id, job in jobs.items():
        started = sum(placement.job_id == job_id for placement in plan.placements)
        assert started <= job.startable


@given(snapshots(), policies)
def test_a_plan_depends_on_nothing_but_its_input(snapshot: Snapshot, policy: str) -> None:
    before = snapshot.ledger.fork()
    plan = plan_at_once(snapshot, policy=policy)
    assert plan_at_once(snapshot, policy=policy) == plan
    # Pausing at every step changes nothing either, nor does the cluster going on meanwhile.
    slices = plan_cycle(snapshot, policy=policy, limits=PlanLimits(slice_steps=1))
    pauses = 0
    while True:
        try:
            next(slices)
            pauses += 1
        except StopIteration as finished:
            assert finished.value == plan
            break
    # A job whose partition is down costs one step, without a look at the clock.
    refused = sum("down" in entry.job.partitions for entry in snapshot.pending)
    assert pauses >= plan.examined - refused
    assert [snapshot.ledger.free_on(p) for p in range(before.topology.size)] == [
        before.free_on(p) for p in range(before.topology.size)
    ]
    snapshot.ledger.check()


@given(snapshots())
def test_fcfs_never_starts_a_job_before_one_ahead_that_could_use_the_same_nodes(snapshot: Snapshot) -> None:
    plan = plan_at_once(snapshot, policy="fcfs")
    topology = snapshot.ledger.topology
    started = [placement.job_id for placement in plan.placements]
    order = [entry.job_id for entry in snapshot.pending]
    assert started == sorted(started, key=order.index)
    waiting_members = 0
    for job in (entry.job for entry in snapshot.pending):
        members = members_of(job, topology)
        count = started.count(job.job_id)
        if count:
            assert not members & waiting_members
        need = need_of(job, topology)
        out_of_service = place(snapshot.ledger.emptied(), need) is None
        if count < job.startable and "down" not in job.partitions and not out_of_service:
            waiting_members |= members


@given(snapshots(), policies)
def test_what_would_fit_at_once_is_not_left_lying_at_the_front(snapshot: Snapshot, policy: str) -> None:
    plan = plan_at_once(snapshot, policy=policy)
    after = snapshot.ledger.fork()
    book(after, plan.placements)
    job = snapshot.pending[0].job
    started = sum(placement.job_id == job.job_id for placement in plan.placements)
    need = need_of(job, after.topology)
    if started < job.startable and "down" not in job.partitions:
        assert place(after, need) is None
        assert plan.why(job.job_id).kind in {WhyKind.RESOURCES, WhyKind.NODES_UNAVAILABLE}


@given(snapshots())
def test_a_promise_is_the_earliest_start_and_no_backfill_delays_it(snapshot: Snapshot) -> None:
    plan = plan_at_once(snapshot, policy="easy")
    jobs = {entry.job_id: entry.job for entry in snapshot.pending}
    order = [entry.job_id for entry in snapshot.pending]
    for promise in plan.promises():
        head = jobs[promise.job_id]
        rank = order.index(head.job_id)
        ahead = [p for p in plan.placements if order.index(p.job_id) <= rank]
        alone = snapshot.ledger.fork()
        book(alone, ahead)
        assert promise.start_us == naive_start(alone, head)
        assert promise.start_us > NOW

        full = snapshot.ledger.fork()
        book(full, plan.placements)
        if not head.parts:
            # Parts that share nodes may be found otherwise where less is free, but their own place stays.
            after = naive_start(full, head)
            assert after is not None
            assert after <= promise.start_us
        for node, amounts in promise.pairs:
            position = full.topology.positions[node]
            assert fits(amounts, free_then(full, position, promise.start_us))
        assert plan.why(head.job_id).planned_start_us == promise.start_us


@given(snapshots())
def test_easy_starts_whatever_fcfs_starts_at_the_front(snapshot: Snapshot) -> None:
    """Up to the first job that waits the two are the same."""
    strict = plan_at_once(snapshot, policy="fcfs").placements
    eager = plan_at_once(snapshot, policy="easy").placements
    first_waiting = next(
        (
            index
            for index, entry in enumerate(snapshot.pending)
            if sum(p.job_id == entry.job_id for p in strict) < entry.job.startable
        ),
        len(snapshot.pending),
    )
    front = {entry.job_id for entry in snapshot.pending[: first_waiting + 1]}
    assert [p for p in strict if p.job_id in front] == [p for p in eager if p.job_id in front]


class Run:
    """Plays a whole queue to its end: cycles at every completion, jobs end at or before their limit."""

    def __init__(self, nodes: list[NodeView], jobs: list[Pending], shares: list[int]) -> None:
        self.ledger = Ledger(Topology(nodes))
        self.queue = PendingQueue(jobs)
        self.shares = shares
        self.running: list[tuple[int, Placement]] = []
        self.live: dict[tuple[int, int], Running] = {}
        self.promised: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.now_us = NOW
        self.schedule = Schedule()

    def cycle(self, policy: str) -> Plan:
        snapshot = Snapshot.take(
            self.ledger,
            PARTITIONS,
            self.queue,
            generation=0,
            now_us=self.now_us,
            running=self.live,
            known=self.schedule.known_jobs(),
        )
        limits = PlanLimits(promise_refresh_us=5, overdue_grace_us=3)
        plan = plan_at_once(snapshot, policy=policy, limits=limits, schedule=self.schedule)
        self.schedule.book.check()
        book(self.ledger, plan.placements)
        for placement in plan.placements:
            job = self.queue.remove(placement.job_id)
            self.started[job.job_id] = self.now_us
            share = self.shares[job.job_id % len(self.shares)]
            ends_us = self.now_us + max(1, job.time_limit_us * share // 100)
            self.running.append((ends_us, placement))
            pairs = pairs_of(placement.spans)
            self.live[job.job_id, 1] = Running(job.job_id, pairs, placement.until_us)
        for promise in plan.promises():
            earlier = self.promised.setdefault(promise.job_id, promise.start_us)
            assert promise.start_us <= earlier
            self.promised[promise.job_id] = promise.start_us
        return plan

    def advance(self) -> None:
        self.now_us = min(ends_us for ends_us, _ in self.running)
        for ends_us, placement in self.running:
            if ends_us == self.now_us:
                del self.live[placement.job_id, 1]
                for node, amounts in pairs_of(placement.spans):
                    self.ledger.give_back(node, amounts, placement.until_us)
        self.running = [one for one in self.running if one[0] > self.now_us]


@settings(max_examples=draws(150), deadline=None)
@given(
    node_lists(),
    pending_lists(startable_max=1, limit_min=1),
    st.lists(st.integers(1, 100), min_size=1, max_size=5),
    policies,
)
def test_every_promise_of_a_whole_run_is_kept_and_everything_that_can_run_runs(
    nodes: list[NodeView], jobs: list[Pending], shares: list[int], policy: str
) -> None:
    run = Run(nodes, jobs, shares)
    plan = run.cycle(policy)
    while run.running:
        run.advance()
        plan = run.cycle(policy)
    for job_id, promised_us in run.promised.items():
        assert run.started[job_id] <= promised_us
    for entry in run.queue.first(len(run.queue)):
        why = plan.why(entry.job_id)
        assert why.kind in {WhyKind.NODES_UNAVAILABLE, WhyKind.PARTITION_DOWN}, why
    assert run.ledger.idle == run.ledger.topology.everything
    run.ledger.check()
