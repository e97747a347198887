"""The server over real sockets: 64 workers of which some are cut off, and strangers."""

from __future__ import annotations

import contextlib
import pickle
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from eslurm.loops import server as servers
from eslurm.loops import task, words
from eslurm.loops.coordinator import Coordinator
from eslurm.loops.frames import FrameError, Frames
from eslurm.loops.server import Done, Failed, Gone, Joined, Server
from eslurm.loops.techniques import technique_of
from eslurm.loops.worker import serve
from tests.kits.loop_functions import square

COOKIE = bytes(range(32))


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(COOKIE)
    yield found
    found.close()


def test_64_workers_of_which_many_are_cut_off_lose_and_double_nothing(server: Server) -> None:
    """Each worker runs in a thread of its own; its socket is shut down in the middle of things."""
    n, draw = 20_000, random.Random(4)
    loop = Coordinator(technique_of("AWF-C", n, 64), retries=100)
    packed = words.TASK + task.pack(square, (), range(n), False)
    threads: list[threading.Thread] = []
    cut: dict[int, socket.socket] = {}

    def start() -> None:
        ours, theirs = socket.socketpair()

        def work() -> None:
            with theirs, contextlib.suppress(OSError, FrameError):
                serve(theirs, COOKIE, "thread")

        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()
        cut[server.adopt(ours)] = ours

    for _ in range(64):
        start()
    results: dict[int, int] = {}
    left_to_cut = 40
    while not loop.is_done:
        for event in server.poll(1.0):
            match event:
                case Joined(worker, label):
                    assert loop.joined(worker, label)
                    server.send(worker, words.WELCOME)
                    server.send(worker, packed)
                case Done(worker, number, seconds, pickled):
                    positions = loop.finished(worker, number, seconds, 1.0)
                    assert positions is not None
                    for at, value in zip(positions, pickle.loads(pickled), strict=True):
                        assert at not in results
                        results[at] = value
                case Failed(worker, number, text):
                    raise AssertionError(text)
                case Gone(worker):
                    del cut[worker]
                    loop.lost(worker, 1.0)
                    start()
        for grant in loop.grants(0.0):
            server.send(grant.worker, words.write_grant(grant.number, grant.start, grant.stop))
            if left_to_cut and draw.random() < 0.5:
                left_to_cut -= 1
                cut[grant.worker].shutdown(draw.choice([socket.SHUT_RD, socket.SHUT_RDWR]))
    server.close()
    for thread in threads:
        thread.join(10)
    assert results == {at: at * at for at in range(n)}
    assert sum(each.outcome == "lost" for each in loop.record.chunks) > 10


def test_strangers_are_no_workers(server: Server) -> None:
    host, port = server.listen("127.0.0.1")
    with socket.create_connection((host, port)) as one, socket.create_connection((host, port)) as two:
        one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        frames = Frames(bytes(32), is_coordinator=False)
        greeting = b""
        while len(greeting) < 48:
            list(server.poll(0.1))
            two.setblocking(False)
            try:
                greeting += two.recv(100)
            except BlockingIOError:
                continue
        frames.feed(greeting)
        two.sendall(frames.greeting + frames.seal(words.write_join("stranger")))
        one.settimeout(10)
        two.settimeout(10)
        for peer in (one, two):
            while True:
                assert list(server.poll(0.1)) == []
                peer.setblocking(False)
                try:
                    if not peer.recv(100):
                        break
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    break


def test_strangers_that_say_nothing_are_bounded_in_number_and_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "STRANGERS_MAX", 2)
    host, port = server.listen("127.0.0.1")
    peers = [socket.create_connection((host, port)) for _ in range(3)]
    try:
        while len(server._peers) < 2:
            list(server.poll(0.1))
        list(server.poll(0.1))
        assert len(server._peers) == 2
        first = list(server._peers)
        for peer in server._peers.values():
            peer.until = 0.0
        # The third one has waited in the kernel's queue, and its turn comes.
        while not server._peers or first[0] in server._peers:
            assert list(server.poll(0.1)) == []
        assert len(server._peers) == 1
    finally:
        for each in peers:
            each.close()
