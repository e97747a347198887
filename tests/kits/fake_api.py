"""A Unix door with scripted answers, for commands under test. It speaks the real frames and keeps what it was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eslurm.api.methods import BY_NUMBER
from eslurm.ports.api import Status
from eslurm.transport.framing import REPLY_HEADER, REQUEST_HEADER, VERSION


class Refuse(Exception):
    """Raised by an answer: the call is refused with this status and text."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


Answer = Callable[[Any], Any]


class FakeApi:
    """Answers by method name with `answers[name](request)`; use as a context manager."""

    def __init__(self, path: Path, **answers: Answer) -> None:
        self.path = str(path)
        self.answers = answers
        self.requests: list[tuple[str, Any]] = []
        self.request_ids: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._serve, name="door")]

    def __enter__(self) -> FakeApi:
        self._threads[0].start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def asked(self, method: str) -> list[Any]:
        """The requests of one method, in order."""
        return [request for name, request in self.requests if name == method]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._converse, args=(connection,), name="caller")
            self._threads.append(thread)
            thread.start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            while header := reader.read(REQUEST_HEADER.size):
                length, _version, _flags, number, stream, _deadline_ms, request_id = REQUEST_HEADER.unpack(
                    header
                )
                method = BY_NUMBER[number]
                request = method.request.FromString(reader.read(length))
                self.requests.append((method.name, request))
                self.request_ids.append(request_id)
                try:
                    status, body = Status.OK, self.answers[method.name](request).SerializeToString()
                except Refuse as refusal:
                    status, body = refusal.status, refusal.text.encode()
                try:
                    connection.sendall(REPLY_HEADER.pack(len(body), VERSION, status, 0, stream) + body)
                except BrokenPipeError:
                    return


def unanswered(_request: Any) -> Any:
    """An answer for calls that must not come."""
    raise AssertionError("this call was not expected")
