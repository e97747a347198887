"""The legs of a broadcast: one share of the list for each satellite, and the reallocation of failed ones.

Owns the reports to the satellite pool. Invariant: each leg ends for the pool exactly once, as done or as failed, however
the broadcast ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eslurm.core.relay.messages import Leg
from eslurm.core.relay.record import Record, Request, Send, SendState
from eslurm.core.relay.trace import ROOT

NO_ANSWER = "no answer by the deadline"


class LegKeeper(Protocol):
    """The satellite pool: it gets BT-success and BT-failure (E-11) and chooses the next satellite (E-15)."""

    def on_leg_done(self, to_node: int, now_us: int) -> None:
        """The satellite has served its share."""
        ...

    def on_leg_failed(self, to_node: int, tries: int, why: str, now_us: int) -> int | None:
        """The satellite did not serve its share. Returns the next one; None: the controller sends it itself (E-16).

        `tries` is the number of earlier reallocations of this share. Each returned satellite has a leg from then on.
        """
        ...


class Legs:
    """The legs of all broadcasts of one relay. Without a keeper every failed share is taken over."""

    def __init__(self, keeper: LegKeeper | None) -> None:
        self._keeper = keeper

    def make(self, record: Record, request: Request, legs: Sequence[Leg]) -> list[Send]:
        """The first sends of a broadcast, each with its own part of the prediction."""
        predicted = frozenset(record.broadcast.predicted)
        return [
            Send(
                record,
                leg.to_node,
                list(leg.nodes),
                request,
                ROOT,
                record.broadcast.hop + 1,
                via=True,
                predicted=tuple(node for node in leg.nodes if node in predicted) if predicted else (),
            )
            for leg in legs
        ]

    def on_done(self, send: Send, now_us: int) -> None:
        """The share is served, or another satellite has answered for all of it."""
        if send.via and not send.judged:
            send.judged = True
            if self._keeper is not None:
                self._keeper.on_leg_done(send.to_node, now_us)

    def on_failed(self, send: Send, why: str, now_us: int) -> int | None:
        """Report the failed share; returns the satellite for its rest, or None."""
        send.judged = True
        if self._keeper is None:
            return None
        return self._keeper.on_leg_failed(send.to_node, send.tries, why, now_us)

    def on_closed(self, record: Record, patience_us: int, now_us: int) -> None:
        """The broadcast is over: judge the legs that are still open.

        A satellite answers before our own deadline; one that has said nothing but its acknowledgement has
        failed, unless it was asked less than `patience_us` ago.
        """
        for send in list(record.all_sends()):
            if not send.via or send.judged:
                continue
            is_mute = send.state is SendState.SENT or (
                send.state is SendState.ACKED and send.progress_us == send.acked_us
            )
            if is_mute and send.sent_us + patience_us <= now_us and record.owed_by(send):
                spare = self.on_failed(send, NO_ANSWER, now_us)
                if spare is not None and self._keeper is not None:
                    # Too late to give it anything.
                    self._keeper.on_leg_done(spare, now_us)
            else:
                self.on_done(send, now_us)
