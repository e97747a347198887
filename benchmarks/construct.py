"""Cost of the FP-Tree constructor per broadcast (E-25), and of the two groupings (E-b, E-c).

    python -m benchmarks.construct            the shapes' leaf shares and depths, as a table
    python -m benchmarks.construct FILE.svg   time against nodes up to 1,000,000, as a picture

Invariant: every timed construction begins with a cold leaf pattern and a prediction that is spread over the
list at random. Times are of the processor, so a busy machine does not pass for a slow constructor.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figures, median
from benchmarks.plot import Plot, Series, write
from eslurm.core.relay.construct import TreeShape, arrange, leaves_of
from eslurm.core.relay.grouping import BALANCED, POSITIONAL, BalancedGrouping, depth

WIDTH = 16
PREDICTED_SHARES = (0.02, 0.3)
PLOTTED_NODES = (1_000, 2_000, 5_000, 10_000, 20_480, 50_000, 100_000, 200_000, 500_000, 1_000_000)
PROPORTIONAL_NS = 40
"""The slope of the reference line."""
TABLE_NODES = (1511, 4096, 16_384, 20_480)
TABLE_WIDTHS = (2, 8, 16, 32, 50, 64, 200)


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """Milliseconds for one construction, for the worse of few and many predicted nodes in a shuffled list."""
    for nodes, runs in ((20_480, 5 if quick else 21), (1_000_000, 3 if quick else 9)):
        worst_ms = max(median(times_ms(nodes, share, runs, shuffled=True)) for share in PREDICTED_SHARES)
        figures.add(f"construct_{nodes}_ms", worst_ms, "ms", runs * len(PREDICTED_SHARES))


def times_ms(nodes: int, predicted_share: float, runs: int, *, shuffled: bool) -> Iterator[float]:
    """The time of each of `runs` constructions. A shuffled list is also scattered in memory: the worst case."""
    rng = random.Random(nodes)
    order = list(range(nodes))
    if shuffled:
        rng.shuffle(order)
    predicted = frozenset(rng.sample(order, round(nodes * predicted_share)))
    for _ in range(runs):
        # Patterns are kept per grouping object: a new one finds none.
        shape = TreeShape(WIDTH, 0, BalancedGrouping())
        began = time.thread_time()
        arrange(order, predicted, shape)
        yield (time.thread_time() - began) * 1000


def linearity() -> Plot:
    """The fastest of some constructions for each number of nodes."""
    cases = [(f"{share:.0%} predicted", share, False) for share in PREDICTED_SHARES]
    cases.append((f"{PREDICTED_SHARES[-1]:.0%}, shuffled list", PREDICTED_SHARES[-1], True))
    series = []
    for name, share, shuffled in cases:
        fastest_ms = [min(times_ms(nodes, share, 9, shuffled=shuffled)) for nodes in PLOTTED_NODES]
        series.append(Series(name, list(zip(PLOTTED_NODES, fastest_ms, strict=True))))
    ends = [(nodes, nodes * PROPORTIONAL_NS * 1e-6) for nodes in (PLOTTED_NODES[0], PLOTTED_NODES[-1])]
    series.append(Series(f"{PROPORTIONAL_NS} ns a node", ends, dashed=True, marks=False))
    return Plot(
        title="CPU time of one FP-Tree construction",
        note=f"leaf pattern and rearrangement, width {WIDTH}; python -m benchmarks.construct FILE.svg",
        x_label="nodes in the broadcast",
        y_label="milliseconds",
        x_scale="log",
        y_scale="log",
        series=series,
    )


def table() -> Iterator[str]:
    """Leaf share (what random placement alone puts on leaves) and depth, per grouping, nodes and width."""
    yield "| nodes | width | positional: leaves | depth | balanced: leaves | depth |"
    yield "|---|---|---|---|---|---|"
    for nodes in TABLE_NODES:
        for width in TABLE_WIDTHS:
            cells = [
                f"{leaves_of(nodes, TreeShape(width, 0, grouping)) / nodes:.1%} | {depth(nodes, width, grouping)}"
                for grouping in (POSITIONAL, BALANCED)
            ]
            yield f"| {nodes:,} | {width} | {cells[0]} | {cells[1]} |"


def main(arguments: list[str]) -> None:
    """The table, or the picture into the file that is named."""
    if arguments:
        write(linearity(), Path(arguments[0]))
    else:
        sys.stdout.writelines(f"{line}\n" for line in table())


if __name__ == "__main__":
    main(sys.argv[1:])
