"""Links that are bad for long: the job's host is cut off one way or slowed down, and no attempt meets another alive."""

from __future__ import annotations

import json

import msgspec
import pytest

from eslurm.core.model import facts
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.faults import CLOCK
from eslurm.lab.sim.command import main
from eslurm.lab.sim.coverage import COUNTED, PATHS, Coverage, merged, missing
from eslurm.lab.sim.fault_schedule import FaultPlan, draw_plan
from eslurm.lab.sim.host_faults import KINDS, HostFault
from eslurm.lab.sim.network import CALM
from eslurm.lab.sim.run import Report, Scenario, run_scenario
from eslurm.lab.sim.step_runner import LONG_LIMIT_S
from eslurm.lab.sim.world import World


def ordeal(seed: int, kind: str, *more: HostFault) -> Report:
    """Five nodes, some jobs of minutes; nothing else goes wrong."""
    one = HostFault(20 * SECOND_US, 100 * SECOND_US, kind)
    plan = FaultPlan(CALM, (), 0.0, 130 * SECOND_US, ordeals=(one, *more))
    return run_scenario(Scenario(seed, 5, plan, actions=0))


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_attempts_are_alive_though_the_link_is_bad_for_longer_than_every_limit(kind: str) -> None:
    paths = merged(ordeal(seed, kind).paths for seed in range(1, 7))
    assert paths[f"link {kind} for longer than node_lost_after_s"] == 6
    if kind in ("out", "in"):
        for path in ("script orphaned", "node lost with jobs", "attempt returned late"):
            assert paths[path] >= 2, (path, paths)
        assert paths["job requeued elsewhere before its node came back"] >= 2


def test_a_leader_that_dies_meanwhile_changes_nothing() -> None:
    for seed in range(1, 5):
        for then in ("crash_controller", "pause_controller", "take_over"):
            one = HostFault(20 * SECOND_US, 110 * SECOND_US, "out", then, 30 * SECOND_US)
            plan = FaultPlan(CALM, (), 0.0, 140 * SECOND_US, controllers=2, ordeals=(one,))
            run_scenario(Scenario(seed, 5, plan, actions=0))


def test_ordeals_leave_the_other_choices_of_a_seed_alone() -> None:
    with_some = [seed for seed in range(1, 101) if draw_plan(seed, 8).ordeals]
    assert 20 <= len(with_some) <= 50
    for seed in range(1, 20):
        plan = draw_plan(seed, 8)
        assert plan.events[-1][0] < 60 * SECOND_US
        assert (plan.calm_us <= 60 * SECOND_US) or plan.ordeals
    lost_s = World(1, 8).config.node_lost_after_s
    longer = [
        one for seed in with_some for one in draw_plan(seed, 8).ordeals if one.for_us > lost_s * SECOND_US
    ]
    assert {one.kind for one in longer} == set(KINDS)


def test_a_plan_without_ordeals_is_read_as_before() -> None:
    plan = draw_plan(3, 8)
    old = msgspec.json.decode(msgspec.json.encode(plan))
    del old["ordeals"]
    assert msgspec.convert(old, FaultPlan).ordeals == ()
    assert msgspec.json.decode(msgspec.json.encode(plan), type=FaultPlan) == plan
    assert LONG_LIMIT_S > 300, "longer than any run"


def test_a_clock_that_is_right_again_is_no_passed_check() -> None:
    batch: list[facts.Fact] = [
        facts.NodeFaulted(3, CLOCK, "its clock is ahead", 0, 0),
        facts.NodeCleared(3, (CLOCK,)),
        facts.NodeCleared(4, ("epilog",)),
    ]
    coverage = Coverage()
    coverage.on_durable([fact for fact in batch if type(fact).__name__ in COUNTED])
    assert {path for path, count in coverage.counts.items() if count == 1} == {
        "node taken out for its clock",
        "fault of a node cleared by its check",
    }


def test_a_kind_of_fact_that_nothing_counts_is_an_error() -> None:
    """Goal: what is handed to the counters and what they count is one table, so no path stays 0 for want of its fact."""
    with pytest.raises(KeyError):
        Coverage().on_durable([facts.NodesReleased(1, 1, (0,))])
    with pytest.raises(KeyError):
        Coverage().count("a path of no name")


def test_the_paths_are_told_and_may_be_demanded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--nodes", "4", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert all(path in told for path in PATHS)
    assert main(["--seeds", "2", "--nodes", "4", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["paths"] == merged(line["paths"] for line in lines[:-1])
    assert main(["--seed", "2", "--nodes", "4", "--quiet", "--require-coverage", "1000000"]) == 1
    assert "node lost with jobs" in capsys.readouterr().err
    assert missing({"a": 0, "b": 1, "c": 2}, 2) == ["a", "b"]
