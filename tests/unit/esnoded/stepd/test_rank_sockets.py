"""Sockets of MPI libraries: nothing blocks, nothing is held without bound, and last words come before the end."""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Iterator

import pytest

from esnoded.stepd.rank_sockets import RankSockets

FDS_MAX = 1 << 20


class Side:
    """The supervisor's side, and what it has heard of the tasks."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.heard: list[tuple[int, bytes]] = []
        self.ranks = RankSockets(self.selector, lambda call: call, lambda *said: self.heard.append(said))

    def open(self, local: int) -> socket.socket:
        opened = socket.socket(fileno=self.ranks.open(local, FDS_MAX))
        opened.settimeout(5)
        return opened

    def turn(self) -> None:
        for key, mask in self.selector.select(0):
            key.data(mask)

    @property
    def watched(self) -> int:
        return len(self.selector.get_map())


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side()
    yield made
    made.ranks.close()
    assert made.watched == 0
    made.selector.close()


def test_words_go_both_ways(side: Side) -> None:
    with side.open(0) as first, side.open(1) as second:
        first.send(b"one")
        second.send(b"two")
        side.turn()
        assert sorted(side.heard) == [(0, b"one"), (1, b"two")]
        side.ranks.give(1, b"answer")
        assert second.recv(100) == b"answer"
        # Of a task that is not here.
        side.ranks.give(7, b"answer")


def test_the_last_words_of_a_task_come_before_its_end(side: Side) -> None:
    with side.open(0) as own:
        own.send(b"abort")
        side.ranks.end(0)
        assert side.heard == [(0, b"abort")]
    side.ranks.end(0)
    assert side.watched == 0


def test_a_server_that_a_task_has_started_speaks_on_after_its_end(side: Side) -> None:
    own = side.open(0)
    with socket.socket(fileno=os.dup(own.fileno())) as server:
        own.close()
        side.ranks.end(0)
        server.send(b"still here")
        side.turn()
        assert side.heard == [(0, b"still here")]


def test_a_task_that_reads_nothing_loses_its_socket_and_no_other(side: Side) -> None:
    with side.open(0) as deaf, side.open(1) as other:
        while side.watched == 2:
            side.ranks.give(0, bytes(100_000))
        side.ranks.give(0, b"more")
        side.ranks.give(1, b"answer")
        assert other.recv(100) == b"answer"
        while deaf.recv(1 << 20):
            pass


def test_what_a_task_does_not_take_at_once_comes_later(side: Side) -> None:
    with side.open(0) as slow:
        slow.setblocking(False)
        side.ranks.give(0, bytes(900_000))
        got = 0
        while got < 900_000:
            got += len(slow.recv(1 << 20))
            side.turn()
        assert got == 900_000


def test_no_task_is_read_while_the_connection_takes_nothing(side: Side) -> None:
    with side.open(0) as own:
        own.send(b"one")
        side.ranks.pause()
        side.turn()
        assert side.heard == [] and side.watched == 0
        side.ranks.give(0, b"answer")
        assert own.recv(100) == b"answer"
        side.ranks.resume()
        side.turn()
        assert side.heard == [(0, b"one")]


def test_a_task_that_closes_its_socket_is_forgotten(side: Side) -> None:
    side.open(0).close()
    side.turn()
    assert side.watched == 0
    side.ranks.give(0, b"answer")


def test_the_supervisor_keeps_descriptors_for_itself(side: Side) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        side.ranks.open(0, 3)
