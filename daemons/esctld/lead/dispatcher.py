"""The one place where messages become durable state: drain the inbox, decide and apply, commit, then release.

Handlers never touch the state: they put a message here and await the answer. Invariant: no answer,
acknowledgement, effect or new view leaves before the transaction that holds its facts is durable. Two lanes: node
outcomes, plans and timers are never refused because users flood.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from esctld.lead.clock import Clock
from eslurm.core.control.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
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
from eslurm.core.state.view import View
from eslurm.ports.store import AnswerRow, BlobRow, RowChange, Store, StoreUnavailable
from eslurm.store.rows import to_store
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger("esctld.dispatcher")

BATCH_WEIGHT_MAX = 128
"""Most messages (or jobs, reports and placements in them) decided in one batch: bounds how long the loop is held."""
RECENT_ANSWERS_MAX = 4_096
"""Answers kept in memory by request id; older ones are looked up in the store by calls marked as a retry."""
RECENT_BYTES_MAX = 32 * 1024 * 1024
"""What these answers may take; the oldest are dropped."""
GATHER_S = 0.003
"""Longest wait after a commit for as many requests as it answered: clients that each wait for their answer come back
together, and one commit for all of them costs little more than one for the first."""
RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)

_encoder = msgspec.msgpack.Encoder()

Done = Callable[[BatchAnswer], None]
Charge = Callable[[float], None]


class InboxFull(Exception):
    """More requests wait than may."""


class NotNow(Exception):
    """The store does not take commits at present, or the controller stops; nothing of the request has happened."""


class Unsettled(Exception):
    """The store went away under the commit that holds the request: whether it has happened shows when it is back."""


class _Entry:
    __slots__ = ("blobs", "charge", "done", "message", "request_id", "rows")

    def __init__(
        self,
        message: Message,
        done: Done | None,
        request_id: bytes,
        blobs: Sequence[BlobRow],
        rows: Sequence[RowChange] = (),
        charge: Charge | None = None,
    ) -> None:
        self.message = message
        self.charge = charge
        self.done = done
        self.request_id = request_id
        self.blobs = blobs
        self.rows = rows


class Dispatcher:
    """Owns the reactor. `on_committed` is called after each durable batch, before its answers are given.

    It does not raise.
    """

    def __init__(
        self,
        reactor: Reactor,
        store: Store,
        metrics: ControllerMetrics,
        *,
        inbox_max: int,
        on_committed: Callable[[Sequence[Message], Batch], None],
        clock: Clock,
    ) -> None:
        self.state = reactor.state
        self.view = View(reactor.state)
        self._reactor = reactor
        self._store = store
        self._metrics = metrics
        self._inbox_max = inbox_max
        self._on_committed = on_committed
        self._clock = clock
        self._requests: deque[_Entry] = deque()
        self._events: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        # So many requests wake the loop; how many the last batch answered, and when.
        self._wanted = 1
        self._answered = 0
        self._answered_at_s = 0.0
        # What is being decided (the inbox bounds it), and what was answered lately.
        self._under_way: dict[bytes, asyncio.Future[BatchAnswer]] = {}
        self._recent: OrderedDict[bytes, BatchAnswer] = OrderedDict()
        self._recent_bytes = 0
        self._available = True
        self._stopping = False
        self._interrupted = False
        self._moved = asyncio.Event()
        self._rests = asyncio.Event()

    @property
    def is_available(self) -> bool:
        """Whether the store takes commits, as far as is known."""
        return self._available

    @property
    def depths(self) -> dict[str, float]:
        """How many messages wait in each lane of the inbox."""
        return {"requests": len(self._requests), "events": len(self._events)}

    def now_us(self) -> int:
        """The time that a batch would be decided at now."""
        return max(self._clock.now_us(), self.state.now_us)

    # ---- in ----

    def post(self, message: Message, done: Done | None = None) -> None:
        """An event of nodes, links, timers or the planner. Never refused; bounded by what the links admit.

        After `stop` it is dropped: nobody acknowledges it, so it is told again to whoever leads next.
        """
        if self._stopping:
            return
        self._events.append(_Entry(message, done, b"", ()))
        self._wake.set()

    async def decided(self, message: Message) -> None:
        """Post an event and wait until it has been decided and committed.

        Raises `NotNow` once the dispatcher stops: nothing would ever answer.
        """
        if self._stopping:
            raise NotNow
        done: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        self.post(message, _setter(done))
        await done

    async def keep(self, rows: Sequence[RowChange], blobs: Sequence[BlobRow] = ()) -> None:
        """Write rows that are no part of the state (what is known of the log itself) with the next commit.

        Raises `NotNow` once the dispatcher stops.
        """
        if self._stopping:
            raise NotNow
        done: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        self._events.append(_Entry(Tick(), _setter(done), b"", blobs, rows))
        self._wake.set()
        await done

    def request(
        self,
        message: Message,
        request_id: bytes = b"",
        blobs: Sequence[BlobRow] = (),
        charge: Charge | None = None,
    ) -> asyncio.Future[BatchAnswer]:
        """A request of a person. The same `request_id` gets the same answer and takes effect once. `charge` hears how
        many seconds deciding and applying it has held the loop.

        Raises `InboxFull` or `NotNow`, both before anything has happened, or `Unsettled`; so may the answer.
        """
        if request_id and (known := self._find_answer(request_id)) is not None:
            return known
        if not self._available or self._stopping:
            raise NotNow
        if len(self._requests) >= self._inbox_max:
            self._metrics.refused_full.inc()
            raise InboxFull
        answer: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        if request_id:
            self._under_way[request_id] = answer
        self._requests.append(_Entry(message, _setter(answer), request_id, blobs, charge=charge))
        if len(self._requests) >= self._wanted:
            self._wake.set()
        return answer

    def knows(self, request_id: bytes) -> bool:
        """Whether a request is under way or was answered lately: the store need not be asked for it."""
        return request_id in self._under_way or request_id in self._recent

    def _find_answer(self, request_id: bytes) -> asyncio.Future[BatchAnswer] | None:
        under_way = self._under_way.get(request_id)
        if under_way is not None and under_way.done():
            raise Unsettled
        if under_way is not None or request_id not in self._recent:
            return under_way
        answered: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        answered.set_result(self._recent[request_id])
        return answered

    async def moved(self) -> None:
        """Wait until another batch has been committed, or the store has gone away.

        Raises `NotNow` once `interrupt` was called.
        """
        if not self._interrupted:
            await self._moved.wait()
        if self._interrupted:
            raise NotNow

    async def committed(self) -> None:
        """Wait until all that is decided by now can be read: for an answer that was found in the live state.

        Raises `NotNow` while the store is away, and once `interrupt` was called.
        """
        revision = self.state.revision
        while self.view.revision < revision:
            if not self._available:
                raise NotNow
            await self.moved()

    async def rest(self, patience_s: float) -> None:
        """Wait until nothing is there to be decided or committed, at most so long: for work that can wait itself."""
        # Whoever was woken has its turn first.
        await asyncio.sleep(0)
        if self._rests.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._rests.wait()

    def interrupt(self) -> None:
        """Whoever waits for things to happen here need not wait any longer."""
        self._interrupted = True
        self._moved.set()

    def stop(self) -> None:
        """Take no more requests; `run` returns once the inbox is empty and committed."""
        self._stopping = True
        self._wake.set()

    # ---- the loop ----

    async def run(self) -> None:
        """Until `stop`. Raises what makes going on impossible: a lost fence, a damaged store, a bug in apply."""
        while True:
            if not self._requests and not self._events:
                if self._stopping:
                    return
                self._wake.clear()
                self._rests.set()
                await self._wake.wait()
                self._rests.clear()
                continue
            await self._gather()
            entries = self._take()
            batch = self._decide(entries)
            if len(batch.facts) > BATCH_WEIGHT_MAX:
                # One large call has held the loop long enough; nobody else writes, and nothing shows before the commit.
                await asyncio.sleep(0)
            answers = self._answers(entries, batch)
            blobs = [blob for entry in entries for blob in entry.blobs]
            rows = [row for entry in entries for row in entry.rows]
            if batch.facts or answers or rows or _acknowledges(entries):
                await self._commit(entries, batch, answers, blobs, rows)
            self._release(entries, batch)
            # Let readers and writers of links have their turn between two batches.
            await asyncio.sleep(0)

    async def _gather(self) -> None:
        """Wait a moment for those who had an answer just now; never when anything but requests is there."""
        if self._events or self._stopping or len(self._requests) >= self._answered:
            return
        loop = asyncio.get_running_loop()
        left_s = self._answered_at_s + GATHER_S - loop.time()
        if left_s <= 0:
            return
        self._wanted = self._answered
        self._wake.clear()
        timer = loop.call_later(left_s, self._wake.set)
        await self._wake.wait()
        timer.cancel()
        self._wanted = 1

    def _take(self) -> list[_Entry]:
        entries: list[_Entry] = []
        weight = 0
        for lane in (self._events, self._requests):
            while lane and weight < BATCH_WEIGHT_MAX:
                entry = lane.popleft()
                entries.append(entry)
                weight += _weight(entry.message)
        return entries

    def _decide(self, entries: list[_Entry]) -> Batch:
        started = time.perf_counter()
        batch = self._reactor.process(_metered(entries), self.now_us())
        self._metrics.stall.observe(time.perf_counter() - started)
        return batch

    def _answers(self, entries: list[_Entry], batch: Batch) -> list[AnswerRow]:
        return [
            AnswerRow(entry.request_id, _encoder.encode(answer))
            for entry, answer in zip(entries, batch.answers, strict=True)
            if entry.request_id and not isinstance(answer, Refused)
        ]

    async def _commit(
        self,
        entries: list[_Entry],
        batch: Batch,
        answers: list[AnswerRow],
        blobs: list[BlobRow],
        rows: list[RowChange],
    ) -> None:
        """One transaction; while the store is away the same batch is tried again and requests are refused."""
        durable = to_store(self.state, batch, answers, blobs)
        if rows:
            durable = msgspec.structs.replace(durable, rows=[*durable.rows, *rows])
        tries = 0
        started = time.perf_counter()
        while True:
            try:
                await self._store.commit(durable)
                break
            except StoreUnavailable as error:
                if self._available:
                    log.error("the store takes no commits: %s; requests are refused until it does", error)
                    self._available = False
                    self._let_go(entries)
                    self._tell_moved()
                await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
                tries += 1
        if not self._available:
            log.warning("the store takes commits again")
            self._available = True
        self._metrics.commit.observe(time.perf_counter() - started)
        self._metrics.facts.inc(len(batch.facts))

    def _let_go(self, entries: list[_Entry]) -> None:
        """Whoever waits for an answer hears now that the store is away; a retry finds what has become of its request."""
        for entry in entries:
            self._fail(self._under_way.get(entry.request_id), Unsettled())
        waiting, self._requests = self._requests, deque()
        for entry in waiting:
            if entry.request_id:
                # Not decided yet: it has never happened.
                self._fail(self._under_way.pop(entry.request_id), NotNow())
            else:
                self._requests.append(entry)

    @staticmethod
    def _fail(answer: asyncio.Future[BatchAnswer] | None, why: Exception) -> None:
        if answer is not None and not answer.done():
            answer.set_exception(why)
            # Its caller may be gone.
            answer.exception()

    def _release(self, entries: list[_Entry], batch: Batch) -> None:
        self.view.advance(batch.touched, self.state.revision, batch.now_us)
        self._on_committed([entry.message for entry in entries], batch)
        for entry, answer in zip(entries, batch.answers, strict=True):
            if entry.request_id:
                self._remember(entry.request_id, answer)
            if entry.done is not None:
                # It is committed: what goes wrong now ends this answer, never the daemon.
                try:
                    entry.done(answer)
                except Exception:
                    log.exception("the answer to a %s could not be given", type(entry.message).__name__)
        self._answered = sum(bool(entry.request_id) for entry in entries)
        self._answered_at_s = asyncio.get_running_loop().time()
        if batch.facts:
            self._tell_moved()
        if self.state.unsettled and not self._events:
            # One batch is not made of ten thousand dependents: the next one goes on, after whoever else has come.
            self.post(Tick())

    def _tell_moved(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _remember(self, request_id: bytes, answer: BatchAnswer) -> None:
        del self._under_way[request_id]
        if isinstance(answer, Refused):
            # Its traceback holds the whole message it refused.
            answer.__traceback__ = None
        self._recent[request_id] = answer
        self._recent_bytes += _answer_bytes(answer)
        while len(self._recent) > RECENT_ANSWERS_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            _id, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= _answer_bytes(oldest)


def _acknowledges(entries: Sequence[_Entry]) -> bool:
    """Whether agents will forget something because of this batch. Even when it changes nothing it is committed: a leader
    that was overtaken while it stood still knows nothing of its successor's jobs, and only the fence tells it."""
    return any(isinstance(entry.message, Reports) for entry in entries)


