"""Cores of each job, for pictures: the planner counts cores, a picture needs a place for each.

Every core of the machine is a lane, numbered in the order of the nodes. A job gets the lowest free lanes of each of its
nodes. Invariant: at no instant do two bars share a lane.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from eslurm.core.resources import bits
from eslurm.core.resources.vector import CORES
from eslurm.lab.workloads.loop import Ran, Result
from eslurm.lab.workloads.machine import Machine


class Bar(msgspec.Struct, frozen=True, gc=False):
    """A job on the lanes [low, high) from its start to its end."""

    ran: Ran
    low: int
    high: int


class Lanes:
    """The lanes of a machine: node after node, core after core."""

    def __init__(self, machine: Machine) -> None:
        self.first: list[int] = []
        """The first lane of each node, by position."""
        self.count = 0
        for total in machine.topology.totals:
            self.first.append(self.count)
            self.count += total[CORES]
        self._machine = machine

    def bars(self, result: Result, *, joined: bool) -> Iterator[Bar]:
        """Bars in the order of their start. `joined`: one over neighbouring nodes too, else each within one node."""
        free = [(1 << total[CORES]) - 1 for total in self._machine.topology.totals]
        held: list[tuple[int, int, list[tuple[int, int]]]] = []
        for number, ran in enumerate(result.ran):
            while held and held[0][0] <= ran.start_us:
                for position, mask in heapq.heappop(held)[2]:
                    free[position] |= mask
            taken: list[tuple[int, int]] = []
            pieces: list[tuple[int, int]] = []
            for position, cores in ran.spans:
                mask = bits.lowest_part(free[position], cores)
                free[position] ^= mask
                taken.append((position, mask))
                pieces += _runs(mask, self.first[position])
            heapq.heappush(held, (ran.end_us, number, taken))
            for low, high in _joined(pieces) if joined else pieces:
                yield Bar(ran, low, high)


def _runs(mask: int, offset: int) -> list[tuple[int, int]]:
    """The neighbouring bits of a mask as [low, high), moved by `offset`."""
    found: list[tuple[int, int]] = []
    while mask:
        low = bits.lowest(mask)
        length = bits.lowest(~(mask >> low))
        found.append((offset + low, offset + low + length))
        mask &= ~(((1 << length) - 1) << low)
    return found


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for low, high in pieces:
        if found and found[-1][1] == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found
