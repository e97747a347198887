"""Crontabs: each line is one job that waits for its next time, runs, and waits again, until its line is gone or disabled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.calendar import SiteCalendar
from eslurm.core.control.jobs.cron_times import MINUTE_US, next_us
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.crontab import BYTES_MAX, DISABLED, Crontab
from eslurm.core.model.facts import AttemptEnded
from eslurm.core.model.job import ArraySpec, Attempt, JobSpec, Principal, Span
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    CronJob,
    JobRef,
    Refused,
    RequeueJobs,
    SetCrontab,
    UpdateJob,
)
from eslurm.core.model.request import Request
from eslurm.store.rows import _attempt_row
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, problem
from tests.kits.running import place, start

DAY_US = 1_440 * MINUTE_US
TEXT = "# mine\n#SCRON --time=5\n0 * * * * hourly\n@daily daily\n"


@pytest.fixture
def world() -> World:
    world = World()
    world.state.calendar = SiteCalendar("UTC")
    return world


def line(
    world: World, number: int, schedule: str, first: int = 0, name: str = "job", **fields: object
) -> CronJob:
    spec = JobSpec(
        name=name,
        user=ALICE,
        partition="",
        components=(Request(),),
        script_hash=b"s" * 32,
        environment_hash=b"e" * 32,
        work_dir="/",
        cron=schedule,
    )
    return CronJob(number, replace(spec, **fields), first)


def lines(world: World) -> tuple[CronJob, ...]:
    return line(world, 3, "0 * * * *", 2), line(world, 4, "0 0 * * *", name="daily")


def put(
    world: World, text: str, *jobs: CronJob, by: Principal = ALICE, user: Principal = ALICE
) -> BatchAnswer:
    return world.send(SetCrontab(by, user.uid, user.name, text, jobs))


def crontab(world: World) -> Crontab:
    return world.state.crontabs[ALICE.uid]


def jobs_of(world: World) -> list[int]:
    return [one.job_id for one in crontab(world).lines]


def begin(world: World, job_id: int) -> None:
    """Its time comes, and it runs."""
    world.pass_time(max(0, world.job(job_id).not_before_us - world.now_us) / SECOND + 1)
    place(world, job_id, (0,))
    start(world, job_id)


def run_once(world: World, job_id: int, exit_code: int = 0, cause: str = "exited") -> None:
    begin(world, job_id)
    world.end(job_id, exit_code, cause=cause)


def test_each_line_is_a_job_that_waits_for_its_time(world: World) -> None:
    assert put(world, TEXT, *lines(world)) == Changed(2)
    hourly, daily = jobs_of(world)
    now_us = world.state.now_us
    assert world.job(hourly).not_before_us == next_us(world.state.calendar, "0 * * * *", now_us)
    assert world.job(daily).not_before_us % DAY_US == 0
    assert world.job(hourly).not_before_us < world.job(daily).not_before_us <= now_us + DAY_US


@pytest.mark.parametrize(
    ("exit_code", "cause", "state"),
    [
        (0, "exited", "COMPLETED"),
        (3, "exited", "FAILED"),
        (0, "time_limit", "TIMEOUT"),
        (9, "oom", "OUT_OF_MEMORY"),
    ],
)
def test_it_runs_again_at_its_next_time_however_it_ended(
    world: World, exit_code: int, cause: str, state: str
) -> None:
    put(world, TEXT, *lines(world))
    [hourly, _] = jobs_of(world)
    run_once(world, hourly, exit_code, cause)
    job = world.job(hourly)
    assert (world.state_of(hourly), job.attempts) == ("PENDING", 1)
    assert job.not_before_us == next_us(world.state.calendar, "0 * * * *", world.state.now_us)
    # What another leader has.
    world.restart()
    world.state.calendar = SiteCalendar("UTC")
    assert world.job(hourly).not_before_us == job.not_before_us
    assert jobs_of(world) == [hourly, hourly + 1]
    ended = next(fact for fact in reversed(world.log) if isinstance(fact, AttemptEnded))
    attempt = Attempt(1, AttemptPhase.ENDED, (Span(0, (1, 1)),), 0, 0, 0, frozenset(), end=ended.end)
    assert _attempt_row(world.state, world.job(hourly), attempt).state == state


def test_a_run_that_ends_within_its_minute_is_not_repeated(world: World) -> None:
    put(world, TEXT, *lines(world))
    [hourly, _] = jobs_of(world)
    due_us = world.job(hourly).not_before_us
    run_once(world, hourly)
    assert world.job(hourly).not_before_us == due_us + 60 * MINUTE_US


def test_a_run_that_lasts_skips_the_times_within(world: World) -> None:
    put(world, TEXT, *lines(world))
    [hourly, _] = jobs_of(world)
    due_us = world.job(hourly).not_before_us
    begin(world, hourly)
    world.pass_time(2.5 * 3600)
    world.end(hourly)
    assert world.job(hourly).not_before_us == due_us + 180 * MINUTE_US


def test_a_cancelled_job_disables_its_line_and_its_options(world: World) -> None:
    put(world, TEXT, *lines(world))
    hourly, daily = jobs_of(world)
    refused = problem(world.send(CancelJobs(ALICE, (JobRef(hourly),))))
    assert "line of the crontab of alice" in refused
    assert "--cron" in refused
    # A choice of jobs leaves those of crontabs out.
    assert world.send(CancelJobs(ALICE, user="alice")) == Changed(0)
    assert world.send(CancelJobs(ALICE, (JobRef(hourly),), cron=True)) == Changed(1)
    assert world.state_of(hourly) == "CANCELLED"
    rows = TEXT.split("\n")
    assert crontab(world).text.split("\n") == [rows[0], DISABLED + rows[1], DISABLED + rows[2], *rows[3:]]
    assert jobs_of(world) == [daily]


def test_a_running_job_that_is_cancelled_does_not_come_back(world: World) -> None:
    put(world, TEXT, *lines(world))
    [hourly, _] = jobs_of(world)
    begin(world, hourly)
    assert world.send(CancelJobs(ALICE, (JobRef(hourly),), cron=True)) == Changed(1)
    world.end(hourly)
    assert world.state_of(hourly) == "CANCELLED"


def test_lines_that_stay_keep_their_jobs_and_others_end(world: World) -> None:
    put(world, TEXT, *lines(world))
    hourly, daily = jobs_of(world)
    begin(world, daily)
    first, _ = lines(world)
    assert put(world, "\n" + TEXT, replace(first, line=4, first=3)) == Changed(1)
    assert jobs_of(world) == [hourly]
    # The other one runs to its end, and not again.
    assert world.state_of(daily) == "RUNNING"
    world.end(daily)
    assert world.state_of(daily) == "COMPLETED"
    assert put(world, "") == Changed(0)
    assert world.state_of(hourly) == "CANCELLED"
    assert not world.state.crontabs


def test_the_same_crontab_again_changes_nothing(world: World) -> None:
    put(world, TEXT, *lines(world))
    before = world.state.revision
    assert put(world, TEXT, *lines(world)) == Changed(2)
    assert world.state.revision == before


def test_a_requeued_job_runs_at_once(world: World) -> None:
    put(world, TEXT, *lines(world))
    [hourly, _] = jobs_of(world)
    begin(world, hourly)
    assert world.send(RequeueJobs(ALICE, (JobRef(hourly),))) == Changed(1)
    world.end(hourly)
    assert world.state_of(hourly) == "PENDING"
    assert world.job(hourly).not_before_us < world.state.now_us + MINUTE_US


def test_a_line_is_changed_in_its_crontab(world: World) -> None:
    put(world, TEXT, *lines(world))
    [hourly, _] = jobs_of(world)
    assert "scrontab -e" in problem(world.send(UpdateJob(ALICE, JobRef(hourly), name="x")))


@pytest.mark.parametrize("by", [BOB, ROOT])
def test_a_crontab_is_set_by_its_user_alone(world: World, by: Principal) -> None:
    put(world, TEXT, *lines(world))
    answer = put(world, TEXT, *lines(world), by=by)
    assert isinstance(answer, Refused)
    assert "only its user sets it" in answer.text
    answer = put(world, "", by=by)
    if by is BOB:
        assert isinstance(answer, Refused)
        assert "no operator" in answer.text
        assert len(jobs_of(world)) == 2
    else:
        assert not world.state.crontabs


@pytest.mark.parametrize(
    ("text", "number", "first", "fields", "why"),
    [
        ("x" * (BYTES_MAX + 1), 1, 0, {}, "is longer than"),
        (TEXT, 9, 0, {}, "are not those of the 5 lines"),
        (TEXT, 3, 4, {}, "are not those of the 5 lines"),
        (TEXT, 3, 0, {"begin_us": 7}, "line 3: --begin goes not with a crontab"),
        (TEXT, 3, 0, {"array": ArraySpec(((0, 3),))}, "line 3: --array goes not"),
        (TEXT, 3, 0, {"no_script": True}, "line 3: an allocation goes not"),
        (TEXT, 3, 0, {"partition": "nosuch"}, "does not exist"),
    ],
)
def test_what_is_no_crontab(
    world: World, text: str, number: int, first: int, fields: dict[str, object], why: str
) -> None:
    answer = put(world, text, line(world, number, "0 * * * *", first, **fields))
    assert isinstance(answer, Refused)
    assert why in answer.text
    assert not world.state.crontabs
    assert not world.state.jobs


def test_a_crontab_has_a_bound(world: World) -> None:
    many = [line(world, number, "0 * * * *") for number in range(1, 102)]
    answer = put(world, "\n" * 101, *many)
    assert isinstance(answer, Refused)
    assert "more than 100" in answer.text
