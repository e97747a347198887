"""Worth of the planner's data structures: cost of an operation by the number of jobs, an ablation, and sizes.

    python -m benchmarks.plan.structure DIR     writes planner-cost.svg and planner-structure.md there

Invariant: all ways to search that are compared gave the same start and the same nodes for each job. CPU times.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.figures import Figures, median
from benchmarks.plan.desk import Desk
from benchmarks.plan.ops import MACHINES, Plan
from benchmarks.plan.workload import CORES, HOUR_US, PARTITION, POLICIES, of_cores, views
from benchmarks.plot import Plot, Series, write
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.resources.vector import Vector, fits

COST_NODES: Final = 616
COST_HOURS: Final = 900
GRID_H: Final = 2
"""All times are multiples of this."""
COST_SLOTS: Final = 345
"""One core is booked in turns, so that something begins in each: as many slots, however many jobs."""
MEAN_H: Final = 8 * GRID_H
COST_JOBS: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 40_000)
PROBES: Final = 400
BUSY_SHARE: Final = 0.7
SAMPLES: Final = 60

Search = Callable[[ResourceProfile, CompiledRequest, int], tuple[int, Assignment] | None]


# ---- cost by the number of jobs ----


def at_fixed_slots(count: int) -> Desk:
    """A plan of so many jobs, the same share of the machine busy: the more jobs, the smaller each."""
    rng = random.Random(count)
    cores = COST_NODES * CORES * COST_HOURS * BUSY_SHARE / count / MEAN_H
    jobs = [*probes(), *(background(number, cores, rng) for number in range(PROBES, count))]
    desk = Desk(views(COST_NODES), jobs, {})
    step_us = GRID_H * HOUR_US
    for number in range(COST_SLOTS):
        desk.schedule.book.book(((0, (1, 0)),), number * step_us, (number + 1) * step_us)
    for job in rng.sample(jobs, len(jobs)):
        desk.put(job)
    return desk


def probes() -> list[Pending]:
    """The jobs that operations are measured with: the same ones in each plan."""
    rng = random.Random(PROBES)
    return [
        Pending(
            number + 1,
            of_cores(rng.choice((1, 1, 16, 32)), 1000),
            PARTITION,
            rng.randint(1, 5) * GRID_H * HOUR_US,
        )
        for number in range(PROBES)
    ]


def background(number: int, cores: float, rng: random.Random) -> Pending:
    """One of the other jobs: its width and time are around their means."""
    width = max(1, round(cores * rng.uniform(0.5, 1.5)))
    width = width if width <= CORES else width // CORES * CORES
    return Pending(number + 1, of_cores(width, 1000), PARTITION, rng.randint(1, 15) * GRID_H * HOUR_US)


def operation_us(desk: Desk) -> float:
    """The mean of an operation on the probes."""
    jobs = [desk.entries[number + 1].job for number in range(PROBES)]
    gc.collect()
    began = time.thread_time()
    for job in jobs:
        desk.take_out(job)
        desk.put(job)
    return (time.thread_time() - began) / len(jobs) * 1e6


def costs(counts: Sequence[int]) -> Iterator[tuple[int, float, int]]:
    """(jobs, microseconds an operation, slots)."""
    for count in counts:
        desk = at_fixed_slots(count)
        yield count, median(operation_us(desk) for _ in range(5)), desk.schedule.book.slots


def cost_plot(found: Iterable[tuple[int, float, int]]) -> Plot:
    """Cost against jobs; a line that grows with the jobs for comparison."""
    found = list(found)
    slots = [slots for *_, slots in found]
    first = found[0]
    linear = [(first[0], first[1]), (found[-1][0], first[1] * found[-1][0] / first[0])]
    return Plot(
        title="CPU time of one plan operation",
        note=f"{COST_NODES} nodes, {min(slots)}-{max(slots)} slots; python -m benchmarks.plan.structure DIR",
        x_label="jobs in the plan",
        y_label="microseconds",
        x_scale="log",
        y_scale="log",
        series=[
            Series("unbook, search, map, book", [(jobs, us) for jobs, us, _ in found]),
            Series("if it grew with the jobs", linear, dashed=True, marks=False),
        ],
    )


# ---- ablation (C-57) ----


def sliding(book: ResourceProfile, need: CompiledRequest, duration_us: int) -> tuple[int, Assignment] | None:
    """As it is: the latest slot that fails says how far to go on."""
    return book.earliest(need, duration_us, book.now_us)


def restarting(
    book: ResourceProfile, need: CompiledRequest, duration_us: int
) -> tuple[int, Assignment] | None:
    """The same sets of nodes, but every slot's beginning is tried by itself."""
    for start_us in instants(book):
        chosen = book.fits_at(need, start_us, duration_us)
        if chosen is not None:
            return start_us, chosen
    return None


