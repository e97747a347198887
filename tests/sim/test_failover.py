"""Several controllers in a calm simulated cluster, and one thing that happens to the one that leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import Report, StepEnded
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.controller import Controller
from eslurm.lab.sim.controller_host import ControllerHost
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.network import CALM, Cut
from eslurm.lab.sim.recovery import RECOVERY_MAX_US
from eslurm.lab.sim.standby import LEASE_US, Standby
from eslurm.lab.sim.violation import CheckFailed
from eslurm.lab.sim.wire import Reports
from eslurm.lab.sim.world import START_US, World
from eslurm.ports.store import Prune

HOUR_US = 3_600 * SECOND_US


def calm_world(controllers: int = 3, seed: int = 4) -> World:
    world = World(seed, 8, plan=FaultPlan(CALM, (), 0.0, HOUR_US, controllers=controllers))
    world.actions = 0
    world.start()
    world.scheduler.run(START_US + 20 * SECOND_US)
    assert leader_of(world).seat is world.seats[0]
    assert not world.why_unsettled()
    return world


def leader_of(world: World) -> Controller:
    leader = world.controller
    assert leader is not None
    return leader


def run_until(world: World, happens: Callable[[], bool], within_us: int) -> int:
    """Run the world until it happens; the result is the time that it took."""
    began_us = world.scheduler.at_us
    assert world.scheduler.run(began_us + within_us, happens), world.why_unsettled()
    return world.scheduler.at_us - began_us


def another_leads(world: World, former: ControllerHost) -> Callable[[], bool]:
    """Check that another controller leads and has committed its lead."""

    def is_so() -> bool:
        leader = world.controller
        return leader is not None and leader.seat is not former and leader.state.epoch == leader.epoch

    return is_so


def settles(world: World) -> None:
    run_until(world, lambda: not world.why_unsettled(), RECOVERY_MAX_US)
    world.final_check()


def test_a_standby_leads_soon_after_the_leader_has_died() -> None:
    world = calm_world()
    former = leader_of(world).seat
    former.leave()
    assert run_until(world, another_leads(world, former), 10 * SECOND_US) <= 1.5 * LEASE_US
    former.start()
    settles(world)
    assert isinstance(former.process, Standby)


def test_a_leader_that_is_back_at_once_leads_again_without_waiting() -> None:
    world = calm_world(controllers=1)
    seat, epoch = leader_of(world).seat, leader_of(world).epoch
    seat.end()
    took_us = run_until(world, lambda: world.controller is not None, 15 * SECOND_US)
    restarts = isinstance(seat.process, Controller) and seat.process.epoch == epoch + 1
    assert restarts and took_us <= 10 * SECOND_US
    settles(world)


def test_a_planned_switch_takes_less_than_a_second() -> None:
    world = calm_world()
    former = leader_of(world).seat
    leader_of(world).hand_over("c2")
    assert run_until(world, another_leads(world, former), 5 * SECOND_US) <= SECOND_US
    assert leader_of(world).seat.name == "c2" and isinstance(former.process, Standby)
    settles(world)


def test_a_switch_to_somebody_who_is_not_there_is_none() -> None:
    world = calm_world()
    world.client.take_over("c7")
    world.scheduler.run(world.scheduler.at_us + 5 * SECOND_US)
    assert world.checks.leaders == ("c0",)


@pytest.mark.parametrize("through", ["c0", "c1", "c2"])
def test_every_controllers_door_leads_to_the_leader(through: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = calm_world()
    address = next(seat.address for seat in world.seats if seat.name == through)
    monkeypatch.setattr(world.client._random, "choice", lambda addresses: address)
    world.client.take_over("c1")
    run_until(world, another_leads(world, world.seats[0]), 5 * SECOND_US)
    assert leader_of(world).seat.name == "c1"


def test_a_leader_that_stood_still_ends_when_it_wakes_and_nobody_obeys_it() -> None:
    world = calm_world()
    old = leader_of(world)
    old.pause(8 * SECOND_US)
    run_until(world, another_leads(world, old.seat), 5 * SECOND_US)
    assert old.alive and old.seat.process is old
    run_until(world, lambda: not old.alive, 10 * SECOND_US)
    assert world.disk.leader(world.owner).epoch == leader_of(world).epoch
    settles(world)


def test_a_leader_that_was_overtaken_without_knowing_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows nothing of its successor's jobs, and what is acknowledged is forgotten by whoever said it."""
    told: list[str] = []
    acknowledge = Controller._acknowledge

    def heard(self: Controller, source: str, acks: BatchAnswer) -> None:
        told.append(self.name)
        acknowledge(self, source, acks)

    monkeypatch.setattr(Controller, "_acknowledge", heard)
    world = calm_world()
    old = leader_of(world)
    ended = Reports((Report("agent9", 1, StepEnded(0, 1, 4711, 1, StepEnd(0), True)),))
    told.clear()
    old.on_message("satellite9#1", ended)
    run_until(world, lambda: old.name in told, SECOND_US)
    old.seat.is_cut_off = True
    run_until(world, another_leads(world, old.seat), 5 * SECOND_US)
    told.clear()
    old.on_message("satellite9#1", ended)
    world.scheduler.run(world.scheduler.at_us + SECOND_US)
    assert old.alive, "it cannot know"
    old.seat.is_cut_off = False
    run_until(world, lambda: not old.alive, 5 * SECOND_US)
    assert old.name not in told


