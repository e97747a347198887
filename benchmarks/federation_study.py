"""The tables and pictures of docs/results/federation.md, from runs of `eslurm simulate-federation --json`.

python -m benchmarks.federation_study medium.json big.json ...                 the tables
PICTURES=docs/results python -m benchmarks.federation_study medium.json ...    and the pictures
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.plot import Plot, Series, write
from eslurm.lab.studies.federation.figures import Figures

HEAD: Final = (
    "| mix | load | strategy | started | messages a job | reads | claims | failed | returns | watched | between cells "
    "| allocate p50 | p99 | longest wait | of the largest | held idle | polls saved | store busy |"
)
DRAWN: Final[tuple[tuple[str, str, Callable[[Figures], float]], ...]] = (
    ("messages", "messages a job", lambda one: one.messages.total),
    ("allocate", "99 % of jobs have their nodes within, ms", lambda one: max(one.allocate_p99_ms, 1.0)),
)
"""(name, axis, figure)."""


class Runs(msgspec.Struct):
    """The output of the command."""

    runs: list[Figures]


def row(one: Figures) -> str:
    """One line of the table."""
    shape, messages = one.shape, one.messages
    cells = [
        shape.mix,
        f"{shape.load:g}",
        one.strategy,
        f"{one.started} of {one.started + one.not_started}",
        *(f"{count:.1f}" for count in (messages.total, messages.reads, messages.claims)),
        f"{one.failed_share:.0%}",
        *(
            f"{count:.1f}"
            for count in (messages.returns, messages.watched + messages.summaries, messages.links)
        ),
        *(time_of(ms / 1e3) for ms in (one.allocate_p50_ms, one.allocate_p99_ms)),
        *(time_of(s) for s in (one.wait_max_s, one.largest_wait_max_s)),
        f"{one.idle_share:.2%}",
        f"{one.polls_saved:.0%}",
        f"{one.store_busy:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def time_of(seconds: float) -> str:
    """Milliseconds below a second."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def draw(directory: Path, mix: str, found: Sequence[Figures]) -> None:
    """A line for each strategy over the load."""
    first = found[0].shape
    for name, axis, figure in DRAWN:
        series = [
            Series(strategy, [(one.shape.load, figure(one)) for one in found if one.strategy == strategy])
            for strategy in dict.fromkeys(one.strategy for one in found)
        ]
        plot = Plot(
            title=f"{mix} jobs, {first.cells} cells of {first.nodes} nodes",
            note=f"{first.jobs} jobs a cell, {first.run_s:g} s, seed {first.seed}",
            x_label="load",
            y_label=axis,
            series=series,
            y_scale="log",
        )
        write(plot, directory / f"federation-{mix}-{name}.svg")


def main(paths: list[str]) -> int:
    """Print the table of all files; returns the exit code."""
    if not paths:
        sys.stderr.write("federation_study: use python -m benchmarks.federation_study FILE.json...\n")
        return 2
    found = [one for path in paths for one in msgspec.json.decode(Path(path).read_bytes(), type=Runs).runs]
    print(f"{HEAD}\n{'|---' * (HEAD.count('|') - 1)}|")
    for one in found:
        print(row(one))
    if os.environ.get("PICTURES"):
        for mix in dict.fromkeys(one.shape.mix for one in found):
            draw(Path(os.environ["PICTURES"]), mix, [one for one in found if one.shape.mix == mix])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
