"""The star of E-33: the root sends to every node itself, `TRIES` tries for each, within the product's cap on sends.

A state machine like the relay. Invariant: at most `max_unacknowledged` sends are out, and each node is answered once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from eslurm.core.relay.messages import (
    DEFAULT_TUNING,
    Ack,
    Action,
    Broadcast,
    BroadcastId,
    Peer,
    Reply,
    SendBroadcast,
)
from eslurm.core.relay.patience import Patience
from eslurm.core.relay.results import Outcome, Status, from_mapping, unreached

TRIES = 3
REFUSED_PAUSE_US = 10_000


class Star:
    """One broadcast at a time. `on_done` gets the answer."""

    def __init__(
        self, on_done: Callable[[Reply], None], cap: int = DEFAULT_TUNING.max_unacknowledged
    ) -> None:
        self._on_done = on_done
        self._cap = cap
        self._patience = Patience(DEFAULT_TUNING.ack_floor_us, DEFAULT_TUNING.ack_ceiling_us)
        self._broadcast: Broadcast | None = None
        self._queue: deque[tuple[int, int]] = deque()
        self._tries: dict[int, int] = {}
        # By the time of the send, oldest first.
        self._sent: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._nodes: Sequence[int] = ()

    def start(self, broadcast: Broadcast, now_us: int) -> list[Action]:
        """Begin; `broadcast.nodes` are all nodes."""
        self._broadcast = broadcast
        self._nodes = broadcast.nodes
        self._queue = deque((node, now_us) for node in broadcast.nodes)
        self._tries = dict.fromkeys(broadcast.nodes, 0)
        self._sent, self._acked, self._outcomes = {}, {}, {}
        return self._pump(now_us)

    def on_ack(self, peer: Peer, ack: Ack, now_us: int) -> list[Action]:
        """A node has it, or refuses it."""
        if ack.refused:
            return self.on_refused(ack.broadcast_id, ack.heads, ack.refused, now_us)
        if self._is_current(ack.broadcast_id):
            for node in ack.heads:
                self._heard(node, now_us)
        return self._pump(now_us)

    def on_reply(self, peer: Peer, reply: Reply, now_us: int) -> list[Action]:
        """Nodes have answered."""
        if self._is_current(reply.broadcast_id):
            for node, outcome in reply.results.expand().items():
                self._heard(node, now_us)
                if outcome.status is not Status.UNREACHED:
                    self._acked.pop(node, None)
                    self._outcomes[node] = outcome
        return self._pump(now_us)

    def on_refused(
        self, broadcast_id: BroadcastId, heads: Iterable[int], why: str, now_us: int
    ) -> list[Action]:
        """Nothing listens there at present."""
        if self._is_current(broadcast_id):
            for node in heads:
                if self._sent.pop(node, None) is not None:
                    self._again(node, why, now_us + REFUSED_PAUSE_US)
        return self._pump(now_us)

    def on_link_down(self, peer: Peer, now_us: int) -> list[Action]:
        """Its nodes fall silent."""
        return []

    def on_timer(self, now_us: int) -> list[Action]:
        """Ask nodes again that did not acknowledge in time."""
        due_us = self.next_timer_us()
        self._patience.note_lag(max(0, now_us - due_us) if due_us is not None else 0)
        before_us = now_us - self._patience.timeout_us()
        for node in [node for node, sent_us in self._sent.items() if sent_us <= before_us]:
            del self._sent[node]
            self._again(node, "no acknowledgement", now_us)
        quiet_us = now_us - DEFAULT_TUNING.progress_timeout_us
        for node in [node for node, acked_us in self._acked.items() if acked_us <= quiet_us]:
            del self._acked[node]
            self._again(node, "no answer", now_us)
        return self._pump(now_us)

    def next_timer_us(self) -> int | None:
        """Time at which `on_timer` is due."""
        due = []
        if self._sent:
            due.append(next(iter(self._sent.values())) + self._patience.timeout_us())
        if self._acked:
            due.append(next(iter(self._acked.values())) + DEFAULT_TUNING.progress_timeout_us)
        if self._queue and len(self._sent) < self._cap:
            due.append(self._queue[0][1])
        return min(due, default=None)

    def _is_current(self, broadcast_id: BroadcastId) -> bool:
        return self._broadcast is not None and self._broadcast.broadcast_id == broadcast_id

    def _heard(self, node: int, now_us: int) -> None:
        sent_us = self._sent.pop(node, None)
        if sent_us is not None:
            self._patience.note_ack(now_us - sent_us, now_us)
            self._acked[node] = now_us

    def _again(self, node: int, why: str, at_us: int) -> None:
        if self._tries[node] < TRIES:
            self._queue.append((node, at_us))
        else:
            self._outcomes.setdefault(node, unreached(why))

    def _pump(self, now_us: int) -> list[Action]:
        actions: list[Action] = []
        origin = self._broadcast
        if origin is None:
            return actions
        while self._queue and len(self._sent) < self._cap and self._queue[0][1] <= now_us:
            node, _ = self._queue.popleft()
            if node in self._outcomes:
                continue
            self._tries[node] += 1
            self._sent[node] = now_us
            one = Broadcast(
                origin.broadcast_id, (node,), 1, origin.deadline_us, origin.kind, origin.command, 1
            )
            actions.append(SendBroadcast(node, one))
        if len(self._outcomes) == len(self._nodes):
            self._broadcast = None
            self._on_done(Reply(origin.broadcast_id, (), from_mapping(self._outcomes), True))
        return actions
