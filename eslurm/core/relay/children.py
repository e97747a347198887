"""The sends of this process to its children: watching, suspicion, adoption, rechecks.

Invariant: every node of a list that was split here is started here, has an outcome, or is owed by exactly one send, the
newest that names it; a failed send gives back what it owes, in the tree's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from eslurm.core.relay.construct import arrange
from eslurm.core.relay.legs import LegKeeper, Legs
from eslurm.core.relay.messages import Action, Leg, Peer, Reallocated, RunLocal, Suspect, TookOver, Tuning
from eslurm.core.relay.outbound import Outbound
from eslurm.core.relay.record import Record, Request, Send, SendState
from eslurm.core.relay.results import Outcome, unreached
from eslurm.core.relay.splitting import spread
from eslurm.core.relay.timers import Timers
from eslurm.core.relay.trace import NO_ACK, NO_PROGRESS, ROOT, cause_of


class Children:
    """The sends of one process. `local` is the relay's own set of nodes; actions go to the list `out`."""

    def __init__(
        self, local: AbstractSet[int], root: bool, keeper: LegKeeper | None, tuning: Tuning, timers: Timers
    ) -> None:
        self._local = local
        self._root = root
        self._legs = Legs(keeper)
        self._tuning = tuning
        self._timers = timers
        self.outbound = Outbound(tuning)
        self.adoptions = 0
        """Lists of suspects that were served from here so far."""

    # Giving.

    def give_legs(self, record: Record, request: Request, legs: Sequence[Leg]) -> None:
        """Send each satellite its share."""
        for send in self._legs.make(record, request, legs):
            self._send(send)

    def give(
        self,
        record: Record,
        request: Request,
        groups: Sequence[list[int]],
        parent: int,
        hop: int,
        now_us: int,
        out: list[Action],
        *,
        run: Sequence[int] = (),
        wanted: AbstractSet[int] | None = None,
    ) -> None:
        """Send to these groups; start their local nodes, and `run`. See `spread`."""
        sends, walked = spread(record, request, groups, parent, hop, self._local, wanted)
        for send in sends:
            self._send(send)
        if run or walked:
            origin = record.broadcast
            out.append(
                RunLocal(
                    origin.broadcast_id,
                    (*run, *walked),
                    origin.kind,
                    origin.command,
                    record.deadline_us - now_us,
                )
            )

    def _send(self, send: Send) -> None:
        send.record.add_send(send)
        self.outbound.submit(send)

    # Watching.

    def on_heard(self, send: Send, peer: Peer, now_us: int) -> None:
        """A sign of life for a send; a reply that overtook its acknowledgement counts as one."""
        self.outbound.acknowledged(send, peer, now_us)
        if send.state is SendState.ACKED:
            send.progress_us = now_us
            self._timers.schedule(send.record, now_us + self._tuning.progress_timeout_us)

    def on_final(self, send: Send, now_us: int) -> None:
        """A final reply came for a send; one that leaves nodes out does not end the watch."""
        if send.state is SendState.ACKED and not send.record.owed_by(send):
            self.outbound.end(send, SendState.DONE)
            send.done_us = now_us
            self._legs.on_done(send, now_us)
        elif send.state is SendState.SUSPECT and not send.done_us:
            send.done_us = now_us

    def check_progress(self, record: Record, now_us: int, out: list[Action]) -> None:
        """Give up the children that have acknowledged and then been silent for too long."""
        patience_us = self._tuning.progress_timeout_us + self.outbound.patience.lag_us
        for send in list(record.all_sends()):
            if send.state is not SendState.ACKED:
                continue
            if send.progress_us + patience_us <= now_us:
                self.suspect(send, NO_PROGRESS, now_us, out)
            else:
                self._timers.schedule(record, send.progress_us + patience_us)

    def close(self, record: Record, now_us: int) -> None:
        """End the watch of a broadcast that is over."""
        self._legs.on_closed(record, self.outbound.patience.timeout_us(), now_us)
        for send in record.all_sends():
            self.outbound.end(send, SendState.DONE)

    # Failing.

    def suspect(self, send: Send, why: str, now_us: int, out: list[Action]) -> None:
        """Take a child's list back: another node is asked for its rest."""
        record = send.record
        owed = record.owed_by(send)
        send.cause = cause_of(why)
        self.outbound.end(send, SendState.SUSPECT if owed else SendState.DONE)
        if not owed:
            self._legs.on_done(send, now_us)
            return
        if send.recheck:
            record.resolve(owed, unreached(why))
            return
        out.append(Suspect(record.broadcast.broadcast_id, send.to_node, why))
        if send.via:
            self._hand_on(send, owed, why, now_us, out)
        else:
            self._adopt(send, owed, why, now_us, out)

    def doubt(
        self, record: Record, request: Request, doubts: Iterable[tuple[int, Outcome]], now_us: int
    ) -> None:
        """Handle nodes that no relay reached: the root rechecks them directly, others pass the doubt on.

        A node that was refused may be starting again and gets a moment for it; a silent one had its time. One that was
        missing before needs no recheck: the next broadcast asks it again.
        """
        for node, outcome in doubts:
            if not self._root or node in record.missing_nodes:
                record.resolve((node,), outcome)
                continue
            send = Send(record, node, [node], request, ROOT, record.broadcast.hop + 1, recheck=True)
            if outcome.text in (NO_ACK, NO_PROGRESS):
                self._send(send)
                continue
            record.add_send(send)
            delay_us = min(self._tuning.recheck_delay_us, (record.deadline_us - now_us) // 4)
            self.outbound.postpone(send, now_us + max(0, delay_us))

    def _adopt(self, send: Send, owed: Sequence[int], why: str, now_us: int, out: list[Action]) -> None:
        """Recheck or report the child, relay in its place (E-31)."""
        record = send.record
        wanted = set(owed)
        wanted.discard(send.to_node)
        if owed[0] == send.to_node:
            self.doubt(record, send.request, [(send.to_node, unreached(why))], now_us)
        if wanted:
            self.adoptions += 1
            groups = record.shape.grouping.split(send.nodes[1:], record.shape.width)
            self.give(record, send.request, groups, send.parent, send.hop, now_us, out, wanted=wanted)

    def _hand_on(self, send: Send, owed: Sequence[int], why: str, now_us: int, out: list[Action]) -> None:
        """Give a satellite's share to the next one (E-15), or build its tree here (E-16)."""
        record = send.record
        broadcast_id = record.broadcast.broadcast_id
        wanted = set(owed)
        order = arrange(send.nodes, send.predicted, record.shape)
        to_node = self._legs.on_failed(send, why, now_us)
        if to_node is None:
            out.append(TookOver(broadcast_id, send.to_node, len(owed)))
            groups = record.shape.split_root(order)
            self.give(record, send.request, groups, ROOT, send.hop, now_us, out, wanted=wanted)
            return
        out.append(Reallocated(broadcast_id, send.to_node, to_node, len(owed)))
        rest = [node for node in order if node in wanted]
        self._send(Send(record, to_node, rest, send.request, ROOT, send.hop, via=True, tries=send.tries + 1))
