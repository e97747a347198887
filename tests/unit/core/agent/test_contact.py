"""A node's contact with its controller: messages of its own that the controller has confirmed, as of their sending."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.model.contact import KEPT_MAX
from eslurm.core.model.protocol import Heartbeat, Prepare, Registration
from eslurm.core.relay.results import OK
from tests.kits.agent import SECOND, World, launch


def busy_world(nodes: int = 1) -> World:
    """Every node runs a job. Registered at 1000 s."""
    world = World(nodes=nodes)
    for number in range(nodes):
        world.order(Prepare(launch((number,)), start=True), (number,))
    return world


def at(world: World, seconds: float) -> None:
    world.now_us = int((1_000 + seconds) * SECOND)


def contact_s(world: World, number: int = 0) -> float:
    """The node's contact, in seconds after its registration; what the runner was told last is the same."""
    known_us = world.agent.registry.by_number[number].contact_us
    told = [at_us for nodes, at_us in world.contacts if number in nodes]
    assert not told or told[-1] == known_us == max(told)
    return known_us / SECOND - 1_000


def test_a_heartbeat_that_is_only_heard_is_no_contact() -> None:
    world = busy_world()
    for number in range(1, 20):
        at(world, 5 * number)
        assert world.order(Heartbeat(0, number)) == {0: OK}
    assert contact_s(world) == 0
    assert world.contacts == []


def test_contact_is_when_the_confirmed_round_was_answered() -> None:
    world = busy_world(3)
    for number, seconds in ((1, 5), (2, 10), (3, 15)):
        at(world, seconds)
        # Of node 1 the controller has heard nothing since round 1, of node 2 nothing at all.
        unheard = {1: (), 2: (2, 1, 0), 3: (1, 1, 1, 0, 1, 0)}[number]
        world.order(Heartbeat(0, number, number - 1, unheard), (0, 1, 2))
    assert [contact_s(world, number) for number in range(3)] == [10, 5, 0]
    assert world.contacts == [((0, 1), 1_005 * SECOND), ((0,), 1_010 * SECOND)]


def test_the_first_answer_to_a_round_dates_it_and_contact_never_goes_back() -> None:
    world = busy_world()
    first, second = world.command(Heartbeat(0, 1)), world.command(Heartbeat(0, 2, 1))
    at(world, 5)
    world.give(first)
    at(world, 10)
    world.give(second)
    at(world, 60)
    world.give(first)
    world.give(second)
    world.order(Heartbeat(0, 3, 2))
    assert contact_s(world) == 10
    world.give(second)
    assert contact_s(world) == 10


def test_a_round_that_was_forgotten_is_not_dated_anew() -> None:
    """An hour later both the round and its confirmation come once more."""
    world = busy_world()
    early, confirms = world.command(Heartbeat(0, 1)), world.command(Heartbeat(0, 2, 1))
    world.give(early)
    for number in range(2, KEPT_MAX + 4):
        world.order(Heartbeat(0, number))
    at(world, 3_600)
    world.give(early)
    world.give(confirms)
    assert contact_s(world) == 0


def test_what_the_process_before_answered_says_nothing_of_this_one() -> None:
    """Heartbeats that were meant for it are late: the controller has heard it answer them, not this one."""
    world = busy_world()
    late = world.command(Heartbeat(0, 7))
    at(world, 10)
    world.restart()
    at(world, 11)
    world.register()
    assert contact_s(world) == 10, "what the registration said"
    at(world, 300)
    world.give(late)
    world.order(Heartbeat(0, 8, 7))
    assert contact_s(world) == 10
    at(world, 305)
    world.order(Heartbeat(0, 9, 8))
    assert contact_s(world) == 300


def test_an_accepted_registration_counts_as_of_its_first_sending() -> None:
    world = World(register=False)
    at(world, 40)
    world.pass_time(40)
    report = next(r for r in world.reports.values() if isinstance(r.body, Registration))
    assert len([one for one in world.history if one.seq == report.seq]) > 1, "it was sent again meanwhile"
    world.register()
    assert contact_s(world) == 80, "the offer under the controller's epoch went out only now"
    world.restart()
    report = next(r for r in world.reports.values() if isinstance(r.body, Registration))
    world.pass_time(100)
    world.reply(report)
    assert contact_s(world) == 80


def test_a_new_leader_begins_to_count_anew() -> None:
    world = busy_world()
    at(world, 5)
    world.order(Heartbeat(0, 5))
    world.epoch = 2
    at(world, 20)
    world.order(Heartbeat(0, 5))
    at(world, 21)
    world.register()
    at(world, 30)
    world.order(Heartbeat(0, 6, 5))
    assert contact_s(world) == 20, "round 5 of the new leader was answered before it knew this registration"
    at(world, 35)
    world.order(Heartbeat(0, 7, 6))
    assert contact_s(world) == 30


def test_a_controller_of_an_earlier_release_is_taken_at_its_word() -> None:
    world = busy_world(2)
    at(world, 50)
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(("heartbeat", 0)), type=Heartbeat)
    world.order(old, (0, 1))
    assert [contact_s(world, number) for number in (0, 1)] == [50, 50]
    world.order(Heartbeat(0, 1))
    at(world, 60)
    world.order(old)
    assert contact_s(world) == 50, "it numbers its rounds: this one is none of its"


@pytest.mark.parametrize("unheard", [(1,), (1, 2), (-5, -3, 2), (0, 2**63 - 1, -9)])
def test_odd_exceptions_are_no_contact(unheard: tuple[int, ...]) -> None:
    world = busy_world()
    at(world, 5)
    world.order(Heartbeat(0, 1, 2**62, unheard))
    assert contact_s(world) == 0


def test_launches_carry_the_contact() -> None:
    world = World()
    at(world, 5)
    world.order(Heartbeat(0, 1))
    at(world, 10)
    world.order(Heartbeat(0, 2, 1))
    at(world, 100)
    world.order(Prepare(launch((0,)), start=True))
    (batch,) = [action for action in world.log if isinstance(action, act.RunBatch)]
    assert cast("act.RunBatch", batch).contact_us == 1_005 * SECOND
