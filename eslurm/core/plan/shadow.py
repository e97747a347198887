"""What backfill may use without delaying a promised start.

A job that ends before a promise begins may use anything that is free now. One that runs into
it may use, on the promised nodes, only what will be spare there *then*: counts and per-node
amounts are protected by the same subtraction. Invariant: no spare amount is ever negative, so
every promise can be kept at its instant on its own nodes.
"""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.plan.mapping import Placement
from eslurm.core.plan.promise import Promise, Spare
from eslurm.core.resources.ledger import NODES_PER_SLICE, Ledger
from eslurm.core.resources.vector import Vector, least, subtract


class _Guard:
    """One promise, where it applies, and what stays spare at its start, per position."""

    __slots__ = ("members", "promise", "spare")

    def __init__(self, promise: Promise, members: int, spare: Spare) -> None:
        self.promise = promise
        self.members = members
        self.spare = spare


class Shadow:
    """The promises of one cycle and the views of the ledger they leave to others."""

    __slots__ = ("_claimed", "_guards", "_ledger", "_views")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._claimed = 0
        self._guards: list[_Guard] = []
        # Which guards bind (bit i: guard i) -> a view that shows what they leave.
        self._views: dict[int, Ledger] = {}

    def guard(self, promise: Promise, members: int, spare: Spare) -> None:
        """Protects a promise made to a job of the partition with these positions."""
        self._guards.append(_Guard(promise, members, spare))
        self._claimed |= members

    def claim(self, members: int) -> bool:
        """Joins a blocked job's partition to those that have a promise or wait for one.

        False when it shares no node with them: then the job may have a promise of its own. One
        made past a blocked job ahead would be broken as soon as that job's turn comes.
        """
        if not self._claimed & members:
            return False
        self._claimed |= members
        return True

    def covering(self, members: int) -> Promise | None:
        """The first promise whose partition shares nodes with this one."""
        for guard in self._guards:
            if guard.members & members:
                return guard.promise
        return None

    def view(self, members: int, until_us: int) -> Generator[None, None, Ledger]:
        """The ledger as a job of this partition that ends at `until_us` may see it.

        Yields between slices of nodes when a view is made for the first time.
        """
        binding = 0
        for index, guard in enumerate(self._guards):
            if guard.members & members and until_us > guard.promise.start_us:
                binding |= 1 << index
        if not binding:
            return self._ledger
        view = self._views.get(binding)
        if view is None:
            view = yield from self._restricted(binding)
            self._views[binding] = view
        return view

    def taken(self, placement: Placement) -> None:
        """Follows a placement that the ledger now holds."""
        positions = self._ledger.topology.positions
        for span in placement.spans:
            position = positions[span.node]
            for guard in self._guards:
                spare = guard.spare.get(position)
                if spare is not None and placement.until_us > guard.promise.start_us:
                    guard.spare[position] = subtract(spare, span.amounts)
            for binding, view in self._views.items():
                view.restrict(position, self._visible(binding, position))

    def _restricted(self, binding: int) -> Generator[None, None, Ledger]:
        view = self._ledger.fork()
        done = 0
        for index, guard in enumerate(self._guards):
            if not (binding >> index) & 1:
                continue
            for position in guard.spare:
                view.restrict(position, self._visible(binding, position))
                done += 1
                if done % NODES_PER_SLICE == 0:
                    yield
        return view

    def _visible(self, binding: int, position: int) -> Vector:
        visible = self._ledger.free_on(position)
        for index, guard in enumerate(self._guards):
            if (binding >> index) & 1:
                spare = guard.spare.get(position)
                if spare is not None:
                    visible = least(visible, spare)
        return visible
