"""The study of a federation: the same figures for the same seed, nothing lost, and the command that prints them."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from escli.local.main import main
from eslurm.core.federation.strategies.table import STRATEGIES
from eslurm.lab.studies.federation.figures import run
from eslurm.lab.studies.federation.shape import Shape, draw_jobs, draw_running
from eslurm.lab.studies.federation.world import World

TINY = Shape(cells=4, nodes=20, jobs=6, mix="medium", load=0.9, run_s=5.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_job_starts_and_the_same_seed_gives_the_same_figures(strategy: str) -> None:
    figures = run(TINY, strategy)
    assert (figures.started, figures.not_started) == (24, 0)
    assert figures.messages.claims >= 1
    assert run(TINY, strategy) == figures
    assert run(replace(TINY, seed=2), strategy) != figures


@pytest.mark.parametrize("strategy", ["joint", "tickets"])
def test_no_node_is_used_twice_and_all_are_offered_again(strategy: str) -> None:
    world = World(replace(TINY, mix="big", jobs=4), strategy)
    world.run(lambda done, total: None)
    while world.clock.step(10**12):
        pass
    assert [world.store.seen(cell).free() for cell in range(4)] == [20] * 4
    for outcome in world.outcomes:
        assert strategy != "joint" or outcome.idle_node_us == 0, "joint holds nothing while it waits"
    assert (world.booked_node_us > 0) == (strategy == "tickets")
    assert not any(cell.watchers for cell in world.cells)
    # At no instant do running jobs have more nodes than there are.
    ends = [(one.started_us + one.job.run_us, -one.job.nodes) for one in world.outcomes]
    begins = [(one.started_us, one.job.nodes) for one in world.outcomes]
    used = 0
    for _, nodes in sorted(ends + begins):
        used += nodes
        assert used <= 80


def test_big_jobs_are_spread_and_held_nodes_are_counted() -> None:
    figures = run(replace(TINY, mix="big", jobs=4, load=1.1), "stealing")
    assert figures.started == 16
    assert figures.spread > 0.2
    assert figures.idle_node_s > 0
    assert figures.messages.total > 10
    assert 0 < figures.polls_saved < 1


def test_jobs_that_never_find_nodes_are_counted() -> None:
    figures = run(replace(TINY, cells=1, load=2.0, jobs=50, patience=-25.0), "joint")
    assert figures.not_started > 0
    assert figures.started + figures.not_started == 50
    assert figures.wait_max_s > 0


def test_jobs_are_those_of_the_shape_whatever_finds_their_nodes() -> None:
    jobs = draw_jobs(TINY)
    assert jobs == draw_jobs(replace(TINY, at_once=3))
    assert sorted({job.cell for job in jobs}) == [0, 1, 2, 3]
    assert all(1 <= job.nodes <= 20 for job in jobs)
    assert [job.at_us for job in draw_jobs(replace(TINY, load=0.0))] == [0] * 24
    used = [sum(one.nodes for one in draw_running(TINY) if one.cell == cell) for cell in range(4)]
    assert used == [18] * 4
    assert draw_running(replace(TINY, load=0.0)) == []


def test_the_command_prints_a_line_for_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["simulate-federation", "--cells", "3", "--nodes", "10", "--jobs", "3", "--run", "1"]
    assert main([*options, "--strategy", "joint", "--strategy", "stealing"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[:4] for line in text.splitlines()] == [
        ["STRATEGY", "MIX", "LOAD", "STARTED"],
        ["joint", "medium", "0.9", "9/9"],
        ["stealing", "medium", "0.9", "9/9"],
    ]
    assert (
        main([*options, "--strategy", "joint", "--mix", "big", "--load", "0.5", "--load", "1", "--json"]) == 0
    )
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["strategy"], one["shape"]["mix"], one["shape"]["load"]) for one in runs] == [
        ("joint", "big", 0.5),
        ("joint", "big", 1.0),
    ]


def test_an_unknown_strategy_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-federation", "--strategy", "magic"]) == 2
    assert "magic: no such strategy; there are stealing, cached," in capsys.readouterr().err
