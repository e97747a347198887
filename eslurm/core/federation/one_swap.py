"""A change at a time of keys that a member alone writes: what the blocks of job ids and a member's own words have in common.

Invariant: after a change the mirror is doubted until it shows what was written.
"""

from __future__ import annotations

from eslurm.core.federation.actions import Failure, SwapAnswer, SwapKeys
from eslurm.core.federation.membership import AGAIN_US, ECHO_US
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Change, Entries, Result, Swap


class OneSwap:
    """Drives one change at a time. Its owner calls `take`, then `begin` while it `is_free`, then `tick`.

    `failure` says why the last one was not made; empty: it was, or there was nothing to do. `mirror` shows the keys.
    """

    def __init__(self, mirror: Mirror) -> None:
        self.failure = ""
        self._mirror = mirror
        self._swap: Swap | None = None
        self._not_before_us = 0
        # Revision of what was written last, and when the mirror must have come so far.
        self._echo: tuple[int, int] | None = None

    def take(self, now_us: int, draw: float) -> Swap | None:
        """The change that has ended since the last call, if one has. One that was not made is followed by a pause."""
        swap = self._swap
        if swap is None or swap.result is None:
            return None
        self._swap = None
        self.failure = ""
        if swap.result is Result.DONE:
            prefix = self._mirror.prefix
            written = [
                one.version for one in swap.current.values() if one is not None and one.key.startswith(prefix)
            ]
            self._echo = (max(written), now_us + ECHO_US) if written else None
            return swap
        self._not_before_us = now_us + int(AGAIN_US * (1 + draw) / 2)
        if swap.result is Result.FAILED and swap.failure is not None:
            self.failure = swap.failure.text or swap.failure.problem.value
        return swap

    def pause(self, until_us: int) -> None:
        """Begin nothing before."""
        self._not_before_us = until_us

    def is_free(self, now_us: int) -> bool:
        """Check whether a change may begin: none is under way, and a pause is over."""
        return self._swap is None and now_us >= self._not_before_us

    def is_echoed(self, now_us: int) -> bool:
        """Check whether the mirror shows what was written last. One that does not in useful time is doubted."""
        if self._echo is None:
            return True
        revision, by_us = self._echo
        if self._mirror.revision >= revision:
            self._echo = None
        elif now_us >= by_us:
            self._echo = revision, now_us + ECHO_US
            self._mirror.doubt()
        return self._echo is None

    def begin(self, change: Change, known: Entries, *, reads_first: bool = False) -> None:
        """Make this change, see `Swap`."""
        self._swap = Swap(change, known, reads_first=reads_first)

    def tick(self, now_us: int, draw: float) -> SwapKeys | None:
        """The next request to the store, given once. `draw` is of [0, 1), for pauses."""
        return self._swap.tick(now_us, draw) if self._swap is not None else None

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which there is something to do, as far as it depends on time; None: no such instant."""
        times = [self._not_before_us, self._echo[1] if self._echo is not None else 0]
        if self._swap is not None:
            times.append(self._swap.due_us or 0)
        return min((at_us for at_us in times if at_us > now_us), default=None)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        if self._swap is not None:
            self._swap.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        if self._swap is not None:
            self._swap.failed(action, failure)
