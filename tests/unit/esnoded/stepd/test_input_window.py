"""What is held of a step's input: against a model that keeps everything."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from esnoded.stepd.input_window import InputWindow, TooMuch

WINDOW = 16
READERS = (0, 1, 2)


class Windows(RuleBasedStateMachine):
    """The naive model: all that was sent, and for each task the number of bytes that it has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.window = InputWindow(READERS, WINDOW)
        self.sent = b""
        self.taken = dict.fromkeys(READERS, 0)
        self.granted = WINDOW

    @rule(size=st.integers(0, 2 * WINDOW))
    def add(self, size: int) -> None:
        data = bytes((len(self.sent) + at) % 251 for at in range(size))
        if len(self.sent) + size > self.granted:
            with pytest.raises(TooMuch):
                self.window.add(data)
            return
        self.window.add(data)
        self.sent += data

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(sorted(self.taken)))
        there = len(self.sent) - self.taken[reader]
        assert self.window.has_rest(reader) == (there > 0)
        count = data.draw(st.integers(0, there))
        self.window.took(reader, count)
        self.taken[reader] += count

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(sorted(self.taken)))
        self.window.leave(reader)
        del self.taken[reader]

    @rule()
    def grant(self) -> None:
        granted = self.window.grant()
        if granted:
            assert granted > self.granted
            self.granted = granted

    @rule()
    def all_that_read_everything_get_more(self) -> None:
        """A sender that has used up its grant, and whose bytes are all taken, is never left waiting."""
        for reader in self.taken:
            self.window.took(reader, len(self.sent) - self.taken[reader])
            self.taken[reader] = len(self.sent)
        self.granted = self.window.grant() or self.granted
        assert self.granted > len(self.sent)

    @invariant()
    def each_task_reads_the_same(self) -> None:
        assert self.window.readers == self.taken.keys()
        for reader, count in self.taken.items():
            with self.window.rest(reader) as rest:
                assert bytes(rest) == self.sent[count:]

    @invariant()
    def little_is_held(self) -> None:
        assert len(self.window._held) <= WINDOW + WINDOW // 4
        least = min(self.taken.values(), default=len(self.sent))
        assert self.granted <= least + WINDOW


TestWindows = Windows.TestCase


def test_nothing_follows_the_end() -> None:
    window = InputWindow(READERS, WINDOW)
    window.add(b"abc")
    window.is_ended = True
    window.add(b"")
    with pytest.raises(TooMuch, match="after its end"):
        window.add(b"d")
    assert window.grant() == 0


def test_a_task_that_reads_nothing_holds_the_sender_up_until_it_leaves() -> None:
    window = InputWindow(READERS, WINDOW)
    window.add(bytes(WINDOW))
    window.took(0, WINDOW)
    window.took(1, WINDOW)
    assert window.grant() == 0
    window.leave(2)
    assert window.grant() == 2 * WINDOW
