"""A broadcast of the controller from its start to its answer, and its observers.

Owns the broadcaster's record of a broadcast under way, and the event for observers (predictors, scores, automatic width,
traces) at its end. Observers know `Answered`; the broadcaster knows none of them.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.dispatch.heartbeats import Call
from eslurm.core.relay.messages import Broadcast
from eslurm.core.relay.results import Results, Status
from eslurm.core.relay.trace import Trace

TRACES_MAX = 32
SPANS_KEPT_MAX = 8_192
"""Of all kept traces together; those of very many nodes push out more of the older ones."""
TRACED_HEARTBEATS = 12
"""One in so many heartbeats is traced."""
TRACED_EFFECTS_US = 1_000_000
"""Of effects' broadcasts at most one per this time is traced."""


class Answered(msgspec.Struct, frozen=True):
    """The outcome of one broadcast.

    `nodes` lie in the order that the roots got them, `shares` are the sizes of the consecutive shares that were arranged
    apart from each other: one per satellite, or one in all when the controller sent it itself. `suspects` did not serve
    their list when the controller watched them itself; those below satellites are in the `trace`. `took_us` is the
    broadcast's own time, without the `waited_us` before a satellite was free.
    """

    broadcast_id: int
    kind: str
    started_us: int
    waited_us: int
    took_us: int
    nodes: tuple[int, ...]
    shares: tuple[int, ...]
    predicted: frozenset[int]
    results: Results
    suspects: tuple[int, ...]
    width: int
    root_width: int
    grouping: str
    satellites: tuple[int, ...] = ()
    reallocations: int = 0
    takeovers: int = 0
    trace: Trace | None = None

    @property
    def is_exact(self) -> bool:
        """Check whether the tree alone decided its time, without time-outs of dead nodes."""
        trouble = len(self.suspects) + self.reallocations + self.takeovers
        return not trouble and not self.results.count(Status.UNREACHED)


class Observer(Protocol):
    """Gets every broadcast's outcome, heartbeats included. Must be quick, and must not raise."""

    def on_answered(self, answered: Answered) -> None:
        """A broadcast's outcome is known."""
        ...


class Counters:
    """Counts of broadcast events since this controller began to lead, for metrics."""

    __slots__ = ("broadcasts", "direct", "reallocations", "takeovers", "too_large", "waited", "waiting_full")

    def __init__(self) -> None:
        self.broadcasts = 0
        self.direct = 0
        """Small enough to need no satellite."""
        self.reallocations = 0
        """Shares given to another satellite (E-15)."""
        self.takeovers = 0
        """Shares and whole broadcasts that the controller sent itself for want of a satellite (E-16)."""
        self.waited = 0
        """Broadcasts that had to wait for a satellite."""
        self.too_large = 0
        """Commands that no link takes: answered as failed, without a broadcast."""
        self.waiting_full = 0
        """Those that could not, because too many did."""


class Flight:
    """One broadcast under way. `send` or `call` says what its answer means; that of a question has neither.

    `round` is a heartbeat's (else 0), which was dated by so much ahead.
    """

    __slots__ = (
        "ahead_us",
        "call",
        "message",
        "predicted",
        "queued_us",
        "reallocations",
        "round",
        "satellites",
        "send",
        "shares",
        "started_us",
        "suspects",
        "takeovers",
    )

    def __init__(
        self,
        message: Broadcast,
        predicted: frozenset[int],
        send: Send | None,
        call: Call | None,
        now_us: int,
    ) -> None:
        self.message = message
        self.predicted = predicted
        self.send = send
        self.call = call
        self.queued_us = now_us
        self.started_us = now_us
        self.shares: tuple[int, ...] = (len(message.nodes),)
        self.satellites: dict[int, None] = {}
        self.suspects: dict[int, None] = {}
        self.reallocations = 0
        self.takeovers = 0
        self.round = 0
        self.ahead_us = 0

    def answered(self, results: Results, trace: Trace | None, now_us: int) -> Answered:
        """The flight's end, for observers."""
        message = self.message
        assert isinstance(message.broadcast_id, int)
        return Answered(
            message.broadcast_id,
            message.kind,
            self.started_us,
            self.started_us - self.queued_us,
            now_us - self.started_us,
            message.nodes,
            self.shares,
            self.predicted,
            results,
            tuple(self.suspects),
            message.width,
            message.root_width,
            message.grouping,
            tuple(self.satellites),
            self.reallocations,
            self.takeovers,
            trace,
        )


class TraceLog:
    """Choice of broadcasts to trace, and the latest traces."""

    def __init__(self) -> None:
        self._heartbeats = 0
        self._effect_us = -TRACED_EFFECTS_US
        self._kept: deque[Answered] = deque(maxlen=TRACES_MAX)

    def wants(self, kind: str, now_us: int) -> bool:
        """Check whether a broadcast that begins now is to be traced."""
        if kind == "heartbeat":
            self._heartbeats += 1
            return self._heartbeats % TRACED_HEARTBEATS == 1
        if now_us - self._effect_us < TRACED_EFFECTS_US:
            return False
        self._effect_us = now_us
        return True

    def on_answered(self, answered: Answered) -> None:
        """See `Observer`."""
        if answered.trace is None:
            return
        self._kept.append(answered)
        spans = sum(len(one.trace.spans) for one in self._kept if one.trace is not None)
        while spans > SPANS_KEPT_MAX and len(self._kept) > 1:
            oldest = self._kept.popleft()
            assert oldest.trace is not None
            spans -= len(oldest.trace.spans)

    def traces(self) -> tuple[Answered, ...]:
        """The kept traces, newest first."""
        return tuple(reversed(self._kept))
