"""Time to put 60,000 waiting jobs in order by computed priority (theirs: 20 ms, C-55).

`sort_60k_ms` is the sort: keys are at hand, jobs come in order of submission. Besides: computing all of them anew from
factors, the longest single slice of that, and taking over what a cycle finds changed.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Generator
from typing import Any, Final

from benchmarks.figures import Figures, median
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.priority import PRIORITY_DEFAULT, PriorityInputs, Ranking, sorted_entries
from eslurm.core.plan.cycle.queue import Pending, PendingQueue, QueueEntry

JOBS: Final = 60_000
CHANGED: Final = 100
USERS: Final = 300
WEIGHTS: Final = PriorityWeights(age=1_000, fairshare=10_000, size=500, partition=1_000, qos=2_000)


def run(figures: Figures, *, quick: bool = False) -> None:
    """Measure and print."""
    rounds = 5 if quick else 15
    queue, standing = site()
    entries = queue.first(len(queue))
    ranking = Ranking()
    _drive(ranking.refresh(standing, JOBS * SECOND_US))
    _drive(ranking.sync(entries))
    at_hand = sorted(ranking.ordered(), key=lambda entry: (entry.submitted_us, entry.job_id))
    figures.add("sort_60k_ms", _median_ms(lambda: _drive(sorted_entries(at_hand)), rounds), "ms", rounds)
    figures.add(
        "rank_60k_unchanged_ms", _median_ms(lambda: _drive(ranking.sync(entries)), rounds), "ms", rounds
    )
    figures.add("rank_60k_changed_100_ms", _changed_ms(queue, ranking, rounds), "ms", rounds)
    slices: list[list[float]] = [_slices_ms(ranking.refresh(standing, at)) for at in range(rounds)]
    figures.add("rank_60k_anew_ms", median(map(sum, slices)), "ms", rounds)
    figures.add("rank_60k_slice_max_ms", median(map(max, slices)), "ms", rounds)


def site() -> tuple[PendingQueue, PriorityInputs]:
    """A long queue of many users' jobs in every partition and QOS, and where their owners stand."""
    draw = random.Random(1)
    users = [(f"a{number % 20}", f"u{number}") for number in range(USERS)]
    requests = [Request(tasks=2**size) for size in range(8)]
    jobs = []
    for number in range(JOBS):
        account, user = draw.choice(users)
        jobs.append(
            Pending(
                number + 1,
                draw.choice(requests),
                draw.choice(("main", "long", "gpu")),
                3_600 * SECOND_US,
                priority=PRIORITY_DEFAULT,
                submitted_us=number * SECOND_US,
                user=user,
                account=account,
                qos=draw.choice(("", "high")),
            )
        )
    fair = {pair: draw.random() for pair in users}
    partitions = {"main": 0.1, "long": 0.5, "gpu": 1.0}
    standing = PriorityInputs(WEIGHTS, fair, {}, partitions, {"high": 1.0}, nodes=1_000, cores=16_000)
    return PendingQueue(jobs), standing


def _changed_ms(queue: PendingQueue, ranking: Ranking, rounds: int) -> float:
    """One cycle's look after some jobs have started and as many others have come."""
    draw = random.Random(2)
    times = []
    for _ in range(rounds):
        for entry in draw.sample(queue.first(len(queue)), CHANGED):
            queue.remove(entry.job_id)
            queue.add(entry.job)
        entries: list[QueueEntry] = queue.first(len(queue))
        times.append(_median_ms(lambda entries=entries: _drive(ranking.sync(entries)), 1))  # type: ignore[misc]
    return median(times)


def _median_ms(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        gc.collect()
        began_s = time.process_time()
        work()
        times.append((time.process_time() - began_s) * 1_000)
    return median(times)


def _slices_ms(slices: Generator[None, None, Any]) -> list[float]:
    times = []
    while True:
        began_s = time.process_time()
        ended = next(slices, slices) is slices
        times.append((time.process_time() - began_s) * 1_000)
        if ended:
            return times


def _drive(slices: Generator[None, None, Any]) -> None:
    for _ in slices:
        pass


if __name__ == "__main__":
    run(Figures())
