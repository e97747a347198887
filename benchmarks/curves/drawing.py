"""Common parts of the curves: the two systems' layouts, means over draws, and the tables of `docs/results/curves.md`.

Invariant: a curve is a function of the parameters and fixed seeds, so a repeated run changes no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from benchmarks.curves.parameters import OUR_WIDTH, PAPER_ROOT_WIDTH, PAPER_WIDTH, Message, System
from benchmarks.curves.structures import Layout, Structure, broadcast_s, draw
from eslurm.core.relay.grouping import BALANCED

SIZES = (4_096, 100_000, 1_000_000)
DRAWS = {4_096: 20, 16_384: 10, 100_000: 2}
"""Draws of dead nodes that are averaged; one for larger clusters."""
COMMAND = "python -m benchmarks.curves"


def paper(structure: Structure, satellites: int = 0) -> Layout:
    """The layout of the paper's system (X-03)."""
    return Layout(structure=structure, width=PAPER_WIDTH, root_width=PAPER_ROOT_WIDTH, satellites=satellites)


def ours(structure: Structure, satellites: int = 0) -> Layout:
    """The layout that this system has by default."""
    return Layout(structure=structure, width=OUR_WIDTH, grouping=BALANCED, satellites=satellites)


def mean_s(
    nodes: int,
    failed_share: float,
    layout: Layout,
    system: System,
    message: Message,
    *,
    recall: float = 1.0,
    refused_share: float = 0.0,
) -> float:
    """The mean time over the draws of dead nodes; all layouts meet the same ones."""
    draws = DRAWS.get(nodes, 1) if failed_share else 1
    return fmean(
        broadcast_s(draw(nodes, failed_share, seed, recall, refused_share), layout, system, message)
        for seed in range(draws)
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def seconds(value_s: float) -> str:
    """A time for people: three digits or so, minutes and hours from where they are easier to grasp."""
    if value_s < 1:
        return f"{value_s:.3f} s"
    if value_s < 600:
        return f"{value_s:.3g} s"
    return f"{value_s / 60:.0f} min" if value_s < 7200 else f"{value_s / 3600:.1f} h"


def percent(share: float) -> str:
    """A share with at most three digits."""
    return f"{share * 100:.3g} %"
