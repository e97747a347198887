"""The agent's side of the supervisor: a `StepRunner` over the Unix socket, for one asyncio loop.

Invariants: a request is repeated on every new connection until it is answered, which is safe because each may be
repeated; reading never waits for writing; what is unanswered is bounded. A supervisor that is gone is started
anew, and then delivers what its predecessor left behind.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.model.step_usage import StepUse
from eslurm.core.model.values import signal_problem
from eslurm.ports.step_checks import duration_problem
from eslurm.ports.step_runner import (
    StepEndCause,
    StepOrder,
    StepOutcomeSink,
    StepRunnerError,
    StepState,
    UserRefused,
)
from esnoded.stepd import wire
from esnoded.stepd.launcher import Connect, SupervisorUnavailable

_REQUESTS_MAX = 8192
_VACATED_MAX = 1024
"""Attempts whose leaving is repeated on a new connection: more leave in no gap that a supervisor outlives."""
_WELCOME_TIMEOUT_S = 10.0
_BACKOFF_MIN_S = 0.02
_BACKOFF_MAX_S = 2.0

_decoder = msgspec.msgpack.Decoder(wire.Answer)


class _Pending(msgspec.Struct, eq=False):
    """A request that has not been answered, ready to be sent again."""

    frame: bytes
    future: asyncio.Future[Any]
    parts: list[StepState] = msgspec.field(default_factory=list)


class SupervisorClient:
    """Implements `eslurm.ports.step_runner.StepRunner`. Use as an async context manager, or `start` and `close`.

    `on_ended` is called on the loop for every outcome, at least once each; it must not block. `connect` gives a connection
    to a supervisor, which it starts if need be; it may block: it runs in a thread. `ring` gives the site's public keys as
    they are now, sealed, for each connection; empty: none.
    """

    def __init__(
        self,
        connect: Connect,
        on_ended: StepOutcomeSink,
        *,
        ring: Callable[[], bytes] = bytes,
    ) -> None:
        self._connect = connect
        self._on_ended = on_ended
        self._ring = ring
        self._next_request = 0
        self._pending: dict[int, _Pending] = {}
        self._link: _Link | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        # Said on the last connection, or while there was none: unanswered, so it may be lost.
        self._vacated: deque[NodeAttempt] = deque(maxlen=_VACATED_MAX)
        self.welcome: wire.Welcome | None = None
        """Of the present connection, None while there is none."""
        self.is_older = False
        """The supervisor of the last connection is of a release that knows neither parts nor phases."""
        self.trouble = ""
        """The reason of a missing connection, for logs."""

    async def __aenter__(self) -> SupervisorClient:
        self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def start(self) -> None:
        """Connect in the background, and stay connected."""
        self._keeper = asyncio.create_task(self._keep_connected(), name="esstepd-client")

    async def close(self) -> None:
        """Leave the supervisor and its steps alone; unanswered calls raise `StepRunnerError`."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(StepRunnerError("the client of the step supervisor is closed"))
        self._pending.clear()

    def tell_ring(self) -> None:
        """Pass on the site's keys: the supervisor sees for itself whether it trusts them. Each connection begins with it."""
        sealed = self._ring()
        if self._link is not None and sealed:
            # Unanswered: what is not taken changes nothing.
            self._link.send(wire.encode_frame(wire.Trust(0, sealed)))

    def reconnect(self) -> None:
        """End the present connection; the next one follows."""
        if self._link is not None:
            self._link.abort()

    async def launch(self, order: StepOrder) -> StepState:
        """See `StepRunner.launch`."""
        state: StepState = await self._ask(lambda number: wire.Launch(number, order))
        return state

    async def signal(self, key: StepKey, signum: int) -> bool:
        """See `StepRunner.signal`."""
        _check(signal_problem(signum))
        found: bool = await self._ask(lambda number: wire.Signal(number, key, signum))
        return found

    async def terminate(self, key: StepKey, cause: StepEndCause, grace_us: int) -> bool:
        """See `StepRunner.terminate`."""
        _check(duration_problem("grace_us", grace_us))
        found: bool = await self._ask(lambda number: wire.Terminate(number, key, cause, grace_us))
        return found

    async def suspend(self, key: StepKey, resume: bool = False) -> bool:
        """See `StepRunner.suspend`."""
        found: bool = await self._ask(lambda number: wire.Suspend(number, key, resume))
        return found

    async def set_limit(self, key: StepKey, time_limit_us: int, credential: bytes = b"") -> bool:
        """See `StepRunner.set_limit`."""
        _check(duration_problem("time_limit_us", time_limit_us))
        found: bool = await self._ask(lambda number: wire.SetLimit(number, key, time_limit_us, credential))
        return found

    async def list_steps(self) -> Sequence[StepState]:
        """See `StepRunner.list_steps`."""
        steps: Sequence[StepState] = await self._ask(wire.ListSteps)
        return steps

    async def acknowledge(self, keys: Collection[StepKey]) -> None:
        """See `StepRunner.acknowledge`."""
        await self._ask(lambda number: wire.Acknowledge(number, tuple(keys)))

    async def contact(self, nodes: Collection[int] = (), at_us: int | None = None) -> None:
        """See `StepRunner.contact`. Dropped while there is no connection: the next one makes it good."""
        if self._link is not None:
            self._link.send(wire.encode_frame(wire.Contact(tuple(nodes), at_us)))

    async def measure(
        self, attempt: NodeAttempt, steps: Collection[int], *, with_pids: bool = False
    ) -> Sequence[StepUse]:
        """See `StepRunner.measure`."""
        if self.welcome is not None and self.welcome.version < wire.MEASURE_SINCE:
            raise StepRunnerError("the step supervisor is of a release that does not measure steps")
        numbers = tuple(steps)
        uses: Sequence[StepUse] = await self._ask(
            lambda number: wire.Measure(number, attempt, numbers, with_pids)
        )
        return uses

    async def vacate(self, attempts: Collection[NodeAttempt]) -> None:
        """See `StepRunner.vacate`. The next connection repeats it; an older supervisor is not told."""
        self._vacated.extend(attempts)
        self._tell_vacated(attempts)

    def _tell_vacated(self, attempts: Collection[NodeAttempt]) -> None:
        is_known = self.welcome is not None and self.welcome.version >= wire.VACATE_SINCE
        if self._link is not None and is_known and attempts:
            self._link.send(wire.encode_frame(wire.Vacate(tuple(attempts))))

    async def _ask(self, make: Callable[[int], msgspec.Struct]) -> Any:
        if self._closed:
            raise StepRunnerError("the client of the step supervisor is closed")
        if len(self._pending) >= _REQUESTS_MAX:
            raise StepRunnerError(f"{len(self._pending)} requests to the step supervisor are unanswered")
        self._next_request += 1
        number = self._next_request
        try:
            frame = wire.encode_frame(make(number))
        except wire.WireError as error:
            raise StepRunnerError(str(error)) from None
        pending = _Pending(frame, asyncio.get_running_loop().create_future())
        self._pending[number] = pending
        if self._link is not None:
            self._link.send(frame)
        try:
            return await pending.future
        finally:
            self._pending.pop(number, None)

    # --- connection ----------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        backoff_s = _BACKOFF_MIN_S
        while True:
            try:
                await self._serve_one_connection()
                backoff_s = _BACKOFF_MIN_S
            except (OSError, TimeoutError, SupervisorUnavailable) as error:
                self.trouble = str(error) or type(error).__name__
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    async def _serve_one_connection(self) -> None:
        """Connect, greet, repeat what is unanswered, and return when the connection ends."""
        loop = asyncio.get_running_loop()
        connection = await self._connected()
        transport, link = await loop.create_unix_connection(partial(_Link, self._on_answer), sock=connection)
        try:
            link.send(wire.encode_frame(wire.Hello(wire.PROTOCOL_VERSION)))
            async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                self.welcome = await link.welcomed
            self.is_older = self.welcome.version < wire.PARTS_SINCE
            self.trouble = ""
            self._link = link
            self.tell_ring()
            self._tell_vacated(self._vacated)
            for pending in self._pending.values():
                pending.parts.clear()
                link.send(pending.frame)
            await link.lost
        finally:
            self._link = self.welcome = None
            transport.abort()

    async def _connected(self) -> socket.socket:
        connecting = asyncio.get_running_loop().run_in_executor(None, self._connect)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # The thread goes on: its connection has no owner then.
            connecting.add_done_callback(_close_late)
            raise

    def _on_answer(self, answer: wire.Answer) -> None:
        match answer:
            case wire.Ended(outcomes):
                for outcome in outcomes:
                    self._on_ended(outcome)
            case wire.Launched(number, state):
                self._resolve(number, state)
            case wire.Done(number, found):
                self._resolve(number, found)
            case wire.Listing(number, steps, last):
                pending = self._pending.get(number)
                if pending is not None:
                    pending.parts.extend(steps)
                    if last:
                        self._resolve(number, pending.parts)
            case wire.Measured(number, uses):
                self._resolve(number, uses)
            case wire.Refused(number, text, user):
                pending = self._pending.get(number)
                if pending is not None and not pending.future.done():
                    pending.future.set_exception(UserRefused(text) if user else StepRunnerError(text))

    def _resolve(self, number: int, result: object) -> None:
        pending = self._pending.get(number)
        if pending is not None and not pending.future.done():
            pending.future.set_result(result)


def _check(problem: str) -> None:
    """Refuse a request that the supervisor would refuse: an older one may check less."""
    if problem:
        raise StepRunnerError(problem)


def _close_late(connecting: asyncio.Future[socket.socket]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


class _Link(asyncio.Protocol):
    """One connection. Frames of one loop tick are written together."""

    def __init__(self, on_answer: Callable[[wire.Answer], None]) -> None:
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._frames = wire.FrameBuffer()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.welcomed: asyncio.Future[wire.Welcome] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in all but name: isinstance would fail.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)
        if not self.welcomed.done():
            self.welcomed.set_exception(ConnectionResetError("the step supervisor closed the connection"))
            self.welcomed.exception()  # It may have no waiter any more.

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                answer = _decoder.decode(body)
                if isinstance(answer, wire.Welcome) and not self.welcomed.done():
                    self.welcomed.set_result(answer)
                else:
                    self._on_answer(answer)
        except (wire.WireError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if self._transport is not None:
                self._transport.abort()

    def abort(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.abort()

    def send(self, frame: bytes) -> None:
        """Queue a frame for the end of this tick."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None:
            self._transport.write(b"".join(out))
