"""The charge for running jobs: made when they end, counted while they run, the same after restart and replay."""

from __future__ import annotations

import math
from collections.abc import Generator

import pytest
from msgspec.structs import replace

from eslurm.core.control.fair_share import OthersUsage, priority_inputs, rank, tree_of
from eslurm.core.model.accounts import Qos
from eslurm.core.model.config import ClusterConfig, PriorityWeights, Resource
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import JobRef, SuspendJobs
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.state.apply_accounts import put_policy
from eslurm.core.state.usage import LN_2, as_of, rate_of, usage_now
from eslurm.core.state.view import View
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, refused
from tests.unit.core.plan.cycle.test_priority import run

FOREVER = PriorityWeights(half_life_s=0)
FAIR = PriorityWeights(fairshare=1000, half_life_s=3600, recompute_s=60.0)


def test_the_seconds_that_cores_were_held() -> None:
    world = World(priority=FOREVER)
    job = world.submit(request=Request(tasks=3), account="physics")
    world.start()
    world.pass_time(100)
    assert run(usage_now(world.state, world.state.jobs.values(), world.now_us)) == {
        ("physics", "alice"): 300.0
    }
    world.end(job)
    assert world.state.usage["physics", "alice"].raw == 300.0
    world.restart()
    assert run(usage_now(world.state, (), world.now_us + 10**12)) == {("physics", "alice"): 300.0}


def test_what_was_counted_while_it_ran_is_what_is_charged() -> None:
    world = World(priority=FAIR)
    job = world.submit(request=Request(tasks=2))
    world.start()
    world.pass_time(3600)
    running = run(usage_now(world.state, world.state.jobs.values(), world.now_us))["", "alice"]
    assert running == pytest.approx(2 * 3600 / LN_2 / 2)
    world.end(job)
    assert as_of(world.state.usage["", "alice"], world.now_us, 3600) == running
    world.pass_time(3600)
    assert run(usage_now(world.state, (), world.now_us))["", "alice"] == pytest.approx(running / 2)


def test_a_qos_makes_it_dearer_or_free() -> None:
    world = World(priority=FOREVER, restarts=False)
    world.state.policies["qos"] = {
        "dear": Qos("dear", usage_factor=4.0),
        "gone": Qos("gone", usage_factor=3.0),
    }
    world.view = View(world.state)
    jobs = [world.submit(qos=name) for name in ("dear", "gone")]
    del world.state.policies["qos"]["gone"]
    world.view = View(world.state)
    world.start()
    world.pass_time(10)
    assert run(usage_now(world.state, world.state.jobs.values(), world.now_us))["", "alice"] == 50.0
    put_policy(world.state, Qos("dear", usage_factor=0.0))
    world.state.take_touched()
    assert run(usage_now(world.state, world.state.jobs.values(), world.now_us))["", "alice"] == 10.0
    assert len(jobs) == 2


def test_what_never_ran_costs_nothing() -> None:
    world = World()
    waiting = world.submit()
    world.cancel(waiting)
    placed = world.submit()
    world.plan()
    world.cancel(placed)
    world.deliver()
    assert world.state.usage == {}


def test_a_node_whose_clock_is_wrong_charges_no_more_than_was_held() -> None:
    world = World(priority=FOREVER)
    job = world.submit()
    world.start()
    world.pass_time(10)
    attempt = world.attempt(job)
    end = StepEnd(0, started_us=attempt.started_us, ended_us=attempt.started_us + 10**12)
    node = world.state.nodes[attempt.first]
    world.report(StepEnded(attempt.first, node.incarnation, job, attempt.number, end, True))
    usage = world.state.usage["", "alice"]
    assert (usage.raw, usage.at_us) == (10.0, world.now_us)


@pytest.mark.parametrize("resumed", [False, True])
def test_who_stands_still_uses_nothing(resumed: bool) -> None:
    world = World(priority=FOREVER)
    job = world.submit(request=Request(tasks=2))
    world.start()
    world.pass_time(100)
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.deliver()
    world.pass_time(1_000)
    if resumed:
        world.send(SuspendJobs(ROOT, (JobRef(job),), True))
        world.deliver()
        world.pass_time(10)
    used = 220.0 if resumed else 200.0
    assert run(usage_now(world.state, world.state.jobs.values(), world.now_us)) == {("", "alice"): used}
    world.end(job)
    assert world.state.usage["", "alice"].raw == used
    assert world.job(job).paused_us == 1_000 * SECOND


