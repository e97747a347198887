"""The agent's clock: nothing that is done to the host's wall clock moves what waits, or makes a good command a late one."""

from __future__ import annotations

from eslurm.core.model.protocol import Prepare
from eslurm.core.relay.command_dates import EXPIRY_TOLERANCE_US
from eslurm.telemetry.clocks import boot_us, wall_us
from esnoded.clock import AgentClock
from tests.kits.agent import SECOND, World, is_ok, launch

HOUR = 3_600 * SECOND


class Host:
    """Two clocks; only one of them can be set."""

    def __init__(self) -> None:
        self.wall_us = 1_750_000_000 * SECOND
        self.boot_us = 77 * SECOND
        self.clock = AgentClock(lambda: self.wall_us, lambda: self.boot_us)

    def pass_time(self, by_us: int) -> None:
        self.wall_us += by_us
        self.boot_us += by_us


def test_it_begins_with_wall_time() -> None:
    host = Host()
    assert host.clock.now_us() == host.clock.earliest_us() == host.wall_us
    assert abs(AgentClock().now_us() - wall_us()) < 5 * SECOND


def test_a_jump_of_the_wall_clock_takes_no_time() -> None:
    host = Host()
    began_us = host.clock.now_us()
    for jump_us in (HOUR, -5 * HOUR, 2 * HOUR):
        host.wall_us += jump_us
        host.pass_time(3 * SECOND)
    assert host.clock.now_us() - began_us == 9 * SECOND


def test_the_hosts_sleep_counts() -> None:
    assert boot_us() <= boot_us()
    host = Host()
    began_us = host.clock.now_us()
    host.boot_us += HOUR
    assert host.clock.now_us() - began_us == HOUR


def test_what_others_have_dated_is_over_when_both_clocks_say_so() -> None:
    host = Host()
    true_us = host.wall_us
    host.wall_us += HOUR
    assert host.clock.earliest_us() == true_us, "the wall clock was put wrong"
    late = AgentClock(lambda: host.wall_us, lambda: host.boot_us)
    host.wall_us -= HOUR
    assert late.now_us() == true_us + HOUR
    assert late.earliest_us() == true_us, "it was wrong at the start and has been corrected"


def told_to_prepare(expired_by_us: int, dated_us: int | None) -> tuple[World, bool]:
    """A world given a launch that expired so long before its own clock's present, and whether that was taken."""
    world = World()
    command = world.command(Prepare(launch(), start=True), expires_us=world.now_us - expired_by_us)
    answer_by_us = world.now_us + 5 * SECOND
    world.perform(
        world.agent.on_command_many((0,), command, 99, world.now_us, answer_by_us, dated_us=dated_us)
    )
    world.settle()
    return world, is_ok(world.answered(99)[0])


def test_a_command_expires_by_the_clock_that_is_compared_with_its_date() -> None:
    assert told_to_prepare(EXPIRY_TOLERANCE_US, None)[1]
    world, taken = told_to_prepare(EXPIRY_TOLERANCE_US + 1, None)
    assert not taken and not world.runner.started
    assert world.answered(99)[0].text == "the command has expired"
    now_us = world.now_us
    assert told_to_prepare(HOUR, now_us - HOUR)[1], "the agent began with a clock an hour ahead"
    assert not told_to_prepare(HOUR, now_us)[1]
