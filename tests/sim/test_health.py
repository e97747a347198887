"""Health checks that fail for a while on nodes of simulated clusters: no job is placed there, and all nodes come back."""

from __future__ import annotations

import sys

import msgspec
import pytest

from eslurm.core.model import node
from eslurm.lab.sim.fault_schedule import draw_plan
from eslurm.lab.sim.health_checks import FAILING_SHARE, HEALTH_FROM, HealthFollower, draw_share, run_of
from eslurm.lab.sim.run import Failure, Scenario, draw_nodes, judge, run_scenario


def scenario_of(seed: int) -> Scenario:
    """A seed's run with health checks."""
    count = draw_nodes(seed, 4, 16)
    return Scenario(seed, count, msgspec.structs.replace(draw_plan(seed, count), unhealthy=FAILING_SHARE))


@pytest.mark.slow
def test_nodes_leave_and_return_in_clusters_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    followers: list[HealthFollower] = []
    begin = HealthFollower.__init__

    def begun(self: HealthFollower) -> None:
        begin(self)
        followers.append(self)

    monkeypatch.setattr(HealthFollower, "__init__", begun)
    for seed in range(1, 13):
        run_scenario(scenario_of(seed))
    assert sum(one.taken_out for one in followers) >= 50
    assert sum(one.returned for one in followers) >= 50
    assert sum(one.kept_away for one in followers) >= 50, "jobs are placed while nodes are out"


@pytest.mark.slow
def test_a_controller_that_places_jobs_on_unwell_nodes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def usable(one: node.Node) -> bool:
        return one.state.value == "UP" and not one.drain and all(fault.check for fault in one.faults)

    with monkeypatch.context() as patch:
        # The invariants of the state itself find it otherwise.
        for module in list(sys.modules.values()):
            if getattr(module, "is_usable", None) is node.is_usable and module is not node:
                patch.setattr(module, "is_usable", usable)
        found = (judge(scenario_of(seed)) for seed in range(1, 31))
        failure = next((one for one in found if isinstance(one, Failure)), None)
    assert failure is not None and "fail" in failure.what, failure
    run_scenario(failure.scenario)


def test_earlier_seeds_keep_their_worlds() -> None:
    assert not any(draw_plan(seed, 8).unhealthy for seed in (*range(1, 200), 10_500, 96_000_000))
    later = [bool(draw_share(seed, 8)) for seed in range(HEALTH_FROM, HEALTH_FROM + 100)]
    assert 20 <= sum(later) <= 60


def test_a_check_fails_for_a_span_of_time() -> None:
    runs = [run_of(7, "cn1", "disk", 0.5, second * 1_000_000) for second in range(90)]
    assert runs == [run_of(7, "cn1", "disk", 0.5, second * 1_000_000) for second in range(90)]
    fates = [text is None for _, text in runs]
    assert all(len(set(fates[first : first + 9])) == 1 for first in range(0, 90, 9))
    assert len(set(fates)) == 2
    assert all(text is None for _, text in (run_of(7, "cn1", "disk", 0.0, second) for second in range(9)))