def test_weights_of_resources() -> None:
    config = ClusterConfig(
        "x",
        resources=(Resource("gpu"), Resource("matlab", wide_total=5)),
        priority=PriorityWeights(
            billing=(("cores", 1.0), ("gpu", 8.0), ("matlab", 0.5), ("memory_mib", 0.001))
        ),
    )
    assert rate_of(config, [(4, 2000, 2), (1, 0, 0)], (3,)) == math.fsum((5.0, 2.0, 16.0, 1.5))
    assert rate_of(config, [(4, 2000)]) == 6.0


def test_who_has_used_less_is_planned_first() -> None:
    world = World(nodes=1, priority=FAIR)
    first = world.submit(user=ALICE)
    world.start()
    world.pass_time(1000)
    hers, his = world.submit(user=ALICE), world.submit(user=BOB)
    ranking = Ranking()
    run(rank(world.state, ranking, world.now_us, (world.state.queue,)))
    assert [entry.job_id for entry in ranking.ordered()] == [his, hers]
    assert (ranking.priority(his), ranking.priority(hers)) == (1000, 500)
    world.end(first)
    world.cancel(his, by=BOB)
    run(rank(world.state, ranking, world.now_us, (world.state.queue,)))
    assert [entry.job_id for entry in ranking.ordered()] == [hers]


def test_a_site_that_weighs_nothing_keeps_no_ranking() -> None:
    world = World()
    world.submit()
    ranking = Ranking()
    run(rank(world.state, ranking, world.now_us, (world.state.queue,)))
    assert len(ranking) == 0


def test_the_standing_of_a_small_cluster() -> None:
    world = World(nodes=3, cores=8, priority=FAIR, restarts=False)
    world.state.policies["qos"]["high"] = Qos("high", priority=10)
    standing = run(priority_inputs(world.state, world.now_us, [("a", "u")]))
    assert (standing.nodes, standing.cores) == (3, 24)
    assert standing.fair == {("a", "u"): 1.0}
    assert standing.qos == {"high": 1.0}
    assert run(tree_of(world.state, world.now_us)).factors == {}


def test_where_priorities_are_computed_only_operators_give_numbers() -> None:
    world = World(priority=FAIR)
    assert "use --nice to step back" in refused(world.try_submit(priority=5))
    assert "only operators may go below 0" in refused(world.try_submit(nice=-1))
    assert "-1000000..1000000" in refused(world.try_submit(nice=10**7))
    given, computed = world.submit(priority=5, user=ROOT), world.submit(nice=3)
    assert (world.job(given).priority, world.job(computed).priority) == (5, 1000)


def test_where_nothing_is_computed_nice_steps_back() -> None:
    world = World()
    assert world.job(world.submit(nice=30)).priority == 970
    assert world.job(world.submit(nice=3000)).priority == 0
    assert world.job(world.submit(priority=7, nice=3)).priority == 7
    assert world.now_us == 1000 * SECOND


def test_usage_in_other_clusters_changes_the_order_and_its_loss_changes_it_back() -> None:
    world = World(nodes=1, priority=PriorityWeights(fairshare=1_000, half_life_s=0, recompute_s=1))
    first, second = world.submit(user=ALICE), world.submit(user=BOB)
    asked: list[int] = []

    def elsewhere() -> Generator[None, None, dict[tuple[str, str], float]]:
        asked.append(world.now_us)
        yield
        return {("", "alice"): 500.0}

    ranking = Ranking()

    def order(others: OthersUsage | None) -> list[int]:
        world.pass_time(2)
        run(rank(world.state, ranking, world.now_us, (world.state.queue,), others))
        return [entry.job_id for entry in ranking.ordered()]

    assert order(None) == [first, second]
    assert order(elsewhere) == [second, first] and len(asked) == 1
    assert order(None) == [first, second]
    world.state.config = replace(world.state.config, priority=PriorityWeights(age=1))
    order(elsewhere)
    assert len(asked) == 1
