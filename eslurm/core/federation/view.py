"""All cells of a federation, for readers: immutable, and each part says its age."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final, Generic

import msgspec

from eslurm.core.federation.membership import Membership, Standing
from eslurm.core.federation.mirror import Gone, Mirror, Word
from eslurm.core.federation.values import Keys, Reader, Unreadable, V, name_in
from eslurm.core.model.federation import Alive, CellRecord, Summary

STALE_US: Final = 15_000_000
"""Without a word from the store for so long, nothing is known of other cells."""


class CellState(enum.Enum):
    """A cell as it is known now."""

    ALIVE = "alive"
    SILENT = "silent"
    """Its lease has ended."""
    LEFT = "left"
    UNKNOWN = "unknown"
    """The store is away, or the cell's word cannot be read."""


class CellView(msgspec.Struct, frozen=True):
    """One cell. `age_us` is the age of its last word here, None: it has not been heard of.

    `silent_us` is the time since its lease was seen to have ended; None: it has not, or it was never seen alive here.
    `problem` is for people.
    """

    name: str
    state: CellState
    record: CellRecord | None = None
    alive: Alive | None = None
    summary: Summary | None = None
    age_us: int | None = None
    silent_us: int | None = None
    problem: str = ""

    @property
    def nodes(self) -> int:
        """Nodes of the cell."""
        return sum(one.total for one in self.summary.classes) if self.summary else 0

    @property
    def nodes_free(self) -> int:
        """Idle, usable nodes."""
        return sum(one.free for one in self.summary.classes) if self.summary else 0

    @property
    def cores(self) -> int:
        """Cores of the cell."""
        return sum(one.total * one.cores for one in self.summary.classes) if self.summary else 0

    @property
    def cores_free(self) -> int:
        """Free cores of usable nodes."""
        return sum(one.cores_free for one in self.summary.classes) if self.summary else 0


class FederationView(msgspec.Struct, frozen=True):
    """All cells by name, as `cell` sees them. `age_us` is the age of the store's last word; None: there was none."""

    federation: str
    cell: str
    standing: Standing
    problem: str = ""
    age_us: int | None = None
    revision: int = 0
    cells: tuple[CellView, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    """Values in the store that were skipped."""
    skipped: int = 0
    """Keys that were left out, because they are too many or not below their prefix."""


class Observer:
    """Makes the view from three mirrors. Each value is decoded once a version."""

    def __init__(
        self, federation: str, membership: Membership, cells: Mirror, alive: Mirror, summaries: Mirror
    ) -> None:
        self._federation = federation
        self._number_key = Keys(federation).number
        self._membership = membership
        self._mirrors = cells, alive, summaries
        self._records = _Decoded(CellRecord, cells)
        self._alive = _Decoded(Alive, alive)
        self._summaries = _Decoded(Summary, summaries)

    def view(self, now_us: int) -> FederationView:
        """All that is known now (monotonic time)."""
        ages = [mirror.age_us(now_us) for mirror in self._mirrors[:2]]
        known = [age for age in ages if age is not None]
        age_us = max(known) if len(known) == len(ages) else None
        is_known = (
            age_us is not None and age_us <= STALE_US and all(one.is_listed for one in self._mirrors[:2])
        )
        names = {
            name
            for mirror in self._mirrors[:2]
            for key in mirror.words
            if (name := name_in(mirror.prefix, key))
        }
        cells = [self._cell(name, now_us, is_known=is_known) for name in sorted(names)]
        return FederationView(
            self._federation,
            self._membership.own.name,
            self._membership.standing,
            self._membership.problem,
            age_us,
            max(mirror.revision for mirror in self._mirrors),
            tuple(_with_twins(cells)),
            self._unreadable(),
            sum(mirror.skipped for mirror in self._mirrors),
        )

    def _cell(self, name: str, now_us: int, *, is_known: bool) -> CellView:
        record, alive, summary = self._records.get(name), self._alive.get(name), self._summaries.get(name)
        unreadable = [value.reason for value in (record, alive, summary) if isinstance(value, Unreadable)]
        state, problem = CellState.UNKNOWN, "; ".join(unreadable)
        if not is_known:
            problem = problem or "the store is away"
        elif record is None:
            problem = problem or "it has no record in the store"
        elif isinstance(record, CellRecord) and not isinstance(alive, Unreadable):
            state = CellState.ALIVE if alive is not None else CellState.SILENT
            if record.left:
                state = CellState.LEFT
        gone = self._alive.gone(name)
        heard = [heard for one in (self._alive, self._summaries) if (heard := one.heard_us(name)) is not None]
        return CellView(
            name,
            state,
            record if isinstance(record, CellRecord) else None,
            alive if isinstance(alive, Alive) else None,
            summary if isinstance(summary, Summary) else None,
            max(0, now_us - max(heard)) if heard else None,
            max(0, now_us - gone.at_us) if gone is not None else None,
            problem,
        )

    def _unreadable(self) -> tuple[Unreadable, ...]:
        found = [*self._records.unreadable(), *self._alive.unreadable(), *self._summaries.unreadable()]
        return tuple(one for one in found if one.key != self._number_key)


class _Decoded(Generic[V]):
    """The values of a mirror."""

    def __init__(self, kind: type[V], mirror: Mirror) -> None:
        self._mirror = mirror
        self._reader = Reader(kind, mirror.prefix)
        self._is_leased = kind in (Alive, Summary)
        self._values: dict[str, tuple[int, V | Unreadable]] = {}
        self._changes = -1

    def get(self, name: str) -> V | Unreadable | None:
        """The value of a cell; None: there is none."""
        self._refresh()
        found = self._values.get(self._mirror.prefix + name)
        return found[1] if found is not None else None

    def gone(self, name: str) -> Gone | None:
        """See `Mirror.gone`."""
        return self._mirror.gone(self._mirror.prefix + name)

    def heard_us(self, name: str) -> int | None:
        """Time at which the cell was last heard of here."""
        word, gone = self._mirror.words.get(self._mirror.prefix + name), self.gone(name)
        if word is not None:
            return word.heard_us
        return gone.heard_us if gone is not None else None

    def unreadable(self) -> list[Unreadable]:
        """All values that cannot be used."""
        self._refresh()
        return [value for _, value in self._values.values() if isinstance(value, Unreadable)]

    def _refresh(self) -> None:
        if self._changes == self._mirror.changes:
            return
        self._changes = self._mirror.changes
        before = self._values
        self._values = {
            key: known
            if (known := before.get(key)) and known[0] == word.version
            else (word.version, self._read(word))
            for key, word in self._mirror.words.items()
        }

    def _read(self, word: Word) -> V | Unreadable:
        if self._is_leased and not word.lease:
            return Unreadable(word.key, "it hangs on no lease, so it says nothing of the present")
        return self._reader.read(word.key, word.value, word.size)


def _with_twins(cells: Sequence[CellView]) -> Iterator[CellView]:
    """The cells; of two with one number, the second in the order of names has the problem."""
    numbers: dict[int, str] = {}
    for cell in cells:
        number = cell.record.number if cell.record is not None else 0
        other = numbers.setdefault(number, cell.name) if number else cell.name
        if other == cell.name:
            yield cell
        else:
            problem = f"its number {number} is that of {other}, too"
            yield msgspec.structs.replace(
                cell, problem=f"{cell.problem}; {problem}" if cell.problem else problem
            )
