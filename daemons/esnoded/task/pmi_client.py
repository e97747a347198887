"""The side of PMI-2 that asks: a process of a task speaks to the step's command on the socket of the task's library."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from eslurm.compat.pmi2_messages import BadMessage, frame, parse, take_message

_FIRST = b"cmd=init pmi_version=2 pmi_subversion=0\n"
_READ_BYTES = 64 * 1024
_TEXT_BYTES_MAX = 1000
"""Of one attribute: the command keeps no longer ones."""


class PmiClient:
    """One question at a time, each with one answer."""

    def __init__(self, connection: socket.socket) -> None:
        """Say the first line. Raises OSError."""
        self._connection = connection
        self._buffer = bytearray()
        connection.sendall(_FIRST)
        while b"\n" not in self._buffer:
            self._read()
        del self._buffer[: self._buffer.index(b"\n") + 1]

    def fileno(self) -> int:
        """Readable between questions when the command has hung up."""
        return self._connection.fileno()

    def ask(self, cmd: str, **words: bytes) -> dict[bytes, bytes]:
        """The words of the answer. Raises OSError, also for a refusal."""
        self.tell(cmd, **words)
        try:
            while (message := take_message(self._buffer)) is None:
                self._read()
            answer = parse(message)
        except BadMessage as error:
            raise OSError(f"the step's command says {error}") from None
        if answer.get(b"rc") != b"0":
            raise OSError(
                f"the step's command refuses {cmd}: {answer.get(b'errmsg', b'').decode(errors='replace')}"
            )
        return answer

    def tell(self, cmd: str, **words: bytes) -> None:
        """Say what has no answer. Raises OSError."""
        self._connection.sendall(
            frame({b"cmd": cmd.encode()} | {name.encode(): value for name, value in words.items()})
        )

    def _read(self) -> None:
        data = self._connection.recv(_READ_BYTES)
        if not data:
            raise OSError("the step's command has hung up")
        self._buffer += data


def put_text(client: PmiClient, name: str, text: bytes) -> None:
    """Keep a text for the tasks of this node. Raises OSError."""
    parts = [text[at : at + _TEXT_BYTES_MAX] for at in range(0, len(text), _TEXT_BYTES_MAX)]
    # The number of parts comes last: they are all there then.
    for number, part in enumerate(parts):
        client.ask("info-putnodeattr", key=f"{name}-{number}".encode(), value=part)
    client.ask("info-putnodeattr", key=name.encode(), value=b"%d" % len(parts))


def get_text(client: PmiClient, name: str) -> bytes:
    """Wait for a text that another task of this node keeps. Raises OSError, ValueError."""
    count = int(client.ask("info-getnodeattr", key=name.encode(), wait=b"TRUE")[b"value"])
    asked = (client.ask("info-getnodeattr", key=f"{name}-{number}".encode()) for number in range(count))
    return b"".join(one.get(b"value", b"") for one in asked)


def encode_variables(variables: Mapping[str, str]) -> bytes:
    """Variables as a text."""
    return b"\0".join(f"{name}={value}".encode() for name, value in variables.items())


def decode_variables(text: bytes) -> dict[str, str]:
    """The variables of such a text."""
    words = [word.decode("utf-8", "surrogateescape").partition("=") for word in text.split(b"\0") if word]
    return {name: value for name, _, value in words}
