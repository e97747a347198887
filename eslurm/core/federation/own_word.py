"""One value that a member writes again and again under a key of its own, or one that it no longer writes.

Invariant: each write is conditional on this controller's own `alive` word, so a former leader overwrites nothing.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.federation.actions import StoredEntry, SwapKeys, Write
from eslurm.core.federation.membership import Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.one_swap import OneSwap
from eslurm.core.federation.swapping import Entries, Result

REMOVE_AGAIN_US: Final = 60_000_000


class OwnWord(OneSwap):
    """Writes values under `key`, at most every `every_us`. With `is_leased` the value vanishes with the cell's lease.

    Its owner calls `settle`, then `write` while it `may_write`, then `tick`. `written_us` is the time of the last write, 0:
    none.
    """

    def __init__(
        self, membership: Membership, mirror: Mirror, key: str, *, every_us: int, is_leased: bool
    ) -> None:
        super().__init__(mirror)
        self.written_us = 0
        self._membership = membership
        self._key = key
        self._every_us = every_us
        self._is_leased = is_leased
        self._entry: StoredEntry | None = None

    def settle(self, now_us: int, draw: float) -> bool:
        """Take the outcome of a write. Returns True when the store has got the value that was begun last."""
        swap = self.take(now_us, draw)
        if swap is None:
            return False
        if swap.revision:
            self._entry = swap.current.get(self._key)
        if swap.result is not Result.FAILED:
            self.pause(now_us + self._every_us)
        if swap.result is Result.DONE:
            self.written_us = now_us
            return True
        return False

    def may_write(self, now_us: int) -> bool:
        """Check whether a value may be written now: the cell is a member and the last write is long enough ago."""
        if self._membership.standing is not Standing.MEMBER or not self.is_free(now_us):
            return False
        self.is_echoed(now_us)
        return True

    @property
    def is_there(self) -> bool:
        """True when the store has a value, with the present lease if it needs one."""
        held = self._held()
        return held is not None and held.lease == self._lease

    def write(self, value: bytes) -> None:
        """Write this value. It tells its writer and a serial, so no two are equal."""
        change = _Replace(self._membership, self._key, value, self._lease)
        self.begin(
            change, {self._key: self._held(), self._membership.own.alive_key: self._membership.alive_entry}
        )

    @property
    def _lease(self) -> int:
        return self._membership.lease if self._is_leased else 0

    def _held(self) -> StoredEntry | None:
        if self._entry is not None and self._entry.version > self._mirror.revision:
            return self._entry
        return self._mirror.words.get(self._key)


class OldWord(OneSwap):
    """Removes the value under a key of this cell's that it no longer writes, once in a lead. `mirror` is that of `alive`."""

    def __init__(self, membership: Membership, mirror: Mirror, key: str) -> None:
        super().__init__(mirror)
        self._membership = membership
        self._change = _Remove(membership, key)
        self._is_gone = False

    def next(self, now_us: int, draw: float) -> SwapKeys | None:
        """The next request to the store, given once. `draw` is of [0, 1), for pauses."""
        swap = self.take(now_us, draw)
        if swap is not None:
            self._is_gone = bool(swap.revision) and self._change.is_mine(swap.current)
            if not self._is_gone:
                # A site may keep a cell that shares nothing from these keys.
                self.pause(now_us + REMOVE_AGAIN_US)
        is_member = self._membership.standing is Standing.MEMBER
        if not self._is_gone and is_member and self.is_free(now_us):
            # No mirror shows the key: a cell that does not share its usage does not follow that of others.
            self.begin(self._change, {}, reads_first=True)
        return self.tick(now_us, draw)


class _Replace:
    """Replace the value while this controller is the one that says that the cell is alive."""

    def __init__(self, membership: Membership, key: str, value: bytes, lease: int) -> None:
        self.keys = (key, membership.own.alive_key)
        self._membership = membership
        self._key = key
        self._value = value
        self._lease = lease

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None unless the word that the cell is alive is this controller's."""
        if not self._membership.is_alive_word(current[self._membership.own.alive_key]) or self.is_mine(
            current
        ):
            return ()
        return (Write(self._key, self._value, self._lease),)

    def is_mine(self, current: Entries) -> bool:
        """This value: its writer and a serial are in it."""
        entry = current[self._key]
        return entry is not None and entry.value == self._value


class _Remove:
    """Remove the value while this controller is the one that says that the cell is alive."""

    def __init__(self, membership: Membership, key: str) -> None:
        self.keys = (key, membership.own.alive_key)
        self._membership = membership
        self._key = key

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None when there is no value, and unless the word that the cell is alive is this controller's."""
        is_own = self._membership.is_alive_word(current[self._membership.own.alive_key])
        return (Write(self._key, None),) if is_own and not self.is_mine(current) else ()

    def is_mine(self, current: Entries) -> bool:
        """There is no value."""
        return current[self._key] is None
