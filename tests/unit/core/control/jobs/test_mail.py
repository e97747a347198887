"""Mail about jobs, as the core decides it: which messages are owed, when, and until when."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.model.job_states import JobState
from eslurm.core.model.mail import NOTES_MAX
from eslurm.core.model.messages import ConfigLoaded, NoteMailTold
from eslurm.core.state import apply_mail
from tests.kits.core import BOB, World, depends, refused

ALL = "begin,end,fail,requeue,invalid-depend,time-limit,time-limit-50,time-limit-80,time-limit-90"


def world(**kwargs: object) -> World:
    return World(**{"nodes": 2, "sends_mail": True} | kwargs)  # type: ignore[arg-type]


def owed(site: World, job_id: int) -> list[str]:
    """The events of the messages that are owed about a job."""
    job = site.state.find_job(job_id)
    return [note.event for note in job.mail.notes] if job is not None and job.mail is not None else []


def tell_all(site: World) -> list[tuple[int, str]]:
    """Send all messages that are owed."""
    told = []
    for job_id in list(site.state.mailing):
        record = site.job(job_id).mail
        assert record is not None
        for note in record.notes:
            told.append((job_id, note.event))
            site.send(NoteMailTold(job_id, note.number))
    return told


def test_a_job_that_goes_well() -> None:
    site = world()
    job = site.submit(mail_type=ALL)
    site.start()
    assert owed(site, job) == ["begin"]
    site.end(job)
    assert owed(site, job) == ["begin", "end"]
    assert tell_all(site) == [(job, "begin"), (job, "end")]
    assert not site.state.mailing


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("end", ["end"]), ("fail", ["fail"]), ("end,fail", ["fail"]), ("begin", ["begin"]), ("requeue", [])],
)
def test_a_failure_is_one_message(asked: str, expected: list[str]) -> None:
    site = world()
    job = site.submit(mail_type=asked)
    site.start()
    site.end(job, 3)
    assert owed(site, job) == expected


def test_a_note_says_what_the_job_did_then() -> None:
    site = world()
    job = site.submit(mail_type="fail,requeue", requeue=True)
    site.start()
    site.pass_time(5)
    site.end(job, 3)
    record = site.job(job).mail
    assert record is not None
    (note,) = record.notes
    assert (note.state, note.exit_code, note.nodes, note.node_count) == ("FAILED", 3, (0,), 1)
    assert note.attempt == 1 and note.at_us == site.now_us


def test_a_cancelled_job_ends() -> None:
    site = world()
    waiting = site.submit(mail_type="end,fail", held=True)
    site.cancel(waiting)
    assert owed(site, waiting) == ["end"]


def test_a_dependency_that_is_never_met() -> None:
    site = world()
    first = site.submit(mail_type="")
    second = site.submit(mail_type="invalid-depend,fail", dependencies=depends("afterok", first))
    site.start()
    site.end(first, 1)
    assert site.job(second).state is JobState.CANCELLED
    assert owed(site, second) == ["invalid-depend"]


def test_a_requeue() -> None:
    site = world()
    job = site.submit(mail_type=ALL, requeue=True)
    site.start()
    site.requeue(job)
    site.end(job)
    assert "requeue" in owed(site, job) and "end" not in owed(site, job)


def test_parts_of_the_time_limit() -> None:
    site = world()
    job = site.submit(mail_type="time-limit-50,time-limit-90", time_limit_s=100)
    site.start()
    site.pass_time(49)
    assert owed(site, job) == []
    site.pass_time(2)
    assert owed(site, job) == ["time-limit-50"]
    site.pass_time(30)
    assert owed(site, job) == ["time-limit-50"]
    site.restart()
    site.pass_time(10)
    assert owed(site, job) == ["time-limit-50", "time-limit-90"]
    site.pass_time(5)
    assert len(owed(site, job)) == 2


def test_the_time_limit_itself() -> None:
    site = world()
    job = site.submit(mail_type="time-limit,end", time_limit_s=100)
    site.start()
    site.end(job, 0, cause="time_limit")
    assert owed(site, job) == ["time-limit", "end"]
    record = site.job(job).mail
    assert record is not None and record.notes[-1].state == "TIMEOUT"


def test_an_array_as_a_whole() -> None:
    site = world()
    array = site.submit(mail_type="begin,end,fail", tasks=((0, 1),))
    tasks = site.start()
    assert owed(site, array) == ["begin"]
    for task in tasks:
        site.end(task, int(task == tasks[0]))
    assert owed(site, array) == ["begin", "fail"]
    assert [owed(site, task) for task in tasks] == [[], []]


def test_each_task_of_an_array() -> None:
    site = world()
    array = site.submit(mail_type="end,fail,array-tasks", tasks=((0, 1),))
    tasks = site.start()
    for task in tasks:
        site.end(task, int(task == tasks[0]))
    assert owed(site, array) == []
    assert sorted(owed(site, task) for task in tasks) == [["end"], ["fail"]]


def test_nothing_is_owed_where_no_mail_is_sent() -> None:
    site = world(sends_mail=False)
    job = site.submit(mail_type=ALL, time_limit_s=100)
    site.start()
    site.pass_time(60)
    site.end(job)
    assert site.job(job).mail is None and not site.state.mailing


def test_what_is_owed_outlives_the_leader_and_the_job() -> None:
    site = world(finished_retention_s=60.0, finished_jobs_max=1)
    job = site.submit(mail_type="end")
    site.start()
    site.end(job)
    site.pass_time(600)
    others = [site.submit() for _ in range(2)]
    site.start()
    for one in others:
        site.end(one)
    site.restart()
    assert owed(site, job) == ["end"]
    site.pass_time(600)
    assert tell_all(site) == [(job, "end")]
    site.pass_time(600)
    assert site.state.find_job(job) is None


def test_what_was_told_twice_changes_nothing() -> None:
    site = world()
    job = site.submit(mail_type="end")
    site.start()
    site.end(job)
    tell_all(site)
    revision = site.state.revision
    site.send(NoteMailTold(job, 1))
    site.send(NoteMailTold(job + 100, 1))
    assert site.state.revision == revision


def test_what_one_job_owes_is_bounded() -> None:
    site = world()
    job = site.submit(mail_type="begin,requeue", requeue=True)
    for _ in range(NOTES_MAX):
        site.pass_time(60)
        site.start()
        site.requeue(job)
        site.end(job)
    assert len(owed(site, job)) == NOTES_MAX


def test_what_all_owe_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_mail, "JOBS_MAX", 1)
    site = world()
    first, second = (site.submit(mail_type="begin,end") for _ in range(2))
    site.start()
    site.end(first)
    site.end(second)
    assert owed(site, first) == ["begin", "end"] and owed(site, second) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"mail_type": "end,never"}, "--mail-type: 'never' is no event"),
        ({"mail_type": "end,"}, "--mail-type: an empty value is no event"),
        ({"mail_type": "end", "mail_user": "-oQ/tmp"}, "--mail-user: '-oQ/tmp' is neither"),
        ({"mail_user": "a@b\nBcc: c@d"}, "--mail-user: 'a@b\\nBcc: c@d' is neither"),
        ({"mail_user": ",".join(f"u{n}" for n in range(9))}, "are more than 8"),
    ],
)
def test_refusals(given: dict[str, str], text: str) -> None:
    site = world()
    assert text in refused(site.try_submit(user=BOB, **given))  # type: ignore[arg-type]


def test_a_switch_of_the_configuration_counts_for_present_jobs() -> None:
    site = world(sends_mail=False)
    job = site.submit(mail_type="end")
    site.start()
    config = site.state.config
    site.send(ConfigLoaded(msgspec.structs.replace(config, sends_mail=True)))
    site.end(job)
    assert owed(site, job) == ["end"]
