"""The files of a run: lanes that never overlap, a trace for Perfetto, a picture, a log."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eslurm.lab import drawing
from eslurm.lab.workloads import gantt, outcome, perfetto
from eslurm.lab.workloads.lanes import Bar, Lanes
from eslurm.lab.workloads.loop import Result, replay
from eslurm.lab.workloads.machine import from_header, uniform
from eslurm.lab.workloads.swf import Header, SwfFile
from eslurm.lab.workloads.workload import Choices, build
from tests.kits.workloads import SYNTHETIC, record, run


@pytest.fixture(scope="module")
def busy() -> Result:
    """The synthetic log on sixteen nodes of four cores."""
    machine = uniform(16, 4)
    with SwfFile(SYNTHETIC) as log:
        return replay(build(log, log.header, machine, Choices()), machine, "easy")


@pytest.mark.parametrize("joined", [True, False])
def test_no_two_bars_share_a_lane_at_an_instant(busy: Result, joined: bool) -> None:
    on: dict[int, list[tuple[int, int]]] = defaultdict(list)
    area = 0
    for bar in Lanes(busy.machine).bars(busy, joined=joined):
        area += (bar.high - bar.low) * (bar.ran.end_us - bar.ran.start_us)
        for lane in range(bar.low, bar.high):
            on[lane].append((bar.ran.start_us, bar.ran.end_us))
    for stays in on.values():
        stays.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(stays))
    assert area == sum(one.job.processors * (one.end_us - one.start_us) for one in busy.ran)


def test_neighbouring_nodes_make_one_bar() -> None:
    result = run([record(1, 0, 10, 1), record(2, 1, 50, 3)], "fcfs")
    lanes = Lanes(result.machine)
    assert [shape(bar) for bar in lanes.bars(result, joined=True)] == [("1", 0, 1), ("2", 1, 4)]
    assert len(list(lanes.bars(result, joined=False))) == 4


def shape(bar: Bar) -> tuple[str, int, int]:
    return bar.ran.job.name, bar.low, bar.high


def test_the_trace_has_a_track_per_core_and_a_bar_per_job_and_node(busy: Result, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    perfetto.write_trace(path, busy)
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(names) == 64 and names[0] == "n00 core 0" and names[63] == "n15 core 3"
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == sum(len(one.spans) for one in busy.ran)
    first = busy.ran[0]
    assert bars[0]["args"] == {
        "job": first.job.record.job_id,
        "user": first.job.record.user,
        "processors": first.job.processors,
        "wait_s": 0.0,
        "estimate_s": first.job.pending.time_limit_us / 1e6,
    }
    assert bars[0]["ts"] == 0 and bars[0]["dur"] == first.end_us - first.start_us
    counters = [event for event in events if event["ph"] == "C"]
    assert [event["args"]["value"] for event in counters[-2:]] == [0, 0]
    assert max(event["args"]["value"] for event in counters if event["name"] == "busy processors") <= 64


def test_nodes_of_one_core_are_a_track_each() -> None:
    result = run([record(1, 0, 10, 2)], "fcfs")
    names = [event["args"]["name"] for event in perfetto.events(result) if event["name"] == "thread_name"]
    assert names == ["n0", "n1", "n2", "n3"]


def test_the_outcome_is_a_log_that_runs_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "out.swf.gz"
    with SwfFile(SYNTHETIC) as log:
        machine = from_header(log.header)
        first = replay(build(log, log.header, machine, Choices()), machine, "easy")
        outcome.write_outcome(path, first, log.header)
    with SwfFile(path) as log:
        assert (
            log.header.lines[-1] == " Note: replayed by eslurm simulate: policy easy, 64 nodes, 64 processors"
        )
        waits = {one.job_id: one.wait_s for one in log}
    assert waits == {one.job.record.job_id: one.wait_us // 1_000_000 for one in first.ran}
    with SwfFile(path) as log:
        again = replay(build(log, log.header, machine, Choices()), machine, "easy")
    assert [(one.job.name, one.start_us) for one in again.ran] == [
        (one.job.name, one.start_us) for one in first.ran
    ]


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("suffix", drawing.FORMATS)
@pytest.mark.parametrize("shapes_max", [gantt.SHAPES_MAX, 10], ids=["shapes", "pixels"])
def test_the_picture_is_the_same_each_time(
    busy: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, shapes_max: int
) -> None:
    monkeypatch.setattr(gantt, "SHAPES_MAX", shapes_max)
    paths = [tmp_path / f"{number}{suffix}" for number in range(2)]
    for path in paths:
        gantt.draw(path, busy, gantt.window_of(busy, None, None))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(paths[0].read_bytes()) > 10_000


def test_a_window_is_counted_from_the_first_submission(busy: Result) -> None:
    begin_us = busy.ran[0].job.submit_us
    assert gantt.window_of(busy, None, None).until_us == max(one.end_us for one in busy.ran)
    assert gantt.window_of(busy, 60, 120) == gantt.Window(begin_us + 60_000_000, begin_us + 120_000_000)
    beyond = gantt.window_of(busy, 10**9, None)
    assert beyond.until_us == beyond.from_us + 1_000_000


def test_a_header_may_be_empty(tmp_path: Path) -> None:
    result = run([record(1, 0, 10, 2)], "fcfs")
    outcome.write_outcome(tmp_path / "out.swf", result, Header())
    assert (
        (tmp_path / "out.swf").read_text(encoding="utf-8").startswith("; Note: replayed by eslurm simulate")
    )
