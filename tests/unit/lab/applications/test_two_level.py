"""Both levels together: determinism, conservation of work, and cores that no two jobs use."""

from __future__ import annotations

import importlib
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eslurm.core.model.lending import LEVELS
from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications import otf2, picture, trace
from eslurm.lab.applications.application import CHUNK_US, Computed, Program
from eslurm.lab.applications.core_account import CoreAccount
from eslurm.lab.applications.costs import from_seconds
from eslurm.lab.applications.esp_figures import figures_of
from eslurm.lab.applications.esp_run import COOPERATION, PAPER, Setting, items_of, job_of, level_of, run
from eslurm.lab.applications.two_level import Course, Item, Overheads, simulate
from eslurm.lab.workloads.account import Broken
from eslurm.lab.workloads.machine import Machine, uniform
from tests.support.groups import lacks

SMALL = Setting("mandelbrot", "STATIC", "full", nodes=32, time_scale=0.1, task_scale=0.01)


def small(**changes: Any) -> Setting:
    return msgspec.structs.replace(SMALL, **changes)


@pytest.fixture(scope="module")
def courses() -> dict[str, Course]:
    """The scaled benchmark under each kind of cooperation."""
    return {level: run(small(cooperate=level), traced=True) for level in COOPERATION}


def test_two_runs_are_one(courses: dict[str, Course]) -> None:
    again = run(small(cooperate="report"))
    assert again.digest == courses["report"].digest
    assert len({course.digest for course in courses.values()}) > 2
    assert run(small(seed=21)).digest != courses["full"].digest


@pytest.mark.parametrize("level", COOPERATION)
def test_the_seconds_of_all_tasks_are_those_that_cores_were_busy(
    courses: dict[str, Course], level: str
) -> None:
    course = courses[level]
    machine = uniform(32, 1)
    work_us = sum(item.program.costs.total_us for item in items_of(small(), machine))
    assert course.busy_us == work_us
    assert sum(task.chunk.end_us - task.chunk.begin_us for task in course.tasks) == work_us
    assert len(course.lived) == 230


@pytest.mark.parametrize("level", COOPERATION)
def test_no_core_has_two_users_and_no_job_more_than_it_asked_for(
    courses: dict[str, Course], level: str
) -> None:
    course = courses[level]
    stays: dict[Any, list[tuple[int, int]]] = {}
    for _, core, start_us, end_us in course.stays():
        stays.setdefault(core, []).append((start_us, end_us))
    for mine in stays.values():
        mine.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(mine))
    assert all(len(set(one.cores)) == one.job.processors for one in course.lived)
    assert course.busy_us <= course.used_us


def chain(count: int, hosts: int, machine: Machine) -> list[Item]:
    """Jobs of one second that all nodes run one after another, all submitted at once."""
    even = Program(from_seconds([1.0] * hosts), "STATIC")
    return [Item(job_of(number, 0, hosts, 60, machine), even, "even") for number in range(1, count + 1)]


def test_launches_and_ends_take_their_time() -> None:
    machine = uniform(4, 1)
    overheads = Overheads(launch_us=300_000, finish_us=200_000)
    course = simulate(
        chain(3, 4, machine), machine, level_of(small(cooperate="off"), machine), overheads=overheads
    )
    took_us = SECOND_US + CHUNK_US + 500_000
    assert [one.start_us for one in course.lived] == [at * took_us for at in range(3)]
    assert all(one.end_us - one.start_us == took_us for one in course.lived)


def test_reports_take_their_time() -> None:
    machine = uniform(4, 1)
    uneven = Program(from_seconds([1.0, 1.0, 60.0, 60.0]), "STATIC")
    started_us = []
    for report_us in (0, 2_000_000):
        lender = Item(job_of(1, 0, 4, 120, machine), uneven, "lender")
        even = Program(from_seconds([1.0] * 2), "STATIC")
        course = simulate(
            [lender, Item(job_of(2, 0, 2, 60, machine), even, "borrower")],
            machine,
            level_of(small(cooperate="report"), machine),
            patience_us=1_000_000,
            overheads=Overheads(report_us=report_us),
        )
        (borrower,) = [one for one in course.lived if one.kind == "borrower"]
        assert borrower.borrowed == 2
        started_us.append(borrower.start_us)
    assert started_us[1] - started_us[0] == 2_000_000


def test_a_slower_cluster_does_the_same_work(courses: dict[str, Course]) -> None:
    slow = run(small(launch_s=0.5, finish_s=0.25, report_s=0.1))
    assert all(one.end_us - one.start_us > 750_000 for one in slow.lived)
    assert slow.busy_us == courses["full"].busy_us


