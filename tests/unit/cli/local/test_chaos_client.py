"""A daemon's private socket for failures: what is asked again, and what is refused at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from escli.errors import ClusterError
from escli.local import chaos_client
from escli.local.chaos_client import ask_in
from eslurm.faults.chaos_socket import NAME, ChaosReply, ChaosRequest

EARLY = ChaosReply(error="not yet", is_early=True)


@contextmanager
def answering(directory: Path, replies: Sequence[ChaosReply]) -> Iterator[list[ChaosRequest]]:
    """A daemon that gives these answers, one a connection, and the requests it got."""
    asked: list[ChaosRequest] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(directory / NAME))
        listening.listen()

        def serve() -> None:
            for reply in replies:
                connection, _ = listening.accept()
                with connection, connection.makefile("rb") as lines:
                    asked.append(msgspec.json.decode(lines.readline(), type=ChaosRequest))
                    connection.sendall(msgspec.json.encode(reply) + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def test_who_asks_too_early_is_answered_a_moment_later(state_dir: Path) -> None:
    request = ChaosRequest("dead", "cn1")
    with answering(state_dir, [EARLY, EARLY, ChaosReply(changed=1)]) as asked:
        assert ask_in(state_dir, "agent0", request).changed == 1
    assert asked == [request] * 3


def test_what_stays_too_early_is_refused_in_the_end(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_client, "_EARLY_S", 0.0)
    with (
        answering(state_dir, [EARLY]),
        pytest.raises(ClusterError, match="agent0: not yet"),
    ):
        ask_in(state_dir, "agent0", ChaosRequest("dead", "cn1"))


def test_what_is_wrong_is_refused_at_once(state_dir: Path) -> None:
    with (
        answering(state_dir, [ChaosReply(error="node cn9 is not served here")]) as asked,
        pytest.raises(ClusterError, match="cn9 is not served"),
    ):
        ask_in(state_dir, "agent0", ChaosRequest("dead", "cn9"))
    assert len(asked) == 1
