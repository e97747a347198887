"""The spool of a simulated host: a file that survives the agent's crash, and at a power loss what was synced."""

from __future__ import annotations

import random
from collections.abc import Iterable

from eslurm.core.agent.records import LASTING, Folded, Record, unfold

COMPACT_ABOVE_MIN = 60


class SpoolFull(OSError):
    """There is no room for the records: nothing of them was written."""


class Spool:
    """An append-only file. A durable write makes durable what was written before it; `is_full`: none succeeds.

    A write that begins before `hangs_until_us` ends after that.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.is_full = False
        self.hangs_until_us = 0
        self._synced = 0
        self._compact_above = COMPACT_ABOVE_MIN

    @property
    def wants_compaction(self) -> bool:
        """Check whether it has grown to several times what it has to hold."""
        return len(self.records) > self._compact_above

    def append(self, records: Iterable[Record], durable: bool, /) -> None:
        """Write all or none; `durable` waits for the disk. Raises SpoolFull."""
        self.probe()
        for record in records:
            self.write(record, durable=durable)

    def probe(self) -> None:
        """Raises SpoolFull if there is no room."""
        if self.is_full:
            raise SpoolFull("no space left on device")

    def write(self, record: Record, *, durable: bool) -> None:
        """The next record. Raises SpoolFull."""
        self.probe()
        self.records.append(record)
        if durable:
            self._synced = len(self.records)

    def compact(self, state: Folded) -> None:
        """Written aside, synced and renamed. Raises SpoolFull; then nothing is lost."""
        if self.is_full:
            self._compact_above = len(self.records) + COMPACT_ABOVE_MIN
        self.probe()
        self.records = list(unfold(state))
        self._synced = len(self.records)
        self._compact_above = max(COMPACT_ABOVE_MIN, 4 * len(self.records))

    def lose_file(self) -> None:
        """The file is gone; what agents keep beside it is not."""
        self.records = [record for record in self.records if isinstance(record, LASTING)]
        self._synced = len(self.records)

    def lose(self, rng: random.Random) -> int:
        """Power is gone: of what was not synced an arbitrary beginning survives. Returns how much is lost."""
        kept = rng.randint(self._synced, len(self.records))
        lost = len(self.records) - kept
        del self.records[kept:]
        self._synced = kept
        return lost
