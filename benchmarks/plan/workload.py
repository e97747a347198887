"""The jobs that the planner is measured with: sizes and owners as at the site of the paper, on machines like its own.

Sizes are those of C-53, the number of users and groups that of C-52, the machines have the shape of OCuLUS and ARMINIUS
(C-50, C-51). Everything follows from a seed. Two limits and a FreePool are in force; they move jobs, and refuse none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from eslurm.core.model.accounts import Access, Amount, FreePool, Limit, Policy
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.resources.nodes import NodeView

HOUR_US: Final = 3_600 * SECOND_US
CORES: Final = 16
MEMORIES_MIB: Final = (1000, 2000, 3500)
"""Per core; the same jobs with different memory keep the planner from treating cores alone."""
LIMITS_H: Final = (0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8)
"""Time limits, as factors of a size's average run time."""

SIZES: Final = (
    (16, 57_516, 10, 17.75),
    (32, 9_701, 25, 14.19),
    (1024, 277, 19, 10.34),
    (768, 468, 10, 6.63),
    (64, 3_883, 13, 6.30),
    (128, 14_002, 1, 4.74),
    (256, 684, 13, 4.40),
    (1536, 77, 16, 3.62),
    (1, 1_480_565, 1, 3.55),
    (512, 151, 16, 2.33),
)
"""(cores, jobs, hours, share of the occupied core hours in percent): C-53."""

ONE_CORE_DIVISOR: Final = 4
"""One-core jobs are most of all jobs anyway: only one in so many of those that would fill their share is planned."""

PARTITION: Final = "main"
USERS: Final = 200
GROUPS: Final = 70
LARGE_SHAPES: Final = 300
LARGE_CORES: Final = 64

_WEIGHTS: Final = list(accumulate(1 / rank for rank in range(1, USERS + 1)))
POOL: Final = FreePool("short", "cores", Amount(percent=4), (Access(time_max_s=3_600),))
POLICIES: Final[Mapping[str, Mapping[str, Policy]]] = {
    "limit": {
        "user": Limit("user", "user", "*", "cores", Amount(percent=20)),
        "account": Limit("account", "account", "*", "cores", Amount(percent=30)),
    },
    "pool": {"short": POOL},
}


def views(nodes: int, cores: int = CORES) -> list[NodeView]:
    """Nodes of 64 GiB, each twentieth of 256."""
    return [
        NodeView(number, f"n{number}", (cores, 65_536 if number % 20 else 262_144), True, (PARTITION,))
        for number in range(nodes)
    ]


def of_cores(cores: int, memory_mib: int) -> Request:
    """Whole nodes as soon as it is more than one."""
    nodes = cores // CORES if cores > CORES else 0
    return Request(tasks=cores, nodes_min=nodes, nodes_max=nodes, memory_per_cpu_mib=memory_mib)


def owner(rng: random.Random) -> tuple[str, str]:
    """(user, account) of the next job: the second user has half as many as the first, the third a third."""
    (number,) = rng.choices(range(USERS), cum_weights=_WEIGHTS)
    return f"u{number:03}", f"g{number % GROUPS:02}"


def backlog(nodes: int, hours: int, rng: random.Random) -> dict[int, list[Pending]]:
    """Jobs by size that together keep three quarters of the machine busy for so long, ids in a random order."""
    area = nodes * CORES * hours * 0.75
    sizes = [size for size in SIZES if size[0] <= nodes * CORES // 4] or [SIZES[0], SIZES[8]]
    occupied = sum(share for *_, share in sizes)
    requests: dict[tuple[int, int], Request] = {}
    drawn: list[tuple[int, Request, int, str, str]] = []
    for cores, _, average_h, share in sizes:
        left = area * share / occupied / (ONE_CORE_DIVISOR if cores == 1 else 1)
        while left > 0:
            limit_h = max(1, round(average_h * rng.choice(LIMITS_H)))
            memory_mib = rng.choice(MEMORIES_MIB)
            request = requests.setdefault((cores, memory_mib), of_cores(cores, memory_mib))
            drawn.append((cores, request, limit_h, *owner(rng)))
            left -= cores * limit_h
    rng.shuffle(drawn)
    jobs: dict[int, list[Pending]] = {}
    for job_id, (cores, request, limit_h, user, account) in enumerate(drawn, 1):
        job = Pending(
            job_id,
            request,
            PARTITION,
            limit_h * HOUR_US,
            submitted_us=job_id,
            user=user,
            account=account,
        )
        jobs.setdefault(cores, []).append(job)
    return jobs


def large(count: int) -> Iterator[Pending]:
    """Jobs of `LARGE_SHAPES` shapes on 1 to 64 nodes of `LARGE_CORES`, whole ones for the most part."""
    rng = random.Random(count)
    shapes: list[tuple[Request, int]] = []
    for _ in range(LARGE_SHAPES):
        width = rng.choice((1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 48, 64))
        whole = width > 1 and rng.random() < 0.8
        tasks = LARGE_CORES if whole else rng.choice((1, 2, 4, 8, 16, 32, 64))
        request = Request(
            tasks=tasks * width,
            nodes_min=width,
            nodes_max=width,
            tasks_per_node=tasks,
            memory_per_cpu_mib=rng.choice((0, 250, 500, 1000)),
        )
        shapes.append((request, rng.choice((1, 2, 4, 6, 12, 24, 24, 48)) * HOUR_US))
    for number in range(1, count + 1):
        request, limit_us = rng.choice(shapes)
        yield Pending(number, request, PARTITION, limit_us, submitted_us=number, user=f"u{number % 50}")
