"""A search that claims pool after pool and keeps what it has while it looks for the rest (S-14, S-15, X-33).

Algorithm 2, with the choice of the next cell left to a `Guide`: own nodes first; then of a chosen cell as many as it has and
the job still needs; a claim that meets another one is tried again from what the answer brought; a cell without free nodes is
a failed try, and costs a pause; after more than `num_retry` of them in a row everything is given back.

No deadlock: each search that is short of nodes gives all back after a bounded number of tries. Progress is not promised:
two searches that each hold what the other lacks may give back and claim again for as long as they are in step. With pauses
that are drawn anew each time they get out of step with probability one; with fixed pauses the random choice of cells and the
store's delays do that, which takes as long as it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from eslurm.core.federation.strategies.interface import (
    MS,
    Asking,
    Done,
    Draw,
    GiveBack,
    Later,
    Look,
    Need,
    PoolSeen,
    Step,
    Take,
)


class Tries(msgspec.Struct, frozen=True):
    """The bounds of a search (S-16, X-32). With `longest_ms` pauses are drawn below a bound that doubles up to it."""

    num_retry: int = 10
    sleep_ms: float = 10.0
    longest_ms: float = 0.0

    def pause_us(self, failures: int, draw: Draw) -> int:
        """The pause after so many failed tries."""
        if not self.longest_ms:
            return int(self.sleep_ms * MS)
        longest = min(self.longest_ms, self.sleep_ms * 2 ** min(failures, 16))
        return max(1, int(draw() * longest * MS))


Pick: TypeAlias = Look | int | None


class Guide(Protocol):
    """Chooses cells for the searches of one cell."""

    def pick(self, missing: int, need: Need, tried: Sequence[int], now_us: int, draw: Draw) -> Pick:
        """The next cell to claim from, pools to read first, or None: no cell is known to have free nodes."""

    def find(self, cell: int) -> PoolSeen | None:
        """A pool to compare with; None: read it first."""

    def on_word(self, seen: PoolSeen, now_us: int) -> None:
        """A pool as an answer brought it."""


class OneByOne:
    """See above. `retries_cell`: a claim that met another one is tried again at the same cell."""

    def __init__(self, need: Need, guide: Guide, tries: Tries, *, retries_cell: bool = True) -> None:
        self._need = need
        self._guide = guide
        self._tries = tries
        self._retries_cell = retries_cell
        self._held = 0
        self._failures = 0
        self._rounds = 0
        self._pause_until_us = 0
        self._is_giving_back = False
        self._has_looked = False
        # Tried since the last pause; the own cell is the first.
        self._tried: list[int] = []
        self._cell: int | None = None
        self._fresh: PoolSeen | None = None

    @property
    def need(self) -> Need:
        """The nodes that the job needs."""
        return self._need

    @property
    def held(self) -> int:
        """See `Search`."""
        return self._held

    def choose(self, now_us: int, draw: Draw) -> Step:
        """See `Search`."""
        missing = self._need.nodes - self._held
        if missing == 0:
            return Done()
        # Where pauses are drawn, nothing is held in the one before the next attempt.
        if now_us < self._pause_until_us and not (self._is_giving_back and self._tries.longest_ms):
            return Later(self._pause_until_us)
        if self._is_giving_back:
            self._is_giving_back = False
            self._held = 0
            return GiveBack()
        if self._cell is None:
            found = self._pick(missing, now_us, draw)
            if isinstance(found, Look):
                self._has_looked = True
                return found
            if found is None:
                return self._failed(now_us, draw)
            self._cell = found
            self._tried.append(found)
        seen = self._fresh or self._guide.find(self._cell)
        if seen is None:
            return Look((self._cell,))
        count = min(seen.free(self._need.kind, self._need.for_s), missing)
        if count:
            return Take(((seen, count),))
        was_own = self._cell == self._need.own
        self._next_cell()
        # The own pool is known without a question.
        return self.choose(now_us, draw) if was_own else self._failed(now_us, draw)

    def answered(self, step: Asking, done: bool, seen: Sequence[PoolSeen], now_us: int) -> None:
        """See `Search`."""
        for one in seen:
            self._guide.on_word(one, now_us)
        if isinstance(step, Take) and done:
            self._held += sum(count for _, count in step.parts)
            self._failures = 0
            self._has_looked = False
            self._next_cell()
        elif isinstance(step, Take) and not self._retries_cell:
            # It is in the choice again, with the count that the answer brought.
            self._tried.pop()
            self._next_cell()
        elif self._cell is not None:
            self._fresh = next((one for one in seen if one.cell == self._cell), None)

    # ---- within ----

    def _pick(self, missing: int, now_us: int, draw: Draw) -> Pick:
        if not self._tried:
            return self._need.own
        found = self._guide.pick(missing, self._need, self._tried, now_us, draw)
        # Pools that were read for this try and have nothing are a failed try.
        return None if isinstance(found, Look) and self._has_looked else found

    def _next_cell(self) -> None:
        self._cell = None
        self._fresh = None

    def _failed(self, now_us: int, draw: Draw) -> Step:
        self._failures += 1
        self._has_looked = False
        self._tried.clear()
        self._pause_until_us = now_us + self._tries.pause_us(self._failures + self._rounds, draw)
        if self._failures > self._tries.num_retry:
            self._failures = 0
            self._rounds += 1
            self._is_giving_back = self._held > 0
            if self._is_giving_back and self._tries.longest_ms:
                return self.choose(now_us, draw)
        return Later(self._pause_until_us)
