"""Ports that tests are given: free, and no other test's, in this process and in others that run tests beside it."""

from __future__ import annotations

import fcntl
import multiprocessing
import secrets
import socket
from multiprocessing.connection import Connection

import pytest

from tests.support import ports


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> range:
    """Three ports and no more, so that a draw meets what is taken; below all others, where only these tests draw."""
    lowest = 0
    while not lowest or not all(
        ports._is_free(port) and _is_unclaimed(port) for port in range(lowest, lowest + 3)
    ):
        lowest = ports._LOWEST - 3 - secrets.randbelow(900)
    monkeypatch.setattr(ports, "_LOWEST", lowest)
    monkeypatch.setattr(ports, "_COUNT", 3)
    return range(lowest, lowest + 3)


def _is_unclaimed(port: int) -> bool:
    """Check whether neither an earlier test of this process nor another process keeps the port."""
    if port in ports._given:
        return False
    try:
        fcntl.lockf(ports._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    fcntl.lockf(ports._claims, fcntl.LOCK_UN, 1, port)
    return True


def _draw(lowest: int, there: Connection) -> None:
    """Another process that runs tests: takes one and keeps it until it is told to end."""
    ports._LOWEST, ports._COUNT = lowest, 3
    ports._given.clear()
    there.send(ports.free_port())
    there.recv()


def test_none_is_given_twice_here_or_elsewhere(few: range) -> None:
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("fork").Process(target=_draw, args=(few[0], there))
    mine = ports.free_port()
    other.start()
    theirs = here.recv()
    last = ports.free_port()
    assert sorted([mine, theirs, last]) == list(few)
    here.send("end")
    other.join()
    other.close()
    here.close()
    there.close()


def test_where_somebody_listens_is_not_given(few: range) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", few[0]))
        taken.listen()
        assert sorted(ports.free_port() for _ in range(2)) == list(few[1:])


def test_neighbours_are_given_together() -> None:
    first = ports.free_run(5)
    assert all(ports.free_port() not in range(first, first + 5) for _ in range(20))
