"""Configurations that change while clusters run and leaders die: worlds hold, and two planted bugs are found."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.lab.sim.coverage import merged
from eslurm.lab.sim.fault_schedule import RECONFIGURED_FROM, draw_plan
from eslurm.lab.sim.run import Failure, Scenario, draw_nodes, judge, run_scenario
from tests.sim import planted


def scenario_of(seed: int) -> Scenario:
    """A seed's run with an administrator who changes the file, and two controllers or more."""
    nodes = draw_nodes(seed, 4, 8)
    plan = draw_plan(seed, nodes)
    return Scenario(
        seed, nodes, msgspec.structs.replace(plan, reconfigures=True, controllers=max(2, plan.controllers))
    )


@pytest.mark.slow
def test_nodes_come_and_go_in_clusters_that_hold() -> None:
    paths = merged(run_scenario(scenario_of(seed)).paths for seed in range(1, 13))
    assert paths["configuration read again"] >= 12
    assert paths["node removed from a running cluster"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (planted.older_file_obeyed, "an older file came back"),
        (planted.node_number_given_twice, "is given to"),
    ],
)
def test_a_planted_bug_is_found(plant: planted.Plant, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        found = (judge(scenario_of(seed)) for seed in range(1, 61))
        failure = next((one for one in found if isinstance(one, Failure)), None)
    assert failure is not None and says in failure.what, failure
    run_scenario(failure.scenario)


def test_earlier_seeds_keep_their_worlds() -> None:
    assert not any(draw_plan(seed, 8).reconfigures for seed in range(1, 200))
    later = [draw_plan(seed, 8).reconfigures for seed in range(RECONFIGURED_FROM, RECONFIGURED_FROM + 100)]
    assert 15 <= sum(later) <= 45
