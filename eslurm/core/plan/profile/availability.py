"""The profile as mapping sees it: amounts free on each node throughout one interval.

A `BookRoom` is a view: it holds until the profile changes. Answers are exact; they contain only open positions (usable,
not closed, allowed).
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.plan.profile.node_profile import Profile, least_free
from eslurm.core.plan.profile.slots import Slots
from eslurm.core.resources import bits
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, fits


class ProfileAvailability:
    """The port `Availability` over [start_us, stop_us) of the profile. Made by `ResourceProfile.room`."""

    __slots__ = (
        "_first",
        "_fitting",
        "_idle",
        "_last",
        "_least",
        "_open",
        "_profiles",
        "_slots",
        "_stay",
        "topology",
        "wide_free",
    )

    def __init__(
        self,
        topology: Topology,
        slots: Slots,
        profiles: Sequence[Profile],
        stay: tuple[int, int],
        window: tuple[int, int],
        open_positions: int,
        wide_free: Vector,
        fitting: dict[Vector, int],
    ) -> None:
        self.topology = topology
        self.wide_free = wide_free
        self._slots = slots
        self._profiles = profiles
        self._stay = stay
        self._first, self._last = window
        self._open = open_positions
        self._fitting = fitting
        self._idle = -1
        # By identity: nodes with the same bookings share their profile, and the book does not change meanwhile.
        self._least: dict[int, Vector] = {}

    @property
    def usable(self) -> int:
        """The open positions."""
        return self._open

    @property
    def idle(self) -> int:
        """Open positions without a booking in the interval."""
        if self._idle < 0:
            row = self._slots.idle
            if row is None:
                row = self._slots.build_idle(self._profiles)
            self._idle = self._slots.everywhere(row, self._first, self._last) & self._open
        return self._idle

    def fitting(self, amounts: Vector) -> int:
        """The open positions with `amounts` free throughout."""
        found = self._fitting.get(amounts)
        if found is None:
            found = self._fitting[amounts] = self._found(amounts)
        return found

    def free_on(self, position: int) -> Vector:
        """The amounts free throughout at a position."""
        profile = self._profiles[position]
        found = self._least.get(id(profile))
        if found is None:
            found = self._least[id(profile)] = least_free(profile, *self._stay)
        return found

    def _found(self, amounts: Vector) -> int:
        slots, first, last = self._slots, self._first, self._last
        most, sure = self._open, -1
        for resource, amount in enumerate(amounts):
            if amount <= 0:
                continue
            below, above = slots.bracket(resource, amount)
            if below is not None:
                most &= slots.everywhere(below, first, last)
            if above is not below:
                sure &= slots.everywhere(above, first, last) if above is not None else 0
            elif above is None:
                sure = 0
        doubtful = most & ~sure
        return (most ^ doubtful) | self._verified(amounts, doubtful) if doubtful else most

    def _verified(self, amounts: Vector, doubtful: int) -> int:
        free_on = self.free_on
        found = [position for position in bits.all_positions(doubtful) if fits(amounts, free_on(position))]
        return bits.mask_of(found, self.topology.size)
