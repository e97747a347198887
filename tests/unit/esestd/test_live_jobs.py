"""Live jobs: which is asked about again and when; nothing is kept of ended ones."""

from __future__ import annotations

from esestd.live_jobs import LiveJob, LiveJobs
from eslurm.core.model.forecast import Submitted, exactly

LONG_S = 10**6


def running(live_jobs: LiveJobs, job_id: int, at_s: int, estimate_s: int) -> LiveJob:
    """A job that has started and was asked about then."""
    known = live_jobs.submitted(Submitted(job_id, at_s))
    live_jobs.started(known, at_s)
    live_jobs.asked(known, at_s)
    assert live_jobs.answered(known, exactly(estimate_s))
    return known


def due(live_jobs: LiveJobs, at_s: int, most: int = 100) -> list[int]:
    return [known.job.job_id for known in live_jobs.due(at_s, LONG_S, most)]


def kept(live_jobs: LiveJobs) -> int:
    """Entries of all tables."""
    return sum(len(table) for table in (live_jobs._jobs, live_jobs._waiting, live_jobs._ends))


def test_running_jobs_are_due_once_they_have_outlived_their_estimates() -> None:
    live_jobs = LiveJobs()
    running(live_jobs, 1, 0, 500)
    running(live_jobs, 2, 0, 100)
    assert due(live_jobs, 100) == []
    assert due(live_jobs, 101) == [2]
    assert due(live_jobs, 10_000) == [1]
    assert due(live_jobs, 20_000) == []


def test_only_the_newest_forecast_says_when() -> None:
    live_jobs = LiveJobs()
    known = running(live_jobs, 1, 0, 100)
    live_jobs.asked(known, 50)
    live_jobs.answered(known, exactly(5_000))
    assert due(live_jobs, 101) == []
    assert due(live_jobs, 5_001) == [1]


def test_a_better_model_is_asked_about_all_in_any_order() -> None:
    live_jobs = LiveJobs()
    for job_id in (9, 3, 7, 1):
        running(live_jobs, job_id, 0, 50_000)
    waiting = live_jobs.submitted(Submitted(20, 0))
    live_jobs.asked(waiting, 10)
    live_jobs.renew(60)
    assert sorted(due(live_jobs, 60)) == [1, 3, 7, 9, 20]
    assert due(live_jobs, 60) == [20], "it still waits for its answer"
    for job_id in (9, 3, 7, 1):
        known = live_jobs.find(job_id)
        assert known is not None
        live_jobs.asked(known, 60)
        live_jobs.answered(known, exactly(50_000))
    live_jobs.asked(waiting, 61)
    assert due(live_jobs, 70) == []


def test_what_is_over_takes_no_memory() -> None:
    """Short jobs with estimates of weeks: the instants at which they would have been due do not gather."""
    live_jobs = LiveJobs()
    most = 0
    for job_id in range(20_000):
        known = running(live_jobs, job_id, job_id, LONG_S)
        live_jobs.ended(known, 0, 1)
        most = max(most, kept(live_jobs))
    assert most < 1_100
    assert len(live_jobs) == 0 and due(live_jobs, 10 * LONG_S) == []


def test_an_answer_about_what_was_changed_since_is_not_told() -> None:
    live_jobs = LiveJobs()
    before = live_jobs.submitted(Submitted(1, 0, limit_s=100))
    live_jobs.asked(before, 0)
    now = live_jobs.submitted(Submitted(1, 5, limit_s=200))
    live_jobs.asked(now, 5)
    assert not live_jobs.answered(before, exactly(100))
    assert live_jobs.answered(now, exactly(103))
    assert now.sent == exactly(103) and before.sent is None


def test_an_answer_that_comes_after_the_end_counts_as_the_first() -> None:
    live_jobs = LiveJobs()
    known = live_jobs.submitted(Submitted(1, 0))
    live_jobs.ended(known, 0, 7)
    assert not live_jobs.answered(known, exactly(9))
    assert (known.first_s, known.ran_s) == (9, 7)
