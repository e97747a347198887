"""Agents of a calm simulated cluster, and one thing that happens to them, their clocks or their disks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eslurm.core.agent.records import Booted, FloorRaised, Record, fold, unfold
from eslurm.core.model.step_key import BATCH_STEP
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.host import Host
from eslurm.lab.sim.network import CALM
from eslurm.lab.sim.spool import COMPACT_ABOVE_MIN, Spool, SpoolFull
from eslurm.lab.sim.world import START_US, World
from eslurm.ports.step_runner import StepStarted, StepState

HOUR_US = 3_600 * SECOND_US
CALM_US = 60 * SECOND_US


def calm_world(actions: int = 0, seed: int = 4) -> World:
    world = World(seed, 8, plan=FaultPlan(CALM, (), 0.0, CALM_US))
    world.actions = actions
    world.start()
    world.scheduler.run(START_US + 10 * SECOND_US)
    assert world.controller is not None
    return world


def settles(world: World) -> None:
    until_us = world.scheduler.at_us + 200 * SECOND_US
    assert world.scheduler.run(until_us, world.is_settled), world.why_unsettled()
    world.final_check()


def is_running_script(step: StepState) -> bool:
    return isinstance(step, StepStarted) and step.key.step == BATCH_STEP


def busy_host(world: World) -> Host:
    """A host on which a script runs."""

    def running() -> list[Host]:
        return [host for host in world.hosts if any(map(is_running_script, host.runner.do_list()))]

    assert world.scheduler.run(world.scheduler.at_us + 100 * SECOND_US, lambda: bool(running()))
    return running()[0]


def test_an_agent_that_stood_still_tells_what_ended_meanwhile() -> None:
    world = calm_world(actions=30)
    host = busy_host(world)
    agent = host.agent
    assert agent is not None
    heard = len(agent.agent.report_queue)
    agent.pause(20 * SECOND_US)
    world.scheduler.run(world.scheduler.at_us + 19 * SECOND_US)
    assert agent.is_paused and len(agent.agent.report_queue) == heard
    settles(world)
    assert host.agent is agent and not agent.is_paused


@pytest.mark.parametrize("jump_us", [HOUR_US, -HOUR_US])
def test_a_wall_clock_that_is_put_wrong_delays_nothing(jump_us: int) -> None:
    world = calm_world(actions=30)
    for host in world.hosts:
        host.skew_us = jump_us
    before = sum(host.runner.spawned for host in world.hosts)
    # Before it is calm, when the clocks are put right.
    world.scheduler.run(START_US + CALM_US - SECOND_US)
    assert sum(host.runner.spawned for host in world.hosts) - before >= 10
    settles(world)


def test_an_agent_that_began_with_a_wrong_wall_clock_works_once_that_is_right() -> None:
    world = calm_world(actions=30)
    for host in world.hosts:
        host.skew_us = HOUR_US
        host.crash_agent()
        host.start_agent()
        host.skew_us = 0
    settles(world)
    assert sum(host.runner.spawned for host in world.hosts) >= 10


def test_an_agent_may_die_with_some_of_its_records_written() -> None:
    beginnings = set()
    for crash_after in range(4):
        world = calm_world(actions=20)
        for host in world.hosts:
            assert host.agent is not None
            host.agent.crash_after = crash_after
        before = [len(host.spool.records) for host in world.hosts]
        world.scheduler.run(world.scheduler.at_us + 30 * SECOND_US)
        grown = zip(world.hosts, before, strict=True)
        beginnings.add(sum(len(host.spool.records) > count for host, count in grown) > 0)
        assert world.faults.seen["agent_crash_between_actions"] == len(world.hosts)
        settles(world)
    assert beginnings == {True}


def test_an_agent_that_lost_its_spool_is_registered_again_at_once_and_no_script_runs_twice() -> None:
    """Its node is up all the time: another individual under that name would be refused."""
    world = calm_world(actions=40)
    for _ in range(4):
        host = busy_host(world)
        host.crash_agent()
        host.spool.lose_file()
        host.start_agent()
        agent = host.agent
        assert agent is not None
        nodes = agent.agent.registry.by_name.values()
        within_us = world.scheduler.at_us + 5 * SECOND_US
        assert world.scheduler.run(within_us, lambda nodes=nodes: all(node.registered for node in nodes))  # type: ignore[misc]
    settles(world)


def spool_of(records: Sequence[Record]) -> Spool:
    spool = Spool()
    spool.append(records, True)
    return spool


def test_a_spool_takes_all_of_a_call_or_nothing() -> None:
    spool = spool_of([Booted("c", "b")])
    spool.is_full = True
    with pytest.raises(SpoolFull):
        spool.append([FloorRaised("ctl", 1), FloorRaised("ctl", 2)], True)
    with pytest.raises(SpoolFull):
        spool.compact(fold(spool.records))
    with pytest.raises(SpoolFull):
        spool.probe()
    assert spool.records == [Booted("c", "b")]


def test_a_long_spool_is_written_anew_with_what_it_says() -> None:
    floors = [FloorRaised("ctl", floor) for floor in range(1, COMPACT_ABOVE_MIN + 1)]
    spool = spool_of([Booted("c", "b"), *floors])
    assert spool.wants_compaction
    state = fold(spool.records)
    spool.compact(state)
    assert not spool.wants_compaction
    assert list(unfold(fold(spool.records))) == list(unfold(state)) and len(spool.records) == 2


def test_an_agent_whose_disk_hangs_takes_no_work_and_goes_on_afterwards() -> None:
    # The host gets work while its disk hangs.
    world = calm_world(actions=30, seed=5)
    host = busy_host(world)
    assert host.agent is not None
    host.spool.hangs_until_us = world.scheduler.at_us + 12 * SECOND_US
    pipeline = host.agent.pipeline
    assert world.scheduler.run(host.spool.hangs_until_us - SECOND_US, lambda: bool(pipeline.error))
    assert pipeline.error == "a write takes longer than 5 s"
    settles(world)
    assert not pipeline.error
