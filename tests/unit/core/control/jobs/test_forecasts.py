"""Forecasts of jobs: the callers that may send them, refused values, the memory of them, and that none ends a job."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs.forecasts import FORECASTS_MAX, MODEL_NAME_MAX
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.facts import JobsForecast
from eslurm.core.model.forecast import LONGEST_S, Forecast
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.messages import (
    Changed,
    ConfigLoaded,
    JobRef,
    RefusalCode,
    Refused,
    SetForecasts,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.request import Request
from eslurm.core.state.rows import decode_accounted
from eslurm.ports.store import AccountingQuery
from tests.kits.core import ALICE, ROOT, World, refused

FIRST = Forecast(100, 200, 400, 250)
SECOND = Forecast(150, 210, 300, 220)
LIMIT_S = 600
WIDE = Request(tasks=4)


def foretell(world: World, *said: tuple[int, Forecast], by: Principal = ROOT) -> BatchAnswer:
    return world.send(SetForecasts(by, said, "history-1"))


def test_a_forecast_is_remembered_of_what_waits_and_of_what_runs() -> None:
    world = World()
    job = world.submit(time_limit_s=LIMIT_S)
    assert foretell(world, (job, FIRST)) == Changed(1)
    assert (world.job(job).forecast, world.job(job).first_estimate_s) == (FIRST, 250)
    queued = world.state.queue.find(job)
    # Room is looked for by what lies between P50 and P90, in steps.
    assert queued is not None and queued.estimate_us == 288_000_000
    world.start()
    assert world.attempt(job).forecast == FIRST
    assert foretell(world, (job, SECOND)) == Changed(1)
    assert (world.job(job).forecast, world.job(job).first_estimate_s) == (SECOND, 250)
    # The limit stays what it was, whoever expects what.
    running = world.state.live[job, 1]
    assert running.until_us == world.attempt(job).until_us == world.now_us + LIMIT_S * 1_000_000
    assert running.expected_us - running.since_us == 304_000_000
    assert world.state.plan_wanted


def test_what_runs_is_expected_to_end_counted_from_its_start() -> None:
    world = World()
    job = world.submit(time_limit_s=LIMIT_S)
    foretell(world, (job, FIRST))
    world.plan()
    world.pass_time(3)
    world.deliver()
    length_us = world.state.live[job, 1].expected_us - world.now_us
    assert 400_000_000 <= length_us < 420_000_000
    world.pass_time(10)
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.deliver()
    assert world.state.live[job, 1].expected_us == 0
    world.pass_time(50)
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    world.deliver()
    assert world.state.live[job, 1].expected_us == world.now_us - 10_000_000 + length_us
    # What is expected to reach its limit is booked until then, as without any forecast.
    foretell(world, (job, Forecast(1, 2, 9000, 9000)))
    assert world.state.live[job, 1].expected_us == 0


def test_plans_may_be_told_not_to_count_on_forecasts() -> None:
    world = World(nodes=1)
    running, waiting = world.submit(time_limit_s=LIMIT_S), world.submit(time_limit_s=LIMIT_S, request=WIDE)
    later = world.submit(time_limit_s=LIMIT_S, begin_us=world.now_us + 10**9)
    foretell(world, *((job, FIRST) for job in (running, waiting, later)))
    world.start()

    def counted() -> tuple[bool, ...]:
        queued, foreseen = world.state.queue.find(waiting), world.state.later.find(later)
        assert queued is not None and foreseen is not None
        estimates = (world.state.live[running, 1].expected_us, queued.estimate_us, foreseen.estimate_us)
        return tuple(map(bool, estimates))

    assert counted() == (True, True, True)
    for use in (False, True):
        world.send(ConfigLoaded(replace(world.state.config, use_forecasts=use)))
        assert counted() == (use, use, use)
    assert world.job(waiting).forecast == FIRST


def test_who_asked_for_a_begin_time_has_waited_since_then() -> None:
    world = World(nodes=1)
    begin_us = world.now_us + 10**9
    now, later = world.submit(), world.submit(begin_us=begin_us)
    submitted_us = world.job(later).submitted_us
    foreseen = world.state.later.find(later)
    assert foreseen is not None and foreseen.since_us == begin_us
    world.pass_time(1001)
    queued = [world.state.queue.find(job) for job in (now, later)]
    assert [one and one.since_us for one in queued] == [submitted_us, begin_us]


def test_nothing_ends_by_a_forecast() -> None:
    world = World()
    job = world.submit(time_limit_s=LIMIT_S)
    foretell(world, (job, Forecast(1, 1, 1, 1)))
    world.start()
    since = len(world.log)
    world.pass_time(LIMIT_S - 1)
    assert world.state_of(job) == "RUNNING" and world.kinds(since) == []


def test_only_operators_say_and_none_through_a_node() -> None:
    world = World()
    job = world.submit()
    for who in (ALICE, Principal("root", 0, 0, via="agent")):
        answer = foretell(world, (job, FIRST), by=who)
        assert isinstance(answer, Refused) and answer.code is RefusalCode.DENIED
    assert world.job(job).forecast is None


@pytest.mark.parametrize(
    ("nonsense", "says"),
    [
        (Forecast(0, 200, 400, 250), "P10 0 s"),
        (Forecast(300, 200, 400, 250), "do not fall"),
        (Forecast(100, 500, 400, 250), "do not fall"),
        (Forecast(100, 200, LONGEST_S + 1, 250), "within 1"),
        (Forecast(100, 200, 400, 0), "an estimate of 0 s"),
        (Forecast(100, 200, 400, LONGEST_S + 1), "an estimate of"),
        (Forecast(-5, 200, 400, 250), "P10 -5 s"),
    ],
)
def test_nonsense_is_refused_with_all_that_came_with_it(nonsense: Forecast, says: str) -> None:
    world = World()
    job, other = world.submit(), world.submit()
    text = refused(foretell(world, (other, FIRST), (job, nonsense)))
    assert text.startswith(f"forecast of job {job}: ") and says in text
    assert world.job(other).forecast is None


def test_so_many_at_once_and_no_more() -> None:
    world = World()
    many = tuple((number, FIRST) for number in range(1, FORECASTS_MAX + 1))
    assert foretell(world, *many) == Changed(0)
    assert f"more than {FORECASTS_MAX}" in refused(foretell(world, *many, (9999, FIRST)))
    assert "65 characters" in refused(world.send(SetForecasts(ROOT, (), "x" * (MODEL_NAME_MAX + 1))))


def test_what_is_not_known_has_ended_or_says_nothing_new_is_passed_over() -> None:
    world = World()
    ended, cancelled, job = world.submit(), world.submit(), world.submit()
    world.start()
    world.end(ended)
    world.cancel(cancelled)
    # It has not ended yet, but is told to.
    assert world.state_of(cancelled) == "RUNNING"
    foretell(world, (job, FIRST))
    since = len(world.log)
    assert foretell(world, (ended, FIRST), (job, FIRST), (4711, FIRST)) == Changed(0)
    assert world.kinds(since) == []
    assert foretell(world, (job, FIRST), (cancelled, FIRST), (job, SECOND)) == Changed(2)
    assert world.log[since:] == [JobsForecast(((job, SECOND), (cancelled, FIRST)), "history-1")]


def test_a_job_that_gives_back_its_nodes_has_ended() -> None:
    world = World()
    job, again = world.submit(), world.submit()
    world.start()
    world.requeue(again)
    for one, code in ((job, 0), (again, 15)):
        attempt = world.attempt(one)
        node = world.state.nodes[attempt.first]
        world.report(StepEnded(attempt.first, node.incarnation, one, 1, StepEnd(code), False))
        assert world.state_of(one) == "COMPLETING"
    # That it will wait again is known; what it takes then is still to be seen.
    assert foretell(world, (job, FIRST), (again, FIRST)) == Changed(1)
    assert world.job(job).forecast is None and world.job(again).forecast == FIRST


def test_a_first_estimate_is_one_from_before_the_start() -> None:
    world = World()
    job = world.submit()
    world.start()
    foretell(world, (job, FIRST))
    assert (world.job(job).forecast, world.job(job).first_estimate_s) == (FIRST, 0)
    assert world.attempt(job).forecast is None


def test_it_stays_with_a_job_that_waits_again_or_is_changed() -> None:
    world = World()
    job = world.submit(time_limit_s=LIMIT_S)
    foretell(world, (job, FIRST))
    world.start()
    foretell(world, (job, SECOND))
    world.requeue(job)
    world.end(job, 15)
    assert world.state_of(job) == "PENDING"
    assert (world.job(job).forecast, world.job(job).first_estimate_s) == (SECOND, 250)
    world.send(UpdateJob(ALICE, JobRef(job), time_limit_s=100))
    assert world.job(job).forecast == SECOND
    world.pass_time(60)
    world.start()
    assert world.attempt(job).number == 2 and world.attempt(job).forecast == SECOND


def test_the_tasks_of_an_array_take_its_forecast_with_them() -> None:
    world = World()
    array = world.submit(tasks=((0, 3),), limit=2)
    foretell(world, (array, FIRST))
    first, second = world.start()
    assert (world.job(first).forecast, world.job(first).first_estimate_s) == (FIRST, 250)
    # One of them is expected to last longer, and so are those that still wait.
    foretell(world, (second, SECOND), (array, SECOND))
    assert world.job(first).forecast == FIRST and world.job(second).forecast == SECOND
    world.end(first)
    (third,) = world.start()
    assert world.job(third).forecast == SECOND and world.job(third).first_estimate_s == 250


def test_accounting_keeps_what_was_expected_and_the_limit() -> None:
    world = World()
    job, other = world.submit(time_limit_s=LIMIT_S), world.submit(held=True)
    foretell(world, (job, FIRST), (other, FIRST))
    world.start()
    foretell(world, (job, SECOND))
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.deliver()
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    world.deliver()
    world.send(UpdateJob(ROOT, JobRef(job), time_limit_s=700))
    world.end(job)
    world.cancel(other)
    ran, never = world.mirror.image.accounting("main", AccountingQuery()).attempts
    kept = decode_accounted(ran.blob)
    assert (kept.time_limit_s, kept.first_estimate_s, kept.forecast) == (700, 250, FIRST)
    kept = decode_accounted(never.blob)
    assert (kept.time_limit_s, kept.first_estimate_s, kept.forecast) == (0, 250, None)


def test_rows_of_accounting_from_before_are_read() -> None:
    old = msgspec.msgpack.encode([0, -1, False, "cn1", None, "", 5])
    kept = decode_accounted(old)
    assert (kept.paused_us, kept.time_limit_s, kept.first_estimate_s, kept.forecast) == (5, 0, 0, None)


def test_forecasts_survive_a_restart() -> None:
    world = World()
    waiting, running = world.submit(held=True), world.submit()
    foretell(world, (waiting, FIRST), (running, SECOND))
    world.start()
    world.restart()
    assert world.job(waiting).forecast == FIRST
    assert (world.job(running).forecast, world.attempt(running).forecast) == (SECOND, SECOND)