def by_nodes(book: ResourceProfile, need: CompiledRequest, duration_us: int) -> tuple[int, Assignment] | None:
    """No sets: at each slot's beginning each node's own list of what is free is looked through."""
    for start_us in instants(book):
        chosen = choose(NodeLists(book, start_us, start_us + duration_us), need)
        if chosen is not None:
            return start_us, chosen
    return None


WAYS: Final[dict[str, Search]] = {
    "sets of nodes, sliding intersection (the book)": sliding,
    "sets of nodes, each candidate from the beginning": restarting,
    "a list for each node, each candidate from the beginning": by_nodes,
}


def instants(book: ResourceProfile) -> list[int]:
    """Beginnings of the slots."""
    return list(book._slots.at)


class NodeLists:
    """A room that knows only each node's own future."""

    def __init__(self, book: ResourceProfile, start_us: int, stop_us: int) -> None:
        self.topology = book.topology
        self.usable = book.usable
        self.wide_free: Vector = ()
        self.idle = 0
        numbers = book.topology.numbers
        self._free = [book.free_on(number, start_us, stop_us) for number in numbers]

    def free_on(self, position: int) -> Vector:
        """The amounts free all the time at a position."""
        return self._free[position]

    def fitting(self, amounts: Vector) -> int:
        """One look at every node."""
        return sum(1 << position for position, free in enumerate(self._free) if fits(amounts, free))


def ablation(plan: Plan, samples: int) -> dict[str, list[float]]:
    """Milliseconds of each search, by way, jobs of all sizes alike. Raises `AssertionError` when answers differ."""
    desk = plan.desk
    book = desk.schedule.book
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    sizes = list(plan.by_size)
    for number in range(samples):
        job = plan.rng.choice(plan.by_size[sizes[number % len(sizes)]])
        need = desk.query(job).need
        answers = []
        for name, search in WAYS.items():
            began = time.thread_time()
            answers.append(search(book, need, job.time_limit_us))
            found[name].append((time.thread_time() - began) * 1000)
        if any(left != right for left, right in pairwise(answers)):
            raise AssertionError(f"{job}: {answers}")
    return found


def ablation_table(found: dict[str, list[float]]) -> Iterator[str]:
    """Mean and worst by way."""
    yield "| search | mean | worst | times as long |"
    yield "|---|---|---|---|"
    least = min(sum(times) for times in found.values())
    for name, times in found.items():
        mean = sum(times) / len(times)
        yield f"| {name} | {mean:.3g} ms | {max(times):.3g} ms | {sum(times) / least:.1f} |"


# ---- what is in the plan (C-53, C-54) ----


class Sizes(msgspec.Struct, frozen=True):
    """Of one plan. Rows are sets of nodes per slot for one amount of a resource; lists are nodes' futures."""

    jobs: int
    slots: int
    rows: int
    sets: int
    lists: int
    elements: int
    book_bytes: int
    rules_bytes: int
    bookings_bytes: int


def sizes_of(plan: Plan) -> Sizes:
    """Counts and bytes."""
    schedule = plan.desk.schedule
    book = schedule.book
    rows = len(book._slots._all)
    profiles = {id(profile): profile for profile in book._profiles}
    apart: set[int] = {id(book.topology), id(book)}
    rules = schedule.rules
    return Sizes(
        plan.jobs,
        book.slots,
        rows,
        rows * book.slots,
        len(profiles),
        sum(len(profile[0]) for profile in profiles.values()),
        reachable_bytes([book._slots, book._profiles], apart),
        reachable_bytes([rules._used], apart) if rules is not None else 0,
        reachable_bytes([schedule.bookings], apart),
    )


