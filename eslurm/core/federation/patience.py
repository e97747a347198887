"""The time for which a lender keeps nodes for a ready ticket that is not made a claim.

A ticket waits for those of its job in other pools. After `READY_US` its nodes go to the next ticket; after as long again it
has its place in the order back, and with it the nodes, where nobody has made them a claim. Each ticket steps aside at most
`PASSES_MAX` times, so none is passed for ever.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.federation import pools
from eslurm.core.federation.pools import ClaimId
from eslurm.core.model.federation import Pool

READY_US: Final = 2_000_000


class Patience:
    """The lender's clock for the tickets in its pool."""

    def __init__(self, ready_us: int = READY_US) -> None:
        self._ready_us = ready_us
        self._since: dict[ClaimId, tuple[int, bool]] = {}

    def note(self, pool: Pool, now_us: int) -> None:
        """The pool as it is."""
        timed = [one for one in pool.claims if one.aside or pools.may_step_aside(pool, one)]
        before, self._since = self._since, {}
        for one in timed:
            name = pools.id_of(one)
            since_us, aside = before.get(name, (now_us, one.aside))
            self._since[name] = since_us if aside == one.aside else now_us, one.aside

    @property
    def next_us(self) -> int | None:
        """The time at which the next ticket is due; None: none is."""
        since = min((since_us for since_us, _ in self._since.values()), default=None)
        return None if since is None else since + self._ready_us

    def pass_on(self, pool: Pool, now_us: int) -> Pool:
        """The pool after what is due now."""
        for name, (since_us, _) in self._since.items():
            if since_us + self._ready_us <= now_us:
                pool = pools.turn(pool, name) or pool
        return pool
