"""The distribution of jobs over the cores that they had, ranked by core hours: numbers, waits, run times (C-53).

A job whose attempt was followed by another one counts once, with the time of all its attempts. Invariant: the shares of all
rows are 100 %.
"""

from __future__ import annotations

from escli.tables import columns_of, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from escli.used_runs import UsedRun

_SECOND_US = 1_000_000
_HOUR_US = 3600 * _SECOND_US
_HEADS = (
    ">RANK >CORES >JOBS >JOBS% >CORE-HOURS >HOURS% >SUM% >MEAN-RUN >MAX-RUN >ACCURACY >MEAN-WAIT >MAX-WAIT"
)
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


class SizeRow:
    """Jobs with one number of cores. Times are in microseconds, `core_us` only of the report's time."""

    __slots__ = (
        *("_accuracies", "_accuracy", "_jobs", "_run_us", "_runs", "_wait_us", "_waits"),
        *("core_us", "cores", "run_max_us", "wait_max_us"),
    )

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.core_us = 0
        self.run_max_us = self.wait_max_us = 0
        self._jobs: set[int] = set()
        self._runs = self._run_us = self._waits = self._wait_us = self._accuracies = 0
        self._accuracy = 0.0

    def add(self, run: UsedRun, since_us: int, until_us: int) -> None:
        """Count a run."""
        self._jobs.add(run.job_id)
        self.core_us += run.core_us(since_us, until_us)
        if not run.goes_on:
            self._runs += 1
            self._run_us += run.elapsed_us
            self.run_max_us = max(self.run_max_us, run.elapsed_us)
            if run.time_limit_s:
                self._accuracies += 1
                self._accuracy += run.elapsed_us / (run.time_limit_s * _SECOND_US)
        # Only a first attempt waited since its submission.
        if run.attempt == 1:
            wait_us = max(0, run.started_us - run.submitted_us)
            self._waits += 1
            self._wait_us += wait_us
            self.wait_max_us = max(self.wait_max_us, wait_us)

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self._jobs)

    @property
    def run_mean_us(self) -> int | None:
        """The mean run time of the runs that have ended."""
        return self._run_us // self._runs if self._runs else None

    @property
    def wait_mean_us(self) -> int | None:
        """The mean time from submission to the first start."""
        return self._wait_us // self._waits if self._waits else None

    @property
    def accuracy_percent(self) -> float | None:
        """The mean run time as a share of the time limit; None: no run has ended that had one."""
        return 100 * self._accuracy / self._accuracies if self._accuracies else None


class Distribution:
    """The rows, those with the most core hours first."""

    def __init__(self, runs: Iterable[UsedRun], since_us: int, until_us: int) -> None:
        by_cores: dict[int, SizeRow] = {}
        for run in runs:
            row = by_cores.get(run.cpus)
            if row is None:
                row = by_cores[run.cpus] = SizeRow(run.cpus)
            row.add(run, since_us, until_us)
        self.rows = sorted(by_cores.values(), key=lambda row: (-row.core_us, row.cores))
        self.jobs = sum(row.jobs for row in self.rows)
        self.core_us = sum(row.core_us for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """The rows for programs: times in seconds, shares in percent."""
        found = []
        sum_us = 0
        for rank, row in enumerate(self.rows, 1):
            sum_us += row.core_us
            found.append(
                {
                    "rank": rank,
                    "cores": row.cores,
                    "jobs": row.jobs,
                    "jobs_percent": _percent(row.jobs, self.jobs),
                    "core_hours": round(row.core_us / _HOUR_US, 3),
                    "core_hours_percent": _percent(row.core_us, self.core_us),
                    "sum_percent": _percent(sum_us, self.core_us),
                    "run_mean_s": _seconds(row.run_mean_us),
                    "run_max_s": _seconds(row.run_max_us if row.run_mean_us is not None else None),
                    "accuracy_percent": None
                    if row.accuracy_percent is None
                    else round(row.accuracy_percent, 2),
                    "wait_mean_s": _seconds(row.wait_mean_us),
                    "wait_max_s": _seconds(row.wait_max_us if row.wait_mean_us is not None else None),
                }
            )
        return found

    def table(self, top: int) -> str:
        """The first rows as a table, a line for all others together, and one for the sum."""
        records = self.records()
        lines = [_line(record) for record in records[:top]]
        rest = self.rows[top:]
        if rest:
            jobs, core_us = sum(row.jobs for row in rest), sum(row.core_us for row in rest)
            lines.append(_sum_line(f"{len(rest)} others", jobs, self.jobs, core_us, self.core_us))
        lines.append(_sum_line("all", self.jobs, self.jobs, self.core_us, self.core_us))
        return render(columns_of(_HEADS), lines)


def _line(record: dict[str, Any]) -> list[str]:
    accuracy = record["accuracy_percent"]
    return [
        str(record["rank"]),
        f"{record['cores']:,}",
        f"{record['jobs']:,}",
        f"{record['jobs_percent']:.2f}",
        f"{record['core_hours']:,.1f}",
        f"{record['core_hours_percent']:.2f}",
        f"{record['sum_percent']:.2f}",
        length(record["run_mean_s"]),
        length(record["run_max_s"]),
        "-" if accuracy is None else f"{accuracy:.2f}%",
        length(record["wait_mean_s"]),
        length(record["wait_max_s"]),
    ]


def _sum_line(name: str, jobs: int, all_jobs: int, core_us: int, all_us: int) -> list[str]:
    shares = [
        f"{_percent(jobs, all_jobs):.2f}",
        f"{core_us / _HOUR_US:,.1f}",
        f"{_percent(core_us, all_us):.2f}",
    ]
    return ["", name, f"{jobs:,}", *shares, *[""] * 6]


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _seconds(us: int | None) -> int | None:
    return None if us is None else us // _SECOND_US


def length(seconds: int | None) -> str:
    """`8d18h`, `1h5m`, `42s`: the two largest units; `-` for None."""
    if seconds is None:
        return "-"
    for place, (unit, size) in enumerate(_UNITS):
        count, rest = divmod(seconds, size)
        if not count and size > 1:
            continue
        below = _UNITS[place + 1] if place + 1 < len(_UNITS) else None
        more = rest // below[1] if below is not None else 0
        return f"{count}{unit}" + (f"{more}{below[0]}" if more and below is not None else "")
    raise AssertionError("seconds are a unit")
