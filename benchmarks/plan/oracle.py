"""Brute force: when a job could start and where, from nothing but the list of what is booked.

Knows what is free on each node, and what each owner uses, in each slot, and tries every slot. Shares with the planner
only the choice among nodes (`choose`); limits and FreePools are read again from the policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from eslurm.core.model.accounts import FreePool, Limit, Policy
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, fits, least

Booked = Iterable[tuple[Pending, Booking]]


class Dense:
    """Everything that is booked, slot by slot. Nodes have cores and memory."""

    def __init__(self, topology: Topology, booked: Booked) -> None:
        self.topology = topology
        self._booked = list(booked)
        stays = [(booking.start_us, booking.stop_us) for _, booking in self._booked]
        self.at_us = sorted({0, *(instant for stay in stays for instant in stay)})
        self._slots = {at_us: index for index, at_us in enumerate(self.at_us)}
        changes = [[(0, 0)] * len(self.at_us) for _ in topology.totals]
        for _, booking in self._booked:
            first, last = self._slots[booking.start_us], self._slots[booking.stop_us]
            for node, (cores, memory_mib) in booking.pairs:
                row = changes[topology.positions[node]]
                row[first] = (row[first][0] - cores, row[first][1] - memory_mib)
                row[last] = (row[last][0] + cores, row[last][1] + memory_mib)
        self.free = [
            list(
                accumulate(
                    row, lambda have, change: (have[0] + change[0], have[1] + change[1]), initial=total
                )
            )[1:]
            for row, total in zip(changes, topology.totals, strict=True)
        ]

    def earliest(
        self, job: Pending, need: CompiledRequest, policies: Mapping[str, Mapping[str, Policy]]
    ) -> tuple[int, Assignment] | None:
        """Tries every instant at which anything changes."""
        bounds = self._bounds(job, policies)
        for first, start_us in enumerate(self.at_us):
            last = first + 1
            while last < len(self.at_us) and self.at_us[last] < start_us + job.time_limit_us:
                last += 1
            if any(max(used[first:last]) + job.request.tasks > most for used, most in bounds):
                continue
            chosen = choose(DenseRoom(self, first, last), need)
            if chosen is not None:
                return start_us, chosen
        return None

    def _bounds(
        self, job: Pending, policies: Mapping[str, Mapping[str, Policy]]
    ) -> list[tuple[list[int], int]]:
        """(cores used per slot, the most that may be) for each rule that binds the job."""
        cores = sum(total[0] for total in self.topology.totals)
        found: list[tuple[list[int], int]] = []
        for limit in policies.get("limit", {}).values():
            assert isinstance(limit, Limit)
            mine = [
                (other, booking)
                for other, booking in self._booked
                if getattr(other, limit.kind) == getattr(job, limit.kind)
            ]
            found.append((self._cores_used(mine), int(cores * limit.amount.percent / 100)))
        for pool in policies.get("pool", {}).values():
            assert isinstance(pool, FreePool)
            if any(job.time_limit_us > way.time_max_s * 1_000_000 for way in pool.access):
                kept = -int(-cores * pool.amount.percent // 100)
                found.append((self._cores_used(self._booked), cores - kept))
        return found

    def _cores_used(self, booked: Booked) -> list[int]:
        changes = [0] * len(self.at_us)
        for _, booking in booked:
            cores = sum(amounts[0] for _, amounts in booking.pairs)
            changes[self._slots[booking.start_us]] += cores
            changes[self._slots[booking.stop_us]] -= cores
        return list(accumulate(changes))


class DenseRoom:
    """The room of the oracle over the slots [first, last)."""

    def __init__(self, dense: Dense, first: int, last: int) -> None:
        self.topology = dense.topology
        self.usable = dense.topology.everything
        self.wide_free: Vector = ()
        self._free: Sequence[Vector] = [_least(row[first:last]) for row in dense.free]

    @property
    def idle(self) -> int:
        """No job here asks for nodes of its own."""
        return 0

    def free_on(self, position: int) -> Vector:
        """The amounts free all the time at a position."""
        return self._free[position]

    def fitting(self, amounts: Vector) -> int:
        """One look at every node."""
        return sum(1 << position for position, free in enumerate(self._free) if fits(amounts, free))


def _least(several: Sequence[Vector]) -> Vector:
    found = several[0]
    for one in several[1:]:
        found = least(found, one)
    return found
