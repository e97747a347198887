"""The way of messages into the log, without I/O: take a batch, decide it, commit it, then show it and answer.

The controller's dispatcher and the simulator's controller drive this one machine: they report what happened (a message
came, the batch is decided, the store took it or is away) and carry out the actions that they get back, in order.
Invariants: one batch is under way at a time; `Show` and every answer of a batch follow its commit; a request id takes
effect once as long as its answer is remembered here or in the store. Two lanes: events (of nodes, links, timers, the
planner) go first and are never refused, requests of users are bounded. Times are the driver's own, in microseconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from eslurm.core.control.answered_ids import AnsweredIds
from eslurm.core.control.reactor import Batch, BatchAnswer
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    CreateStep,
    HoldJobs,
    Message,
    PlanMade,
    Refused,
    Reports,
    RequeueJobs,
    SetForecasts,
    StepCreated,
    SubmitJobs,
    Submitted,
    SuspendJobs,
    Tick,
)

BATCH_WEIGHT_MAX: Final = 128
"""Most messages (or jobs, reports and placements in them) decided in one batch: bounds how long the loop is held."""
RECENT_ANSWERS_MAX: Final = 4_096
"""Answers kept in memory by request id; older ones are looked up in the store."""
RECENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Most bytes that these answers take; the oldest are dropped."""
WAITERS_MAX: Final = 64
"""Calls that may wait for one request id."""
GATHER_US: Final = 3_000
"""Longest wait after a commit for as many requests as it answered: clients that each wait for their answer come back
together, and one commit for all of them costs little more than one for the first."""
RETRY_US: Final = (50_000, 100_000, 200_000, 500_000, 1_000_000)
"""Pauses between tries of a commit that the store does not take; the last one repeats."""

W = TypeVar("W")
"""The driver's handle for an answer: the machine passes it on unread."""


class InboxFull(Exception):
    """More requests wait than may."""


class NotNow(Exception):
    """The store does not take commits at present, or the controller stops; nothing of the request has happened."""


class Unsettled(Exception):
    """The store went away under the commit that holds the request: whether it has happened shows when it is back."""


class Entry(msgspec.Struct, Generic[W]):
    """One message on its way; `rows` and `blobs` go to the store with its commit."""

    message: Message
    waiters: list[W]
    request_id: bytes = b""
    blobs: Sequence[Any] = ()
    rows: Sequence[Any] = ()
    is_unsettled: bool = False


class Commit(msgspec.Struct, frozen=True):
    """Action: write this in one transaction, then report `committed`, or `unavailable` and try it again."""

    batch: Batch
    answers: Sequence[tuple[bytes, BatchAnswer]]
    blobs: Sequence[Any]
    rows: Sequence[Any]


class Show(msgspec.Struct, frozen=True):
    """Action: readers may see the batch, and its effects may leave."""

    messages: list[Message]
    batch: Batch


class Give(msgspec.Struct, Generic[W], frozen=True):
    """Action: the answer to a message, or why there is none."""

    waiter: W
    answer: BatchAnswer | NotNow | Unsettled
    message: Message


Action: TypeAlias = Commit | Show | Give[W]


