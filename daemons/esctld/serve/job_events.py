"""Job events for estimators (JobFeed): a bounded ring, filled from committed batches.

A follower that comes for the first time, was away too long, or followed another leader gets a replay: the last ended jobs,
then the live ones (`job_event_history`); then it continues in the ring. Invariants: filling the ring never waits and costs
nothing without followers; events of a job are in order, instants never go back; a cursor of another controller's life is
noticed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from esctld.lead.time_slicing import paced
from esctld.serve.job_event_history import LOOKS_PER_SLICE, Recorded, beginning, open_ids
from esctld.serve.job_event_messages import JobEvent, event_bytes, run_time_s
from eslurm.core.control.commit_pipeline import NotNow
from eslurm.core.control.reactor import Batch
from eslurm.core.model import facts
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import STARTED, JobState
from eslurm.core.model.retry import Retried
from eslurm.core.plan.slices import parts
from eslurm.core.state.apply_retries import grown_spec
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.ports.store import StoreReader
from eslurm.v1 import controller_pb2 as pb

HISTORY_JOBS: Final = 20_000
RING_EVENTS_MAX: Final = 32_768
"""At least so many of the latest events are kept, and at most twice as many."""
EVENTS_DEFAULT: Final = 2_000
EVENTS_MAX: Final = 10_000
EVENTS_PER_SLICE: Final = 100
WAIT_MAX_S: Final = 60.0
GATHER_S: Final = 0.05
"""Events within this time go out together: a reply costs more than a hundred events."""
WAITING_MAX: Final = 8
WAIT_RETRY_S: Final = 5.0
BEGINNINGS_MAX: Final = 2
BEGINNING_KEPT_S: Final = 60.0
"""An unread replay is dropped after this time: it takes some megabytes."""

_NUMBER_BITS: Final = 38
_BEGINNING_BITS: Final = 6
_LIFE_BITS: Final = 20
_RING: Final = 0


class Cursor(NamedTuple):
    """A follower's position: in the ring at the event of this number, or in a replay (above 0) at this position.

    `life` is this controller's own: any other's cursors are invalid here.
    """

    life: int
    beginning: int
    number: int

    @classmethod
    def read(cls, value: int) -> Cursor:
        """Decode a cursor."""
        number = value & (1 << _NUMBER_BITS) - 1
        rest = value >> _NUMBER_BITS
        return cls(rest >> _BEGINNING_BITS, rest & (1 << _BEGINNING_BITS) - 1, number)

    def __int__(self) -> int:
        return (self.life << _BEGINNING_BITS | self.beginning) << _NUMBER_BITS | self.number


class Committed(Protocol):
    """The dispatcher as the feed sees it."""

    state: State
    view: View

    async def moved(self) -> None:
        """Wait until another batch has been committed. Raises `NotNow` when there will be none."""
        ...


class _Replay:
    """The encoded replay for new followers; then the ring continues from event `then`."""

    __slots__ = ("dropping", "events", "then")

    def __init__(self, then: int, events: list[bytes]) -> None:
        self.then = then
        self.events = events
        self.dropping: asyncio.TimerHandle | None = None


class JobEvents:
    """Answers JobFeed. The dispatcher's owner calls `on_committed` with every committed batch."""

    def __init__(
        self,
        dispatcher: Committed,
        store: StoreReader,
        *,
        history_jobs: int = HISTORY_JOBS,
        ring_max: int = RING_EVENTS_MAX,
        gather_s: float = GATHER_S,
    ) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._history_jobs = history_jobs
        self._ring_max = ring_max
        self._gather_s = gather_s
        # Never 0: a cursor of 0 belongs to no life.
        self._life = 1 + secrets.randbelow((1 << _LIFE_BITS) - 1)
        self._ring: list[JobEvent] = []
        # The number of the first of them, counted from the first there ever was.
        self._first = 0
        self._is_followed = False
        self._running: set[int] = set()
        # The jobs as they were when the ring began, until it is known which of them ran.
        self._before: dict[int, Job] = {}
        self._waiting = 0
        self._beginnings: dict[int, _Replay] = {}
        self._beginnings_made = 0
        self._making: asyncio.Task[int] | None = None

    # ---- filling ----

    def on_committed(self, batch: Batch) -> None:
        """A batch is durable."""
        if not self._is_followed:
            return
        ring, now_us, finished = self._ring, batch.now_us, set()
        retried: dict[int, Retried] = {}
        for fact in batch.facts:
            match fact:
                case facts.JobSubmitted():
                    ring.append(JobEvent(pb.JobEvent.SUBMITTED, fact.job_id, now_us, 0, fact.spec))
                case facts.JobChanged() if not self._is_growth(fact.job_id):
                    ring.append(JobEvent(pb.JobEvent.CHANGED, fact.job_id, now_us, 0, fact.spec))
                case facts.JobPlaced() if fact.array_job_id:
                    self._on_task(fact, now_us)
                case facts.TimeChanged():
                    self._on_limit(fact, now_us)
                case facts.AttemptStarted():
                    self._running.add(fact.job_id)
                    ring.append(JobEvent(pb.JobEvent.STARTED, fact.job_id, now_us))
                case facts.JobFinished():
                    finished.add(fact.job_id)
                case facts.AttemptEnded(retry=retry) if retry is not None:
                    retried[fact.job_id] = retry
                case facts.ArrivalDropped():
                    ring.append(JobEvent(pb.JobEvent.ENDED, fact.job_id, now_us))
        # Ends come last: a job submitted at the same instant did not know of them.
        for job, attempt in batch.touched.ended:
            if job.grows is not None:
                # Its begin was never told: it does not run.
                continue
            self._on_ended(job, run_time_s(attempt), now_us, was_waiting=job.job_id in finished)
            if job.job_id in retried and job.outcome is JobState.PENDING:
                # It waits again with other limits; that nodes still give the old ones back is no news.
                spec = grown_spec(job.spec, retried[job.job_id])
                ring.append(JobEvent(pb.JobEvent.CHANGED, job.job_id, now_us, 0, spec))
        if len(ring) >= 2 * self._ring_max:
            del ring[: self._ring_max]
            self._first += self._ring_max

    def _is_growth(self, job_id: int) -> bool:
        job = self._dispatcher.state.find_job(job_id)
        return job is not None and job.grows is not None

    def _on_task(self, fact: facts.JobPlaced, now_us: int) -> None:
        """A task of an array got a record of its own."""
        task = self._dispatcher.state.find_job(fact.job_id)
        if task is not None:
            self._ring.append(JobEvent(pb.JobEvent.SUBMITTED, fact.job_id, now_us, 0, task.spec))

    def _on_limit(self, fact: facts.TimeChanged, now_us: int) -> None:
        """A running job has another time limit; its request stays as it was."""
        job = self._dispatcher.state.find_job(fact.job_id)
        if job is not None:
            spec = replace(job.spec, time_limit_s=max(0, fact.time_limit_s))
            self._ring.append(JobEvent(pb.JobEvent.CHANGED, fact.job_id, now_us, 0, spec))

    def _on_ended(self, job: Job, runtime_s: int, now_us: int, *, was_waiting: bool) -> None:
        ring, job_id = self._ring, job.job_id
        before = self._before.pop(job_id, None)
        ran = job_id in self._running or (before is not None and before.state in STARTED)
        self._running.discard(job_id)
        if job.outcome is JobState.PENDING:
            # A launch that failed was never told of: it still waits.
            if ran:
                ring.append(JobEvent(pb.JobEvent.REQUEUED, job_id, now_us))
            return
        if runtime_s and not ran and not was_waiting:
            # So short that the report of its end came with that of its start.
            ring.append(JobEvent(pb.JobEvent.STARTED, job_id, now_us))
        ring.append(JobEvent(pb.JobEvent.ENDED, job_id, now_us, runtime_s))

    @property
    def _end(self) -> int:
        return self._first + len(self._ring)

    # ---- telling ----

    async def call(self, request: pb.JobFeedRequest, caller: Caller) -> bytes:
        """An encoded JobFeedReply with the events since the cursor; waits when there are none."""
        most = min(request.events_max or EVENTS_DEFAULT, EVENTS_MAX)
        cursor = Cursor.read(request.cursor)
        if not self._knows(cursor):
            return await self._told_anew(most)
        if cursor.beginning != _RING:
            return await self._told_from(cursor.beginning, cursor.number, most)
        await self._news(cursor.number, min(request.wait_ms / 1000, WAIT_MAX_S))
        if cursor.number < self._first:
            # So much has happened while it waited.
            return await self._told_anew(most)
        start = cursor.number - self._first
        found = self._ring[start : start + most]
        told = await paced(_encoded(found))
        return _reply(told, Cursor(self._life, _RING, cursor.number + len(found)))

    def _knows(self, cursor: Cursor) -> bool:
        if cursor.life != self._life:
            return False
        if cursor.beginning == _RING:
            return self._is_followed and self._first <= cursor.number <= self._end
        kept = self._beginnings.get(cursor.beginning)
        return kept is not None and cursor.number <= len(kept.events)

    async def _news(self, number: int, wait_s: float) -> None:
        """Wait for an event of this number, at most this long. Raises `ApiError` when the controller stops."""
        if number < self._end or not wait_s:
            return
        if self._waiting >= WAITING_MAX:
            raise ApiError(
                Status.RESOURCE_EXHAUSTED,
                f"{self._waiting} estimators follow already, more than {WAITING_MAX} cannot: try again later",
                WAIT_RETRY_S,
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_s):
                while number >= self._end:
                    await self._dispatcher.moved()
                await asyncio.sleep(self._gather_s)
        except TimeoutError:
            return
        except NotNow:
            raise ApiError(Status.UNAVAILABLE, "the controller stops: try again in a moment") from None
        finally:
            self._waiting -= 1

    async def _told_anew(self, most: int) -> bytes:
        number = await self._begin()
        # After a stall of the loop it may have been dropped before it was read.
        while number not in self._beginnings:
            number = await self._begin()
        return await self._told_from(number, 0, most, from_start=True)

    async def _told_from(self, number: int, at: int, most: int, *, from_start: bool = False) -> bytes:
        kept = self._beginnings[number]
        self._keep(number)
        told = kept.events[at : at + most]
        at += len(told)
        if at < len(kept.events):
            return _reply(told, Cursor(self._life, number, at), from_start=from_start)
        return _reply(told, Cursor(self._life, _RING, kept.then), from_start=from_start)

    # ---- beginnings ----

    async def _begin(self) -> int:
        """The number of a replay: one under construction, one that still reaches the ring, or a new one."""
        if self._making is None or self._making.done():
            for number in reversed(self._beginnings):
                # What was told since then is in the ring, and not much.
                if self._end - self._beginnings[number].then <= self._ring_max // 4:
                    return number
            self._making = asyncio.get_running_loop().create_task(self._make(), name="beginning of the feed")
            self._making.add_done_callback(_look_at)
        # A cancelled waiter does not end it for the others, and finds it with its next call.
        return await asyncio.shield(self._making)

    async def _make(self) -> int:
        dispatcher = self._dispatcher
        state, view = dispatcher.state, dispatcher.view
        if not self._is_followed:
            self._is_followed = True
            self._before = dict(view.jobs)
        # The view is what the ring has been told of: until here nothing is awaited.
        then, now_us, next_id = self._end, view.now_us, state.next_id
        living = [job for job in view.jobs.values() if job.grows is None]
        await paced(self._see_who_runs(living))
        recorded = Recorded(self._store, state.owner, self._history_jobs)
        told = await recorded.load(next_id, now_us, await paced(open_ids(living)))
        events = await paced(beginning(told, living, now_us))
        self._beginnings_made = self._beginnings_made % ((1 << _BEGINNING_BITS) - 1) + 1
        number = self._beginnings_made
        while len(self._beginnings) >= BEGINNINGS_MAX:
            self._drop(next(iter(self._beginnings)))
        self._beginnings[number] = _Replay(then, events)
        self._keep(number)
        return number

    def _see_who_runs(self, living: Sequence[Job]) -> Generator[None, None, None]:
        for jobs in parts(living, LOOKS_PER_SLICE):
            # A job that has ended meanwhile is not there any more.
            self._running.update(
                job.job_id for job in jobs if job.job_id in self._before and job.state in STARTED
            )
            yield
        self._before = {}

    def _keep(self, number: int) -> None:
        """Extend the life of a replay that is read."""
        kept = self._beginnings[number]
        if kept.dropping is not None:
            kept.dropping.cancel()
        kept.dropping = asyncio.get_running_loop().call_later(BEGINNING_KEPT_S, self._drop, number)

    def _drop(self, number: int) -> None:
        kept = self._beginnings.pop(number)
        if kept.dropping is not None:
            kept.dropping.cancel()

    async def close(self) -> None:
        """Drop all replays."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        for number in list(self._beginnings):
            self._drop(number)


def _look_at(made: asyncio.Task[int]) -> None:
    """Retrieve the failure of a task whose waiters may be gone."""
    if not made.cancelled():
        made.exception()


def _encoded(found: Sequence[JobEvent]) -> Generator[None, None, list[bytes]]:
    told: list[bytes] = []
    for at, one in enumerate(found):
        told.append(event_bytes(one))
        if at % EVENTS_PER_SLICE == EVENTS_PER_SLICE - 1:
            yield
    return told


def _reply(told: Sequence[bytes], then: Cursor, *, from_start: bool = False) -> bytes:
    tail = pb.JobFeedReply(next=int(then), from_start=from_start)
    return b"".join(told) + tail.SerializeToString()
