"""Commands are dated by what most nodes say of their clocks, when the leader's is far behind, and by no single node."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent.outcomes import alive_outcome
from eslurm.core.model.protocol import Heartbeat, Prepare, Unhealthy
from eslurm.core.relay.command_dates import (
    AHEAD_MAX_US,
    EXPIRY_TOLERANCE_US,
    STEP_US,
    CommandDates,
    clocks_ahead,
    read_clock_us,
)
from eslurm.core.relay.results import OK, Outcome, Results, Status, failed, from_mapping, unreached
from tests.kits.agent import World, is_ok, launch

SECOND = 1_000_000
NOW_US = 1_750_000_000 * SECOND
FAR_US = 219 * SECOND


def clocks(*ahead_us: int, others: int = 0) -> Results:
    """Nodes that say by how much they are ahead, and others that answer plainly."""
    outcomes = {at: alive_outcome((), NOW_US + ahead) for at, ahead in enumerate(ahead_us)}
    outcomes |= {len(ahead_us) + at: OK for at in range(others)}
    return from_mapping(outcomes)


def ahead_us(results: Results, serving: int = 0) -> int:
    dating = CommandDates()
    dating.on_answers(results, lambda: serving, NOW_US)
    assert dating.expires_us(NOW_US, 5) == NOW_US + dating.ahead_us + 5
    return dating.ahead_us


def test_the_median_of_the_clocks_decides() -> None:
    assert ahead_us(clocks(FAR_US)) == FAR_US
    assert ahead_us(clocks(90 * SECOND, 80 * SECOND, 70 * SECOND)) == 80 * SECOND
    assert ahead_us(clocks(90 * SECOND, 80 * SECOND, others=1)) == 80 * SECOND
    assert ahead_us(clocks(-FAR_US, -FAR_US)) == 0


@pytest.mark.parametrize(
    "results",
    [clocks(FAR_US, others=1), clocks(*[FAR_US] * 5, others=5), clocks(AHEAD_MAX_US, others=9)],
)
def test_half_of_the_nodes_or_fewer_move_nothing(results: Results) -> None:
    assert ahead_us(results) == 0


def test_a_heartbeat_that_reached_a_few_nodes_only_moves_nothing() -> None:
    assert ahead_us(clocks(FAR_US, FAR_US), serving=4) == 0
    assert ahead_us(clocks(FAR_US, FAR_US, FAR_US), serving=4) == FAR_US


def test_nodes_that_did_not_answer_well_do_not_count() -> None:
    lying = Outcome(Status.FAILED, 1, "no", msgspec.msgpack.encode(Unhealthy((), NOW_US + FAR_US)))
    assert ahead_us(from_mapping({0: lying, 1: unreached(), 2: failed("no")})) == 0


def test_a_date_is_bounded_and_never_goes_back() -> None:
    dating = CommandDates()
    for results, expected in (
        (clocks(FAR_US), FAR_US),
        (clocks(70 * SECOND), FAR_US),
        (clocks(others=3), FAR_US),
        (clocks(2**62), AHEAD_MAX_US),
    ):
        dating.on_answers(results, int, NOW_US)
        assert dating.ahead_us == expected


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x93", b"\x92\x90\xa1x", b"\x92\x90\xcf" + b"\xff" * 8])
def test_a_payload_may_be_anything(payload: bytes) -> None:
    assert read_clock_us(payload) in (0, 2**64 - 1)


def test_a_node_says_its_time_while_heartbeats_expire_and_takes_commands_that_are_dated_by_it() -> None:
    world = World(nodes=2)
    leader_us = world.now_us - FAR_US
    deadline_us = 5 * SECOND

    def answers(body: Heartbeat | Prepare, ref: int, dating: CommandDates) -> dict[int, Outcome]:
        command = world.command(body, (0, 1), expires_us=dating.expires_us(leader_us, deadline_us))
        world.perform(
            world.agent.on_command_many((0, 1), command, ref, world.now_us, world.now_us + deadline_us)
        )
        world.settle()
        return world.answered(ref)

    dating = CommandDates()
    said = from_mapping(answers(Heartbeat(0), 91, dating))
    assert not any(map(is_ok, answers(Prepare(launch((0, 1))), 92, dating).values()))
    dating.on_answers(said, lambda: 2, leader_us)
    assert FAR_US - STEP_US < dating.ahead_us <= FAR_US
    assert answers(Heartbeat(0), 93, dating) == {0: OK, 1: OK}, "in date again: nothing to say"
    assert answers(Prepare(launch((0, 1), job_id=8)), 94, dating) == {0: OK, 1: OK}


def test_a_node_says_nothing_within_the_tolerance() -> None:
    world = World()
    command = world.command(Heartbeat(0), expires_us=world.now_us - EXPIRY_TOLERANCE_US)
    world.perform(world.agent.on_command_many((0,), command, 9, world.now_us, world.now_us + SECOND))
    assert world.answered(9) == {0: OK}


def test_the_nodes_that_refuse_commands_are_known_by_what_they_say() -> None:
    lying = Outcome(Status.FAILED, 1, "no", msgspec.msgpack.encode(Unhealthy((), NOW_US + FAR_US)))
    ill = alive_outcome(("disk",))
    results = clocks(FAR_US, 2**62, -FAR_US, others=2)
    assert clocks_ahead(results, NOW_US) == {0: FAR_US, 1: AHEAD_MAX_US}
    assert clocks_ahead(from_mapping({0: lying, 1: unreached(), 2: ill}), NOW_US) == {}