class CommitPipeline(Generic[W]):
    """Holds messages until they are committed, and recent answers.

    `inbox_max` bounds the requests that wait. `follows`: there may be answers of earlier leaders.
    """

    def __init__(self, inbox_max: int, *, follows: bool = True) -> None:
        self._inbox_max = inbox_max
        self._events: deque[Entry[W]] = deque()
        self._requests: deque[Entry[W]] = deque()
        # The batch under way: taken, and decided when there is a batch.
        self._entries: list[Entry[W]] = []
        self._batch: Batch | None = None
        self._owes_more = False
        # So many requests are worth a batch; how many the last batch answered, and when.
        self._wanted = 1
        self._answered = 0
        self._answered_at_us = 0
        # What waits or is under way (the inbox bounds it), and what was answered lately.
        self._under_way: dict[bytes, Entry[W]] = {}
        self._recent: OrderedDict[bytes, BatchAnswer] = OrderedDict()
        self._recent_bytes = 0
        self._answered_ids = AnsweredIds(follows=follows)
        self._available = True
        self._tries = 0
        self._stopping = False

    @property
    def is_available(self) -> bool:
        """Check whether the store takes commits, as far as is known."""
        return self._available

    @property
    def is_stopping(self) -> bool:
        """Check whether it accepts nothing more."""
        return self._stopping

    @property
    def is_empty(self) -> bool:
        """Check whether no message waits to be decided."""
        return not self._events and not self._requests

    @property
    def is_idle(self) -> bool:
        """Check whether no message waits or is under way."""
        return self.is_empty and not self._entries

    @property
    def is_ready(self) -> bool:
        """Check whether there are as many requests as the next batch waits for, or anything else to decide or to end."""
        return bool(self._events) or self._stopping or len(self._requests) >= self._wanted

    @property
    def depths(self) -> dict[str, float]:
        """Number of messages in each lane."""
        return {"requests": len(self._requests), "events": len(self._events)}

    @property
    def pause_us(self) -> int:
        """Pause before the next try of the commit, in microseconds."""
        return RETRY_US[min(max(self._tries - 1, 0), len(RETRY_US) - 1)]

    # ---- in ----

    def post(
        self, message: Message, waiter: W | None = None, rows: Sequence[Any] = (), blobs: Sequence[Any] = ()
    ) -> bool:
        """Take on an event. False after `stop`: it is not acknowledged, so its sender repeats it to the next leader."""
        if self._stopping:
            return False
        self._events.append(Entry(message, [] if waiter is None else [waiter], b"", blobs, rows))
        return True

    def request(
        self, message: Message, waiter: W, request_id: bytes = b"", blobs: Sequence[Any] = ()
    ) -> Give[W] | None:
        """Take on a user's request; the answer at once if its id was answered lately.

        Raises `InboxFull` or `NotNow`, both before anything has happened, or `Unsettled`.
        """
        if request_id:
            if (same := self._under_way.get(request_id)) is not None:
                if same.is_unsettled:
                    raise Unsettled
                if len(same.waiters) >= WAITERS_MAX:
                    raise InboxFull
                same.waiters.append(waiter)
                return None
            if request_id in self._recent:
                return Give(waiter, self._recent[request_id], message)
        if not self._available or self._stopping:
            raise NotNow
        if len(self._requests) >= self._inbox_max:
            raise InboxFull
        entry = Entry(message, [waiter], request_id, blobs)
        if request_id:
            self._under_way[request_id] = entry
        self._requests.append(entry)
        return None

    def must_look_up(self, request_id: bytes, now_us: int, *, retry: bool) -> bool:
        """Check whether the store may have an answer to this request, so that it has to be asked before `request`.

        A refusal is not in the store: another leader may have accepted the same request since.
        """
        if not request_id or request_id in self._under_way:
            return False
        answer = self._recent.get(request_id)
        if answer is not None and not isinstance(answer, Refused):
            return False
        return retry or self._answered_ids.may_have(request_id, now_us)

    def stop(self) -> None:
        """Take nothing more on; what waits is still decided and committed."""
        self._stopping = True

    # ---- a batch ----

    def gathers_until_us(self, now_us: int) -> int:
        """Time until which the next batch waits for clients that have just been answered; 0: it does not wait.

        Only requests ever wait for them.
        """
        if self._events or self._stopping or len(self._requests) >= self._answered:
            return 0
        until_us = self._answered_at_us + GATHER_US
        if until_us <= now_us:
            return 0
        self._wanted = self._answered
        return until_us

    def take(self) -> Sequence[Entry[W]]:
        """The next batch, to be decided in this order; empty while one is under way."""
        if self._entries:
            return []
        self._wanted = 1
        entries = self._entries
        weight = 0
        for lane in (self._events, self._requests):
            while lane and weight < BATCH_WEIGHT_MAX:
                entry = lane.popleft()
                entries.append(entry)
                weight += _weight(entry.message)
        return entries

    def decided(self, batch: Batch, now_us: int, *, owes_more: bool = False) -> Sequence[Action[W]]:
        """Actions for the batch that was taken: commit it, or show it if there is nothing to write.

        `owes_more`: the state has consequences left that one batch does not hold; another batch continues with them.
        """
        entries = self._entries
        self._batch = batch
        self._owes_more = owes_more
        answers = [
            (entry.request_id, answer)
            for entry, answer in zip(entries, batch.answers, strict=True)
            if entry.request_id and not isinstance(answer, Refused)
        ]
        rows = [row for entry in entries for row in entry.rows]
        if batch.facts or answers or rows or _acknowledges(entries):
            blobs = [blob for entry in entries for blob in entry.blobs]
            return [Commit(batch, answers, blobs, rows)]
        return self._release(now_us)

    def committed(self, now_us: int) -> Sequence[Action[W]]:
        """The store has the batch under way: it may be shown and answered."""
        self._available = True
        self._tries = 0
        return self._release(now_us)

    def unavailable(self) -> Sequence[Give[W]]:
        """The store did not take the batch under way: try it again after `pause_us`.

        At the first failure its callers get `Unsettled`: a retry finds the result. Requests not decided yet are refused
        without effect.
        """
        self._tries += 1
        if not self._available:
            return ()
        self._available = False
        gives: list[Give[W]] = []
        for entry in self._entries:
            if entry.request_id:
                entry.is_unsettled = True
                gives += [Give(waiter, Unsettled(), entry.message) for waiter in entry.waiters]
                entry.waiters = []
        waiting, self._requests = self._requests, deque()
        for entry in waiting:
            if entry.request_id:
                del self._under_way[entry.request_id]
                gives += [Give(waiter, NotNow(), entry.message) for waiter in entry.waiters]
            else:
                # The controller's own: it does not ask again.
                self._requests.append(entry)
        return gives

    # ---- out ----

    def _release(self, now_us: int) -> list[Action[W]]:
        entries, batch = self._entries, self._batch
        assert batch is not None
        self._entries, self._batch = [], None
        answers = list(zip(entries, batch.answers, strict=True))
        actions: list[Action[W]] = [Show([entry.message for entry in entries], batch)]
        actions += [
            Give(waiter, answer, entry.message) for entry, answer in answers for waiter in entry.waiters
        ]
        answered = 0
        for entry, answer in answers:
            if entry.request_id:
                answered += 1
                self._remember(entry.request_id, answer, now_us)
        self._answered = answered
        self._answered_at_us = now_us
        if self._owes_more and not self._events:
            # One batch does not hold ten thousand dependents: the next one goes on, after others that have come.
            self.post(Tick())
        return actions

    def _remember(self, request_id: bytes, answer: BatchAnswer, now_us: int) -> None:
        del self._under_way[request_id]
        if isinstance(answer, Refused):
            # Its traceback holds the whole message it refused.
            answer.__traceback__ = None
        else:
            self._answered_ids.add(request_id, now_us)
        self._recent[request_id] = answer
        self._recent_bytes += _answer_bytes(answer)
        while len(self._recent) > RECENT_ANSWERS_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            _id, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= _answer_bytes(oldest)


def _acknowledges(entries: Sequence[Entry[W]]) -> bool:
    """Check whether agents will forget reports because of this batch.

    Such a batch is committed even when it changes nothing: a leader that was overtaken while it was stopped knows nothing
    of its successor's jobs, and only the fence reveals it.
    """
    return any(isinstance(entry.message, Reports) for entry in entries)


def _answer_bytes(answer: BatchAnswer) -> int:
    """Approximate size of an answer in memory."""
    match answer:
        case Submitted():
            return 256 + 40 * len(answer.job_ids)
        case StepCreated():
            return 256 + 160 * len(answer.layout) * (2 if answer.parts else 1)
        case Changed():
            return 256 + 400 * len(answer.problems) + 400 * len(answer.notes)
        case _:
            return 1024


def _weight(message: Message) -> int:
    """Approximate number of facts from a message."""
    match message:
        case SubmitJobs():
            return len(message.specs)
        case Reports():
            return len(message.reports)
        case PlanMade():
            return len(message.placements) + len(message.promises)
        case SetForecasts():
            return len(message.forecasts)
        case CreateStep():
            return len(message.components)
        case CancelJobs() | HoldJobs() | RequeueJobs() | SuspendJobs():
            return max(1, len(message.jobs))
        case _:
            return 1
