"""Drawn jobs and applications on small clusters under each kind of cooperation: work is conserved, no core has two users."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.queue import Pending
from eslurm.lab.applications.application import Program
from eslurm.lab.applications.batch import BatchLevel, Exclusive
from eslurm.lab.applications.core_lending import CoreLending
from eslurm.lab.applications.costs import from_seconds
from eslurm.lab.applications.paper_model import PaperModel
from eslurm.lab.applications.two_level import Course, Item, simulate
from eslurm.lab.workloads.machine import Machine, uniform
from eslurm.lab.workloads.swf import Record
from eslurm.lab.workloads.workload import Job

SECOND = 1_000_000
LEVELS = ("exclusive", "paper", "off", "report", "full")


def level_of(name: str, machine: Machine, policy: str) -> BatchLevel:
    if name == "exclusive":
        return Exclusive(machine, policy)
    return PaperModel(machine, policy) if name == "paper" else CoreLending(machine, policy, name, 0)


def item(number: int, submit_s: int, processors: int, limit_s: int, program: Program) -> Item:
    pending = Pending(
        job_id=number,
        request=Request(tasks=processors),
        partition="all",
        time_limit_us=limit_s * SECOND,
        submitted_us=submit_s * SECOND,
    )
    record = Record(number, submit_s, run_s=0, requested=processors, requested_s=limit_s, user=number % 3)
    return Item(Job(pending, record, submit_s * SECOND, 0, processors), program)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Machine, list[Item]]:
    machine = uniform(draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    items = []
    submit_s = 0
    for number in range(1, draw(st.integers(2, 10)) + 1):
        submit_s += draw(st.sampled_from([0, 0, 5, 60]))
        seconds = draw(st.lists(st.sampled_from([0.0, 1.0, 7.0, 90.0]), min_size=1, max_size=24))
        technique = draw(st.sampled_from(["STATIC", "SS", "GSS", "FAC", "FAC2", "AF", "AWF-C"]))
        program = Program(from_seconds(seconds), technique)
        processors = draw(st.integers(1, machine.processors))
        limit_s = draw(st.sampled_from([30, 600, 7_200]))
        items.append(item(number, submit_s, processors, limit_s, program))
    return machine, items


@given(workloads(), st.sampled_from(LEVELS), st.sampled_from(["fcfs", "easy", "conservative"]))
def test_work_is_conserved_and_no_core_has_two_users(
    workload: tuple[Machine, list[Item]], name: str, policy: str
) -> None:
    machine, items = workload

    def course() -> Course:
        # The loop's own account raises when a core is used twice, or by a job that has left it.
        level = level_of(name, machine, policy)
        return simulate(items, machine, level, traced=True, patience_us=SECOND)

    found = course()
    assert found.digest == course().digest
    assert sorted(one.job.pending.job_id for one in found.lived) == [one.job.pending.job_id for one in items]
    assert found.busy_us == sum(one.program.costs.total_us for one in items)
    for core in found.cores():
        mine = sorted(
            (task.chunk.begin_us, task.chunk.end_us) for task in found.tasks if task.chunk.core == core
        )
        assert all(end_us <= begin_us for (_, end_us), (begin_us, _) in pairwise(mine))
    tasks: dict[int, list[int]] = {}
    for task in found.tasks:
        tasks.setdefault(task.job_id, []).extend(range(task.chunk.start, task.chunk.stop))
    for one in items:
        assert sorted(tasks[one.job.pending.job_id]) == list(range(one.program.costs.n))
    for one in found.lived:
        assert one.start_us >= one.job.submit_us and len(set(one.cores)) == one.job.processors
    if name in ("exclusive", "off"):
        assert not found.lent and not found.lent_us
