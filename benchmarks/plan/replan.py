"""Whole cycles of the planner under policy `planned`: everything anew, one arrival, one large array. CPU times."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.figures import Figures, median
from benchmarks.plan.desk import LIMITS
from benchmarks.plan.ops import MACHINES, Plan
from benchmarks.plan.workload import HOUR_US, LARGE_CORES, PARTITION, POLICIES, large, views
from esctld.lead.gc_tuning import give_back_to_collector, spare_collector
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust, plan_at_once
from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import Pending, PendingQueue, QueueEntry
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, Snapshot, build_ledger, changes_since
from eslurm.core.resources.nodes import Topology

NODES: Final = 10_000
JOBS: Final = 10_000
RUNNING_NODES: Final = 16
"""Nodes of each running job; together they hold the whole machine."""
ARRAY_TASKS: Final = 10_000


class Site:
    """A machine that is full, a queue, and the planner's schedule; time stands still."""

    def __init__(self, nodes: Sequence[NodeView], cores: int, jobs: Sequence[Pending]) -> None:
        self._running = {(one.job_id, 1): one for one in fill(len(nodes), cores)}
        self._ledger = build_ledger(Topology(nodes), self._running.values())
        self._queue = PendingQueue()
        self._policies_changed = 0
        self.schedule = Schedule()
        self.cycle()
        for job in jobs:
            self._queue.add(job)

    def cycle(self) -> float:
        """One cycle from snapshot to plan; the seconds it took."""
        began = time.thread_time()
        plan_at_once(self.snapshot(), policy="planned", limits=LIMITS, schedule=self.schedule)
        return time.thread_time() - began

    def arrive(self, job: Pending) -> None:
        """One more waits."""
        self._queue.add(job)

    def leave(self, job: Pending) -> None:
        """It waits no longer."""
        self._queue.remove(job.job_id)

    def change_policies(self) -> None:
        """The next cycle holds every plan against other limits."""
        self._policies_changed += 1

    def forget_plans(self) -> None:
        """The next cycle plans everything anew, as after a restart; what runs is in the book already."""
        queue, self._queue = self._queue, PendingQueue()
        self.schedule = Schedule()
        self.cycle()
        self._queue = queue

    def snapshot(self) -> Snapshot:
        """As the controller takes it."""
        since = self.schedule.mark
        changes = changes_since(since, self._queue, None)
        return Snapshot.take(
            self._ledger,
            {PARTITION: PartitionView(PARTITION)},
            self._queue,
            generation=1,
            now_us=0,
            running=self._running,
            known=self.schedule.known_jobs(changes),
            since=since,
            policies_changed=self._policies_changed,
        )


def fill(nodes: int, cores: int) -> Iterator[Running]:
    """Jobs that hold every core, and end one after another within two days."""
    for number, first in enumerate(range(0, nodes, RUNNING_NODES)):
        held = range(first, min(first + RUNNING_NODES, nodes))
        spans = tuple((node, (cores, cores * 500)) for node in held)
        yield Running(10_000_000 + number, spans, (1 + number * 7 % 48) * HOUR_US)


def replan(figures: Figures, nodes: int, count: int, *, quick: bool) -> None:
    """All jobs lose their places and are planned again, limits change; then one more job comes."""
    site = Site(views(nodes, LARGE_CORES), LARGE_CORES, list(large(count)))
    figures.add("plan_first_10k_s", site.cycle(), "s", count)
    times_s = []
    for _ in range(1 if quick else 3):
        gc.collect()
        site.forget_plans()
        times_s.append(site.cycle())
    figures.add("replan_10k_s", median(times_s), "s", count)
    site.change_policies()
    figures.add("other_limits_10k_s", site.cycle(), "s", count)
    figures.add("replan_10k_slots", site.schedule.book.slots, "slots", len(site.schedule.bookings))
    one_job(figures, site, count, quick=quick)


def one_job(figures: Figures, site: Site, count: int, *, quick: bool) -> None:
    """Cost of an arriving job: planning it, and the whole cycle that finds it in the queue."""
    arriving = [
        msgspec.structs.replace(job, job_id=count + job.job_id, submitted_us=count + job.job_id)
        for job in list(large(count))[:: max(1, count // (100 if quick else 400))]
    ]
    cycles_ms, plans_ms = [], []
    for number, job in enumerate(arriving):
        site.arrive(job)
        if number % 5 == 0:
            cycles_ms.append(site.cycle() * 1000)
        else:
            cycle = Cycle(site.snapshot(), site.schedule, LIMITS)
            entry = next(entry for entry in cycle.snapshot.pending if entry.job_id == job.job_id)
            began = time.thread_time()
            exhaust(ForwardPlanner(cycle).plan(entry))
            plans_ms.append((time.thread_time() - began) * 1000)
        site.schedule.remove(job.job_id)
        site.leave(job)
    figures.add("plan_one_ms", median(plans_ms), "ms", len(plans_ms))
    figures.add("plan_one_cycle_ms", median(cycles_ms), "ms", len(cycles_ms))


def array(figures: Figures, *, quick: bool) -> None:
    """An array of one-core tasks among the jobs of the plan operations, limits and FreePool in force."""
    nodes, hours = MACHINES["plan_ops_616"]
    plan = Plan(nodes, hours // 4 if quick else hours, POLICIES)
    job = Pending(
        1_000_000,
        Request(memory_per_cpu_mib=2000),
        PARTITION,
        2 * HOUR_US,
        submitted_us=1_000_000,
        startable=ARRAY_TASKS,
        user="array",
        account="array",
    )
    desk = plan.desk
    began = time.thread_time()
    exhaust(ForwardPlanner(desk.cycle).plan(QueueEntry(0, job.submitted_us, job.job_id, -1, job)))
    took_s = time.thread_time() - began
    placed = desk.schedule.tasks_booked(job.job_id) + len(desk.cycle.placements)
    if placed != ARRAY_TASKS:
        raise AssertionError(f"{placed} of {ARRAY_TASKS} tasks have a place")
    figures.add("array_10k_s", took_s, "s", ARRAY_TASKS)


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """replan_10k_s, plan_one_ms, array_10k_s; what is collected, and when, is as in the controller."""
    spare_collector()
    try:
        replan(figures, NODES, JOBS, quick=quick)
        array(figures, quick=quick)
    finally:
        give_back_to_collector()


if __name__ == "__main__":
    measure(Figures(), Path(), quick=True)
