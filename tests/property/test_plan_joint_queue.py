"""Whole queues of jobs of several parts, planned one behind the other, against a dense timeline and brute force."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.partition import PartitionView
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Running, Snapshot, build_ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, subtract, sum_per_node
from tests.kits.naive_joint import Part, is_possible
from tests.property.test_plan_joint import amounts_of, cluster, least, parts_of
from tests.support.profiles import draws

NOW = 1_000
SPAN = 24
"""Instants: no drawn queue lasts as long."""


class Timeline:
    """The free amounts at each instant from now on, counted one by one."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.cluster = build_ledger(topology, ())
        self._free = [amounts_of(self.cluster) for _ in range(SPAN + 1)]

    def take(self, pairs: tuple[tuple[int, Vector], ...], wide: Vector, start: int, stop: int) -> None:
        """Raises `AssertionError` where more is taken than is free."""
        for at in range(start, min(stop, SPAN)):
            free, licences = self._free[at]
            for node, amounts in pairs:
                position = self._topology.positions[node]
                free[position] = subtract(free[position], amounts)
                assert min(free[position]) >= 0, f"node {node} gives too much at {at}"
            licences -= sum(wide)
            assert licences >= 0, f"too many licences at {at}"
            self._free[at] = free, licences

    def first(self, parts: list[Part], duration: int) -> int | None:
        """The first instant at which all parts fit, by trying."""
        for at in range(SPAN):
            if is_possible(parts, *least(self._free, at, at + duration), self.cluster):
                return at
        return None


def starts_of(seed: int, kind: str, policy: str) -> list[tuple[int | None, int | None]]:
    """By job (its planned start, the first one by trying behind the starts of the jobs before it)."""
    draw = random.Random(seed)
    topology = cluster(draw, disjoint=kind == "disjoint").topology
    timeline = Timeline(topology)
    running: dict[tuple[int, int], Running] = {}
    for position, total in enumerate(topology.totals):
        amounts = tuple(draw.randint(0, amount) for amount in total)
        if draw.random() < 0.7:
            pairs = ((topology.numbers[position], amounts),)
            stop = draw.randint(1, 4)
            running[100 + position, 1] = Running(100 + position, pairs, NOW + stop)
            timeline.take(pairs, (), 0, stop)
    jobs: list[tuple[Pending, list[Part]]] = []
    for job_id in range(1, draw.randint(2, 5)):
        parts = parts_of(draw, timeline.cluster, kind)
        pending = tuple(PendingPart(request, name) for request, name in parts)
        first = pending[0]
        limit = draw.randint(1, 3)
        jobs.append(
            (
                Pending(job_id, first.request, first.partition, limit, submitted_us=job_id, parts=pending),
                parts,
            )
        )
    queue = PendingQueue([job for job, _ in jobs])
    snapshot = Snapshot.take(
        build_ledger(topology, running.values()),
        {name: PartitionView(name) for name in ("a", "b")},
        queue,
        generation=0,
        now_us=NOW,
        running=running,
        known=queue.ids(),
    )
    schedule = Schedule()
    plan = plan_at_once(snapshot, policy=policy, schedule=schedule)
    schedule.book.check()
    placed = {one.job_id: one for one in plan.placements}
    found: list[tuple[int | None, int | None]] = []
    for job, parts in jobs:
        naive = timeline.first(parts, job.time_limit_us)
        start = plan.start_us(job.job_id)
        if job.job_id in placed:
            start = NOW
            spans, wide = placed[job.job_id].spans, placed[job.job_id].wide
        elif start is not None:
            (booking,) = plan.bookings[job.job_id]
            spans, wide = booking.spans, booking.wide
        if start is not None:
            pairs = sum_per_node((span.node, span.amounts) for span in spans)
            timeline.take(pairs, wide, start - NOW, start - NOW + job.time_limit_us)
        found.append((None if start is None else start - NOW, naive))
    return found


@pytest.mark.parametrize("policy", ["conservative", "planned"])
@settings(max_examples=draws(150), deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(["disjoint", "single"]))
def test_each_job_begins_at_the_first_instant_that_jobs_before_it_leave(
    policy: str, seed: int, kind: str
) -> None:
    for start, naive in starts_of(seed, kind, policy):
        assert start == naive


@pytest.mark.parametrize("policy", ["conservative", "planned"])
@settings(max_examples=draws(150), deadline=None)
@given(st.integers(0, 1 << 60))
def test_jobs_whose_parts_share_nodes_never_begin_before_all_fit(policy: str, seed: int) -> None:
    for start, naive in starts_of(seed, "any", policy):
        assert start is None or (naive is not None and start >= naive)
