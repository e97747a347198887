"""Growth of running jobs: further nodes, asked for while the job runs.

The request waits as a job record of its own (`GrowthPlace`), which is planned like any other: it has a place in the queue, a
promise, a reason. Placed, it never starts: its nodes *join* the running job, and the record ends when all of them have.
"""

from __future__ import annotations

import msgspec


class GrowthPlace(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The running job that a growth is for, and its attempt.

    `apart` are the nodes that are or were that attempt's: none of them comes again, for it may have ended there.
    `joins`: its nodes are being prepared. `pauses`: the job is suspended, and gets no nodes. `is_own`: no user asked for it,
    the job is elastic.
    """

    job_id: int
    attempt: int
    apart: frozenset[int] = frozenset()
    joins: bool = False
    pauses: bool = False
    is_own: bool = False

    @property
    def is_still(self) -> bool:
        """Check whether it waits for no plan now."""
        return self.joins or self.pauses


class Growth(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The growth of a running attempt: its record's id, and the nodes that join.

    `joining` are held and not yet for steps. Of these `waiting` have not answered the launch of `revision`; of these
    `preparing` have it and run their prolog, whose ends are due by `preparing_until_us` (0: none said so yet).
    """

    growth_id: int
    joining: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    preparing: frozenset[int] = frozenset()
    preparing_until_us: int = 0
    revision: int = 0


class Joined(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Nodes that a running attempt got at this time, when it had been suspended for `paused_us` in all."""

    at_us: int
    paused_us: int
    nodes: tuple[int, ...]
