"""`eslurm simulate-federation`: how cells find nodes of each other for their jobs, by strategy, in virtual time.

Only parsing and rendering; the run itself is `eslurm.lab.studies.federation`. The result goes to standard output and is the
same for the same options; how far a run is goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from escli import exits
from escli.console import to_json
from escli.errors import unusable
from escli.lab.progress import Progress

if TYPE_CHECKING:
    from eslurm.lab.studies.federation.figures import Figures

CELLS_MAX = 10_000
NODES_MAX = 4_096
LOAD_MAX = 2.0
MIXES = ("small", "medium", "big")
DEFAULTS = (20, 100, 20)
"""Cells, nodes, jobs."""


@click.command(
    "simulate-federation", short_help="How cells find nodes of each other, by strategy, in virtual time."
)
@click.option(
    "--cells", type=click.IntRange(1, CELLS_MAX), default=DEFAULTS[0], metavar="N", show_default=True
)
@click.option(
    "--nodes",
    type=click.IntRange(2, NODES_MAX),
    default=DEFAULTS[1],
    metavar="N",
    help="Nodes of each cell.",
    show_default=True,
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 100_000),
    default=DEFAULTS[2],
    metavar="N",
    help="Jobs submitted at each cell.",
    show_default=True,
)
@click.option(
    "--strategy",
    "strategies",
    metavar="NAME",
    multiple=True,
    help="How nodes are found; may be repeated (default: each in turn; a wrong name shows them).",
)
@click.option(
    "--mix",
    "mixes",
    type=click.Choice(MIXES),
    multiple=True,
    help="Sizes of jobs, in parts of a cell: small 1/50, medium 1/50 to all, big 1/2 to 3/2; may be repeated "
    "(default: medium).",
)
@click.option(
    "--load",
    "loads",
    type=click.FloatRange(0.0, LOAD_MAX),
    metavar="X",
    multiple=True,
    help="What jobs ask for, as a part of all nodes' time; 0: all are submitted at once; may be repeated (default: 0.9).",
)
@click.option(
    "--run",
    "run_s",
    type=click.FloatRange(0.001, 1e6),
    default=60.0,
    metavar="SECONDS",
    help="Mean run time.",
    show_default=True,
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 1_000),
    default=1,
    metavar="N",
    help="Jobs for which a cell looks for nodes at the same time.",
    show_default=True,
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the jobs and of all delays.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate_federation(
    cells: int,
    nodes: int,
    jobs: int,
    strategies: tuple[str, ...],
    mixes: tuple[str, ...],
    loads: tuple[float, ...],
    run_s: float,
    at_once: int,
    seed: int,
    as_json: bool,
) -> int:
    """Compare ways to find nodes of other cells: many cells over one store with drawn delays, counted in messages.

    The strategies and the pools are those of the controllers' core; cells are queues and counts. The same options print the
    same bytes.

    \b
    eslurm simulate-federation                                     each strategy, 20 cells of 100 nodes
    eslurm simulate-federation --strategy joint --strategy stealing --load 0.5 --load 1.1
    eslurm simulate-federation --mix big --load 0 --run 0.5         big jobs, all submitted at once
    eslurm simulate-federation --cells 1000 --nodes 1000 --jobs 5 --strategy joint
    """
    from eslurm.core.federation.strategies.table import STRATEGIES
    from eslurm.lab.studies.federation.figures import run
    from eslurm.lab.studies.federation.shape import Shape

    for name in strategies:
        if name not in STRATEGIES:
            raise unusable(f"--strategy: {name}: no such strategy; there are {', '.join(STRATEGIES)}")
    found = []
    for mix in dict.fromkeys(mixes) or ("medium",):
        for load in dict.fromkeys(loads) or (0.9,):
            shape = Shape(cells, nodes, jobs, mix, load, run_s, at_once, seed)
            for name in dict.fromkeys(strategies) or STRATEGIES:
                with Progress(f"{name}, {mix}, load {load:g}", "jobs started") as progress:
                    found.append(run(shape, name, progress.show))
    if as_json:
        sys.stdout.write(to_json({"runs": [msgspec.to_builtins(one) for one in found]}))
    else:
        sys.stdout.write(as_table(found))
    return exits.OK


def as_table(found: Sequence[Figures]) -> str:
    """One line a run."""
    from escli.tables import columns_of, render

    heads = (
        "STRATEGY MIX >LOAD >STARTED >MESSAGES >READS >CLAIMS >FAILED >RETURNS >WATCHED >LINKS >ALLOCATE_P50 >P99 >WAIT_P50 "
        ">MAX >LARGEST_MAX >IDLE >STORE"
    )
    rows = []
    for one in found:
        messages = one.messages
        watched = messages.watched + messages.summaries
        rows.append(
            [
                one.strategy,
                one.shape.mix,
                f"{one.shape.load:g}",
                f"{one.started}/{one.started + one.not_started}",
                *(f"{count:.1f}" for count in (messages.total, messages.reads, messages.claims)),
                f"{one.failed_share:.1%}",
                *(f"{count:.1f}" for count in (messages.returns, watched, messages.links)),
                *(_time(ms / 1e3) for ms in (one.allocate_p50_ms, one.allocate_p99_ms)),
                *(_time(s) for s in (one.wait_p50_s, one.wait_max_s, one.largest_wait_max_s)),
                f"{one.idle_share:.2%}",
                f"{one.store_busy:.1%}",
            ]
        )
    return render(columns_of(heads), rows, gap="  ")


def _time(seconds: float) -> str:
    """Milliseconds below one second."""
    return f"{seconds * 1e3:.1f}ms" if seconds < 1 else f"{seconds:.1f}s"
