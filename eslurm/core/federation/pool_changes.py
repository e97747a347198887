"""Changes of pools in the shared store, for `Swap`: one transaction over all pools of a change, or nothing.

A pool that is absent or unreadable is not written. A borrower's change is recognised by its claims, a lender's by the serial
of its pool, which only the lender raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from eslurm.core.federation import pools
from eslurm.core.federation.actions import Write
from eslurm.core.federation.swapping import Entries
from eslurm.core.federation.values import Keys, Reader, encode
from eslurm.core.model.federation import Claim, Pool

POOLS_MAX: Final = 32
"""Pools in one transaction."""


class Part(msgspec.Struct, frozen=True):
    """Nodes to claim from the pool of one cell."""

    cell: str
    count: int


class PoolReader:
    """Reads the pools of a federation."""

    def __init__(self, keys: Keys) -> None:
        self.prefix = keys.pool
        self._reader: Reader[Pool] = Reader(Pool, keys.pool)

    def find(self, current: Entries, cell: str) -> Pool | None:
        """The pool of a cell in what the store holds; None: absent, or it cannot be read."""
        entry = current.get(self.prefix + cell)
        found = self._reader.read_entry(entry) if entry is not None else None
        return found if isinstance(found, Pool) else None


class TakeNodes:
    """Claim nodes in every pool of `parts`, or nowhere: `wish` is the claim in each. Raises ValueError beyond POOLS_MAX."""

    def __init__(self, reader: PoolReader, wish: Claim, parts: Sequence[Part], for_s: int = 0) -> None:
        if not 0 < len(parts) <= POOLS_MAX:
            raise ValueError(f"a claim on {len(parts)} pools: from 1 to {POOLS_MAX}")
        self.keys = tuple(reader.prefix + part.cell for part in parts)
        self._reader = reader
        self._wish = wish
        self._parts = tuple(parts)
        self._for_s = for_s

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """See `Change`; none when a pool lacks nodes."""
        found: list[Write] = []
        for part in self._parts:
            pool = self._reader.find(current, part.cell)
            changed = pool and pools.claim(pool, self._wish, part.count, self._for_s)
            if changed is None:
                return ()
            found.append(Write(self._reader.prefix + part.cell, encode(changed)))
        return tuple(found)

    def is_mine(self, current: Entries) -> bool:
        """See `Change`."""
        name = pools.id_of(self._wish)
        held = [self._reader.find(current, part.cell) for part in self._parts]
        return all(pool is not None and pools.find_claim(pool, name) is not None for pool in held)


class ChangeTickets:
    """Enter (`pools.queue`), convert or withdraw the tickets of one job, in all its pools or in none."""

    def __init__(
        self,
        reader: PoolReader,
        changes: Mapping[str, Callable[[Pool], Pool | None]],
        is_done: Callable[[Pool], bool],
    ) -> None:
        if not 0 < len(changes) <= POOLS_MAX:
            raise ValueError(f"tickets in {len(changes)} pools: from 1 to {POOLS_MAX}")
        self.keys = tuple(reader.prefix + cell for cell in changes)
        self._reader = reader
        self._changes = dict(changes)
        self._is_done = is_done

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """See `Change`; none when a pool refuses."""
        found: list[Write] = []
        for cell, change in self._changes.items():
            pool = self._reader.find(current, cell)
            changed = change(pool) if pool is not None else None
            if changed is None:
                return ()
            found.append(Write(self._reader.prefix + cell, encode(changed)))
        return tuple(found)

    def is_mine(self, current: Entries) -> bool:
        """See `Change`."""
        found = [self._reader.find(current, cell) for cell in self._changes]
        return all(pool is not None and self._is_done(pool) for pool in found)


class LendersChange:
    """A change of the lender's own pool: several at once are one `change`. An absent pool begins empty."""

    def __init__(
        self, reader: PoolReader, cell: str, epoch: int, change: Callable[[Pool], Pool | None]
    ) -> None:
        self.keys = (reader.prefix + cell,)
        self._reader = reader
        self._cell = cell
        self._epoch = epoch
        self._change = change
        self._serial = -1

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """See `Change`; none when there is nothing to change, or under a newer leader."""
        pool = self._reader.find(current, self._cell)
        if pool is None and current.get(self.keys[0]) is not None:
            return ()
        before = pool or pools.empty(self._epoch)
        changed = self._change(before) if before.epoch == self._epoch else None
        if changed is None or (pool is not None and changed.serial == pool.serial):
            return ()
        self._serial = changed.serial
        return (Write(self.keys[0], encode(changed)),)

    def is_mine(self, current: Entries) -> bool:
        """See `Change`. Changes of a lender follow each other, so the serial is that of this one."""
        pool = self._reader.find(current, self._cell)
        return pool is not None and pool.epoch == self._epoch and pool.serial == self._serial
