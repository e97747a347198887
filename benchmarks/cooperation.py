"""Costs of applications that report their cores: the controller's part of each report, and of each loan.

`python -m benchmarks.cooperation` builds a state of 1,000 nodes with a reporting job on each, and counts the CPU time of
decoding and deciding what 1,000 applications say at one report a second each (R-01), alone and while jobs borrow.
"""

from __future__ import annotations

import time

from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.control.reactor import Reactor
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal, Span
from eslurm.core.model.messages import (
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    NodeOutcome,
    PlanMade,
    Reports,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import CoresReported, Registration, Report
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.state.cluster import State
from eslurm.links.codec import report_from_pb, report_to_pb

NODES = 1_000
CORES = 16
ROUNDS = 20
BATCH = 50
"""Reports that arrive together: satellites gather them for some milliseconds."""
USER = Principal("user", 1000, 1000)


def main() -> None:
    """Print the figures."""
    state = State("main")
    reactor = Reactor(state)
    now_us = 1_000_000_000_000
    names = tuple(f"cn{number:04}" for number in range(NODES))
    nodes = tuple(NodeConfig(name, (CORES, 1_000)) for name in names)
    reactor.process(
        [ConfigLoaded(ClusterConfig("b", nodes, (Partition("main", names, default=True),)))], now_us
    )
    reactor.process([EpochStarted(1)], now_us)
    registrations = [
        Report("agent", number + 1, Registration(name, f"u-{name}", "b", "s", 1, "h:1", (CORES, 1_000)))
        for number, name in enumerate(names)
    ]
    reactor.process([Reports(tuple(registrations))], now_us)
    owners = start(reactor, now_us, "owner", CORES, cooperate="full")
    spent_s, count = reported(reactor, owners, now_us)
    say("a report that changes the idle cores, with nothing to lend to", spent_s, count)
    for _ in range(NODES):
        submit(reactor, now_us, "borrower", 2, borrow="requeue")
    began_s = time.process_time()
    loans = lend(reactor, owners, now_us)
    say(f"a loan, from the report to the placement ({loans} loans)", time.process_time() - began_s, loans)
    spent_s, count = reported(reactor, owners, now_us, least=8)
    say("a report while 1,000 jobs borrow", spent_s, count)


def say(what: str, spent_s: float, count: int) -> None:
    """Print one figure."""
    each_us = spent_s / count * 1e6
    print(f"{what}: {each_us:.1f} us of CPU; 1,000 a second are {each_us / 10:.1f} % of a core")


def submit(reactor: Reactor, now_us: int, name: str, cores: int, **spec: str) -> int:
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
    (answer,) = reactor.process([SubmitJobs((one,))], now_us).answers
    assert isinstance(answer, Submitted), answer
    return answer.job_ids[0]


def start(reactor: Reactor, now_us: int, name: str, cores: int, **spec: str) -> list[int]:
    """One running job on each node."""
    jobs = [submit(reactor, now_us, name, cores, **spec) for _ in range(NODES)]
    until_us = now_us + 3_600_000_000
    placements = tuple(Placement(job, (Span(node, (cores, 0)),), until_us) for node, job in enumerate(jobs))
    batch = reactor.process([PlanMade(placements, reactor.state.generation)], now_us)
    for effect in batch.effects:
        answer(reactor, effect.revision, effect.nodes, now_us)
    return jobs


def answer(reactor: Reactor, revision: int, nodes: tuple[int, ...], now_us: int) -> None:
    """All nodes have done what they were told."""
    reactor.process([EffectDone(revision, 0, (NodeOutcome(nodes, "ok"),))], now_us)


def reported(reactor: Reactor, owners: list[int], now_us: int, *, least: int = 0) -> tuple[float, int]:
    """CPU seconds for some seconds of reports, and their number: idle cores change with each one."""
    wire = [
        [
            report_to_pb(
                Report(
                    "agent",
                    seq + 1,
                    CoresReported(node, 1, job, 1, least + (turn + node) % 4, 0, 1_000 - turn),
                )
            )
            for seq, (node, job) in enumerate(enumerate(owners))
        ]
        for turn in range(ROUNDS)
    ]
    began_s = time.process_time()
    for batch in wire:
        for at in range(0, len(batch), BATCH):
            reports = tuple(map(report_from_pb, batch[at : at + BATCH]))
            reactor.process([Reports(reports)], now_us)
    return time.process_time() - began_s, ROUNDS * len(owners)


def lend(reactor: Reactor, owners: list[int], now_us: int) -> int:
    """Each owner lends two cores to a job that waits; the number of loans."""
    for at in range(0, len(owners), BATCH):
        some = owners[at : at + BATCH]
        reports = [
            Report("agent", 1, CoresReported(at + number, 1, job, 1, 8)) for number, job in enumerate(some)
        ]
        batch = reactor.process([Reports(tuple(reports))], now_us)
        for effect in batch.effects:
            answer(reactor, effect.revision, effect.nodes, now_us)
    loans = 0
    while True:
        plan = exhaust(plan_slices(reactor.state, now_us, None, PlanLimits()))
        message = message_of(plan)
        if message is None:
            return loans
        reactor.process([message], now_us)
        loans += len(plan.placements)


if __name__ == "__main__":
    main()
