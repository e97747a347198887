"""One value that a member writes again and again under a key of its own.

Invariant: each write is conditional on this controller's own `alive` word, so a former leader overwrites nothing.
"""

from __future__ import annotations

from eslurm.core.federation.actions import Failure, StoredEntry, SwapAnswer, SwapKeys, Write
from eslurm.core.federation.membership import AGAIN_US, ECHO_US, Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Entries, Result, Swap


class OwnWord:
    """Writes values under `key`, at most every `every_us`. With `is_leased` the value vanishes with the cell's lease.

    Its owner calls `settle`, then `begin` while it `is_free`, then `tick`. `problem` is for people, empty when all is well;
    `written_us` is the time of the last write, 0: none.
    """

    def __init__(
        self, membership: Membership, mirror: Mirror, key: str, *, every_us: int, is_leased: bool
    ) -> None:
        self.problem = ""
        self.written_us = 0
        self._membership = membership
        self._mirror = mirror
        self._key = key
        self._every_us = every_us
        self._is_leased = is_leased
        self._entry: StoredEntry | None = None
        self._swap: Swap | None = None
        self._swap_at_us = 0
        self._echo_at_us: int | None = None

    def settle(self, now_us: int, draw: float) -> bool:
        """Take the outcome of a write. Returns True when the store has got the value that was begun last."""
        swap = self._swap
        if swap is None or swap.result is None:
            return False
        self._swap = None
        if swap.revision:
            self._entry = swap.current.get(self._key)
        self._swap_at_us = now_us + self._every_us
        if swap.result is Result.DONE:
            self.problem = ""
            self.written_us = now_us
            self._echo_at_us = now_us + ECHO_US
            return True
        if swap.result is Result.FAILED and swap.failure is not None:
            self.problem = swap.failure.text or swap.failure.problem.value
            self._swap_at_us = now_us + int(AGAIN_US * (1 + draw) / 2)
        return False

    def is_free(self, now_us: int) -> bool:
        """Check whether a value may be written now: the cell is a member and the last write is long enough ago."""
        if self._membership.standing is not Standing.MEMBER:
            return False
        if self._swap is not None or now_us < self._swap_at_us:
            return False
        if self._echo_at_us is not None and now_us >= self._echo_at_us:
            self._echo_at_us = None
            if self._entry is not None and self._mirror.revision < self._entry.version:
                self._mirror.doubt()
        return True

    @property
    def is_there(self) -> bool:
        """True when the store has a value, with the present lease if it needs one."""
        held = self._held()
        return held is not None and held.lease == self._lease

    def begin(self, value: bytes) -> None:
        """Write this value. It tells its writer and a serial, so no two are equal."""
        change = _Replace(self._membership, self._key, value, self._lease)
        known = {self._key: self._held(), self._membership.own.alive_key: self._membership.alive_entry}
        self._swap = Swap(change, known)

    def tick(self, now_us: int, draw: float) -> SwapKeys | None:
        """The next request to the store, given once. `draw` is of [0, 1), for pauses."""
        return self._swap.tick(now_us, draw) if self._swap is not None else None

    def due_us(self, now_us: int) -> int | None:
        """Time at which it next has something to do, unless an event comes before."""
        times = [self._swap_at_us, self._echo_at_us or 0]
        if self._swap is not None:
            times.append(self._swap.due_us or 0)
        return min((at for at in times if at > now_us), default=None)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        if self._swap is not None:
            self._swap.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        if self._swap is not None:
            self._swap.failed(action, failure)

    @property
    def _lease(self) -> int:
        return self._membership.lease if self._is_leased else 0

    def _held(self) -> StoredEntry | None:
        if self._entry is not None and self._entry.version > self._mirror.revision:
            return self._entry
        return self._mirror.words.get(self._key)


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
