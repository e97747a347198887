"""Packs in a full queue (D-04): planning a thousand of them, and a queue with a tenth of packs beside the same without.

    python -m benchmarks.plan.packs        the figures, as JSON lines; QUICK=1 for fewer of them

Three drawn jobs make a pack, the second and the third up to four hours after the first. Invariant: each planned pack has
places for all members, exactly at their delays. Times are of the processor.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figures, median
from benchmarks.plan.ops import MACHINES
from benchmarks.plan.replan import JOBS, NODES, Site
from benchmarks.plan.workload import CORES, HOUR_US, LARGE_CORES, backlog, large, views
from eslurm.core.plan.cycle.queue import Follower, Pending

MEMBERS: Final = 3
PACKS: Final = 1_000
SHARE: Final = 10
"""One of so many entries of the queue is a pack."""


def pack(jobs: Sequence[Pending], rng: random.Random) -> Pending:
    """A pack of these jobs."""
    first, *others = jobs
    owner = {"user": first.user, "account": first.account, "submitted_us": first.submitted_us}
    delays = sorted(rng.choice((0, 1, 2, 4, 8)) * HOUR_US // 2 for _ in others)
    followers = [Follower(delay, replace(job, **owner)) for delay, job in zip(delays, others, strict=True)]
    return replace(first, followers=tuple(followers))


def in_packs(jobs: Sequence[Pending], rng: random.Random) -> Iterator[Pending]:
    """All of the jobs in packs, in their order."""
    for at in range(0, len(jobs) - MEMBERS + 1, MEMBERS):
        yield pack(jobs[at : at + MEMBERS], rng)


def with_packs(count: int, rng: random.Random) -> Iterator[Pending]:
    """So many entries, each tenth of them a pack of jobs like the others."""
    jobs = large(count + (MEMBERS - 1) * (count // SHARE))
    for number in range(count):
        yield pack([next(jobs) for _ in range(MEMBERS)], rng) if number % SHARE == 0 else next(jobs)


def check(site: Site) -> int:
    """The number of planned packs. Raises `AssertionError` for one with places for some members only, or other delays."""
    found = 0
    for job_id, bookings in site.schedule.bookings.items():
        job = site.schedule.entries[job_id].job
        if job.followers:
            found += 1
            assert [one.job_id for one in bookings] == [one.job_id for one in job.members]
            assert [one.start_us - bookings[0].start_us for one in bookings] == list(job.delays_us)
    return found


def many(figures: Figures, *, quick: bool) -> None:
    """A thousand packs on a full machine of 616 nodes."""
    nodes, hours = MACHINES["plan_ops_616"]
    count = PACKS // 10 if quick else PACKS
    rng = random.Random(nodes)
    jobs = sorted(
        [job for some in backlog(nodes, hours, rng).values() for job in some], key=lambda one: one.job_id
    )
    site = Site(views(nodes), CORES, list(in_packs(jobs[: count * MEMBERS], rng)))
    gc.collect()
    took_s = site.cycle()
    assert check(site) == count
    figures.add("plan_packs_616_s", took_s, "s", count)
    figures.add("plan_packs_616_slots", site.schedule.book.slots, "slots", count)


def mixed(figures: Figures, *, quick: bool) -> None:
    """A whole queue planned anew, and one more cycle in which all of it may move up, with packs and without."""
    count = JOBS // 10 if quick else JOBS
    nodes = NODES // 10 if quick else NODES
    queues = {
        "plain": list(large(count)),
        "packs": list(with_packs(count, random.Random(count))),
    }
    for name, jobs in queues.items():
        site = Site(views(nodes, LARGE_CORES), LARGE_CORES, jobs)
        site.cycle()
        times_s, moves_s = [], []
        for _ in range(1 if quick else 3):
            gc.collect()
            site.forget_plans()
            times_s.append(site.cycle())
            check(site)
            site.schedule.freed = site.schedule.book.topology.everything
            moves_s.append(site.cycle())
        figures.add(f"replan_10k_{name}_s", median(times_s), "s", count)
        figures.add(f"move_up_10k_{name}_s", median(moves_s), "s", count)


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """plan_packs_616_s, replan_10k_packs_s beside replan_10k_plain_s, and the same of a pass that moves jobs up."""
    many(figures, quick=quick)
    mixed(figures, quick=quick)


if __name__ == "__main__":
    measure(Figures(), Path(), quick=bool(os.environ.get("QUICK")))
