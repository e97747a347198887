"""Attendance: jobs whose commands are silent are named, and a leader's own pauses are no silence."""

from __future__ import annotations

from eslurm.core.dispatch.attendance import LOOK_US, Attendance
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.messages import EndUnattended
from eslurm.core.model.units import SECOND_US


class Jobs:
    def __init__(self, *jobs: int, limit_s: float = 10.0) -> None:
        self.config = ClusterConfig("test", inactive_limit_s=limit_s)
        self.attended = set(jobs)


def looks(attendance: Attendance, jobs: Jobs, from_us: int, seconds: int) -> list[EndUnattended]:
    found = [attendance.look(jobs, from_us + at * LOOK_US) for at in range(seconds + 1)]
    return [one for one in found if one is not None]


def test_the_silent_are_named_until_they_have_ended() -> None:
    attendance, jobs = Attendance(), Jobs(1, 2)
    assert looks(attendance, jobs, 0, 9) == []
    attendance.hear(2)
    assert attendance.look(jobs, 10 * SECOND_US) == EndUnattended((1,), 10.0)
    assert attendance.look(jobs, 11 * SECOND_US) == EndUnattended((1,), 10.0)
    jobs.attended.discard(1)
    assert looks(attendance, jobs, 12 * SECOND_US, 6) == []
    assert attendance.look(jobs, 19 * SECOND_US) == EndUnattended((2,), 10.0)
    jobs.attended.clear()
    assert attendance.look(jobs, 20 * SECOND_US) is None and not attendance.heard


def test_a_pause_of_the_leader_is_no_silence_of_commands() -> None:
    attendance, jobs = Attendance(), Jobs(1)
    attendance.look(jobs, 0)
    assert attendance.look(jobs, 3600 * SECOND_US) is None
    # Time that goes back counts nothing.
    assert attendance.look(jobs, 0) is None
    assert looks(attendance, jobs, SECOND_US, 6) == []
    assert looks(attendance, jobs, 8 * SECOND_US, 0) == [EndUnattended((1,), 10.0)]


def test_a_new_leader_gives_the_whole_limit() -> None:
    jobs = Jobs(1)
    assert looks(Attendance(), jobs, 0, 9) == looks(Attendance(), jobs, 100 * SECOND_US, 9) == []


def test_without_a_limit_nothing_ends() -> None:
    assert looks(Attendance(), Jobs(1, limit_s=0.0), 0, 1000) == []


def test_jobs_that_are_not_attended_are_not_remembered() -> None:
    attendance = Attendance()
    for job_id in range(100):
        attendance.hear(job_id)
    attendance.look(Jobs(7), 0)
    assert list(attendance.heard) == [7]
