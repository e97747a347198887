"""The follower of the controller's job events: all changes of jobs, in order, from the beginning whenever needed.

Invariant: its output either continues without a gap, or says that the replay begins anew: with the last ended jobs and all
live ones, in parts. After a failover, a restart of the controller, or too long a silence, the controller says so itself.
No more than one part is held at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from esestd.leader_calls import Away, LeaderCalls
from eslurm.api.methods import JOB_FEED
from eslurm.ports.api import ApiRefused, Status
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esestd")

POLL_S = 10.0
"""Time for which the controller may hold a call for events."""
ANSWER_S = 10.0
"""Additional time for an answer."""
EVENTS_MAX = 5_000
AGAIN_S = 1.0
REFUSED_S = 15.0
_NO_RIGHT = (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED)


class News(NamedTuple):
    """Events. `anew`: a replay begins, and earlier events are void; `more`: they are not up to date yet."""

    anew: bool
    events: Sequence[Any]
    more: bool = False


class Follower:
    """Follows the job events of the leading controller."""

    def __init__(self, leader: LeaderCalls, poll_s: float = POLL_S) -> None:
        self._leader = leader
        self._poll_s = poll_s
        self._in_story = False
        self._cursor = 0
        self._is_new_wanted = False
        self._told = ""
        self.linked = False
        """True when the last question was answered."""

    @property
    def trouble(self) -> str:
        """The reason why the events are not answered; empty while they are, and before the first try."""
        return self._told

    def begin_anew(self) -> None:
        """Start the replay from its beginning with the next call, once the current one is answered."""
        self._is_new_wanted = True

    async def next(self) -> News:
        """Wait for events; after a while of silence there are none. Raises nothing but cancellation."""
        reply = await self._ask(0.0 if self._in_story else self._poll_s)
        if reply.from_start:
            self._in_story = True
        # A short page is the last page.
        self._in_story = self._in_story and len(reply.events) >= EVENTS_MAX
        return News(reply.from_start, reply.events, self._in_story)

    async def _ask(self, wait_s: float) -> Any:
        """One answer of the controller; waits until one gives it."""
        while True:
            if self._is_new_wanted:
                self._cursor, self._is_new_wanted = 0, False
            request = pb.JobFeedRequest(
                cursor=self._cursor, wait_ms=int(wait_s * 1000), events_max=EVENTS_MAX
            )
            try:
                reply = await self._leader.call(JOB_FEED, request, wait_s + ANSWER_S)
            except Away as error:
                self._tell("the controller does not answer: %s", str(error))
                await asyncio.sleep(AGAIN_S)
            except ApiRefused as error:
                way_out = (
                    "; cluster.operators must name this user, or its token be of scope estimator"
                    if error.status in _NO_RIGHT
                    else ""
                )
                self._tell("the controller refuses its feed: %s", f"{error.text}{way_out}")
                await asyncio.sleep(REFUSED_S)
            else:
                if not self.linked:
                    log.info("following the controller's feed")
                self._told, self.linked = "", True
                if self._is_new_wanted:
                    continue
                self._cursor = reply.next
                return reply

    def _tell(self, form: str, text: str) -> None:
        """Log each new reason once."""
        self.linked = False
        if text != self._told:
            self._told = text
            log.warning(form, text)
