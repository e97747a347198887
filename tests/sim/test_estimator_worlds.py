"""An estimator in the simulated cluster, right, wrong, stale or talking nonsense: it is heard, and harms nobody."""

from __future__ import annotations

from collections import Counter

from eslurm.lab.sim.run import Report, Scenario, draw_nodes, judge, make_world
from eslurm.lab.sim.world import START_US
from tests.support.profiles import draws
from tests.support.seeds import Seeds

SAID = ("fact", "answered", "waiting", "run")


def test_clusters_hold_whatever_is_foretold(seeds: Seeds) -> None:
    for seed in seeds(draws(12)):
        verdict = judge(Scenario(seed, draw_nodes(seed, 4, 12)))
        assert isinstance(verdict, Report), verdict


def test_all_that_can_be_said_is_said() -> None:
    looked: Counter[str] = Counter()
    for seed in range(1, 13):
        if all(looked[what] >= 3 for what in SAID):
            break
        world = make_world(Scenario(seed, draw_nodes(seed, 4, 8)))
        answers = world.estimator._told
        world.trace = lambda _at_us, text: looked.update(["fact"] if "JobsForecast" in text else [])
        world.start()
        world.scheduler.run(START_US + world.faults.plan.calm_us)
        looked["answered"] += len(answers)
        controller = world.controller
        if controller is not None:
            jobs = controller.state.jobs.values()
            looked["waiting"] += sum(job.forecast is not None and job.attempt is None for job in jobs)
            looked["run"] += sum(job.forecast is not None and job.attempts > 0 for job in jobs)
    assert min(looked[what] for what in SAID) >= 3, looked