def test_a_leader_without_the_store_is_followed_by_one_that_has_it() -> None:
    world = calm_world()
    old = leader_of(world)
    old.seat.is_cut_off = True
    run_until(world, another_leads(world, old.seat), 5 * SECOND_US)
    assert old.alive, "it cannot know"
    old.seat.is_cut_off = False
    run_until(world, lambda: not old.alive, 5 * SECOND_US)
    settles(world)


def test_a_store_that_nobody_reaches_moves_the_lead_nowhere() -> None:
    world = calm_world()
    world.store_is_out = True
    world.scheduler.run(world.scheduler.at_us + 30 * SECOND_US)
    world.store_is_out = False
    world.scheduler.run(world.scheduler.at_us + 10 * SECOND_US)
    assert world.checks.leaders == ("c0",)
    settles(world)


@pytest.mark.parametrize("cut", Cut)
def test_a_leader_that_reaches_only_the_store_keeps_the_lead(cut: Cut) -> None:
    world = calm_world()
    world.network.isolate([leader_of(world).address], cut)
    world.scheduler.run(world.scheduler.at_us + 15 * SECOND_US)
    world.network.heal()
    assert world.checks.leaders == ("c0",)
    settles(world)


def test_a_successor_whose_wall_clock_is_an_hour_behind_does_not_stand_still() -> None:
    world = calm_world(controllers=2)
    former = world.seats[0]
    former.skew_us = HOUR_US
    former.end()
    run_until(world, lambda: world.controller is not None and world.controller.is_idle, 20 * SECOND_US)
    leader_of(world).hand_over("c1" if leader_of(world).seat is former else "c0")
    world.scheduler.run(world.scheduler.at_us + 5 * SECOND_US)
    leader = leader_of(world)
    before_us, began_us = leader._read_clock(), world.scheduler.at_us
    world.scheduler.run(began_us + 100 * SECOND_US)
    moved_us = leader._read_clock() - before_us
    assert (
        leader is leader_of(world)
        and 0.9 * 100 * SECOND_US <= moved_us <= 1.1 * 100 * SECOND_US + 5 * SECOND_US
    )
    settles(world)


def test_a_new_node_is_there_when_a_controller_has_read_its_configuration() -> None:
    world = calm_world()
    while len(world.names) == 8:
        world.grow(world.random)
    world.scheduler.run(world.scheduler.at_us + 10 * SECOND_US)
    assert len(leader_of(world).state.nodes) == 8
    leader_of(world).hand_over("c1")
    run_until(
        world, lambda: not world.why_unsettled() and len(leader_of(world).state.nodes) == 9, 60 * SECOND_US
    )
    world.final_check()


def test_a_write_may_outlive_who_asked_for_it() -> None:
    kept = set()
    for seed in range(12):
        world = calm_world(controllers=1, seed=seed)
        leader = leader_of(world)
        before = world.disk.leader(world.owner).beat
        leader._lease.turn()
        assert world.disk.under_way(world.owner) == 1
        leader.seat.end()
        assert world.disk.under_way(world.owner) == 0
        kept.add(world.disk.leader(world.owner).beat - before)
    assert kept == {0, 1}


@pytest.mark.parametrize("stands_still", [True, False])
def test_a_standby_that_finds_the_log_cut_off_goes_on_from_the_rows(stands_still: bool) -> None:
    world = World(5, 8, plan=FaultPlan(CALM, (), 0.0, 40 * SECOND_US, controllers=2))
    world.log_kept_us = 2 * SECOND_US
    told: list[str] = []
    world.trace = lambda _at_us, text: told.append(text)
    world.start()
    world.scheduler.run(START_US + 10 * SECOND_US)
    standby = next(seat for seat in world.seats if seat.leader is None)
    assert isinstance(standby.process, Standby) and standby.process.state is not None
    followed_to = standby.process.state.revision
    told.clear()
    if stands_still:
        standby.process.pause(8 * SECOND_US)
    else:
        standby.is_cut_off = True
    world.scheduler.run(world.scheduler.at_us + 8 * SECOND_US)
    standby.is_cut_off = False
    back_us = world.scheduler.at_us
    while not standby.process.is_warm and world.scheduler.at_us < back_us + 8 * SECOND_US:
        # The log goes on being cut off: it may have to begin again.
        world.scheduler.run(world.scheduler.at_us + SECOND_US)
    assert any("the log starts at" in text for text in told)
    assert standby.process.is_warm and standby.process.state.revision > followed_to
    leader_of(world).seat.crash("now")
    world.scheduler.run(START_US + 40 * SECOND_US)
    settles(world)


def test_the_log_is_not_cut_off_beyond_its_base_state() -> None:
    world = World(4, 8, plan=FaultPlan(CALM, (), 0.0, HOUR_US))
    world.log_kept_us = 0
    world.start()
    world.scheduler.run(START_US + 20 * SECOND_US)
    before = world.disk.head(world.owner).revision
    with pytest.raises(CheckFailed, match="the base state is of revision"):
        world.disk.prune(world.owner, leader_of(world).epoch, Prune(0, facts_before_revision=before + 1))