def reachable_bytes(roots: Sequence[object], seen: set[int]) -> int:
    """Bytes of these objects and everything they hold, each counted once over all calls with the same `seen`."""
    total = 0
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        left += gc.get_referents(one)
        if isinstance(one, msgspec.Struct):
            # Those that the collector does not follow do not tell it what they hold.
            left += [getattr(one, field) for field in one.__struct_fields__]
    return total


def mix_table(plan: Plan) -> Iterator[str]:
    """The jobs of a plan as the paper's Example 3 tells them: by what they occupy."""
    yield "| rank | cores | jobs | mean time | occupied | sum |"
    yield "|---|---|---|---|---|---|"
    hours = {
        cores: [job.time_limit_us / HOUR_US for job in jobs] for cores, jobs in plan.by_size.items() if jobs
    }
    area = sum(cores * sum(of_size) for cores, of_size in hours.items())
    total = 0.0
    ranked = sorted(hours.items(), key=lambda item: -item[0] * sum(item[1]))
    for rank, (cores, of_size) in enumerate(ranked, 1):
        share = cores * sum(of_size) / area
        total += share
        mean_h = sum(of_size) / len(of_size)
        yield f"| {rank} | {cores:,} | {len(of_size):,} | {mean_h:.1f} h | {share:.1%} | {total:.1%} |"


def size_table(sizes: Sizes) -> Iterator[str]:
    """As the paper's Example 4, with its figures beside ours."""
    yield "| | here | OpenCCS |"
    yield "|---|---|---|"
    yield f"| jobs in the plan | {sizes.jobs:,} | 10,000 |"
    yield f"| slots of the system's usage | {sizes.slots} | 345 |"
    yield f"| sets of nodes | {sizes.sets:,} in {sizes.rows} rows | - |"
    yield f"| usage vectors | {sizes.lists:,} (nodes that differ) | 5,780,091 |"
    yield f"| their elements | {sizes.elements:,} | 11,014,670 |"
    yield f"| memory of sets and vectors | {sizes.book_bytes / 1e6:.1f} MB | 663.87 MB |"
    yield f"| memory of what consumers use | {sizes.rules_bytes / 1e6:.1f} MB | |"
    yield f"| memory of the bookings | {sizes.bookings_bytes / 1e6:.1f} MB | |"


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """Cost of an operation with many jobs, as a multiple of that with few."""
    counts = (1_000, 5_000) if quick else (1_000, 10_000, 40_000)
    found = list(costs(counts))
    for jobs, us, slots in found:
        figures.add(f"plan_op_us_{jobs}_jobs", us, "us", slots)


def main(arguments: Sequence[str]) -> int:
    """Writes the picture and the tables; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("structure: use python -m benchmarks.plan.structure DIR\n")
        return 2
    directory = Path(arguments[0])
    write(cost_plot(costs(COST_JOBS)), directory / "planner-cost.svg")
    nodes, hours = MACHINES["plan_ops_616"]
    plan = Plan(nodes, hours, POLICIES)
    text = PAGE.format(
        nodes=nodes,
        samples=SAMPLES,
        mix="\n".join(mix_table(plan)),
        sizes="\n".join(size_table(sizes_of(plan))),
        ablation="\n".join(ablation_table(ablation(plan, SAMPLES))),
    )
    (directory / "planner-structure.md").write_text(text, encoding="utf-8")
    return 0


PAGE: Final = """# The plan from inside

`python -m benchmarks.plan.structure docs/results` writes this page and [the picture](planner-cost.svg): {nodes} nodes
of 16 cores (OCuLUS), jobs of the sizes of the paper's Example 3, two limits and a FreePool in force. CPU times, one core
of a shared machine.

## The jobs

{mix}

One-core jobs fill a quarter of their share here: they would be most of the jobs otherwise.

## What they take in memory

{sizes}

OpenCCS keeps a vector for each job, resource and rule; here jobs have none, and nodes with the same future share one.

## What the search is worth

{samples} searches from now on in that full plan, all sizes alike, the same answers in each way:

{ablation}

## What an operation costs by the number of jobs

![CPU time of a plan operation](planner-cost.svg)

The same 400 small jobs, unbooked and planned again among ever more and ever smaller others; the slots stay as many.
"""

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
