"""Jobs of 100 parts (D-02) on a machine whose time is planned: the first start of all parts together, and its booking.

    python -m benchmarks.plan.parts        the figures, as JSON lines; QUICK=1 for fewer of them

All parts are of one partition, where each may be in the way of any other: of parts on nodes of their own the mapping is
faster. Times are of the processor.
"""

from __future__ import annotations

import gc
import os
import random
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Figures, median
from benchmarks.plan.ops import MACHINES, Plan
from benchmarks.plan.workload import HOUR_US, MEMORIES_MIB, PARTITION, POLICIES, of_cores, owner
from eslurm.core.plan.cycle.queue import Pending, PendingPart, QueueEntry

PARTS: Final = 100
SIZES: Final = (1, 1, 4, 16, 16, 32)
"""Cores of a part: together they stay below the limit of one user."""
FIRST_ID: Final = 1_000_000


def joint(job_id: int, rng: random.Random) -> Pending:
    """A job of so many parts of different sizes."""
    requests = [of_cores(rng.choice(SIZES), rng.choice(MEMORIES_MIB)) for _ in range(PARTS)]
    user, account = owner(rng)
    return Pending(
        job_id,
        requests[0],
        PARTITION,
        rng.choice((1, 4, 10)) * HOUR_US,
        submitted_us=job_id,
        user=user,
        account=account,
        parts=tuple([PendingPart(request, PARTITION) for request in requests]),
    )


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """plan_parts_616: milliseconds to compile, search and book one job, behind the plan of all others."""
    plan = Plan(*MACHINES["plan_ops_616"], POLICIES)
    desk = plan.desk
    count = 20 if quick else 200
    jobs = [joint(FIRST_ID + number, plan.rng) for number in range(count)]
    # Shapes of their own, beside those that the desk knows.
    entries = [QueueEntry(0, job.submitted_us, job.job_id, job.job_id, job) for job in jobs]
    desk.entries.update({entry.job_id: entry for entry in entries})
    took_s: list[float] = []
    gc.collect()
    for entry in entries:
        began = time.thread_time()
        desk.put(entry.job)
        took_s.append(time.thread_time() - began)
    figures.add("plan_parts_616", median(took_s) * 1000, "ms", count)
    figures.add("plan_parts_616_max", max(took_s) * 1000, "ms", count)
    for entry in entries:
        desk.take_out(entry.job)
    desk.schedule.book.check()


if __name__ == "__main__":
    measure(Figures(), Path(), quick=bool(os.environ.get("QUICK")))