def _metered(entries: Sequence[_Entry]) -> Iterator[Message]:
    """Their messages; what each took until the next was asked for is charged to its sender."""
    for entry in entries:
        if entry.charge is None:
            yield entry.message
            continue
        began_s = time.perf_counter()
        yield entry.message
        entry.charge(time.perf_counter() - began_s)


def _answer_bytes(answer: BatchAnswer) -> int:
    """About what an answer takes in memory."""
    match answer:
        case Submitted():
            return 256 + 40 * len(answer.job_ids)
        case StepCreated():
            return 256 + 160 * len(answer.layout)
        case Changed():
            return 256 + 400 * len(answer.problems) + 400 * len(answer.notes)
        case _:
            return 1024


def _weight(message: Message) -> int:
    """How many facts to expect of it, roughly."""
    match message:
        case SubmitJobs():
            return len(message.specs)
        case Reports():
            return len(message.reports)
        case PlanMade():
            return len(message.placements) + len(message.promises)
        case SetForecasts():
            return len(message.forecasts)
        case CancelJobs() | HoldJobs() | RequeueJobs() | SuspendJobs():
            return max(1, len(message.jobs))
        case _:
            return 1


def _setter(answer: asyncio.Future[BatchAnswer]) -> Done:
    def give(value: BatchAnswer) -> None:
        if not answer.done():
            answer.set_result(value)

    return give
