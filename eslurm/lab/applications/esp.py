"""The Effective System Performance benchmark (R-18..R-21): its 230 jobs, when they come, and their applications' sizes.

Sources: the categories and their hosts, counts and sizes are Table 1 of the paper of seed 002; the target run times are
those of ESP-2. A system of another size has the same fractions of it. How jobs arrive is `arrivals`.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from eslurm.compat.errors import quoted
from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications import mandelbrot, spin_images
from eslurm.lab.applications.costs import DISTRIBUTIONS, CostError, Costs, drawn, recorded, scaled

HOSTS: Final = 256
"""The paper's platform (R-17)."""
FULL: Final = "Z"
"""The category that takes the whole system."""
AT_ONCE: Final = 50
"""Jobs that are there when the batch begins."""
EVERY_S: Final = 30
"""The others come one by one, so far apart."""
QUIET_SHARE: Final = 0.1
"""Share of the ideal makespan in which no job comes after a full-size one (R-20)."""
APPLICATIONS: Final = ("psia", "mandelbrot")
SEED: Final = 20
_TRIED: Final = 1e6


class Category(msgspec.Struct, frozen=True):
    """One of ESP's 14 kinds of jobs: `hosts` of 256, `target_s` its run time, `images` and `iterations` its sizes."""

    name: str
    hosts: int
    count: int
    target_s: int
    images: int
    iterations: int


TABLE: Final = (
    Category("A", 8, 75, 267, 32_000, 635_000),
    Category("B", 16, 9, 322, 76_500, 1_200_000),
    Category("C", 128, 3, 534, 800_000, 15_000_000),
    Category("D", 64, 3, 616, 582_000, 8_500_000),
    Category("E", 128, 3, 315, 595_000, 8_800_000),
    Category("F", 16, 9, 1846, 440_000, 6_500_000),
    Category("G", 32, 6, 1334, 635_000, 1_000_000),
    Category("H", 40, 6, 1067, 630_000, 10_000_000),
    Category("I", 8, 24, 1432, 170_000, 3_350_000),
    Category("J", 16, 24, 725, 174_500, 2_750_000),
    Category("K", 24, 15, 487, 172_600, 2_850_000),
    Category("L", 32, 36, 366, 172_500, 2_725_000),
    Category("M", 64, 15, 187, 176_500, 2_650_000),
    Category(FULL, 256, 2, 100, 375_000, 5_250_000),
)
ODD: Final = {"psia": "C", "mandelbrot": "G"}
"""The category whose size in Table 1 does not lead to its target: 422 s instead of 534, 133 s instead of 1,334 (R-c)."""


class Arrival(msgspec.Struct, frozen=True):
    """A job of the benchmark and its submission, from the batch's begin."""

    category: Category
    submit_us: int


def ideal_s() -> float:
    """Seconds that all jobs take when no host is ever idle: 10,976 (R-21)."""
    return sum(one.count * one.hosts * one.target_s for one in TABLE) / HOSTS


def arrivals(seed: int = SEED, time_scale: float = 1.0) -> list[Arrival]:
    """The 230 jobs in the order of their submission.

    The 228 smaller ones come in an order that the seed draws, in three equal parts; a full-size job ends the first two,
    after which nothing comes for a tenth of the ideal makespan (R-20). 50 jobs are there at once, the others come 30 s
    apart, as in ESP-2's usual set-up; the paper gives no times.
    """
    small = [one for one in TABLE for _ in range(one.count) if one.name != FULL]
    random.Random(seed).shuffle(small)
    (full,) = [one for one in TABLE if one.name == FULL]
    part = len(small) // (full.count + 1)
    found: list[Arrival] = []
    at_s = 0.0

    def submit(category: Category) -> None:
        found.append(Arrival(category, round(at_s * time_scale * SECOND_US)))

    for number, category in enumerate(small, 1):
        submit(category)
        if number >= AT_ONCE:
            at_s += EVERY_S
        if number % part == 0 and number < len(small):
            submit(full)
            at_s += QUIET_SHARE * ideal_s()
    return found


def hosts_of(category: Category, nodes: int) -> int:
    """Hosts of a job on a system of so many; its share of it, one at least."""
    return max(1, category.hosts * nodes // HOSTS)


@cache
def costs_of(
    application: str, name: str, nodes: int = HOSTS, time_scale: float = 1.0, task_scale: float = 1.0
) -> Costs:
    """Costs of the tasks of a category's jobs on a system of so many nodes: its run time is the same on each.

    `application` is one of `APPLICATIONS`, a distribution as in `costs.drawn`, or a file of recorded seconds. Of the latter
    two only the proportions count: evenly shared, the job takes its target run time, with a task for each of PSIA's images
    or each of the file's. `task_scale` makes fewer tasks, of the same cost in all. Raises `CostError`, `OSError`.
    """
    category = next(one for one in TABLE if one.name == name)
    share = hosts_of(category, nodes) / category.hosts
    if application in APPLICATIONS:
        return _costs(application, category, speed(application) / (time_scale * share), task_scale)
    total_s = category.target_s * category.hosts * share * time_scale
    images = max(1, round(category.images * task_scale))
    return scaled(proportions(application, images), total_s)


def proportions(application: str, tasks: int) -> list[float]:
    """Relative costs of a stated or recorded application. Raises `CostError`, and `OSError` for a file."""
    if application.partition(":")[0] in DISTRIBUTIONS:
        return drawn(application, tasks, SEED)
    if "." not in application and "/" not in application:
        raise CostError(
            f"{quoted(application)} is no application: use {' or '.join(APPLICATIONS)}, a distribution of task costs "
            "(e.g. exponential:0.01), or a file with the seconds of each task"
        )
    return recorded(Path(application))


def _costs(application: str, category: Category, per_s: float, task_scale: float) -> Costs:
    if application == "mandelbrot":
        side = max(16, round(mandelbrot.VIEW.side_px * task_scale**0.5))
        view = msgspec.structs.replace(mandelbrot.VIEW, side_px=side)
        # A smaller picture has fewer pixels, each of which stands for more of them.
        area = (side / mandelbrot.VIEW.side_px) ** 2
        return mandelbrot.loop_costs(view, category.iterations, per_s * area)
    images = max(1, round(category.images * task_scale))
    return spin_images.loop_costs(images, category.images / images / per_s)


@cache
def speed(application: str) -> float:
    """A host's iterations (Mandelbrot) or images (PSIA) a second: the one free constant of the model.

    With it, all jobs under STATIC take ESP's target run times on the average over their hosts' time; the category whose
    size is odd is left out of the comparison.
    """
    asked = taken = 0.0
    for one in TABLE:
        if one.name != ODD[application]:
            held_us = one.hosts * _costs(application, one, _TRIED, 1.0).largest_us(one.hosts)
            asked += one.count * one.hosts * one.target_s
            taken += one.count * held_us / SECOND_US
    return _TRIED * taken / asked
