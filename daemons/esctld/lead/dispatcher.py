"""The one place where messages become durable state: event loop, clock and store around the core's commit pipeline.

Handlers never touch the state: they put a message here and await the answer. `core.control.commit_pipeline` decides about
batches, refusals, commits and releases, as in the simulator; this module has the futures, the timers, the transaction and
its retries, and the committed view.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from esctld.lead.clock import Clock
from eslurm.core.control.commit_pipeline import (
    BATCH_WEIGHT_MAX,
    Action,
    Commit,
    CommitPipeline,
    Entry,
    Give,
    InboxFull,
    NotNow,
    Unsettled,
)
from eslurm.core.control.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.model.messages import Message, Tick
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.view import View
from eslurm.ports.store import BlobRow, RowChange, Store, StoreUnavailable
from eslurm.store.rows import transaction_of
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger("esctld.dispatcher")

Done = Callable[[BatchAnswer], None]
Charge = Callable[[float], None]


class _Waiter(msgspec.Struct):
    """Gets one answer: the future of a call, or the callback of an event. `charge` pays for deciding it."""

    future: asyncio.Future[BatchAnswer] | None = None
    done: Done | None = None
    charge: Charge | None = None

    def give(self, answer: BatchAnswer | NotNow | Unsettled) -> None:
        future = self.future
        if isinstance(answer, (NotNow, Unsettled)):
            if future is not None and not future.done():
                future.set_exception(answer)
                # Its caller may be gone.
                future.exception()
        elif future is not None:
            if not future.done():
                future.set_result(answer)
        elif self.done is not None:
            self.done(answer)


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
        self._on_committed = on_committed
        self._clock = clock
        self._pipeline: CommitPipeline[_Waiter] = CommitPipeline(inbox_max, follows=self.state.revision > 0)
        self._wake = asyncio.Event()
        self._interrupted = False
        self._moved = asyncio.Event()
        self._rests = asyncio.Event()

    @property
    def is_available(self) -> bool:
        """Check whether the store takes commits, as far as is known."""
        return self._pipeline.is_available

    @property
    def depths(self) -> dict[str, float]:
        """Number of messages that wait in each lane of the inbox."""
        return self._pipeline.depths

    def now_us(self) -> int:
        """The time at which a batch would be decided now."""
        return max(self._clock.now_us(), self.state.now_us)

    # ---- in ----

    def post(self, message: Message, done: Done | None = None) -> None:
        """Post an event of nodes, links, timers or the planner. Never refused; bounded by what the links admit.

        After `stop` it is dropped without an acknowledgement, so its sender repeats it to the next leader.
        """
        if self._pipeline.post(message, None if done is None else _Waiter(done=done)):
            self._wake.set()

    async def decided(self, message: Message) -> None:
        """Post an event and wait until it has been decided and committed.

        Raises `NotNow` once the dispatcher stops, because no answer would come.
        """
        await self._post_and_wait(message)

    async def keep(self, rows: Sequence[RowChange], blobs: Sequence[BlobRow] = ()) -> None:
        """Write rows outside the state (about the log itself) with the next commit.

        Raises `NotNow` once the dispatcher stops.
        """
        await self._post_and_wait(Tick(), rows, blobs)

    async def _post_and_wait(
        self, message: Message, rows: Sequence[RowChange] = (), blobs: Sequence[BlobRow] = ()
    ) -> None:
        done: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        if not self._pipeline.post(message, _Waiter(done), rows, blobs):
            raise NotNow
        self._wake.set()
        await done

    def request(
        self,
        message: Message,
        request_id: bytes = b"",
        blobs: Sequence[BlobRow] = (),
        charge: Charge | None = None,
    ) -> asyncio.Future[BatchAnswer]:
        """Decide a user's request. The same `request_id` gets the same answer and takes effect once. `charge` gets the
        seconds for which it held the loop.

        Raises `InboxFull` or `NotNow`, both before it has any effect, or `Unsettled`; so may the answer.
        """
        answer: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        try:
            known = self._pipeline.request(message, _Waiter(answer, charge=charge), request_id, blobs)
        except InboxFull:
            self._metrics.refused_full.inc()
            raise
        if known is not None:
            known.waiter.give(known.answer)
        elif self._pipeline.is_ready:
            self._wake.set()
        return answer

    def must_look_up(self, request_id: bytes, *, retry: bool) -> bool:
        """Check whether the store may have an answer to this request, so that it has to be asked first."""
        return self._pipeline.must_look_up(request_id, _loop_us(), retry=retry)

    async def moved(self) -> None:
        """Wait until another batch has been committed, or the store has gone away.

        Raises `NotNow` once `interrupt` was called.
        """
        if not self._interrupted:
            await self._moved.wait()
        if self._interrupted:
            raise NotNow

    async def committed(self) -> None:
        """Wait until all that is decided by now is committed: for an answer from the live state.

        Raises `NotNow` while the store is away, and once `interrupt` was called.
        """
        revision = self.state.revision
        while self.view.revision < revision:
            if not self._pipeline.is_available:
                raise NotNow
            await self.moved()

    async def rest(self, patience_s: float) -> None:
        """Wait until nothing is left to decide or commit, at most this long: for work that can wait."""
        # Woken tasks have their turn first.
        await asyncio.sleep(0)
        if self._rests.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._rests.wait()

    def interrupt(self) -> None:
        """Release the waiters of `moved` and `committed`."""
        self._interrupted = True
        self._moved.set()

    def stop(self) -> None:
        """Take no more requests; `run` returns once the inbox is empty and committed."""
        self._pipeline.stop()
        self._wake.set()

    # ---- the loop ----

    async def run(self) -> None:
        """Run until `stop`. Raises fatal errors: a lost fence, a damaged store, a bug in apply."""
        while True:
            if self._pipeline.is_empty:
                if self._pipeline.is_stopping:
                    return
                self._wake.clear()
                self._rests.set()
                await self._wake.wait()
                self._rests.clear()
                continue
            await self._gather()
            batch = self._decide(self._pipeline.take())
            if len(batch.facts) > BATCH_WEIGHT_MAX:
                # One large call has held the loop long enough; no other task writes, and nothing shows before the commit.
                await asyncio.sleep(0)
            await self._perform(
                self._pipeline.decided(batch, _loop_us(), owes_more=bool(self.state.unsettled))
            )
            # Let readers and writers of links have their turn between two batches.
            await asyncio.sleep(0)

    async def _gather(self) -> None:
        """Wait a moment for clients that had an answer just now."""
        until_us = self._pipeline.gathers_until_us(_loop_us())
        if not until_us:
            return
        self._wake.clear()
        timer = asyncio.get_running_loop().call_at(until_us / SECOND_US, self._wake.set)
        await self._wake.wait()
        timer.cancel()

    def _decide(self, entries: Sequence[Entry[_Waiter]]) -> Batch:
        started = time.perf_counter()
        batch = self._reactor.process(_metered(entries), self.now_us())
        self._metrics.stall.observe(time.perf_counter() - started)
        return batch

    async def _perform(self, actions: Sequence[Action[_Waiter]]) -> None:
        has_moved = False
        for action in actions:
            if isinstance(action, Give):
                self._give(action)
            elif isinstance(action, Commit):
                await self._commit(action)
            else:
                batch = action.batch
                self.view.advance(batch.touched, self.state.revision, batch.now_us)
                self._on_committed(action.messages, batch)
                has_moved = bool(batch.facts)
        if has_moved:
            self._tell_moved()

    async def _commit(self, commit: Commit) -> None:
        """One transaction; while the store is away the same batch is tried again and requests are refused."""
        pipeline = self._pipeline
        durable = transaction_of(self.state, commit)
        started = time.perf_counter()
        while True:
            try:
                await self._store.commit(durable)
                break
            except StoreUnavailable as error:
                if pipeline.is_available:
                    log.error("the store takes no commits: %s; requests are refused until it does", error)
                    for give in pipeline.unavailable():
                        self._give(give)
                    self._tell_moved()
                else:
                    pipeline.unavailable()
                await asyncio.sleep(pipeline.pause_us / SECOND_US)
        if not pipeline.is_available:
            log.warning("the store takes commits again")
        self._metrics.commit.observe(time.perf_counter() - started)
        self._metrics.facts.inc(len(commit.batch.facts))
        await self._perform(pipeline.committed(_loop_us()))

    @staticmethod
    def _give(give: Give[_Waiter]) -> None:
        # What goes wrong now ends this answer, never the daemon.
        try:
            give.waiter.give(give.answer)
        except Exception:
            log.exception("the answer to a %s could not be given", type(give.message).__name__)

    def _tell_moved(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _loop_us() -> int:
    return int(asyncio.get_running_loop().time() * SECOND_US)


def _metered(entries: Sequence[Entry[_Waiter]]) -> Iterator[Message]:
    """The entries' messages; each one's time until the next is charged to its sender."""
    for entry in entries:
        charge = entry.waiters[0].charge if entry.waiters else None
        if charge is None:
            yield entry.message
            continue
        began_s = time.perf_counter()
        yield entry.message
        charge(time.perf_counter() - began_s)
