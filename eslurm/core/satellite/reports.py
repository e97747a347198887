"""Reports on their way through a satellite: gathered upwards, their acknowledgements routed back (E-05).

A satellite keeps no state: everything here may be lost at any moment, and the agents send again. Invariants:
a report waits here at most once however often it was sent, at most `queued_max` wait, and a route is
forgotten with its link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from eslurm.core.tree.messages import Peer

FLUSH_US = 5_000
BATCH_MAX = 1_000
QUEUED_MAX = 50_000


class Numbered(Protocol):
    """A report, in whatever form it travels: only its identity matters here."""

    @property
    def process(self) -> str: ...

    @property
    def seq(self) -> int: ...


class ForProcess(Protocol):
    """An acknowledgement, in whatever form it travels."""

    @property
    def process(self) -> str: ...


ReportT = TypeVar("ReportT", bound=Numbered)
AckT = TypeVar("AckT", bound=ForProcess)


class ReportRouter(Generic[ReportT]):
    """One per satellite. Ask `take` at `next_due_us` and when the way up comes back."""

    def __init__(
        self, *, flush_us: int = FLUSH_US, batch_max: int = BATCH_MAX, queued_max: int = QUEUED_MAX
    ) -> None:
        self._flush_us = flush_us
        self._batch_max = batch_max
        self._queued_max = queued_max
        self._queued: dict[tuple[str, int], ReportT] = {}
        self._routes: dict[str, Peer] = {}
        self._due_us: int | None = None
        self._is_up = False

    def __len__(self) -> int:
        return len(self._queued)

    def on_reports(self, source: Peer, reports: Iterable[ReportT], now_us: int) -> None:
        """An agent process sent these. What does not fit is dropped: it will be sent again."""
        for report in reports:
            self._routes[report.process] = source
            if len(self._queued) < self._queued_max:
                self._queued.setdefault((report.process, report.seq), report)
        if self._queued and self._due_us is None:
            self._due_us = now_us + self._flush_us

    def on_acks(self, acks: Iterable[AckT]) -> list[tuple[Peer, AckT]]:
        """Acknowledgements from the controller, each with the link it goes to; unknown processes' are dropped."""
        routed = []
        for ack in acks:
            peer = self._routes.get(ack.process)
            if peer is not None:
                routed.append((peer, ack))
        return routed

    def on_controller(self, is_up: bool) -> None:
        """The way up is there, or is not; what waits goes out with the next `take`."""
        self._is_up = is_up

    def on_link_down(self, peer: Peer) -> None:
        """The link to an agent process ended: it finds another way, and nothing can be said to it here."""
        for process in [process for process, source in self._routes.items() if source == peer]:
            del self._routes[process]

    def take(self, now_us: int) -> tuple[ReportT, ...]:
        """The next batch to send up, oldest first; empty while it is not due or there is no way up."""
        if not self._is_up or self._due_us is None or now_us < self._due_us:
            return ()
        keys = [key for key, _ in zip(self._queued, range(self._batch_max), strict=False)]
        batch = tuple(self._queued.pop(key) for key in keys)
        self._due_us = now_us if self._queued else None
        return batch

    def next_due_us(self) -> int | None:
        """When `take` has something; None while there is nothing or no way up."""
        return self._due_us if self._is_up else None
