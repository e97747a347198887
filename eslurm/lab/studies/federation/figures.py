"""The figures of one run.

Messages are calls of the store, deliveries by its watches and messages between cells, each counted once however many keys it
has. Times are of jobs that have started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from eslurm.lab.studies.federation.shape import Shape
from eslurm.lab.studies.federation.world import Outcome, World

POLL_S: Final = 1.0
"""The interval at which a cell would ask for the end of a job on other cells' nodes, without a watch (S-07)."""
LARGEST: Final = 0.1
"""The share of jobs, those with most nodes, whose waits are shown apart."""


class Messages(msgspec.Struct, frozen=True):
    """A job's messages, as means over jobs that have started, by kind."""

    reads: float
    claims: float
    failed_claims: float
    returns: float
    """Lenders' changes of their own pools, failed ones included."""
    summaries: float
    watched: float
    links: float
    total: float


class Figures(msgspec.Struct, frozen=True):
    """Costs and results of a strategy. `spread`: jobs that ran on nodes of other cells, as a part of all.

    `allocate` is from the moment at which a cell begins to look for nodes, `wait` from the submission. `idle` is what
    searches and tickets held without a job, per job and as a part of what jobs used. `polls_saved`: what polling of jobs'
    ends would have added, as a part of all messages then. `store_busy` is the time that the store's server was at work.
    """

    strategy: str
    shape: Shape
    started: int
    not_started: int
    messages: Messages
    failed_share: float
    """Claims that met another change, as a part of all."""
    allocate_p50_ms: float
    allocate_p99_ms: float
    wait_p50_s: float
    wait_p99_s: float
    wait_max_s: float
    largest_wait_p50_s: float
    largest_wait_max_s: float
    idle_node_s: float
    idle_share: float
    spread: float
    polls_saved: float
    store_busy: float
    rate: float
    """Jobs started a second, from the first submission to the last start."""
    rates_sum: float
    """The sum over cells of the same for the jobs of each (S-22)."""


def run(
    shape: Shape, strategy: str, progress: Callable[[int, int], None] = lambda done, total: None
) -> Figures:
    """One run. `progress` hears of jobs that have started, and of how many."""
    world = World(shape, strategy)
    world.run(progress)
    return measure(world, strategy)


def measure(world: World, strategy: str) -> Figures:
    """The figures of a run that is over."""
    outcomes, counted = world.outcomes, world.counters
    started = [one for one in outcomes if one.started_us >= 0]
    count = max(1, len(started))
    largest = sorted(outcomes, key=lambda one: (-one.job.nodes, one.job.serial))
    largest = largest[: max(1, round(LARGEST * len(outcomes)))]
    allocate = sorted(one.started_us - one.began_us for one in started)
    waits = sorted(_wait_us(one, world.clock.now_us) for one in outcomes)
    largest_waits = sorted(_wait_us(one, world.clock.now_us) for one in largest)
    idle_us = world.booked_node_us + sum(one.idle_node_us for one in outcomes)
    used_us = sum(one.job.nodes * one.job.run_us for one in started)
    foreign = [one for one in started if one.foreign]
    polls = sum(one.job.run_us for one in foreign) / 1e6 / POLL_S
    claims = counted.claims + counted.failed_claims
    return Figures(
        strategy=strategy,
        shape=world.shape,
        started=len(started),
        not_started=len(outcomes) - len(started),
        messages=Messages(
            reads=counted.reads / count,
            claims=counted.claims / count,
            failed_claims=counted.failed_claims / count,
            returns=(counted.returns + counted.failed_returns) / count,
            summaries=counted.summaries / count,
            watched=counted.watched / count,
            links=counted.links / count,
            total=counted.total() / count,
        ),
        failed_share=counted.failed_claims / max(1, claims),
        allocate_p50_ms=_at(allocate, 0.5) / 1e3,
        allocate_p99_ms=_at(allocate, 0.99) / 1e3,
        wait_p50_s=_at(waits, 0.5) / 1e6,
        wait_p99_s=_at(waits, 0.99) / 1e6,
        wait_max_s=_at(waits, 1.0) / 1e6,
        largest_wait_p50_s=_at(largest_waits, 0.5) / 1e6,
        largest_wait_max_s=_at(largest_waits, 1.0) / 1e6,
        idle_node_s=idle_us / 1e6 / count,
        idle_share=idle_us / max(1, used_us),
        spread=len(foreign) / count,
        polls_saved=polls / max(1.0, polls + counted.total()),
        store_busy=world.store.busy_us / max(1, world.clock.now_us),
        rate=_rate(started),
        rates_sum=sum(_rate(jobs) for jobs in _by_cell(started)),
    )


def _wait_us(one: Outcome, end_us: int) -> int:
    """From the submission to the start, or to the end of the run."""
    return max(0, (one.started_us if one.started_us >= 0 else end_us) - one.job.at_us)


def _at(ordered: Sequence[int], share: float) -> int:
    """The quantile of values in ascending order; 0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def _rate(jobs: Sequence[Outcome]) -> float:
    if not jobs:
        return 0.0
    took_us = max(one.started_us for one in jobs) - min(one.job.at_us for one in jobs)
    return len(jobs) / max(took_us, 1) * 1e6


def _by_cell(jobs: Sequence[Outcome]) -> list[list[Outcome]]:
    found: dict[int, list[Outcome]] = {}
    for one in jobs:
        found.setdefault(one.job.cell, []).append(one)
    return list(found.values())
