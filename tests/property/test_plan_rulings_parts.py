"""Limits and pools over plans of jobs of several parts that arrive, start, release nodes and end: never broken."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.accounts import KINDS, Amount, FreePool, Limit, Policy, kind_of
from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue, Shapes
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, RunningKey, Snapshot
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import sum_per_node
from tests.kits.plan_building import NOW
from tests.support.profiles import draws

WHERE = [("a",), ("a",), ("a", "b"), ("b",)]
PARTITIONS = {name: PartitionView(name) for name in "ab"}
CYCLES = 8

Held = tuple[Pending, tuple[Span, ...], int, int]
"""(job, spans, from, until)."""


def rules(draw: random.Random) -> list[Policy]:
    found: list[Policy] = [
        Limit("ada", "user", "ada", "cores", Amount(draw.randint(4, 16))),
        Limit("nodes", "partition", draw.choice("ab"), "nodes", Amount(draw.randint(1, 3))),
        Limit("cores", "partition", "*", "cores", Amount(draw.randint(4, 12))),
        FreePool("pool", "cores", Amount(draw.randint(1, 6))),
    ]
    return draw.sample(found, draw.randint(1, 4))


class Site:
    """Four nodes of four cores; partitions a and b share one. What is placed runs until it is ended."""

    def __init__(self, draw: random.Random, policy: str) -> None:
        self.draw = draw
        self.policy = policy
        nodes = [NodeView(number, f"n{number}", (4, 0), True, names) for number, names in enumerate(WHERE)]
        self.ledger = Ledger(Topology(nodes))
        self.schedule = Schedule()
        self.shapes = Shapes()
        self.waiting: dict[int, Pending] = {}
        self.live: dict[RunningKey, Running] = {}
        self.held: dict[int, Held] = {}
        self.rules = rules(draw)
        self.now_us = NOW
        self.next_id = 1
        self.due_us: list[int] = []

    def submit(self) -> None:
        draw = self.draw
        parts = tuple(
            PendingPart(
                Request(
                    tasks=(nodes := draw.choice([1, 1, 2])),
                    cpus_per_task=draw.randint(1, 4),
                    nodes_min=nodes,
                    nodes_max=nodes,
                    exclusive=draw.random() < 0.15,
                ),
                draw.choice("ab"),
            )
            for _ in range(draw.choice([1, 2, 2, 3]))
        )
        limit_us = draw.randint(5, 60)
        self.waiting[self.next_id] = Pending(
            self.next_id,
            parts[0].request,
            parts[0].partition,
            limit_us,
            submitted_us=self.next_id,
            user=draw.choice(["ada", "bob"]),
            parts=parts if len(parts) > 1 else (),
        )
        self.next_id += 1

    def plan(self) -> None:
        queue = PendingQueue(self.waiting.values(), self.shapes)
        snapshot = Snapshot.take(
            self.ledger,
            PARTITIONS,
            queue,
            generation=0,
            now_us=self.now_us,
            running=self.live,
            known=queue.ids(),
            policies={kind: {one.name: one for one in self.rules if kind_of(one) == kind} for kind in KINDS},
        )
        plan = plan_at_once(
            snapshot, policy=self.policy, limits=PlanLimits(overdue_grace_us=3), schedule=self.schedule
        )
        self.schedule.book.check()
        for placement in plan.placements:
            job = self.waiting.pop(placement.job_id)
            held = job, placement.spans, self.now_us, placement.until_us
            self.held[job.job_id] = held
            self._hold(held)
        for job_id in self.waiting:
            assert job_id in plan.bookings or plan.why(job_id).kind is not WhyKind.NOT_EXAMINED
        jobs = dict(self.waiting)
        self.due_us = [one.start_us for one in plan.promises()]
        planned = [(jobs[one.job_id], one.spans, one.start_us, one.stop_us) for one in plan.promises()]
        self.check([*self.held.values(), *planned])

    def _hold(self, held: Held) -> None:
        job, spans, _, until_us = held
        pairs = sum_per_node([(span.node, span.amounts) for span in spans])
        for node, amounts in pairs:
            self.ledger.hold(node, amounts, until_us)
        parts = tuple([(span.component, span.node, span.amounts) for span in spans])
        has_parts = bool(spans) and spans[-1].component > 0
        self.live[job.job_id, 1] = Running(
            job.job_id, pairs, until_us, (), job, parts=parts if has_parts else ()
        )

    def release(self, job_id: int, *, whole: bool) -> None:
        """The job ends, or one of its nodes gives everything back before."""
        held = self.held.pop(job_id)
        gone = self.live.pop((job_id, 1))
        for node, amounts in gone.spans:
            self.ledger.give_back(node, amounts, gone.until_us)
        first = held[1][0].node
        left = () if whole else tuple([span for span in held[1] if span.node != first])
        if left:
            self.held[job_id] = (held[0], left, *held[2:])
            self._hold(self.held[job_id])

    def check(self, stays: list[Held]) -> None:
        """At each instant at which something begins each consumer keeps within its limits, counted span by span."""
        for at_us in {start_us for _, _, start_us, _ in stays} | {self.now_us}:
            here = [
                (job, span)
                for job, spans, start_us, stop_us in stays
                if start_us <= at_us < stop_us
                for span in spans
            ]
            for policy in self.rules:
                if isinstance(policy, FreePool):
                    assert not here or sum(span.amounts[0] for _, span in here) <= 16 - policy.amount.items
                    continue
                assert isinstance(policy, Limit)
                names = "ab" if policy.consumer == "*" else [policy.consumer]
                for name in names:
                    own = [
                        (job, span)
                        for job, span in here
                        if name == (job.user if policy.kind == "user" else _partition(job, span))
                    ]
                    cores = sum(span.amounts[0] for _, span in own)
                    nodes = len({(job.job_id, span.node) for job, span in own})
                    assert (cores if policy.resource == "cores" else nodes) <= policy.amount.items, policy


def _partition(job: Pending, span: Span) -> str:
    return job.parts[span.component].partition if job.parts else job.partition


@settings(max_examples=draws(300), deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(sorted(BUILT_IN)))
def test_no_limit_is_broken_while_jobs_of_several_parts_come_and_go(seed: int, policy: str) -> None:
    draw = random.Random(seed)
    site = Site(draw, policy)
    for _ in range(CYCLES):
        for _ in range(draw.randint(0, 3)):
            site.submit()
        for job_id in list(site.held):
            if site.held[job_id][3] <= site.now_us or draw.random() < 0.2:
                site.release(job_id, whole=True)
            elif draw.random() < 0.2:
                site.release(job_id, whole=False)
        if site.waiting and draw.random() < 0.2:
            del site.waiting[draw.choice(sorted(site.waiting))]
        site.plan()
        # Never beyond a planned start: a job that begins late ends late, and is in the way of what is planned behind it.
        site.now_us = min([site.now_us + draw.randint(1, 15), *site.due_us])
