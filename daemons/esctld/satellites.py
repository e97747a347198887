"""The satellites that are linked now: their numbers in the relay, their addresses, and what people see of them."""

from __future__ import annotations

import time

from eslurm.core.satellite.legs import Satellites, satellite_number
from eslurm.v1 import controller_pb2 as pb


class _Linked:
    __slots__ = ("endpoint", "name", "number", "since_us")

    def __init__(self, number: int, name: str, endpoint: str) -> None:
        self.number = number
        self.name = name
        self.endpoint = endpoint
        self.since_us = time.time_ns() // 1000


class LinkedSatellites:
    """Keeps `turns` (who gets the next broadcast) in step with the links."""

    def __init__(self) -> None:
        self.turns = Satellites()
        self._by_process: dict[str, _Linked] = {}
        self._by_number: dict[int, _Linked] = {}
        self._next = 0

    def add(self, process: str, endpoint: str) -> None:
        """A satellite process is linked. Each link gets a number of its own: a new process knows nothing of the old."""
        self.remove(process)
        linked = _Linked(satellite_number(self._next), process.rpartition(".")[0], endpoint)
        self._next += 1
        self._by_process[process] = self._by_number[linked.number] = linked
        self.turns.set_up(linked.number, True)

    def remove(self, process: str) -> bool:
        """Its link has ended. Whether it was known."""
        linked = self._by_process.pop(process, None)
        if linked is None:
            return False
        del self._by_number[linked.number]
        self.turns.set_up(linked.number, False)
        return True

    def endpoint(self, number: int) -> str | None:
        """Where the satellite of that number listens."""
        linked = self._by_number.get(number)
        return linked.endpoint if linked is not None else None

    def infos(self) -> list[pb.SatelliteInfo]:
        """One line for each, for people."""
        return [
            pb.SatelliteInfo(
                name=linked.name,
                endpoint=linked.endpoint,
                state="RUNNING",
                since_us=linked.since_us,
                broadcasts=self.turns.given[linked.number],
            )
            for linked in self._by_process.values()
        ]
