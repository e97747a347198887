"""Frames: what two sides with one cookie tell each other, and what a peer without it cannot."""

from __future__ import annotations

import os
import pickle
import struct

import pytest

from eslurm.loops import words
from eslurm.loops.frames import FRAME_BYTES_MAX, UNPROVEN_BYTES_MAX, FrameError, Frames

COOKIE = bytes(range(32))


def pair(theirs: bytes = COOKIE) -> tuple[Frames, Frames]:
    coordinator, worker = Frames(COOKIE, is_coordinator=True), Frames(theirs, is_coordinator=False)
    assert coordinator.feed(worker.greeting) == []
    assert worker.feed(coordinator.greeting) == []
    return coordinator, worker


def test_payloads_pass_whole_however_they_are_cut() -> None:
    coordinator, worker = pair()
    sent = [b"", b"one", os.urandom(3000)]
    data = b"".join(worker.seal(each) for each in sent)
    found = [payload for at in range(len(data)) for payload in coordinator.feed(data[at : at + 1])]
    assert found == sent
    assert coordinator.is_proven
    assert worker.feed(coordinator.seal(b"back")) == [b"back"]


def test_a_peer_without_the_cookie_is_refused_before_its_payload_is_read() -> None:
    coordinator, worker = pair(theirs=bytes(32))
    with pytest.raises(FrameError, match="not of a peer that knows"):
        coordinator.feed(worker.seal(pickle.dumps(print)))


def test_a_frame_passes_once_and_in_one_direction() -> None:
    coordinator, worker = pair()
    frame = worker.seal(b"word")
    assert coordinator.feed(frame) == [b"word"]
    with pytest.raises(FrameError):
        coordinator.feed(frame)
    coordinator, worker = pair()
    with pytest.raises(FrameError):
        worker.feed(worker.seal(b"back at its sender"))
    recorded = Frames(COOKIE, is_coordinator=False)
    coordinator = Frames(COOKIE, is_coordinator=True)
    recorded.feed(coordinator.greeting)
    said = recorded.greeting + recorded.seal(b"word")
    with pytest.raises(FrameError):  # another connection has another nonce
        Frames(COOKIE, is_coordinator=True).feed(said)


def test_each_changed_bit_is_noticed() -> None:
    for bit in range(0, (4 + 32 + 4) * 8, 7):
        coordinator, worker = pair()
        frame = bytearray(worker.seal(b"word"))
        frame[bit // 8] ^= 1 << bit % 8
        try:
            assert coordinator.feed(bytes(frame)) == []  # a longer one is waited for
        except FrameError:
            continue
        assert bit < 32


def test_a_stranger_cannot_make_this_side_hold_much() -> None:
    coordinator, _ = pair()
    with pytest.raises(FrameError, match="announced"):
        coordinator.feed(struct.pack("!I", UNPROVEN_BYTES_MAX + 1))
    with pytest.raises(FrameError, match="does not speak"):
        Frames(COOKIE, is_coordinator=True).feed(b"GET / HTTP/1.1\r\n")
    coordinator, worker = pair()
    coordinator.feed(worker.seal(b"proof"))
    assert coordinator.feed(struct.pack("!I", FRAME_BYTES_MAX)) == []
    coordinator, worker = pair()
    coordinator.feed(worker.seal(b"proof"))
    with pytest.raises(FrameError, match="announced"):
        coordinator.feed(struct.pack("!I", FRAME_BYTES_MAX + 1))


def test_a_cookie_has_its_length() -> None:
    with pytest.raises(FrameError, match="32 bytes, not 3"):
        Frames(b"abc", is_coordinator=True)


def test_words_come_back() -> None:
    assert words.read_grant(words.write_grant(3, 4, 1 << 40)[1:]) == (3, 4, 1 << 40)
    number, seconds, pickled = words.read_done(words.write_done(7, 0.5, b"rest")[1:])
    assert (number, seconds, bytes(pickled)) == (7, 0.5, b"rest")
    assert words.read_failed(words.write_failed(7, "x" * 20_000 + "\x1b[2Jé")[1:]) == (
        7,
        ("x" * 20_000 + " [2Jé")[-8000:],
    )
    assert words.text_of(words.write_join("n" * 500)[1:], 200) == "n" * 200


@pytest.mark.parametrize("read", [words.read_grant, words.read_done, words.read_failed])
def test_short_words_are_refused(read: object) -> None:
    assert callable(read)
    with pytest.raises(words.WordError):
        read(b"123")
