"""The figures of real ESP jobs, from records that are written by hand."""

from __future__ import annotations

import pytest

from benchmarks.esp import calibration
from benchmarks.esp.calibration import Overhead
from benchmarks.esp.live import Ran, Site, borrowers
from benchmarks.esp.measure import Compared, as_table, happened
from benchmarks.esp.program import Record
from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.application import Program
from eslurm.lab.applications.costs import from_seconds
from eslurm.lab.applications.esp_figures import figures_of
from eslurm.lab.applications.esp_run import Setting, job_of, run
from eslurm.lab.applications.two_level import Item
from eslurm.lab.workloads.machine import uniform

NODES = ("vn0001", "vn0002")


def ran(kind: str, submitted_s: float, started_s: float, ended_s: float, *nodes: str) -> Ran:
    """A job whose tasks began half a second after its script, and ended a quarter before it."""
    submitted_us, started_us, ended_us = (
        round(seconds * SECOND_US) for seconds in (submitted_s, started_s, ended_s)
    )
    record = Record(started_us + 500_000, ended_us - 250_000, 1, 2, 1, started_us + 600_000, 3_000)
    return Ran(kind, len(nodes), submitted_us, started_us, ended_us, nodes, record)


def items(*seconds: float) -> list[Item]:
    machine = uniform(2, 1)
    return [
        Item(job_of(number, 0, 1, 60, machine), Program(from_seconds([cost]), "STATIC"), "A")
        for number, cost in enumerate(seconds, 1)
    ]


def test_a_borrower_starts_on_a_node_of_a_job_that_runs() -> None:
    owner = ran("A", 0, 0, 10, *NODES)
    guest = ran("B", 0, 4, 6, NODES[1])
    later = ran("B", 0, 10, 12, NODES[1])
    assert borrowers([owner, guest, later]) == [guest]
    assert borrowers([later, guest]) == []


def test_figures_of_real_jobs_are_those_of_simulated_ones() -> None:
    jobs = [ran("A", 0, 1, 6, NODES[0]), ran("B", 0, 2, 11, NODES[1]), ran("B", 0, 6, 9, NODES[0])]
    found = happened(jobs, items(4.0, 8.0, 2.0), 2, 0.5)
    assert found.makespan_s == 10.0
    assert found.utilisation == 14 / 20
    assert found.wait_mean_s == 3.0 and found.waits_s == {"A": 1.0, "B": 4.0}
    assert (found.borrowed_starts, found.reports, found.refused) == (0, 6, 3)
    assert (found.late_ms, found.launch_ms) == (3.0, 500.0)


def test_the_table_has_both_sides() -> None:
    setting = Setting("mandelbrot", "STATIC", "off", nodes=32, time_scale=0.1, task_scale=0.01)
    predicted = figures_of(setting, run(setting, jobs=3))
    found = happened([ran("A", 0, 1, 11, NODES[0])], items(8.0), 2, 0.5)
    compared = Compared("off", Overhead(0.4, 0.1, 0.0), predicted, predicted, found)
    assert compared.error == predicted.makespan_s / 10 - 1
    table = as_table([compared]).splitlines()
    assert "launch 0.400 s, finish 0.100 s" in table[2]
    (makespan,) = [line.split() for line in table if line.startswith("makespan")]
    assert makespan[2:4] == ["10.00", f"{predicted.makespan_s:.2f}"]
    assert [line.split()[2] for line in table if "wait of" in line] == ["A,"]


class Scripted(Site):
    """A cluster whose jobs have run already."""

    nodes = 16

    def __init__(self, *runs: list[Ran]) -> None:
        self._left = list(runs)

    def run(self, *_given: object) -> list[Ran]:  # type: ignore[override]
        return self._left.pop(0)


def test_overheads_are_read_from_jobs_in_a_row() -> None:
    chain = [ran("even", 0, 3 * at, 3 * at + 2.5, NODES[0]) for at in range(4)]
    owner = ran("lender", 0, 0, 10, *NODES)
    guest = ran("even", 0, 2, 4, NODES[1])
    found = calibration.calibrate(Scripted(chain, [owner, guest]))
    # A task ends .25 s before its job, the next job starts .5 s after that, and its task begins .5 s later.
    assert found.finish_s == pytest.approx(0.25)
    assert found.launch_s == pytest.approx(1.0)
    assert found.report_s == pytest.approx(0.9)


def test_a_calibration_without_a_borrower_fails() -> None:
    chain = [ran("even", 0, 3 * at, 3 * at + 2.5, NODES[0]) for at in range(2)]
    owner, late = ran("lender", 0, 0, 10, *NODES), ran("even", 0, 10, 12, NODES[1])
    with pytest.raises(RuntimeError, match="no job has borrowed"):
        calibration.calibrate(Scripted(chain, [owner, late]))
