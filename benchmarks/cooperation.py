"""Costs of applications that report their cores: the controller's part of each report, and of each loan.

A state of 1,000 nodes with a reporting job on each. Counted is the CPU time of the whole process for decoding, deciding and
committing to SQLite what 1,000 applications say at one report a second each (R-01): while no job borrows, while 1,000 jobs
borrow, and in the dearest case, where a job waits that no idle core suits, so that reports change exclusions.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import loans
from benchmarks.figures import Figures
from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.control.reactor import Batch, Reactor
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal, Span
from eslurm.core.model.messages import (
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    Message,
    NodeOutcome,
    PlanMade,
    Reports,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import CoresReported, Registration, Report
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.state.cluster import State
from eslurm.core.state.core_reports import RISE_EVERY_US, RISES_AT_ONCE
from eslurm.links.codec import report_from_pb, report_to_pb
from eslurm.store.rows import to_store
from eslurm.store.sql import SqlStore

NODES = 1_000
CORES = 16
ROUNDS = 20
SETTLE_S = RISES_AT_ONCE * RISE_EVERY_US // SECOND_US
BATCH = 50
"""Reports that arrive together: satellites gather them for some milliseconds."""
USER = Principal("user", 1000, 1000)


def measure(figures: Figures, directory: Path, *, quick: bool) -> None:
    """report_cpu_us, report_borrowed_cpu_us, report_excluding_cpu_us, each also as percent of a core at 1,000 a second;
    loan_cpu_us; and the times of `loans`.
    """
    rounds = 5 if quick else ROUNDS
    with leading(directory / "cooperation.db") as leader:
        owners = start(leader, "owner", CORES, cooperate="full")
        add(figures, "report", *reported(leader, owners, rounds))
        for _ in owners:
            submit(leader, "borrower", 2, borrow="requeue")
        began_s = time.process_time()
        count = lend(leader, owners)
        figures.add("loan_cpu_us", (time.process_time() - began_s) / count * 1e6, "us", count)
        add(figures, "report_borrowed", *reported(leader, owners, rounds, least=8))
        submit(leader, "unsuited", CORES, borrow="requeue")
        # At first nodes are asked more often.
        reported(leader, owners, SETTLE_S, least=8)
        add(figures, "report_excluding", *reported(leader, owners, rounds, least=8))
    loans.measure(figures, directory, quick=quick)


def add(figures: Figures, name: str, spent_s: float, count: int) -> None:
    """One cost, and its share of a core at a thousand a second."""
    each_us = spent_s / count * 1e6
    figures.add(f"{name}_cpu_us", each_us, "us", count)
    figures.add(f"{name}_1000_core_percent", each_us / 10, "%", count)


class Leader:
    """A controller's core on a store; its clock moves when it is told to."""

    def __init__(self, store: SqlStore, runner: asyncio.Runner) -> None:
        self.state = State("main")
        self.now_us = 1_000_000_000_000
        self._reactor = Reactor(self.state)
        self._store = store
        self._runner = runner

    def process(self, messages: Sequence[Message]) -> Batch:
        """Decide about the messages, and commit what follows, if anything does."""
        batch = self._reactor.process(messages, self.now_us)
        if batch.facts:
            self._runner.run(self._store.commit(to_store(self.state, batch)))
        return batch


@contextlib.contextmanager
def leading(path: Path) -> Iterator[Leader]:
    """A leader of so many nodes, all up, on a store of its own."""
    with asyncio.Runner() as runner:
        store = SqlStore(f"sqlite:///{path}", "b")
        epoch = runner.run(store.open("main"))
        leader = Leader(store, runner)
        names = tuple(f"cn{number:04}" for number in range(NODES))
        nodes = tuple(NodeConfig(name, (CORES, 1_000)) for name in names)
        leader.process([ConfigLoaded(ClusterConfig("b", nodes, (Partition("main", names, default=True),)))])
        leader.process([EpochStarted(epoch)])
        registrations = [
            Report(
                "agent",
                number + 1,
                Registration(name, f"u-{name}", "b", "s", epoch, "h:1", (CORES, 1_000)),
            )
            for number, name in enumerate(names)
        ]
        leader.process([Reports(tuple(registrations))])
        try:
            yield leader
        finally:
            runner.run(store.close())


def submit(leader: Leader, name: str, cores: int, **spec: str) -> int:
    """A submitted job's id."""
    one = JobSpec(
        name,
        USER,
        "",
        (Request(cpus_per_task=cores),),
        b"s" * 32,
        b"e" * 32,
        "/tmp",
        time_limit_s=3_600,
        **spec,  # type: ignore[arg-type]
    )
    (answer,) = leader.process([SubmitJobs((one,))]).answers
    assert isinstance(answer, Submitted), answer
    return answer.job_ids[0]


def start(leader: Leader, name: str, cores: int, **spec: str) -> list[int]:
    """One running job on each node."""
    jobs = [submit(leader, name, cores, **spec) for _ in range(NODES)]
    until_us = leader.now_us + 3_600_000_000
    placements = tuple(Placement(job, (Span(node, (cores, 0)),), until_us) for node, job in enumerate(jobs))
    batch = leader.process([PlanMade(placements, leader.state.generation)])
    carried_out(leader, batch)
    return jobs


def carried_out(leader: Leader, batch: Batch) -> None:
    """All nodes have done what they were told; their answers arrive together, as reports do."""
    done = [EffectDone(effect.revision, 0, (NodeOutcome(effect.nodes, "ok"),)) for effect in batch.effects]
    leader.process(done)


def reported(leader: Leader, owners: list[int], rounds: int, *, least: int = 0) -> tuple[float, int]:
    """CPU seconds for some seconds of reports, and their number: idle cores change with each one."""
    spent_s = 0.0
    for turn in range(rounds):
        leader.now_us += SECOND_US
        wire = [report_to_pb(word(leader, job, least + (turn + node) % 4)) for node, job in enumerate(owners)]
        for at in range(0, len(wire), BATCH):
            began_s = time.process_time()
            batch = leader.process([Reports(tuple(map(report_from_pb, wire[at : at + BATCH])))])
            carried_out(leader, batch)
            spent_s += time.process_time() - began_s
    return spent_s, rounds * len(owners)


def word(leader: Leader, job: int, idle: int) -> Report:
    """A report of an application that has all nodes' cores and leaves to others what it is told to leave."""
    attempt = leader.state.get_job(job).attempt
    assert attempt is not None
    (node,) = attempt.held
    excluded = sum(one.cores for one in attempt.exclusions)
    return Report("agent", node + 1, CoresReported(node, 1, job, 1, idle, excluded, 1_000))


def lend(leader: Leader, owners: list[int]) -> int:
    """Each owner lends two cores to a job that waits; the number of loans."""
    for at in range(0, len(owners), BATCH):
        reports = tuple([word(leader, job, 8) for job in owners[at : at + BATCH]])
        carried_out(leader, leader.process([Reports(reports)]))
    count = 0
    while True:
        plan = exhaust(plan_slices(leader.state, leader.now_us, None, PlanLimits()))
        message = message_of(plan)
        if message is None:
            return count
        leader.process([message])
        count += len(plan.placements)
