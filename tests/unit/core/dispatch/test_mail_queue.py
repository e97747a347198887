"""Which messages a leader sends now: at once, an hour, after failures, and which it gives up."""

from __future__ import annotations

from eslurm.core.dispatch.mail_queue import (
    AT_ONCE_MAX,
    FAILED,
    KEPT_US,
    LATER_US,
    REFUSED,
    SENT,
    GiveUp,
    MailQueue,
    SendMail,
)
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import NoteMailTold
from tests.kits.core import ALICE, SECOND, World


class Site:
    def __init__(self, hourly_max: int = 0) -> None:
        self.world = World(nodes=1, sends_mail=True)
        self.queue = MailQueue(self.world.state, hourly_max)

    def owe(self, count: int = 1, user: Principal = ALICE) -> list[int]:
        """Jobs about whose end a message is owed."""
        jobs = [self.world.submit(user=user, mail_type="end", held=True) for _ in range(count)]
        for job in jobs:
            self.world.cancel(job, by=user)
        return jobs

    def follow(self) -> tuple[list[int], list[int]]:
        """Jobs whose message is to be sent, and is given up."""
        actions = self.queue.follow(self.world.now_us)
        return (
            [one.job.job_id for one in actions if isinstance(one, SendMail)],
            [one.job.job_id for one in actions if isinstance(one, GiveUp)],
        )

    def done(self, job_id: int, end: str = SENT) -> bool:
        return self.queue.done(job_id, 1, end, self.world.now_us)

    def told(self, job_id: int) -> None:
        self.world.send(NoteMailTold(job_id, 1))


def test_few_at_once_the_oldest_first() -> None:
    site = Site()
    jobs = site.owe(AT_ONCE_MAX + 2)
    assert site.follow() == (jobs[:AT_ONCE_MAX], [])
    assert site.follow() == ([], [])
    assert site.done(jobs[0])
    # Before it is committed that it was sent, it is not sent again.
    assert site.follow() == ([jobs[AT_ONCE_MAX]], [])
    site.told(jobs[0])
    assert site.done(jobs[1]) and site.follow() == ([jobs[-1]], [])
    for job in jobs[1:]:
        site.done(job)
        site.told(job)
    assert site.follow() == ([], []) and not site.queue.next_us


def test_two_messages_of_a_job_go_one_after_the_other() -> None:
    site = Site()
    job = site.world.submit(mail_type="begin,end")
    site.world.start()
    site.world.end(job)
    assert site.follow() == ([job], []) and site.follow() == ([], [])
    site.queue.done(job, 1, SENT, site.world.now_us)
    assert site.follow() == ([job], [])


def test_failures_pause_all_and_the_failed_one_comes_later() -> None:
    site = Site()
    first, second = site.owe(2)
    site.follow()
    assert not site.done(first, FAILED) and site.done(second, REFUSED)
    site.told(second)
    third, *_ = site.owe()
    assert site.follow() == ([], []) and site.queue.next_us == site.world.now_us + 5 * SECOND
    site.world.now_us += 5 * SECOND
    assert site.follow() == ([third], [])
    assert site.queue.next_us == site.world.now_us - 5 * SECOND + LATER_US
    assert site.done(third)
    site.told(third)
    site.world.now_us += LATER_US
    assert site.follow() == ([first], [])


def test_pauses_grow_up_to_a_bound() -> None:
    site = Site()
    (job,) = site.owe()
    waits = []
    for _ in range(9):
        assert site.follow() == ([job], [])
        site.done(job, FAILED)
        began = site.world.now_us
        while site.follow() == ([], []) and site.queue.next_us:
            waits.append((site.queue.next_us - began) // SECOND)
            site.world.now_us = site.queue.next_us
            if len(waits) > 40:
                break
            if site.queue._later[job] <= site.world.now_us:
                break
    assert max(waits) == 300 and waits[0] == 5


def test_what_is_too_old_is_given_up() -> None:
    site = Site()
    (job,) = site.owe()
    site.world.now_us += KEPT_US + 1
    assert site.follow() == ([], [job]) and site.follow() == ([], [])
    site.told(job)
    assert not site.world.state.mailing


def test_each_user_has_a_share_of_an_hour() -> None:
    site = Site(hourly_max=2)
    mine = site.owe(3)
    other = site.owe(1, Principal("bob", 1001, 1001))
    assert site.follow() == ([*mine[:2], *other], [mine[2]])
    for job in (*mine, *other):
        site.done(job)
        site.told(job)
    site.world.now_us += 1800 * SECOND
    late = site.owe(2)
    assert site.follow() == (late[:1], late[1:])
    # A message that failed does not count twice.
    site.done(late[0], FAILED)
    site.told(late[1])
    site.world.now_us += LATER_US
    assert site.follow() == (late[:1], [])
