"""The replay of a log: its order, and that no prediction depends on what came after it or on how questions are batched."""

from __future__ import annotations

import random

import pytest

from eslurm.estimator import registry
from eslurm.lab.studies.evaluate import EstimatorFailed, Predictions, replay
from eslurm.lab.studies.workload import LoggedJob
from eslurm.lab.workloads.swf import Record
from eslurm.ports.estimator import Estimator
from tests.kits.estimator import Scribe, jobs, record, synthetic

JOBS = 260
CUTS = (97, 230)
LEARNING = set(registry.BUILT_IN) - {"user", "last-2"}


def made(name: str) -> Estimator:
    return registry.make(name)


def test_events_come_in_the_order_of_time_and_kind() -> None:
    log = jobs(
        record(1, 0, 10),
        record(2, 5, 5, wait_s=5),
        record(3, 10, 7),
        record(4, 10, 1, wait_s=1),
    )
    scribe = Scribe()
    found = replay(log, scribe)
    assert [one[:3] for one in scribe.only("submitted", "started", "ended", "asked")] == [
        ("submitted", 1, 0),
        ("asked", 1, 0),
        ("started", 1, 0),
        ("asked", 1, 0),
        ("submitted", 2, 5),
        ("asked", 2, 5),
        ("submitted", 3, 10),
        ("asked", 3, 10),
        ("submitted", 4, 10),
        ("asked", 4, 10),
        ("started", 2, 10),
        ("asked", 2, 10),
        ("started", 3, 10),
        ("asked", 3, 10),
        ("ended", 1, 10),
        ("started", 4, 11),
        ("asked", 4, 11),
        ("ended", 4, 12),
        ("ended", 2, 15),
        ("ended", 3, 17),
    ]
    assert len(found.at_submission) == len(found.at_start) == 4
    assert found.spent.answers == 8


def test_a_job_sees_only_those_that_ended_strictly_before() -> None:
    log = jobs(record(1, 0, 10, requested_s=99), record(2, 10, 10, requested_s=88), record(3, 11, 5))
    found = replay(log, registry.make("last-2"))
    assert [one.estimate_s for one in found.at_submission] == [99, 88, 10]


def test_at_start_what_ended_meanwhile_counts() -> None:
    log = jobs(record(1, 0, 10, requested_s=99), record(2, 5, 10, requested_s=88, wait_s=20))
    found = replay(log, registry.make("last-2"))
    assert (found.at_submission[1].estimate_s, found.at_start[1].estimate_s) == (88, 10)


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    replay(jobs(*synthetic(300)), Scribe(), progress=lambda done, total: seen.append((done, total)))
    assert (
        seen[0] == (1, 300)
        and [done for done, _ in seen] == sorted(done for done, _ in seen)
        and len(seen) > 2
    )


def test_an_estimator_that_raises_is_named_with_the_place() -> None:
    class Raising(Scribe):
        def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
            raise ZeroDivisionError("oh")

    with pytest.raises(
        EstimatorFailed, match=r"scribe: at job 1, second 10 of the log: ZeroDivisionError\('oh'\)"
    ):
        replay(jobs(record(1, 0, 10)), Raising())


# ---- no leak: every estimator of the registry ----


@pytest.fixture(scope="module")
def log() -> tuple[LoggedJob, ...]:
    return jobs(*synthetic(JOBS))


@pytest.fixture(scope="module", params=registry.BUILT_IN)
def whole(request: pytest.FixtureRequest, log: tuple[LoggedJob, ...]) -> Predictions:
    found = replay(log, made(request.param))
    assert bool(found.spent.lessons) == (request.param in LEARNING), "no answers of a model are compared"
    return found


@pytest.mark.parametrize("cut", CUTS)
def test_cutting_the_log_changes_no_earlier_prediction(
    log: tuple[LoggedJob, ...], whole: Predictions, cut: int
) -> None:
    found = replay(log[:cut], made(whole.estimator))
    assert found.at_submission == whole.at_submission[:cut]
    until_s = log[cut].submitted.at_s
    earlier = [position for position in range(cut) if log[position].start_s < until_s]
    assert earlier
    assert [found.at_start[one] for one in earlier] == [whole.at_start[one] for one in earlier]


def test_batching_changes_no_prediction(log: tuple[LoggedJob, ...], whole: Predictions) -> None:
    found = replay(log, made(whole.estimator), batch_max=7)
    assert found.at_submission == whole.at_submission and found.at_start == whole.at_start


def test_what_runs_later_in_the_log_changes_no_earlier_prediction(
    log: tuple[LoggedJob, ...], whole: Predictions
) -> None:
    """Not only later jobs: also how the jobs end that still run."""
    cut = 150
    now_s = log[cut].submitted.at_s
    other = tuple(
        LoggedJob(job.submitted, job.start_s, job.runtime_s * 3 + 1) if job.end_s >= now_s else job
        for job in log
    )
    found = replay(other, made(whole.estimator))
    assert found.at_submission[: cut + 1] == whole.at_submission[: cut + 1]


@pytest.fixture(scope="module")
def hostile() -> tuple[LoggedJob, ...]:
    """Numbers at the ends of what a log may hold, bursts, and nothing known of many jobs."""
    draw = random.Random(3)
    most = 10**11
    return jobs(
        *[
            Record(
                number,
                draw.choice((0, 0, number * 3_600, most)),
                wait_s=draw.choice((-1, 0, most)),
                run_s=draw.choice((1, 60, 60, most)),
                allocated=draw.choice((1, 4, most)),
                requested_s=draw.choice((-1, 1, 60, most)),
                requested_kib=draw.choice((-1, most)),
                user=draw.choice((-1, 0, 1, most)),
                program=draw.choice((-1, 0, most)),
            )
            for number in range(170)
        ]
    )


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_no_log_upsets_an_estimator(hostile: tuple[LoggedJob, ...], name: str) -> None:
    found = replay(hostile, made(name))
    assert bool(found.spent.lessons) == (name in LEARNING)
    for job, forecast in zip(hostile, found.at_start, strict=True):
        assert isinstance(forecast.estimate_s, int) and forecast.p90_s <= 11 * max(10**11, job.runtime_s)
