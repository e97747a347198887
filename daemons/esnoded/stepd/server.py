"""The supervisor's event loop: its socket, its connections, and one pass of the step table after each wake-up.

Single-threaded. Invariant: the loop never waits for a peer; what a peer does not read is bounded, and past the bound
the peer is dropped, since everything it missed is repeated on its next connection.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from eslurm.core.model.step_key import StepKey
from eslurm.core.model.values import signal_problem
from eslurm.ports.step_checks import duration_problem
from eslurm.ports.step_runner import StepOrder, StepOutcome, StepState
from eslurm.telemetry.clocks import boot_us
from esnoded.procd.credential import NotAllowed, UserNotAllowed
from esnoded.procd.log import complain, complain_of, survive
from esnoded.procd.server import watch_signals
from esnoded.stepd import wire
from esnoded.stepd.processes import Processes
from esnoded.stepd.step import Waiter
from esnoded.stepd.table import LaunchRefused, StepTable
from esnoded.stepd.timers import Timers

_READ_BYTES = 256 * 1024
_OUT_BYTES_MAX = 64 * 1024 * 1024
_CONNECTIONS_MAX = 16
_CHUNK = 4096
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_IDLE_EXIT_US = 600_000_000
"""Until root's word on it was read."""
_SLEEP_US_MAX = 5_000_000
"""epoll sleeps on CLOCK_MONOTONIC, which stands still while the node is suspended; deadlines do not."""

_State = TypeVar("_State", bound=StepState)

_decoder = msgspec.msgpack.Decoder(wire.Request)


