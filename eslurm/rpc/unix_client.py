"""The client of the Unix door for commands: blocking, and quick to import.

Invariant: one call keeps one request id over all its tries, through whichever door, so whatever was lost on the way
takes effect at most once; a call ends by its deadline. No gRPC, protobuf, asyncio or option parser is imported here.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time

from eslurm.ports.door import DoorRefused, DoorUnreachable, Status, status_of
from eslurm.rpc.framing import (
    CONNECTION_STREAM,
    DEADLINE_MS_MAX,
    FLAG_RETRY,
    NO_REQUEST_ID,
    REPLY_HEADER,
    REQUEST_HEADER,
    VERSION,
    checked_request_id,
    retry_s,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # The protobuf runtime takes longer to import than a call takes.
    from eslurm.rpc.methods import Method, ReplyT, RequestT

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0
_REPLY_BYTES_MAX = 1 << 30
_SILENCE_S = 2.0
"""A call that is not answered for so long may only be long; with several doors the daemon is asked whether it lives."""
_PING_S = 1.0
_PING_NUMBER = 1
_ABSENT = (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN)


class _Lost(Exception):
    """This try failed; the next may not."""


class Client:
    """A connection to one of the doors at `paths`, made when first needed and again when lost. Not for several threads.

    Several doors lead to one cluster: when one is absent, refuses, is lost, is not available or has fallen silent, the
    next one is tried. `patience_s`: how long doors that were never reached are tried again (a daemon may be restarting).
    `find_more` is asked for further doors when all of `paths` have failed or one is silent. `on_refused` hears why a
    call is not served yet, each time before it is tried again.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str],
        patience_s: float = 2.0,
        find_more: Callable[[], Sequence[str]] | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        self._doors = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else list(paths)
        self._find_more = find_more
        self._on_refused = on_refused
        self._patience_s = patience_s
        self._at = 0
        self._failed = 0
        self._silent: set[str] = set()
        self._socket: socket.socket | None = None
        self._stream = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The door in use, or to be tried next."""
        return self._doors[self._at]

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(
        self,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        timeout_s: float,
        request_id: bytes | None = None,
    ) -> ReplyT:
        """Make one call and return its reply.

        Tries again with the same `request_id` (made up if none is given) when the connection is lost, the service is
        not available or it says when to come again, until `timeout_s` is over. Raises `DoorRefused` with the service's
        status, or `DoorUnreachable`; its `maybe_done` says whether the call may have taken effect all the same.
        """
        request_id = checked_request_id(request_id, mutating=method.mutating)
        payload = request.SerializeToString()
        began_s = time.monotonic()
        deadline_s = began_s + timeout_s
        sent = False
        lost_one = False
        pauses = 0
        self._failed = 0
        while True:
            refused: DoorRefused | None = None
            lost: _Lost | None = None
            after_s = 0.0
            try:
                self._connect(deadline_s)
                retry, sent = sent, True
                status, body, after_s = self._exchange(method.number, payload, request_id, retry, deadline_s)
            except _Lost as error:
                self.close()
                lost = error
                lost_one = sent
            else:
                if status is Status.OK:
                    return method.reply.FromString(body)
                if status is Status.DEADLINE_EXCEEDED:
                    raise self._unreachable("no answer in time", sent, time.monotonic() - began_s)
                # Not available, and not a word on when to come again: whatever it has done of the call may be done.
                lost_one = lost_one or (status is Status.UNAVAILABLE and not after_s)
                refused = DoorRefused(status, body.decode(errors="replace"), maybe_done=lost_one)
                if status is not Status.UNAVAILABLE and not after_s:
                    raise refused
            now_s = time.monotonic()
            is_away = refused is None or refused.status is Status.UNAVAILABLE
            if is_away and now_s < deadline_s and self._turn_to_next():
                continue
            pauses += 1
            pause_s = after_s or _pause_s(pauses)
            limit_s = deadline_s if sent else min(deadline_s, began_s + self._patience_s)
            if now_s + pause_s >= limit_s:
                if refused is not None:
                    raise refused
                raise self._unreachable(str(lost), sent, now_s - began_s)
            if refused is not None and self._on_refused is not None:
                self._on_refused(refused.text)
            time.sleep(pause_s)

    def _turn_to_next(self) -> bool:
        """Go on to the next door; false when every one has failed since the last pause."""
        self._failed += 1
        if self._failed >= len(self._doors):
            self._look_for_more()
        if len(self._doors) > 1:
            self.close()
            self._at = (self._at + 1) % len(self._doors)
        if self._failed < len(self._doors):
            return True
        self._failed = 0
        return False

    def _look_for_more(self) -> None:
        if self._find_more is not None:
            self._doors += [path for path in self._find_more() if path not in self._doors]

    def _unreachable(self, text: str, sent: bool, waited_s: float) -> DoorUnreachable:
        advice = (
            "the call may have taken effect: look before you repeat it"
            if sent
            else "is the daemon running on this host, and is this its socket?"
        )
        where = ", ".join(self._doors)
        return DoorUnreachable(f"{where}: {text} (tried for {waited_s:.1f} s); {advice}", maybe_done=sent)

    def _connect(self, deadline_s: float) -> None:
        if self._socket is not None:
            return
        # A call would be waited for longer than this short question.
        if self.path in self._silent and _left_s(deadline_s) > _PING_S:
            if not _answers(self.path):
                raise _Lost("it does not answer any more")
            self._silent.discard(self.path)
        try:
            self._socket = _connected(self.path, _left_s(deadline_s))
        except OSError as error:
            if len(self._doors) > 1 or error.errno in _ABSENT or isinstance(error, TimeoutError):
                raise _Lost(error.strerror or "no answer in time") from None
            raise DoorUnreachable(
                f"{self.path}: {error.strerror or error}; may you enter the directory, and is this a socket?"
            ) from None

    def _exchange(
        self, number: int, payload: bytes, request_id: bytes, retry: bool, deadline_s: float
    ) -> tuple[Status, bytes, float]:
        """(status, body, seconds after which the service wants to be asked again, 0 for none)."""
        self._stream = self._stream % 0x7FFF_FFFF + 1
        left_ms = min(DEADLINE_MS_MAX, max(1, int(_left_s(deadline_s) * 1000)))
        flags = FLAG_RETRY if retry else 0
        header = REQUEST_HEADER.pack(len(payload), VERSION, flags, number, self._stream, left_ms, request_id)
        assert self._socket is not None
        self._socket.settimeout(_left_s(deadline_s))
        try:
            self._socket.sendall(header + payload)
        except OSError as error:
            # The door may have said why before it closed.
            said = self._last_words(deadline_s)
            if said is None:
                raise _Lost(error.strerror or "sending took too long") from None
            return said
        self._await_reply(deadline_s)
        length, version, status, after, stream = REPLY_HEADER.unpack(
            self._receive(REPLY_HEADER.size, deadline_s)
        )
        if version != VERSION or stream not in (self._stream, CONNECTION_STREAM) or length > _REPLY_BYTES_MAX:
            raise _Lost("the answer makes no sense to this version of the command")
        body = self._receive(length, deadline_s)
        if stream == CONNECTION_STREAM:
            self.close()
        return status_of(status), body, retry_s(after)

    def _await_reply(self, deadline_s: float) -> None:
        """Wait for the reply to begin, or for the deadline.

        Raises `_Lost` when the daemon has fallen silent and there are other doors: another one may have taken over.
        """
        assert self._socket is not None
        while not _is_readable(self._socket, min(_SILENCE_S, _left_s(deadline_s))):
            if time.monotonic() + _PING_S >= deadline_s:
                return
            self._look_for_more()
            if len(self._doors) > 1 and not _answers(self.path):
                self._silent.add(self.path)
                raise _Lost("it does not answer any more")

    def _last_words(self, deadline_s: float) -> tuple[Status, bytes, float] | None:
        try:
            length, _version, status, _after, _stream = REPLY_HEADER.unpack(
                self._receive(REPLY_HEADER.size, deadline_s)
            )
            body = self._receive(min(length, 65536), deadline_s)
        except _Lost:
            return None
        self.close()
        return status_of(status), body, 0.0

    def _receive(self, size_bytes: int, deadline_s: float) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size_bytes:
            try:
                self._socket.settimeout(_left_s(deadline_s))
                data = self._socket.recv(min(size_bytes - len(parts), 1 << 20))
            except OSError as error:
                raise _Lost(error.strerror or "no answer in time") from None
            if not data:
                raise _Lost("the door closed the connection")
            parts += data
        return bytes(parts)


def _connected(path: str, timeout_s: float) -> socket.socket:
    """A connection to the door. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _is_readable(connection: socket.socket, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def _answers(path: str) -> bool:
    """Whether the daemon behind the door still serves: a paused one takes connections and says nothing."""
    try:
        with _connected(path, _PING_S) as connection:
            header = REQUEST_HEADER.pack(0, VERSION, 0, _PING_NUMBER, 1, int(_PING_S * 1000), NO_REQUEST_ID)
            connection.sendall(header)
            return bool(connection.recv(1 << 16))
    except OSError:
        return False


def _left_s(deadline_s: float) -> float:
    # Zero would mean non-blocking.
    return max(0.001, deadline_s - time.monotonic())


def _pause_s(tries: int) -> float:
    """Doubling, with half of it left to chance so that many commands do not come back together."""
    whole_s: float = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** min(tries - 1, 8))
    return whole_s * (0.5 + os.urandom(1)[0] / 512)
