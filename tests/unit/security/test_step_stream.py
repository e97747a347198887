"""A step's stream: what is not under its cookie, or not where it was, opens nothing; what is held is bounded."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.security.step_stream import (
    FIRST_BYTES_MAX,
    FRAME_BYTES_MAX,
    BadStream,
    StreamOpener,
    StreamSealer,
)

COOKIE = os.urandom(32)
BODIES = [b"hello", b"", b"x" * 70_000]


def stream(cookie: bytes = COOKIE) -> tuple[bytes, list[bytes]]:
    """The opening, and the frames of `BODIES`."""
    sealer = StreamSealer(cookie)
    return sealer.opening, [sealer.seal(body) for body in BODIES]


@given(st.integers(1, 70_000))
def test_what_is_sealed_opens_however_it_is_cut(size: int) -> None:
    opening, frames = stream()
    data = opening + b"".join(frames)
    opener, found = StreamOpener(COOKIE), list[bytes]()
    for start in range(0, len(data), size):
        found += opener.feed(data[start : start + size])
    assert found == BODIES


def test_the_text_is_not_on_the_wire_and_no_two_streams_are_alike() -> None:
    (first, frames), (second, others) = stream(), stream()
    assert first != second and frames != others
    assert b"hello" not in b"".join(frames) and COOKIE not in first + b"".join(frames)


def test_another_cookie_opens_nothing() -> None:
    opening, frames = stream(os.urandom(32))
    opener = StreamOpener(COOKIE)
    assert opener.feed(opening) == []
    with pytest.raises(BadStream, match="cookie"):
        opener.feed(frames[0])
    assert not opener.is_proven


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 2), (0, 1, 1), (0, 1, 0)], ids=str)
def test_frames_left_out_repeated_or_moved_are_noticed(order: tuple[int, ...]) -> None:
    opening, frames = stream()
    with pytest.raises(BadStream):
        StreamOpener(COOKIE).feed(opening + b"".join(frames[at] for at in order))


def test_frames_of_another_connection_are_noticed() -> None:
    (opening, _), (_, others) = stream(), stream()
    with pytest.raises(BadStream):
        StreamOpener(COOKIE).feed(opening + others[0])


@given(st.data())
def test_a_changed_bit_is_noticed(data: st.DataObject) -> None:
    opening, frames = stream()
    whole = bytearray(opening + b"".join(frames[:2]))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    opener = StreamOpener(COOKIE)
    try:
        assert opener.feed(bytes(whole)) in ([], [b"hello"])
        assert len(opener._buffer) <= len(whole)
    except BadStream:
        return


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", FIRST_BYTES_MAX + 1),
        b"\xff" * 8,
        struct.pack(">I", 3) + b"abc",
        struct.pack(">I", 46) + b"eslurm-step-9\0" + bytes(32),
        stream()[0] + struct.pack(">I", FIRST_BYTES_MAX + 1),
        stream()[0] + struct.pack(">I", 0),
        stream()[0] + struct.pack(">I", 16) + bytes(16),
    ],
)
def test_strangers_are_cut_off_at_once(data: bytes) -> None:
    with pytest.raises(BadStream):
        StreamOpener(COOKIE).feed(data)


def test_frames_are_bounded_once_proven_too() -> None:
    opening, frames = stream()
    opener = StreamOpener(COOKIE)
    opener.feed(opening + frames[0])
    with pytest.raises(BadStream):
        opener.feed(struct.pack(">I", FRAME_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="exceeds"):
        StreamSealer(COOKIE).seal(bytes(FRAME_BYTES_MAX))


@pytest.mark.parametrize("size", [0, 5, 31, 33])
def test_a_cookie_has_the_length_of_a_key(size: int) -> None:
    with pytest.raises(ValueError, match="32"):
        StreamSealer(bytes(size))


# --- the way back ----------------------------------------------------------------------------------------


def both_ends() -> tuple[StreamSealer, StreamOpener]:
    """The end that has connected, and the one that has opened its first frame."""
    sealer, opener = StreamSealer(COOKIE), StreamOpener(COOKIE)
    assert opener.feed(sealer.opening + sealer.seal(b"hello")) == [b"hello"]
    return sealer, opener


@given(st.integers(1, 70_000))
def test_what_goes_back_opens_however_it_is_cut(size: int) -> None:
    sealer, opener = both_ends()
    there = opener.back()
    data = b"".join(there.seal(body) for body in BODIES)
    here, found = sealer.back(), list[bytes]()
    for start in range(0, len(data), size):
        found += here.feed(data[start : start + size])
    assert found == BODIES


def test_no_frame_of_one_way_opens_on_the_other() -> None:
    """What a listener gets cannot be thrown back at the supervisor as input of its tasks, nor the other way round."""
    sealer, opener = both_ends()
    frame = sealer.seal(b"rm -rf")
    with pytest.raises(BadStream, match="cookie"):
        sealer.back().feed(frame)
    sealer, opener = both_ends()
    with pytest.raises(BadStream):
        opener.feed(opener.back().seal(b"output"))


def test_a_listener_without_the_cookie_sends_nothing_that_opens() -> None:
    sealer, _ = both_ends()
    foreign = StreamOpener(os.urandom(32))
    foreign.feed(sealer.opening)
    with pytest.raises(BadStream, match="cookie"):
        sealer.back().feed(foreign.back().seal(b""))


@pytest.mark.parametrize(
    "data", [struct.pack(">I", FIRST_BYTES_MAX + 1), struct.pack(">I", 0), b"\xff" * 4, bytes(64)], ids=repr
)
def test_the_way_back_is_bounded_before_it_is_proven(data: bytes) -> None:
    sealer, _ = both_ends()
    with pytest.raises(BadStream):
        sealer.back().feed(data)


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 2), (0, 1, 0)], ids=str)
def test_frames_that_come_back_out_of_order_are_noticed(order: tuple[int, ...]) -> None:
    sealer, opener = both_ends()
    there = opener.back()
    frames = [there.seal(body) for body in BODIES]
    with pytest.raises(BadStream):
        sealer.back().feed(b"".join(frames[at] for at in order))
