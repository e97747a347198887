"""Reports on their way through a satellite: gathered upwards, their acknowledgements routed back (E-05).

A satellite keeps no state: everything here may be lost at any moment, and the agents send again. Invariants:
a report waits here at most once however often it was sent, at most `queued_max` wait (and as many more have gone up
without an acknowledgement yet), and a route is forgotten with its link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from eslurm.core.relay.messages import Peer

FLUSH_US = 5_000
BATCH_MAX = 1_000
QUEUED_MAX = 50_000


class Numbered(Protocol):
    """A report in any encoding, with its identity."""

    @property
    def process(self) -> str: ...

    @property
    def seq(self) -> int: ...


class ForProcess(Protocol):
    """An acknowledgement in any encoding, with its addressee."""

    @property
    def process(self) -> str: ...

    @property
    def seqs(self) -> Iterable[int]: ...


ReportT = TypeVar("ReportT", bound=Numbered)
AckT = TypeVar("AckT", bound=ForProcess)


class ReportRouter(Generic[ReportT]):
    """One per satellite. Call `take` at `next_due_us` and when the way up comes back."""

    def __init__(
        self, *, flush_us: int = FLUSH_US, batch_max: int = BATCH_MAX, queued_max: int = QUEUED_MAX
    ) -> None:
        self._flush_us = flush_us
        self._batch_max = batch_max
        self._queued_max = queued_max
        self._queued: dict[tuple[str, int], ReportT] = {}
        self._sent: dict[str, dict[int, ReportT]] = {}
        self._sent_count = 0
        self._routes: dict[str, Peer] = {}
        self._due_us: int | None = None
        self._is_up = False

    def __len__(self) -> int:
        return len(self._queued)

    def on_reports(self, source: Peer, reports: Iterable[ReportT], now_us: int) -> None:
        """Queue an agent process's reports. A report that does not fit is dropped: the agent sends it again."""
        for report in reports:
            self._routes[report.process] = source
            if len(self._queued) < self._queued_max:
                self._queued.setdefault((report.process, report.seq), report)
        if self._queued and self._due_us is None:
            self._due_us = now_us + self._flush_us

    def on_acks(self, acks: Iterable[AckT]) -> list[tuple[Peer, AckT]]:
        """Acknowledgements from the controller, each with its link; those of unknown processes are dropped."""
        routed = []
        for ack in acks:
            self._settle(ack)
            peer = self._routes.get(ack.process)
            if peer is not None:
                routed.append((peer, ack))
        return routed

    def on_controller(self, is_up: bool) -> None:
        """The link up exists, perhaps to another controller, or is gone; queued reports go out with the next `take`.

        Reports that the former controller did not acknowledge go again: they may never have been committed.
        """
        self._is_up = is_up
        if is_up and self._sent:
            again = {(name, seq): report for name, sent in self._sent.items() for seq, report in sent.items()}
            self._queued = again | self._queued
            self._sent = {}
            self._sent_count = 0
            self._due_us = 0

    def on_link_down(self, peer: Peer) -> None:
        """The link to an agent process ended: forget its routes."""
        for process in [process for process, source in self._routes.items() if source == peer]:
            del self._routes[process]
            # It sends again itself, on its new way.
            self._sent_count -= len(self._sent.pop(process, ()))

    def take(self, now_us: int) -> tuple[ReportT, ...]:
        """The next batch to send up, oldest first; empty while it is not due or there is no way up."""
        if not self._is_up or self._due_us is None or now_us < self._due_us:
            return ()
        keys = [key for key, _ in zip(self._queued, range(self._batch_max), strict=False)]
        batch = tuple(self._queued.pop(key) for key in keys)
        for report in batch:
            self._remember(report)
        self._due_us = now_us if self._queued else None
        return batch

    def _remember(self, report: ReportT) -> None:
        # One more than there is room for is left to its agent, which sends again.
        if report.process in self._routes and self._sent_count < self._queued_max:
            sent = self._sent.setdefault(report.process, {})
            self._sent_count += report.seq not in sent
            sent[report.seq] = report

    def _settle(self, ack: AckT) -> None:
        sent = self._sent.get(ack.process)
        if sent is None:
            return
        for seq in ack.seqs:
            self._sent_count -= sent.pop(seq, None) is not None
        if not sent:
            del self._sent[ack.process]

    def next_due_us(self) -> int | None:
        """Time of the next `take`; None while there is nothing or no way up."""
        return self._due_us if self._is_up else None
