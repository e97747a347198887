"""The messages that a leader sends now: one of each job at a time, few at once, each user so many an hour.

Invariant: a message leaves the state when it was sent, or when it is given up: refused, too old, or beyond its user's share.
It holds nothing that a new leader would miss, which sends again what was not noted as sent.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.job import Job
from eslurm.core.model.mail import MailNote
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

AT_ONCE_MAX: Final = 4
GIVEN_UP_MAX: Final = 256
"""Messages that are given up in one look."""
KEPT_US: Final = 4 * 3600 * SECOND_US
"""Age at which a message that could not be sent is given up."""
PAUSE_US: Final = (5 * SECOND_US, 300 * SECOND_US)
"""First and longest pause after a message could not be sent; each failure in a row doubles it."""
LATER_US: Final = 60 * SECOND_US
"""Least time until the same message is tried again."""
USERS_MAX: Final = 10_000
HOUR_US: Final = 3600 * SECOND_US

SENT: Final = "sent"
REFUSED: Final = "refused"
FAILED: Final = "failed"
"""It may be tried again."""


class SendMail(msgspec.Struct, frozen=True):
    """Action: send this message; its end is a call of `done`."""

    job: Job
    note: MailNote


class GiveUp(msgspec.Struct, frozen=True):
    """Action: this message is not sent."""

    job: Job
    note: MailNote
    why: str


Action: TypeAlias = SendMail | GiveUp


class MailQueue:
    """Call `follow` after each commit of this leader, and at `next_us`. `hourly_max` is for each user; 0: no limit."""

    def __init__(self, state: State, hourly_max: int) -> None:
        self._state = state
        self._shares = _Shares(hourly_max)
        self._sending: dict[int, int] = {}
        # Messages whose end was told and is not committed yet.
        self._over: dict[int, int] = {}
        # By job the time before which its first message is not tried again.
        self._later: dict[int, int] = {}
        self._failures = 0
        self._paused_until_us = 0
        self._next_us = 0

    @property
    def next_us(self) -> int:
        """The time at which to look again without a commit; 0: none."""
        return self._next_us

    def follow(self, now_us: int) -> list[Action]:
        """The messages to send and to give up now. Most clusters send nothing."""
        self._next_us = 0
        mailing = self._state.mailing
        if not mailing:
            self._over.clear()
            self._later.clear()
            return []
        for job_id in [one for one in self._over if one not in mailing]:
            del self._over[job_id]
        if now_us < self._paused_until_us:
            self._next_us = self._paused_until_us
            return []
        actions: list[Action] = []
        for job_id in mailing:
            if len(self._sending) >= AT_ONCE_MAX or len(actions) >= GIVEN_UP_MAX:
                break
            if job_id not in self._sending and (action := self._look(job_id, now_us)) is not None:
                actions.append(action)
        return actions

    def done(self, job_id: int, number: int, end: str, now_us: int) -> bool:
        """A message has been sent, was refused, or failed; true: it is over, and the state is to be told."""
        self._sending.pop(job_id, None)
        if end != FAILED:
            self._failures = 0
            self._later.pop(job_id, None)
            self._over[job_id] = number
            return True
        first_us, most_us = PAUSE_US
        pause_us = min(first_us << min(self._failures, 16), most_us)
        self._failures += 1
        self._paused_until_us = now_us + pause_us
        self._later[job_id] = now_us + max(pause_us, LATER_US)
        return False

    def _look(self, job_id: int, now_us: int) -> Action | None:
        job = self._state.get_job(job_id)
        assert job.mail is not None
        over = self._over.get(job_id, 0)
        note = next((one for one in job.mail.notes if one.number > over), None)
        if note is None:
            return None
        if now_us - note.at_us > KEPT_US:
            return self._given_up(job, note, "it could not be sent for too long")
        later_us = self._later.get(job_id, 0)
        if later_us > now_us:
            self._next_us = min(self._next_us or later_us, later_us)
            return None
        # What is tried again was counted before.
        if not later_us and not self._shares.take(job.spec.user.uid, now_us):
            return self._given_up(job, note, "its user has got too many in this hour")
        self._sending[job_id] = note.number
        return SendMail(job, note)

    def _given_up(self, job: Job, note: MailNote, why: str) -> GiveUp:
        self._over[job.job_id] = note.number
        self._later.pop(job.job_id, None)
        return GiveUp(job, note, why)


class _Shares:
    """Messages of each user: so many at once, and so many an hour."""

    def __init__(self, hourly_max: int) -> None:
        self._hourly_max = hourly_max
        # By uid: what is left, and when that was.
        self._left: dict[int, tuple[float, int]] = {}

    def take(self, uid: int, now_us: int) -> bool:
        """Take one of the user's share; false: nothing is left of it."""
        most = self._hourly_max
        if not most:
            return True
        left, at_us = self._left.get(uid, (float(most), now_us))
        left = min(float(most), left + max(0, now_us - at_us) * most / HOUR_US)
        if left < 1:
            return False
        if len(self._left) >= USERS_MAX and uid not in self._left:
            # After an hour a share is whole again.
            self._left = {one: kept for one, kept in self._left.items() if now_us - kept[1] < HOUR_US}
            if len(self._left) >= USERS_MAX:
                return False
        self._left[uid] = (left - 1, now_us)
        return True
