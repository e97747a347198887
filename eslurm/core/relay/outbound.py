"""The way out of a relay: paced sends and the watch over their acknowledgements.

Owns the queues and the count of unacknowledged sends. Invariant: at most `max_unacknowledged` sends
of this process are in state SENT, whatever the number of broadcasts; ordinary sends go before
re-checks of suspects, so a mass failure cannot hold up the healthy part of a tree.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

import msgspec

from eslurm.core.relay.messages import Broadcast, Peer, SendBroadcast, Tuning
from eslurm.core.relay.patience import Patience
from eslurm.core.relay.record import Send, SendState


class Outbound:
    """Queue, pace and watch the sends of one process."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._queue: deque[Send] = deque()
        self._rechecks: deque[Send] = deque()
        self._postponed: list[tuple[int, int, Send]] = []
        self._sequence = 0
        self._unacked: deque[Send] = deque()
        self.patience = Patience(tuning.ack_floor_us, tuning.ack_ceiling_us)
        self.in_flight = 0

    @property
    def queued(self) -> int:
        """Sends that wait for their turn."""
        return len(self._queue) + len(self._rechecks) + len(self._postponed)

    def submit(self, send: Send) -> None:
        """Queue a send; `pump` sends it."""
        (self._rechecks if send.recheck else self._queue).append(send)

    def postpone(self, send: Send, until_us: int) -> None:
        """Queue a send that must not go before `until_us`."""
        self._sequence += 1
        heappush(self._postponed, (until_us, self._sequence, send))

    def pump(self, now_us: int) -> list[SendBroadcast]:
        """Send as many queued sends as the cap allows, oldest first."""
        actions: list[SendBroadcast] = []
        while self._postponed and self._postponed[0][0] <= now_us:
            self.submit(heappop(self._postponed)[2])
        if not (self._queue or self._rechecks):
            return actions
        while self.in_flight < self._tuning.max_unacknowledged and (self._queue or self._rechecks):
            send = self._queue.popleft() if self._queue else self._rechecks.popleft()
            if send.state is SendState.QUEUED:
                action = self._let_go(send, now_us)
                if action is not None:
                    actions.append(action)
        return actions

    def _let_go(self, send: Send, now_us: int) -> SendBroadcast | None:
        record = send.record
        child_time_us = self._tuning.child_time_us(record.deadline_us - now_us)
        if child_time_us <= 0:
            # Too late to be answered in time; the requests' own deadline reports these nodes.
            send.state = SendState.DONE
            return None
        send.state = SendState.SENT
        send.sent_us = now_us
        send.deadline_us = record.deadline_us
        self.in_flight += 1
        self._unacked.append(send)
        return SendBroadcast(send.to_node, _message(send, child_time_us))

    def acknowledged(self, send: Send, peer: Peer, now_us: int) -> None:
        """The child has the list. A late acknowledgement only adapts the time-out."""
        if send.state is SendState.SENT:
            self.in_flight -= 1
            self.patience.note_ack(now_us - send.sent_us, now_us)
            send.state = SendState.ACKED
            send.peer = peer
            send.acked_us = send.progress_us = now_us
            self._forget_acknowledged()
        elif send.state is SendState.SUSPECT and send.peer is None:
            send.peer = peer
            send.acked_us = now_us
            self.patience.note_ack(now_us - send.sent_us, now_us)

    def end(self, send: Send, state: SendState) -> None:
        """The send is over: done, suspect or no longer wanted."""
        if send.state is SendState.SENT:
            self.in_flight -= 1
        send.state = state

    def overdue(self, now_us: int) -> list[Send]:
        """Sends whose acknowledgement is overdue; each is returned once."""
        sent_before_us = now_us - self.patience.timeout_us()
        late: list[Send] = []
        while self._unacked:
            send = self._unacked[0]
            if send.state is SendState.SENT:
                if send.sent_us > sent_before_us:
                    break
                late.append(send)
            self._unacked.popleft()
        return late

    def next_due_us(self) -> int | None:
        """Time at which the oldest unacknowledged send becomes overdue, or a postponed one may go."""
        if not self._unacked and not self._postponed:
            return None
        self._forget_acknowledged()
        while self._postponed and self._postponed[0][2].state is not SendState.QUEUED:
            heappop(self._postponed)
        due_us = self._postponed[0][0] if self._postponed else None
        if not self._unacked:
            return due_us
        overdue_us = self._unacked[0].sent_us + self.patience.timeout_us()
        return overdue_us if due_us is None else min(overdue_us, due_us)

    def _forget_acknowledged(self) -> None:
        # All sends share one time-out, so the queue is in due order and only its front matters.
        while self._unacked and self._unacked[0].state is not SendState.SENT:
            self._unacked.popleft()


def _message(send: Send, time_us: int) -> Broadcast:
    """The message to the child. Only a satellite gets the arrangement and the expected answers."""
    origin = send.record.broadcast
    nodes = tuple(send.nodes)
    message = Broadcast(
        origin.broadcast_id,
        nodes,
        origin.width,
        time_us,
        origin.kind,
        origin.command,
        send.hop,
        origin.grouping,
        traced=origin.traced,
    )
    if not send.via:
        return message
    missing = send.record.missing_nodes
    return msgspec.structs.replace(
        message,
        root_width=origin.root_width,
        predicted=send.predicted,
        differences=origin.differences,
        missing=tuple(node for node in nodes if node in missing) if missing else (),
    )
