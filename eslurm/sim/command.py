"""`eslurm sim`: run seeds, say what they saw, and how to see a failure again."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from eslurm.sim.run import Report, SeedFailed, draw_nodes, run_seed

PROGRESS_EVERY_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the simulator. 0: all seeds held; 1: one failed; 2: wrong usage (raised by argparse as SystemExit)."""
    options = _parser().parse_args(argv)
    nodes_min, nodes_max = options.nodes
    seeds = (
        [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    )
    until_us = int(options.until * 1e6) if options.until is not None else None
    reports: list[Report] = []
    told_s = time.monotonic()
    for seed in seeds:
        nodes = draw_nodes(seed, nodes_min, nodes_max)
        try:
            report = run_seed(seed, nodes, _show if options.trace else None, until_us)
        except SeedFailed as failure:
            _say(str(failure))
            return 1
        reports.append(report)
        _say(_line(report))
        if time.monotonic() - told_s >= PROGRESS_EVERY_S:
            told_s = time.monotonic()
            print(f"{len(reports)} of {len(seeds)} seeds", file=sys.stderr)  # noqa: T201
    _say(_summary(reports))
    return 0


def _line(report: Report) -> str:
    return (
        f"seed {report.seed}: nodes {report.nodes}, messages {report.messages}, faults {report.faults}, "
        f"commits {report.commits}, facts {report.facts}, jobs {report.jobs}, {report.virtual_s:.1f} s virtual"
    )


def _summary(reports: Sequence[Report]) -> str:
    medians = {
        name: int(statistics.median(getattr(report, name) for report in reports))
        for name in ("messages", "faults", "commits")
    }
    told = ", ".join(f"{name} {value}" for name, value in medians.items())
    return f"{len(reports)} seeds held; median per seed: {told}"


def _show(at_us: int, text: str) -> None:
    _say(f"{at_us / 1e6:12.6f} {text}")


def _say(text: str) -> None:
    print(text)  # noqa: T201


def _nodes(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    first, last = int(low), int(high or low)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"'{text}' is no range of node counts: use for example 4-64")
    return first, last


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few: at least 1")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eslurm sim", description="Run the cluster's own logic in virtual time against seeded faults."
    )
    parser.add_argument("--seeds", type=_positive, default=100, metavar="N", help="how many seeds to run")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="S", help="the first seed")
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=(4, 16),
        metavar="A-B",
        help="cluster sizes to draw from (or one size)",
    )
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="run this seed alone")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--until",
        type=float,
        default=None,
        metavar="T",
        help="stop after T virtual seconds, without final checks",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
