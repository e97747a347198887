"""The simulator's share of CI: seeds that must hold, runs that must repeat, and enough going wrong in each."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys

import pytest

from eslurm.lab.sim.fault_schedule import KINDS
from eslurm.lab.sim.run import Report, SeedFailed, draw_nodes, replay, run_seed
from eslurm.lab.sim.world import START_US, World
from tests.support.profiles import draws

CHUNK = 45


def run_range(first: int, count: int, nodes_min: int, nodes_max: int) -> list[Report]:
    return [run_seed(seed, draw_nodes(seed, nodes_min, nodes_max)) for seed in range(first, first + count)]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 181, CHUNK))
def test_small_clusters_hold_and_enough_happens_in_them(first: int) -> None:
    reports = run_range(first, draws(CHUNK), 4, 16)
    assert statistics.median(report.messages for report in reports) >= 1_000
    assert statistics.median(report.faults for report in reports) >= 5
    assert statistics.median(report.commits for report in reports) >= 50
    assert all(report.jobs for report in reports)


@pytest.mark.slow
def test_clusters_of_64_nodes_hold() -> None:
    reports = run_range(1001, draws(5), 64, 64)
    assert min(report.messages for report in reports) >= 1_000


@pytest.mark.slow
def test_a_cluster_of_500_nodes_holds() -> None:
    assert run_seed(1, 500).messages >= 1_000


@pytest.mark.slow
def test_a_cluster_of_2000_nodes_holds() -> None:
    assert run_seed(4, 2_000).messages >= 1_000


@pytest.mark.slow
def test_everything_that_can_go_wrong_does_in_a_few_dozen_seeds() -> None:
    # By the names that the world calls them when they really happen.
    named = {
        "crash_agent_between_actions": "agent_crash_between_actions",
        "crash_satellites_at_work": "crash_satellite",
        "crash_controllers": "crash_standby",
        "isolate_one_way": "isolate",
        "isolate_controller": "isolate",
        "pause_controller": "pause",
    }
    missing = {named.get(kind, kind) for kind in KINDS}
    switches = 0
    for seed in range(1, 61):
        if not missing:
            break
        world = World(seed, draw_nodes(seed, 4, 12))
        world.start()
        world.scheduler.run(START_US + world.faults.plan.calm_us)
        missing -= world.faults.seen.keys()
        leaders = world.checks.leaders
        switches += sum(one != other for one, other in itertools.pairwise(leaders))
    assert not missing
    assert switches >= seed, "leads pass from one controller to another"


@pytest.mark.parametrize("seed", [3, 7])
def test_a_seed_repeats_itself_to_the_last_event(seed: int) -> None:
    assert run_seed(seed, 8) == run_seed(seed, 8)


def test_other_seeds_and_sizes_are_other_runs() -> None:
    hashes = {run_seed(seed, nodes).events_hash for seed, nodes in ((1, 4), (2, 4), (1, 5))}
    assert len(hashes) == 3


def test_a_run_does_not_depend_on_how_this_process_hashes_strings() -> None:
    code = "from eslurm.lab.sim.run import run_seed; print([run_seed(seed, 9) for seed in (3, 4)])"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert told[0] == told[1] != ""


def test_a_trace_changes_nothing_and_tells_every_event() -> None:
    told: list[tuple[int, str]] = []
    traced = run_seed(5, 6, lambda at_us, text: told.append((at_us, text)))
    plain = run_seed(5, 6)
    assert traced == plain
    assert [at_us for at_us, _ in told] == sorted(at_us for at_us, _ in told)
    words = " ".join(text for _, text in told)
    for word in ("Prepare(", "fact ", "spawn ", "FAULT ", "reports ", "acks ", "call ", "ack #"):
        assert word in words


def test_a_run_can_stop_on_the_way() -> None:
    report = run_seed(5, 6, until_us=4_000_000)
    assert report.virtual_s == 4.0


def test_a_failure_names_its_seed_and_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eslurm.core.control.jobs.outcomes.on_step_ended", lambda state, report, now_us: 1 / 0
    )
    with pytest.raises(SeedFailed) as failure:
        run_seed(11, 4)
    assert str(failure.value).startswith("seed 11 (4 nodes) failed at ")
    assert "ZeroDivisionError" in str(failure.value)
    assert str(failure.value).endswith(replay(11, 4))
