"""Counts of a term: jobs, cycles, calls; and who sees the rows of users."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from esctld.lead.statistics import USERS_MAX, Statistics
from esctld.serve.statistics import StatisticsAnswers
from eslurm.core.model import facts
from eslurm.core.model.job import Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import World
from tests.support.loops import run

ADA, BEN = Principal("ada", 1000, 1000), Principal("ben", 1001, 1001)


def ask(counts: Statistics, world: World, who: Principal = ADA) -> pb.StatisticsReply:
    planner, broadcaster = SimpleNamespace(is_planning=True), SimpleNamespace(waiting=2, under_way=3)
    answers = StatisticsAnswers(
        counts, View(world.state), cast(Any, planner), cast(Any, broadcaster), lambda: 4, lambda: {"people": 5.0}
    )  # fmt: skip
    return run(answers.call(pb.StatisticsRequest(), Caller(who, b"", False, None, "socket")))


def test_jobs_that_ended_are_counted_by_their_final_state() -> None:
    counts = Statistics(7)
    counts.on_committed(
        [
            facts.AttemptStarted(1, 1, 5),
            facts.AttemptEnded(1, 1, JobState.PENDING),
            facts.AttemptStarted(1, 2, 6),
            facts.AttemptEnded(1, 2, JobState.FAILED),
            facts.JobFinished(2, JobState.CANCELLED),
            # A growth that has joined its job.
            facts.JobFinished(3, JobState.COMPLETED),
        ]
    )
    reply = ask(counts, World())
    assert (reply.since_us, reply.attempts_started) == (7, 2)
    assert {one.state: one.count for one in reply.ended} == {"FAILED": 1, "CANCELLED": 1}


def test_submitted_jobs_and_what_is_under_way() -> None:
    world, counts = World(), Statistics(0)
    begun = len(world.log)
    world.submit()
    counts.on_committed(world.log[begun:])
    reply = ask(counts, world)
    assert reply.jobs_submitted == 1
    assert (reply.calls_open, reply.messages_waiting) == (4, 5)
    assert (reply.broadcasts_waiting, reply.broadcasts_open) == (2, 3)
    assert (reply.jobs_pending, reply.jobs_running) == (1, 0)
    assert reply.cycles.is_running


def test_cycles() -> None:
    counts = Statistics(0)
    for examined, spent_s, queue, unfinished in ((3, 0.25, 5, True), (1, 0.5, 1, False)):
        plan = cast(Plan, SimpleNamespace(examined=examined, is_unfinished=unfinished))
        counts.cycles.add(plan, spent_s, queue=queue, slots=10, at_us=9)
    cycles = ask(counts, World()).cycles
    assert (cycles.count, cycles.bounded, cycles.last_at_us) == (2, 1, 9)
    assert (cycles.last_us, cycles.max_us, cycles.sum_us) == (500_000, 500_000, 750_000)
    assert (cycles.depth_last, cycles.depth_sum) == (1, 4)
    assert (cycles.queue_last, cycles.queue_sum) == (1, 6)
    assert (cycles.slots_last, cycles.slots_sum) == (10, 20)


def test_calls_of_users_beyond_the_bound_are_counted_together() -> None:
    counts = Statistics(0)
    for uid in range(USERS_MAX + 5):
        for row in counts.called("Jobs", Principal(f"u{uid}", uid, uid)):
            row.charge(0.001)
    reply = ask(counts, World())
    (jobs,) = reply.calls
    assert (jobs.name, jobs.number, jobs.count, jobs.spent_us) == ("Jobs", 8, USERS_MAX + 5, 205_000)
    assert (len(reply.users), reply.users_skipped) == (USERS_MAX, 5)


@pytest.mark.parametrize("kind", ["usage", "users"])
def test_private_users_see_their_own_row(kind: str) -> None:
    counts = Statistics(0)
    for who in (ADA, BEN, BEN):
        counts.called("Ping", who)
    world = World(private=(kind,))
    reply = ask(counts, world, BEN)
    assert [(one.name, one.count) for one in reply.users] == [("ben", 2)]
    assert [one.name for one in ask(counts, World(), BEN).users] == ["ada", "ben"]
