"""Standing still, going on, another time limit: doubled, overtaken, and after a restart of the agent."""

from __future__ import annotations

import itertools

import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent.records import fold, unfold
from eslurm.core.model.protocol import End, Prepare, SetTime, Start, Suspend
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from tests.kits.agent import Crashed, World, is_ok, launch, step_launch

BATCH = StepKey(7, 1, BATCH_STEP, 0)
STEP = StepKey(7, 1, 0, 0)
STOP, GO_ON = Suspend(7, 1), Suspend(7, 1, resume=True)


def started() -> World:
    world = World()
    world.order(Prepare(launch(), start=True))
    return world


def told(world: World) -> list[tuple[StepKey, bool]]:
    """(step, resume) of all that the runner was told about standing still."""
    return [(one.step, one.resume) for one in world.log if isinstance(one, act.SuspendStep)]


def limits(world: World) -> list[int]:
    return [one.time_limit_s for one in world.log if isinstance(one, act.LimitStep)]


def test_all_steps_stand_still_and_go_on() -> None:
    world = started()
    world.order(step_launch())
    assert is_ok(world.order(STOP)[0])
    assert told(world) == [(BATCH, False), (STEP, False)]
    assert is_ok(world.order(GO_ON)[0])
    assert told(world)[2:] == [(BATCH, True), (STEP, True)]


def test_a_step_that_comes_to_an_attempt_that_stands_still_does_so_too() -> None:
    world = started()
    world.order(STOP)
    world.order(step_launch())
    assert told(world) == [(BATCH, False), (STEP, False)]


def test_a_script_that_is_told_to_stand_still_before_it_runs_does_so_when_it_runs() -> None:
    world = World()
    world.order(Prepare(launch()))
    assert is_ok(world.order(STOP)[0])
    assert told(world) == [], "there is nothing yet that could stand still"
    world.order(Start(7, 1))
    run = next(at for at, one in enumerate(world.log) if isinstance(one, act.RunBatch))
    stop = next(at for at, one in enumerate(world.log) if isinstance(one, act.SuspendStep))
    assert told(world) == [(BATCH, False)] and run < stop
    world.restart()
    world.register()
    assert told(world)[1:] == [(BATCH, False)], "a later process repeats it"


def test_the_later_order_counts_however_they_come() -> None:
    world = started()
    stop, go_on = world.command(STOP), world.command(GO_ON)
    world.give(go_on)
    ref = world.give(stop)
    assert is_ok(world.answered(ref)[0]), "it is settled: the later one says more"
    assert told(world) == [(BATCH, True)]
    world.give(go_on)
    assert told(world) == [(BATCH, True)], "nor does a second copy do anything"


def test_the_later_limit_counts_however_they_come() -> None:
    world = started()
    first, second = world.command(SetTime(7, 1, 100)), world.command(SetTime(7, 1, 200))
    world.give(second)
    world.give(first)
    assert limits(world) == [200]


def test_orders_have_no_date_and_an_old_one_undoes_nothing() -> None:
    """A node whose clock is ahead of most refuses what has expired: a suspended job there would stand still for ever."""
    world = started()
    old_us = world.now_us - 600_000_000
    first, longer = (
        world.command(STOP, expires_us=old_us),
        world.command(SetTime(7, 1, 900), expires_us=old_us),
    )
    assert is_ok(world.order(STOP, expires_us=old_us)[0])
    assert is_ok(world.order(GO_ON, expires_us=old_us)[0])
    assert is_ok(world.order(SetTime(7, 1, 200), expires_us=old_us)[0])
    assert told(world) == [(BATCH, False), (BATCH, True)] and limits(world) == [200]
    world.give(first)
    world.give(longer)
    assert told(world) == [(BATCH, False), (BATCH, True)] and limits(world) == [200]


def test_a_script_that_is_still_to_start_gets_the_new_limit() -> None:
    world = World()
    world.order(Prepare(launch()))
    assert is_ok(world.order(SetTime(7, 1, 50))[0])
    world.order(Start(7, 1))
    (run,) = [one for one in world.log if isinstance(one, act.RunBatch)]
    assert run.launch.spec.time_limit_s == 50 and not limits(world)


def test_what_is_over_or_being_ended_is_left_alone() -> None:
    world = started()
    assert is_ok(world.order(Suspend(8, 1))[0]), "nobody knows it: nothing is left to stop"
    world.give(world.command(End(7, 1, 10.0, "cancel")))
    assert is_ok(world.order(STOP)[0])
    assert is_ok(world.order(SetTime(7, 1, 9))[0])
    world.finish()
    assert is_ok(world.order(STOP)[0])
    assert not told(world) and not limits(world)


def test_a_later_process_tells_the_runner_again() -> None:
    world = started()
    world.order(STOP)
    world.order(SetTime(7, 1, 300))
    stop, told_before = world.revision - 1, len(told(world))
    world.restart()
    world.register()
    assert told(world)[told_before:] == [(BATCH, False)]
    assert limits(world) == [300, 300]
    world.order(GO_ON, revision=stop)
    assert len(told(world)) == told_before + 1, "the order before is remembered by its revision"
    world.order(GO_ON)
    assert told(world)[-1] == (BATCH, True)


def test_a_later_process_repeats_a_limit_with_the_command_that_allows_it() -> None:
    """Without it the step supervisor takes a longer limit for an agent's own wish."""
    world = started()
    command = world.command(SetTime(7, 1, 300))
    by_us = world.now_us + 5_000_000
    world.perform(world.agent.on_command_many((0,), command, 99, world.now_us, by_us, sealed=b"sealed"))
    world.restart()
    world.register()
    told_limits = [one for one in world.log if isinstance(one, act.LimitStep)]
    assert [(one.time_limit_s, one.credential) for one in told_limits] == [(300, b"sealed")] * 2


@pytest.mark.parametrize("crash_after", range(3))
def test_an_order_that_was_answered_is_never_lost(crash_after: int) -> None:
    world = started()
    world.crash_at = world.actions + crash_after
    stop = world.command(STOP)
    try:
        answered = bool(world.answered(world.give(stop)))
    except Crashed:
        answered = bool(world.answered(world._refs))
        world.restart()
        world.register()
    assert told(world) or not answered
    world.order(STOP)
    assert told(world)


def test_the_spool_keeps_orders_through_its_compaction() -> None:
    world = started()
    world.order(STOP)
    world.order(SetTime(7, 1, 300))
    folded = world.agent.folded()
    assert fold(unfold(folded)) == folded
    (adjusted,) = folded.adjusted.values()
    assert (adjusted.is_suspended, adjusted.time_limit_s) == (True, 300)
    world.finish()
    world.ack_all()
    assert not world.agent.folded().adjusted


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_arrival_comes_to_the_same(order: tuple[int, ...]) -> None:
    world = started()
    commands = [world.command(body) for body in (STOP, GO_ON, STOP)]
    for index in order:
        world.give(commands[index])
    attempt = world.agent.registry.by_number[0].attempts[7, 1]
    assert attempt.is_suspended
    assert told(world)[-1] == (BATCH, False)
