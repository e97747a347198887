"""`make bench-relay`: every structure, healthy and with failures, and the product's exactness.

Structures take turns under the same failures, drawn anew for each round. Invariant: a comparator that does not end
within `BOUND_S` is reported as such, never estimated.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.figures import Figures, median
from benchmarks.relay import chaos, procs, real
from benchmarks.relay.bout import FPTREE, PULL, RING, STAR, TREE, Bout, Ringside
from benchmarks.relay.plan import NONE, Wrong, draw
from benchmarks.relay.site import running
from benchmarks.relay.table import render

WIDTH = 16
HEALTHY = (4096, 16_384, 20_480)
PERCENTS = (1, 5, 10, 20, 30)
SMALL, LARGE, HUGE = 4096, 20_480, 60_000
WIDTHS = (8, 32, 64)
ROUNDS, ROUNDS_QUICK = 10, 3
BOUND_S = 60.0
LEFT_OUT = (
    "QUICK: 3 rounds (2 healthy, 1 at 20480 with dead); 1 round each of 3 and 4 killed; no 60000 nodes, widths, ring,"
    " real cluster, processes; star and pull at 30 % dead only"
)
NOT_FINISHED = "s (not finished)"


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """All figures, then a table. QUICK leaves out what `LEFT_OUT` says."""
    if quick:
        sys.stderr.write(f"bench: {LEFT_OUT}\n")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(figures, parent, quick))
    if not quick:
        real.measure(figures, parent)
        procs.measure(figures, parent)
    sys.stdout.write(render(figures.all))


async def _measure(figures: Figures, parent: Path, quick: bool) -> None:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    async with running(parent, LARGE) as site:
        ringside = Ringside(site, WIDTH)
        for structure in (TREE, STAR):
            await ringside.run(structure, SMALL, NONE)
        for nodes in HEALTHY:
            await _healthy(figures, ringside, nodes, 2 if quick else rounds)
        for percent in PERCENTS:
            await _dead(figures, ringside, SMALL, percent, rounds, _others(percent, quick))
        await _dead(figures, ringside, LARGE, 30, 1 if quick else 5, () if quick else (STAR, PULL))
        await chaos.measure(figures, ringside, quick=quick)
        if not quick:
            await _widths(figures, ringside, rounds)
        figures.add("late_acts", ringside.late_acts, "nodes", 1)
    if not quick:
        # Processes of their own: what a relay learned from so long a broadcast would colour the others.
        async with running(parent, HUGE) as site:
            await _healthy(figures, Ringside(site, WIDTH), HUGE, rounds // 2)


def _others(percent: int, quick: bool) -> tuple[str, ...]:
    """The comparators for a share of dead nodes."""
    if not quick:
        return (STAR, RING, PULL)
    return (STAR, PULL) if percent == max(PERCENTS) else ()


async def _healthy(figures: Figures, ringside: Ringside, nodes: int, rounds: int, label: str = "") -> None:
    await ringside.run(TREE, nodes, NONE)
    bouts = [await ringside.run(TREE, nodes, NONE) for _ in range(rounds)]
    figures.add(f"broadcast_{nodes}{label}_s", median(bout.took_s for bout in bouts), "s", rounds)
    _add_wrong(figures, f"wrong_{nodes}_0dead{label}", bouts)


async def _widths(figures: Figures, ringside: Ringside, rounds: int) -> None:
    """Figures of other widths, without failures."""
    for width in WIDTHS:
        ringside.width = width
        await _healthy(figures, ringside, LARGE, rounds, f"_width{width}")


async def _dead(
    figures: Figures,
    ringside: Ringside,
    nodes: int,
    percent: int,
    rounds: int,
    others: Sequence[str],
) -> None:
    label = f"{nodes}_{percent}dead"
    ours: dict[str, list[Bout]] = {FPTREE: [], TREE: []}
    for number in range(rounds):
        failures = draw(nodes, percent, number)
        # Who goes first after the failures change must not always be the same.
        for structure in (FPTREE, TREE) if number % 2 else (TREE, FPTREE):
            ours[structure].append(await ringside.run(structure, nodes, failures))
    for structure, bouts in ours.items():
        figures.add(f"broadcast_{label}_{structure}_s", median(bout.took_s for bout in bouts), "s", rounds)
    _add_wrong(figures, f"wrong_{label}", [bout for bouts in ours.values() for bout in bouts])
    figures.add(f"messages_per_node_{label}", median(b.lists_per_node for b in ours[FPTREE]), "lists", rounds)
    figures.add(f"frames_per_node_{label}", median(b.frames_per_node for b in ours[FPTREE]), "frames", rounds)
    for structure in others:
        bout = await ringside.run(structure, nodes, draw(nodes, percent, 0), BOUND_S)
        figures.add(
            f"broadcast_{label}_{structure}_s", bout.took_s, "s" if bout.finished else NOT_FINISHED, 1
        )
        if bout.finished:
            _add_wrong(figures, f"wrong_{label}_{structure}", [bout])


def _add_wrong(figures: Figures, name: str, bouts: Sequence[Bout]) -> None:
    wrong = sum((bout.wrong for bout in bouts), Wrong())
    if wrong.total:
        sys.stderr.write(f"bench: {name}: {wrong}\n")
    figures.add(name, wrong.total, "nodes", len(bouts))