class Server:
    """Serves one `StepTable` to the agent's connections until it is stopped, or idle for long."""

    def __init__(
        self,
        table: StepTable,
        processes: Processes,
        timers: Timers,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        welcome: wire.Welcome,
    ) -> None:
        self._table = table
        self._processes = processes
        self._timers = timers
        self._selector = selector
        self._listener = listener
        self._welcome = welcome
        self._busy_us = boot_us()
        self._connections: set[_Connection] = set()
        self._limits: dict[StepKey, int] = {}
        """Revisions of the commands that have set time limits."""
        self._idle_exit_us = _IDLE_EXIT_US
        survive("what root says", self._refresh)
        self._wake_fd = watch_signals()
        selector.register(processes, selectors.EVENT_READ, lambda _mask: processes.read())
        selector.register(self._wake_fd, selectors.EVENT_READ, self._on_signal)
        selector.register(listener, selectors.EVENT_READ, self._on_connect)

    def run(self) -> None:
        """Serve until every step is over and a stop was requested, or the process is idle for long."""
        while True:
            for key, mask in self._selector.select(self._timeout_s()):
                survive("a callback", key.data, mask)
            ended = self._table.advance()
            for outcome in ended:
                self._limits.pop(outcome.key, None)
            for connection in tuple(self._connections):
                connection.push(ended)
            if self._table.live or self._connections:
                self._busy_us = boot_us()
            if not self._table.live and (self._table.is_stopping or self._idle_us() > self._idle_exit_us):
                return

    def _idle_us(self) -> int:
        return boot_us() - self._busy_us

    def _timeout_s(self) -> float:
        if self._table.has_work:
            return 0
        due_us = self._timers.next_due_us()
        wait_us = _SLEEP_US_MAX if due_us is None else due_us - boot_us()
        return max(0, min(wait_us, _SLEEP_US_MAX)) / 1e6

    def _on_signal(self, _mask: int) -> None:
        for signum in os.read(self._wake_fd, 4096):
            if signum in _STOP_SIGNALS:
                self._table.stop()

    def _on_connect(self, _mask: int) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError as error:
            complain(f"accept: {error.strerror}")
            return
        if len(self._connections) >= _CONNECTIONS_MAX or _peer_uid(peer) not in (0, os.geteuid()):
            peer.close()
            return
        self._connections.add(_Connection(self, peer, self._selector))

    def forget(self, connection: _Connection) -> None:
        """The connection has closed itself."""
        self._connections.discard(connection)

    def handle(self, connection: _Connection, request: wire.Request) -> None:
        """Answer one request, now or after the pass. An exception refuses this request and no other one."""
        try:
            self._handle(connection, request)
        except Exception as error:
            connection.send(wire.Refused(getattr(request, "request", 0), complain_of("a request", error)))

    def _handle(self, connection: _Connection, request: wire.Request) -> None:
        table = self._table
        match request:
            case wire.Launch(number, order):
                try:
                    self._launch(order, connection.make_waiter(number))
                except UserNotAllowed as error:
                    connection.send(wire.Refused(number, str(error), True))
                except (LaunchRefused, NotAllowed, OSError, ValueError) as error:
                    connection.send(wire.Refused(number, str(error)))
            case wire.Signal(number, key, signum):
                if problem := signal_problem(signum):
                    connection.send(wire.Refused(number, problem))
                else:
                    connection.send(wire.Done(number, table.signal(key, signum)))
            case wire.Terminate(number, key, cause, grace_us):
                if problem := duration_problem("grace_us", grace_us):
                    connection.send(wire.Refused(number, problem))
                else:
                    connection.send(wire.Done(number, table.terminate(key, cause, grace_us)))
            case wire.Suspend(number, key, resume):
                connection.send(wire.Done(number, table.suspend(key, resume=resume)))
            case wire.SetLimit(number):
                try:
                    connection.send(wire.Done(number, self._set_limit(request)))
                except NotAllowed as error:
                    connection.send(wire.Refused(number, str(error)))
            case wire.Trust(number, ring):
                try:
                    self._processes.trust(ring)
                    connection.send(wire.Done(number, True))
                except (NotAllowed, OSError) as error:
                    connection.send(wire.Refused(number, str(error)))
            case wire.ListSteps(number):
                for steps, last in _chunks(table.list_steps()):
                    connection.send(wire.Listing(number, steps, last))
            case wire.Measure(number, attempt, steps, with_pids):
                uses = table.measure(attempt, steps, with_pids=with_pids)
                connection.send(wire.Measured(number, tuple(uses)))
            case wire.Acknowledge(number, keys):
                table.acknowledge(keys)
                connection.send(wire.Done(number, True))
            case wire.Contact(nodes, at_us):
                table.contact(nodes, at_us)
            case wire.Vacate(attempts):
                survive("the end of attempts", self._processes.vacate, attempts)
            case wire.Hello():
                self._refresh()
                connection.send(self._welcome)
                connection.subscribed = True
                connection.tell_ended(table.outcomes())

    def _launch(self, order: StepOrder, waiter: Waiter) -> None:
        if self._table.answer(order.key, waiter):
            return
        self._table.check_admission()
        admitted = self._processes.admit(order)
        if order.contact_us is not None:
            self._table.contact((order.key.node,), order.contact_us)
        try:
            self._table.launch(admitted, waiter)
        except LaunchRefused:
            self._processes.over([order.key])
            raise

    def _refresh(self) -> None:
        """Hear what root says now, and what a supervisor of an earlier version has left behind."""
        refreshed = self._processes.refresh()
        self._idle_exit_us = round(refreshed.options.idle_exit_s * 1e6)
        self._table.absorb(refreshed.left_behind)
        self._processes.settled()

    def _set_limit(self, request: wire.SetLimit) -> bool:
        if problem := duration_problem("time_limit_us", request.time_limit_us):
            raise NotAllowed(problem)
        present_us = self._table.limit_us(request.key)
        if present_us is None:
            return False
        self._check_limit(request, present_us)
        return self._table.set_limit(request.key, request.time_limit_us)

    def _check_limit(self, request: wire.SetLimit, present_us: int) -> None:
        """Raises `NotAllowed` for a time limit that ends later than the present one (0: never) unless it is sealed."""
        asked_us = request.time_limit_us
        if not request.credential:
            if asked_us and (not present_us or asked_us <= present_us):
                return
            raise NotAllowed("a longer time limit needs the controller's sealed command")
        revision, limit_us = self._processes.limit(request.key, request.credential)
        if asked_us != limit_us:
            raise NotAllowed(f"the sealed command sets a time limit of {limit_us // 1_000_000} s")
        if revision < self._limits.get(request.key, 0):
            raise NotAllowed("a later command has set another time limit")
        self._limits[request.key] = revision


