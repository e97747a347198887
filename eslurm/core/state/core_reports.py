"""The latest words of applications for their cores, as nodes report them (R-01, R-03): soft state, no fact.

The reactor keeps it; a new leader gets it anew, because each node reports again when it registers. Invariant: at most one
report for each node of a running attempt; `changed` holds those that are to be looked at.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec.structs import replace

from eslurm.core.model.lending import CoreReport
from eslurm.core.model.units import SECOND_US

ReportKey: TypeAlias = tuple[int, int, int]
"""(job, attempt, node)."""
REPORTS_MAX: Final = 200_000
RISE_EVERY_US: Final = 10 * SECOND_US
RISES_AT_ONCE: Final = 4
"""Cores of an attempt that no job takes are asked for so often on a node, and that many times in a row.

Each rise costs two commits, and so does each fall. An application whose idle cores come and go with every report would
otherwise cost ten times a plain report and more while a job waits that its cores do not suit.
"""


class CoreReports:
    """Reports by job, attempt and node. `received` counts all, `dropped` those for which there was no room."""

    __slots__ = (
        "_by_key",
        "_paced_us",
        "_paused",
        "asked_us",
        "changed",
        "dropped",
        "had_demand",
        "idle",
        "received",
    )

    def __init__(self) -> None:
        self._by_key: dict[ReportKey, CoreReport] = {}
        # The time up to which rises have used what is allowed, and those that wait for their turn.
        self._paced_us: dict[ReportKey, int] = {}
        self._paused: dict[ReportKey, None] = {}
        # An ordered set.
        self.changed: dict[ReportKey, None] = {}
        self.had_demand = False
        self.asked_us = 0
        """Time of the latest look for applications to ask."""
        self.idle = 0
        """Cores that are idle by all reports."""
        self.received = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def note(self, key: ReportKey, report: CoreReport) -> None:
        """Take over the latest report of a node."""
        self.received += 1
        old = self._by_key.get(key)
        self.idle += report.idle - (old.idle if old is not None else 0)
        if old is None and len(self._by_key) >= REPORTS_MAX:
            self.dropped += 1
            self.idle -= report.idle
            return
        self._by_key[key] = report
        if old is None or (old.idle, old.excluded, old.rejects) != (
            report.idle,
            report.excluded,
            report.rejects,
        ):
            self.changed[key] = None

    def find(self, key: ReportKey) -> CoreReport | None:
        """The latest report, if there is one."""
        return self._by_key.get(key)

    def touch(self, key: ReportKey) -> None:
        """Let it be looked at again."""
        if key in self._by_key:
            self.changed[key] = None

    def confirm(self, key: ReportKey, excluded: int) -> None:
        """Take over what a node has just confirmed, which is newer than its report, and let it be looked at again."""
        report = self._by_key.get(key)
        if report is not None:
            self._by_key[key] = replace(report, excluded=excluded)
            self.changed[key] = None

    def touch_all(self) -> None:
        """Let all be looked at again."""
        self.changed.update(dict.fromkeys(self._by_key))

    def may_rise(self, key: ReportKey, now_us: int) -> bool:
        """Count one more rise of an exclusion, or let it wait until `resume` finds it in time."""
        paced_us = max(now_us, self._paced_us.get(key, 0))
        if paced_us - now_us > (RISES_AT_ONCE - 1) * RISE_EVERY_US:
            self._paused[key] = None
            return False
        self._paced_us[key] = paced_us + RISE_EVERY_US
        return True

    def lent(self, key: ReportKey) -> None:
        """Rises up to now have been of use."""
        self._paced_us.pop(key, None)

    def resume(self) -> None:
        """Let those that had to wait be looked at again."""
        self.changed.update(self._paused)
        self._paused.clear()

    def forget(self, job_id: int, attempt: int, nodes: frozenset[int]) -> None:
        """Forget an attempt on these nodes."""
        if not self._by_key:
            return
        for node in nodes:
            key = (job_id, attempt, node)
            gone = self._by_key.pop(key, None)
            self._paced_us.pop(key, None)
            self._paused.pop(key, None)
            if gone is not None:
                self.idle -= gone.idle
                self.changed.pop(key, None)

    def items(self) -> list[tuple[ReportKey, CoreReport]]:
        """All of them."""
        return list(self._by_key.items())
