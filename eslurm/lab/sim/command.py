"""`eslurm sim`: run seeds, say what they saw, show a failure again, and make it smaller."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from eslurm.compat.errors import OptionError
from eslurm.lab.sim import failed
from eslurm.lab.sim.coverage import PATHS, merged, missing, table
from eslurm.lab.sim.federation.coverage import PATHS as OF_FEDERATIONS
from eslurm.lab.sim.federation.plan import NAMES, draw_cells
from eslurm.lab.sim.pool import WorkerLost, cores, play_all
from eslurm.lab.sim.run import (
    Failure,
    Report,
    Scenario,
    SeedFailed,
    draw_nodes,
    judge,
    new_seed,
    replay_of,
    run_scenario,
)
from eslurm.lab.sim.shrink import TRIALS_MAX, Shrunk, shrink
from eslurm.lab.sim.trace_format import Thing, TraceWriter, parse_only

PROGRESS_EVERY_S = 2.0
NODES = 4, 16
NODES_OF_CELLS = 4, 8
COUNTED = ("messages", "faults", "commits")
NEW = -1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the simulator. 0: all seeds held; 1: one failed; 2: wrong usage (raised by argparse as SystemExit)."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.cells is not None and (options.shrink or options.plan is not None):
        parser.error(
            f"--cells with {'--shrink' if options.shrink else '--plan'}: a federation is drawn whole"
        )
    until_us = int(options.until * 1e6) if options.until is not None else None
    scenarios = _scenarios(options)
    if options.shrink:
        return _shrink(scenarios, options)
    if options.trace:
        return _trace(scenarios, until_us, options.only)
    return _run(scenarios, until_us, options)


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    if options.plan is not None:
        return [options.plan]
    first, count = (options.first, options.seeds) if options.seed is None else (options.seed, 1)
    if first == NEW:
        first = new_seed()
        sys.stderr.write(f"new seeds: {first} to {first + count - 1}\n")
        sys.stderr.flush()
    drawn = [_draw(seed, options) for seed in range(first, first + count)]
    return [*failed.load(options.failed), *drawn] if options.failed is not None else drawn


def _draw(seed: int, options: argparse.Namespace) -> Scenario:
    if options.cells is None:
        return Scenario(seed, draw_nodes(seed, *(options.nodes or NODES)))
    nodes = draw_nodes(seed, *(options.nodes or NODES_OF_CELLS))
    return Scenario(seed, nodes, cells=draw_cells(seed, *options.cells))


# ---- many seeds ----


class _Progress:
    """A line on the other stream once in a while."""

    def __init__(self, total: int) -> None:
        self.began_s = self._told_s = time.monotonic()
        self.done = 0
        self._total = total

    @property
    def seeds_per_s(self) -> float:
        """Rate of seeds."""
        return self.done / max(time.monotonic() - self.began_s, 1e-6)

    def tick(self) -> None:
        """One more is done."""
        self.done += 1
        if time.monotonic() - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = time.monotonic()
            sys.stderr.write(f"{self.done} of {self._total} seeds, {self.seeds_per_s:.1f} seeds/s\n")
            sys.stderr.flush()


def _run(scenarios: list[Scenario], until_us: int | None, options: argparse.Namespace) -> int:
    jobs = min(options.jobs, len(scenarios))
    reports: list[Report] = []
    progress = _Progress(len(scenarios))
    try:
        for verdict in play_all(scenarios, jobs, until_us, progress.tick):
            if options.json:
                _say(msgspec.json.encode(verdict).decode())
            elif isinstance(verdict, Report) and not options.quiet:
                _say(_line(verdict))
            if isinstance(verdict, Failure):
                if not options.json:
                    _say(verdict.text)
                if options.failed is not None and failed.keep(options.failed, verdict):
                    sys.stderr.write(f"eslurm sim: added to {options.failed}: keep it there\n")
                return 1
            reports.append(verdict)
    except WorkerLost as lost:
        sys.stderr.write(f"eslurm sim: {lost}\n")
        return 1
    paths = merged((report.paths for report in reports), PATHS if options.cells is None else OF_FEDERATIONS)
    if options.json:
        _say(_json_summary(reports, progress, paths))
    else:
        _say(
            "\n".join([_summary(reports, progress), "rare paths, how often they were taken:", *table(paths)])
        )
    return _check_coverage(paths, options.require_coverage)


def _check_coverage(paths: Mapping[str, int], least: int) -> int:
    """1 if a rare path was taken less often than is required: these seeds prove nothing about it."""
    rare = missing(paths, least)
    if rare:
        sys.stderr.write(f"eslurm sim: taken less than {least} times: {', '.join(rare)}: run more seeds\n")
    return 1 if rare else 0


def _line(report: Report) -> str:
    return (
        f"seed {report.seed}: nodes {report.nodes}, messages {report.messages}, faults {report.faults}, "
        f"commits {report.commits}, facts {report.facts}, jobs {report.jobs}, {report.virtual_s:.1f} s virtual"
    )


def _medians(reports: Sequence[Report]) -> dict[str, int]:
    return {name: int(statistics.median(getattr(report, name) for report in reports)) for name in COUNTED}


def _totals(reports: Sequence[Report]) -> dict[str, int]:
    names = (*COUNTED, "facts", "jobs")
    return {name: sum(getattr(report, name) for report in reports) for name in names}


def _summary(reports: Sequence[Report], progress: _Progress) -> str:
    medians = ", ".join(f"{name} {value}" for name, value in _medians(reports).items())
    totals = ", ".join(f"{name} {value}" for name, value in _totals(reports).items())
    virtual_s = sum(report.virtual_s for report in reports)
    return (
        f"{len(reports)} seeds held; median per seed: {medians}; "
        f"in all: {totals}, {virtual_s:.0f} s virtual; {progress.seeds_per_s:.1f} seeds/s"
    )


def _json_summary(reports: Sequence[Report], progress: _Progress, paths: Mapping[str, int]) -> str:
    summary = {
        "type": "Summary",
        "seeds": len(reports),
        "median": _medians(reports),
        "total": _totals(reports),
        "virtual_s": sum(report.virtual_s for report in reports),
        "seeds_per_s": round(progress.seeds_per_s, 3),
        "paths": paths,
    }
    return msgspec.json.encode(summary).decode()


# ---- one seed in detail ----


def _trace(scenarios: list[Scenario], until_us: int | None, only: frozenset[Thing]) -> int:
    for scenario in scenarios:
        story = TraceWriter(_say, only)
        try:
            report = run_scenario(scenario, story, until_us)
        except SeedFailed as failed:
            story.end(failed.failure.what)
            _say(failed.failure.text)
            return 1
        _say(_line(report))
    return 0


def _shrink(scenarios: list[Scenario], options: argparse.Namespace) -> int:
    """Look for a failure and make it smaller; 1 when there was one, as for any run."""
    for scenario in scenarios:
        verdict = judge(scenario)
        if isinstance(verdict, Failure):
            break
    else:
        _say(f"nothing to shrink: {len(scenarios)} seeds held")
        return 0
    _say(f"seed {scenario.seed} fails: {verdict.kind}")
    runs = 0

    def tried(smaller: Scenario) -> Report | Failure:
        nonlocal runs
        runs += 1
        if runs % 10 == 0:
            sys.stderr.write(f"{runs} smaller runs tried\n")
            sys.stderr.flush()
        return judge(smaller)

    shrunk = shrink(verdict, tried, options.trials)
    path = options.out or Path(f"sim-seed-{scenario.seed}.json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(shrunk.after.scenario), indent=1) + b"\n")
    for line in told(shrunk):
        _say(line)
    _say(f"smaller plan: {path}; replay: eslurm sim --plan {path} --trace")
    _say(f"or in one line: {replay_of(shrunk.after.scenario)}")
    return 1


def told(shrunk: Shrunk) -> list[str]:
    """Results of a shrinking, before and after."""
    return [
        f"{when}: {_counts(failure)}; {failure.what[:200]}"
        for when, failure in (("before", shrunk.before), (f"after {shrunk.trials} runs", shrunk.after))
    ]


def _counts(failure: Failure) -> str:
    scenario, plan = failure.scenario, failure.scenario.plan
    assert plan is not None
    return (
        f"{len(plan.events)} planned faults, {scenario.actions} requests, {scenario.nodes} nodes, "
        f"{failure.messages} messages until it failed at {failure.at_s:.3f} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# ---- usage ----


def _nodes(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    first, last = int(low), int(high or low)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"'{text}' is no range of node counts: use for example 4-64")
    return first, last


def _cells(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    first, last = int(low), int(high or low)
    if not 2 <= first <= last <= len(NAMES):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of cells: from 2 to {len(NAMES)}")
    return first, last


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few: at least 1")
    return number


def _only(text: str) -> frozenset[Thing]:
    try:
        return parse_only(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _first(text: str) -> int:
    return NEW if text == "new" else int(text)


def _failed(text: str) -> Path:
    path = Path(text)
    try:
        failed.load(path)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def _plan(text: str) -> Scenario:
    """A scenario from a file, or written out."""
    try:
        raw = text.encode() if text.startswith("{") else Path(text).read_bytes()
        return msgspec.json.decode(raw, type=Scenario)
    except (OSError, msgspec.DecodeError) as error:
        raise argparse.ArgumentTypeError(f"'{text[:60]}' is no plan of a run: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eslurm sim", description="Run the cluster's own logic in virtual time against seeded faults."
    )
    parser.add_argument("--seeds", type=_positive, default=100, metavar="N", help="how many seeds to run")
    parser.add_argument(
        "--from",
        dest="first",
        type=_first,
        default=1,
        metavar="S",
        help="the first seed; new: one drawn anew, and printed",
    )
    parser.add_argument(
        "--failed",
        type=_failed,
        default=None,
        metavar="FILE",
        help="run the seeds in this file first (SEED/NODES in a line), and add one that fails",
    )
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=None,
        metavar="A-B",
        help="cluster sizes to draw from, or one size (default: 4-16; with --cells, nodes of the largest cell: 4-8)",
    )
    parser.add_argument(
        "--cells",
        type=_cells,
        default=None,
        metavar="A-B",
        help="federations of so many clusters over one simulated store (2 to 4, or one number)",
    )
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="run this seed alone")
    parser.add_argument(
        "--plan", type=_plan, default=None, metavar="FILE", help="run the plan in a file (or a plan itself)"
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=cores(),
        metavar="N",
        help="processes that run seeds (default: one for each core)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per seed, and a summary")
    parser.add_argument("--quiet", action="store_true", help="no line per seed that held, only the summary")
    parser.add_argument(
        "--require-coverage",
        type=int,
        default=0,
        metavar="N",
        help="fail if a rare path was taken less than N times in all seeds together",
    )
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--only",
        type=_only,
        default=frozenset(),
        metavar="WHAT",
        help="trace only what concerns e.g. job=7,node=cn0003 (and every fault)",
    )
    parser.add_argument(
        "--shrink", action="store_true", help="make a failing run smaller and say how to see it"
    )
    parser.add_argument(
        "--trials", type=_positive, default=TRIALS_MAX, metavar="N", help="most runs that shrinking may take"
    )
    parser.add_argument(
        "--out", type=Path, default=None, metavar="FILE", help="where shrinking leaves the smaller plan"
    )
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
