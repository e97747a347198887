"""Nodes whose wall clocks are wrong: what is accounted of their jobs still makes sense."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.control.jobs.times import end_in_time, start_in_time
from eslurm.core.model.job import Attempt, Span, StepEnd
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.protocol import Started, StepEnded
from tests.kits.core import World

SECOND = 1_000_000
HOUR = 3_600 * SECOND
PLACED = 1_750_000_000 * SECOND
NOW = PLACED + 60 * SECOND


def attempt(started_us: int = 0) -> Attempt:
    held = frozenset((0,))
    span = Span(0, (1, 64))
    return Attempt(1, AttemptPhase.RUNNING, (span,), PLACED, 5, PLACED + HOUR, held, started_us=started_us)


def end(started_us: int, ran_us: int) -> StepEnd:
    return StepEnd(3, started_us=started_us, ended_us=started_us + ran_us)


@pytest.mark.parametrize(
    ("said_us", "began_us"),
    [(PLACED + 2 * SECOND, PLACED + 2 * SECOND), (PLACED - HOUR, PLACED), (NOW + HOUR, NOW), (0, PLACED)],
)
def test_a_start_lies_between_the_placement_and_the_present(said_us: int, began_us: int) -> None:
    assert start_in_time(attempt(), said_us, NOW) == began_us


@pytest.mark.parametrize("off_us", [0, -HOUR, HOUR, -20 * SECOND])
def test_the_time_it_took_is_believed_whatever_the_clock_says(off_us: int) -> None:
    began_us = PLACED + 2 * SECOND
    told = end_in_time(attempt(began_us), end(began_us + off_us, 30 * SECOND), NOW)
    assert (told.started_us, told.ended_us) == (began_us, began_us + 30 * SECOND)
    assert told.exit_code == 3


def test_an_end_whose_start_was_never_heard_of_is_put_right_as_a_whole() -> None:
    told = end_in_time(attempt(), end(PLACED - HOUR, 30 * SECOND), NOW)
    assert (told.started_us, told.ended_us) == (PLACED, PLACED + 30 * SECOND)
    late = end_in_time(attempt(), end(NOW + HOUR, 30 * SECOND), NOW)
    assert (late.started_us, late.ended_us) == (NOW, NOW)


def test_nothing_ends_before_it_began_or_after_it_is_known() -> None:
    began_us = PLACED + 2 * SECOND
    assert end_in_time(attempt(began_us), end(began_us, -HOUR), NOW).ended_us == began_us
    assert end_in_time(attempt(began_us), end(began_us, HOUR), NOW).ended_us == NOW


def test_an_end_without_times_stays_without() -> None:
    lost = StepEnd(1, cause="lost", text="gone")
    assert end_in_time(attempt(), lost, NOW) == lost


@pytest.mark.parametrize("off_us", [HOUR, -HOUR])
def test_a_job_on_a_node_with_a_wrong_clock_is_accounted_in_the_controllers_time(off_us: int) -> None:
    world = World()
    job = world.submit()
    world.plan()
    began_us = world.now_us
    for send in world.sends():
        world.done(send, payload=msgspec.msgpack.encode(Started(began_us + off_us)))
    assert world.job(job).started_us == began_us
    world.pass_time(30)
    first = world.attempt(job).first
    said = end(began_us + off_us, 20 * SECOND)
    world.report(StepEnded(first, 1, job, 1, said, True))
    assert (world.job(job).started_us, world.job(job).ended_us) == (began_us, began_us + 20 * SECOND)
