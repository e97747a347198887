"""Frames of a step's stream over connections that are cut anywhere: the receiver takes each once and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.security.step_frames import COST_BYTES, BadPosition, KeptFrames

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.binary(max_size=9)),
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("arrive"), st.integers(1, 5)),
        st.tuples(st.just("acknowledge"), st.integers(0, 3)),
        st.tuples(st.just("cut"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(STEPS)
def test_what_is_received_is_what_was_sent_wherever_the_connection_is_cut(
    steps: list[tuple[str, bytes | int]],
) -> None:
    """The model: frames on the wire are lost by a cut, but for some that arrive late, on the old connection."""
    kept, written, received = KeptFrames(), list[bytes](), list[bytes]()
    wire: list[bytes] = []
    position = acknowledged = 0
    """Of the next frame on the wire; of those that the sender knows to have arrived."""

    def arrive(count: int) -> None:
        nonlocal position
        for _ in range(min(count, len(wire))):
            body = wire.pop(0)
            position += 1
            if position > len(received):
                received.append(body)

    for what, value in steps:
        if isinstance(value, bytes):
            kept.add(value)
            written.append(value)
        elif what == "send":
            wire += [body for _ in range(value) if (body := kept.take()) is not None]
        elif what == "arrive":
            arrive(value)
        elif what == "acknowledge":
            # As `StepNode.shown`: after a frame of this connection, so nothing that it has not brought.
            acknowledged = max(acknowledged, min(position, len(received)) - value)
            kept.acknowledge(acknowledged)
        else:
            # The receiver says where it is, and then hears some more of the former connection.
            told = len(received)
            arrive(value)
            wire.clear()
            position = acknowledged = told
            kept.rewind(told)
        assert received == written[: len(received)]
        assert kept.held_bytes == sum(len(body) + COST_BYTES for body in written[acknowledged:])
    while (body := kept.take()) is not None:
        wire.append(body)
    arrive(len(wire))
    assert received == written and kept.unsent_bytes == 0
    kept.acknowledge(len(written))
    assert kept.held_bytes == 0


def test_positions_that_cannot_be_are_refused() -> None:
    kept = KeptFrames()
    for body in (b"a", b"b", b"c"):
        kept.add(body)
    assert kept.take() == b"a" and kept.take() == b"b"
    kept.acknowledge(1)
    for position in (0, 3, -1):
        with pytest.raises(BadPosition):
            kept.acknowledge(position)
        with pytest.raises(BadPosition):
            kept.rewind(position)
    assert kept.take() == b"c"
    # The peer has told that it is at 1, and then taken all of the former connection.
    kept.rewind(1)
    kept.rewind(3)
    assert kept.take() is None and kept.held_bytes == 0


def test_without_acknowledgements_nothing_that_was_sent_is_kept() -> None:
    kept = KeptFrames()
    for body in (b"a", b"b", b"c"):
        kept.add(body)
    kept.take()
    kept.keep_none()
    assert kept.held_bytes == kept.unsent_bytes == 2 * (1 + COST_BYTES)
    assert (kept.take(), kept.take(), kept.take()) == (b"b", b"c", None)
    assert kept.held_bytes == 0