class _Connection:
    """One agent. Hears of endings from its `Hello` on."""

    def __init__(self, server: Server, peer: socket.socket, selector: selectors.BaseSelector) -> None:
        self._server = server
        self._socket: socket.socket | None = peer
        self._selector = selector
        self._frames = wire.FrameBuffer()
        self._out = bytearray()
        self._writable_wanted = False
        self.subscribed = False
        peer.setblocking(False)
        selector.register(peer, selectors.EVENT_READ, self._on_ready)

    def make_waiter(self, number: int) -> Callable[[StepState], None]:
        """The callback for the answer to the launch with this request number."""
        return lambda state: self.send(wire.Launched(number, state))

    def push(self, ended: Sequence[StepOutcome]) -> None:
        """Report endings and write what is queued. An exception ends this connection."""
        try:
            self.tell_ended(ended)
            self.flush()
        except Exception as error:
            complain_of("a connection", error)
            self._close()

    def tell_ended(self, outcomes: Sequence[StepOutcome]) -> None:
        """Report endings to a subscriber."""
        if self.subscribed and outcomes:
            for part, _ in _chunks(outcomes):
                self.send(wire.Ended(part))

    def send(self, answer: wire.Answer) -> None:
        """Queue one message; `flush` sends it."""
        if self._socket is not None:
            self._out += wire.encode_frame(answer)

    def flush(self) -> None:
        """Write what the peer takes now, and watch for when it takes more."""
        if self._socket is None or not self._out:
            return
        try:
            sent = self._socket.send(self._out)
            del self._out[:sent]
        except BlockingIOError:
            pass  # Taken up again when the socket is writable.
        except OSError:
            self._close()
            return
        if len(self._out) > _OUT_BYTES_MAX:
            complain("an agent does not read; its connection is closed")
            self._close()
            return
        if bool(self._out) != self._writable_wanted:
            self._writable_wanted = bool(self._out)
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            self._selector.modify(self._socket, mask, self._on_ready)

    def _on_ready(self, mask: int) -> None:
        try:
            self._read(mask)
        except Exception as error:
            complain_of("a connection", error)
            self._close()

    def _read(self, mask: int) -> None:
        if self._socket is None or not mask & selectors.EVENT_READ:
            return  # The flush that ends the pass does the writing.
        try:
            data = self._socket.recv(_READ_BYTES)
            bodies = self._frames.feed(data)
        except BlockingIOError:
            return
        except (OSError, wire.WireError):
            self._close()
            return
        if not data:
            self._close()
            return
        for body in bodies:
            try:
                request = _decoder.decode(body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._refuse_unreadable(body, error)
            else:
                self._server.handle(self, request)

    def _refuse_unreadable(self, body: bytes, error: Exception) -> None:
        """A newer agent's request is refused by its number; the connection stays."""
        complain(f"a request that cannot be read: {error}")
        try:
            _, number = msgspec.msgpack.decode(body)[:2]
            self.send(wire.Refused(int(number), f"unsupported: {error}"))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
            self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
            self._server.forget(self)


def _chunks(steps: Sequence[_State]) -> Iterator[tuple[tuple[_State, ...], bool]]:
    """Parts that fit a frame, each with whether it is the last; an empty sequence has one empty part."""
    for start in range(0, len(steps) or 1, _CHUNK):
        yield tuple(steps[start : start + _CHUNK]), start + _CHUNK >= len(steps)


def _peer_uid(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid
