"""Reports on their way up: each is sent again until it is acknowledged.

Invariant: a report is either queued or in flight, never both; at most `window` are in flight, and an
acknowledgement of an unknown number changes nothing.
"""

from __future__ import annotations

from eslurm.core.model.protocol import Report, ReportBody

WINDOW = 2_000
RESEND_FIRST_US = 1_000_000
RESEND_MAX_US = 60_000_000


class ReportQueue:
    """The unacknowledged reports of one agent process. `process` is new at each start of the agent."""

    def __init__(self, process: str, window: int = WINDOW) -> None:
        self.process = process
        self.is_up = False
        self._window = window
        self._next_seq = 1
        self._queued: dict[int, Report] = {}
        self._in_flight: dict[int, tuple[Report, int]] = {}
        self._first_us: dict[int, int] = {}
        self._resend_us = RESEND_FIRST_US

    def __len__(self) -> int:
        return len(self._queued) + len(self._in_flight)

    def add(self, body: ReportBody) -> int:
        """Queue a report; its number."""
        seq = self._next_seq
        self._next_seq = seq + 1
        self._queued[seq] = Report(self.process, seq, body)
        return seq

    def withdraw(self, seq: int) -> None:
        """Forget a report that another one replaces."""
        self._first_us.pop(seq, None)
        self._queued.pop(seq, None)
        self._in_flight.pop(seq, None)

    def acknowledge(self, seq: int) -> ReportBody | None:
        """Forget a report; what it said, or None when it is not known (any more)."""
        self._first_us.pop(seq, None)
        flying = self._in_flight.pop(seq, None)
        if flying is not None:
            self._resend_us = RESEND_FIRST_US
            return flying[0].body
        queued = self._queued.pop(seq, None)
        return queued.body if queued is not None else None

    def first_sent_us(self, seq: int) -> int:
        """Time of the first sending of an unacknowledged report; 0: not sent."""
        return self._first_us.get(seq, 0)

    def pump(self, now_us: int) -> list[Report]:
        """The reports to send now."""
        if not self.is_up or not self._queued:
            return []
        room = self._window - len(self._in_flight)
        batch = [seq for seq, _ in zip(self._queued, range(room), strict=False)]
        reports = [self._queued.pop(seq) for seq in batch]
        self._in_flight.update((report.seq, (report, now_us)) for report in reports)
        for report in reports:
            self._first_us.setdefault(report.seq, now_us)
        return reports

    def on_link(self, is_up: bool) -> None:
        """The uplink went down or up: reports in flight are sent again."""
        self.is_up = is_up
        self._requeue(list(self._in_flight))

    def on_timer(self, now_us: int) -> None:
        """Queue again what has waited too long; the patience doubles until something is acknowledged."""
        due_us = self._due_us()
        if due_us is not None and due_us <= now_us:
            sent_before_us = now_us - self._resend_us
            self._requeue([seq for seq, (_, at_us) in self._in_flight.items() if at_us <= sent_before_us])
            self._resend_us = min(self._resend_us * 2, RESEND_MAX_US)

    def next_timer_us(self) -> int | None:
        """Time at which the oldest report in flight must be sent again."""
        return self._due_us() if self.is_up else None

    def _due_us(self) -> int | None:
        for _, sent_us in self._in_flight.values():
            return sent_us + self._resend_us
        return None

    def _requeue(self, seqs: list[int]) -> None:
        if seqs:
            self._queued = {seq: self._in_flight.pop(seq)[0] for seq in seqs} | self._queued