def test_the_first_jobs_run_alone() -> None:
    some = run(small(), jobs=10)
    assert sum(kind.jobs for kind in figures_of(small(), some).kinds) == len(some.lived) == 10


def test_cooperation_uses_cores_that_others_own(courses: dict[str, Course]) -> None:
    off, full, paper = (
        figures_of(small(cooperate=level), courses[level]) for level in ("off", "full", PAPER)
    )
    assert (off.lent_share, off.reports, off.borrowed_starts) == (0.0, 0, 0)
    assert full.lent_share > 0 and full.reports > 100 and full.borrowed_starts > 5
    assert full.utilisation > off.utilisation + 0.03 and full.makespan_s < off.makespan_s
    assert paper.utilisation > off.utilisation
    assert off.held > off.utilisation and sum(kind.jobs for kind in full.kinds) == 230


def test_balanced_applications_have_nothing_to_lend() -> None:
    found = {
        level: run(small(application="psia", technique="FAC", cooperate=level)) for level in ("off", "report")
    }
    assert found["report"].reports == 0
    assert found["report"].digest == found["off"].digest


@pytest.mark.parametrize("technique", ["GSS", "AF"])
def test_dynamic_techniques_are_more_even_than_static(courses: dict[str, Course], technique: str) -> None:
    course = run(small(technique=technique, cooperate="off"))
    static = figures_of(small(cooperate="off"), courses["off"])
    assert figures_of(small(), course).imbalance < static.imbalance


def test_the_levels_are_those_of_the_core() -> None:
    assert (*LEVELS, PAPER) == COOPERATION


def test_the_account_believes_neither_level() -> None:
    machine = uniform(2, 1)
    account = CoreAccount(machine)
    with pytest.raises(Broken, match="is job None's"):
        account.computed(1, Computed((0, 0), 0, 1, 0, 5))
    with pytest.raises(Broken, match="does not use"):
        account.lend(1, (0, 0), 0)
    with pytest.raises(Broken, match="neither uses nor owns"):
        account.end(1, [(0, 0)], 0)


def test_traces_show_jobs_and_tasks(courses: dict[str, Course], tmp_path: Path) -> None:
    course = courses["full"]
    trace.write(tmp_path / "esp.json", course, "small")
    events = json.loads((tmp_path / "esp.json").read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert sum(bar["dur"] for bar in bars if bar["cat"] == "chunk") == course.busy_us
    assert sum(bar["dur"] for bar in bars if bar["cat"] == "job") == course.used_us
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "jobs: small",
        "tasks: small",
    }


def test_regions_of_an_otf2_archive_nest(courses: dict[str, Course]) -> None:
    found = otf2.events_of(courses["full"])
    chunks = 0
    for events in found.values():
        assert [at_us for at_us, *_ in events] == sorted(at_us for at_us, *_ in events)
        open_regions: list[tuple[bool, int]] = []
        for _, is_begin, is_chunk, job_id in events:
            if is_begin:
                open_regions.append((is_chunk, job_id))
                assert len(open_regions) == 1 + is_chunk
                chunks += is_chunk
            else:
                assert open_regions.pop() == (is_chunk, job_id)
        assert not open_regions
    assert chunks == len(courses["full"].tasks)


def test_an_archive_has_all_regions(
    courses: dict[str, Course], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Debian has the bindings for the system's Python.
    monkeypatch.setattr(sys, "path", [*sys.path, "/usr/lib/python3/dist-packages"])
    if not otf2.available():
        lacks("OTF2's bindings")
    library = importlib.import_module("otf2")
    course = courses["full"]
    otf2.write(tmp_path / "archive", course, "small")
    with library.reader.open(str(tmp_path / "archive" / "traces.otf2")) as archive:
        events = sum(1 for _ in archive.events)
    assert events == 2 * (len(course.tasks) + sum(1 for _ in course.stays()))
    with pytest.raises(FileExistsError):
        otf2.write(tmp_path / "archive", course, "small")


def test_the_picture_has_all_that_was_computed(courses: dict[str, Course]) -> None:
    course = courses["full"]
    cells, busy = picture.cells_of(course)
    length_us = max(one.end_us for one in course.lived) - min(one.start_us for one in course.lived)
    assert sum(busy) / picture.COLUMNS == pytest.approx(course.busy_us / length_us / 32, rel=1e-6)
    assert cells.shape == (32, picture.COLUMNS) and 0 < cells.mask.mean() < 0.5
