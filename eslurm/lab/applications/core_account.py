"""A second account of every core, which believes neither level: who owns it, who uses it, and since when.

Invariants (`Broken` otherwise): a core has at most one user; a job uses cores that are its own, or that their owners have
reported as idle; no core is idle for its user and busy at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eslurm.core.model.placement import Placement
from eslurm.core.resources.vector import CORES
from eslurm.lab.applications.application import Computed, Core
from eslurm.lab.workloads.account import Broken
from eslurm.lab.workloads.machine import Machine

_OPEN: Final = 2**63


class CoreAccount:
    """The cores of a machine by node and number."""

    def __init__(self, machine: Machine) -> None:
        topology = machine.topology
        self._positions = topology.positions
        self._names = topology.names
        self._free = [set(range(total[CORES])) for total in topology.totals]
        self._users: dict[Core, int] = {}
        self._busy_until_us: dict[Core, int] = {}
        self._owned: dict[Core, list[tuple[int, int]]] = {}
        self.owners: dict[Core, list[int]] = {}
        """Jobs that own a core while others use it, the first owner first."""
        self.busy_us = 0
        """Core microseconds in tasks, over all cores."""
        self.lent_us = 0
        """Those of them on cores that another running job owns."""

    def start(self, placement: Placement, now_us: int) -> list[Core]:
        """A job starts; its cores, the lowest free ones of each of its nodes. Raises `Broken` when one is missing."""
        found: list[Core] = []
        for span in placement.spans:
            position = self._positions[span.node]
            free = self._free[position]
            wanted = span.amounts[CORES]
            if len(free) < wanted:
                raise Broken(
                    f"node {self._names[position]}: job {placement.job_id} gets {wanted} cores of {len(free)} free ones,"
                    f" at {now_us} us"
                )
            for number in sorted(free)[:wanted]:
                free.discard(number)
                self._users[position, number] = placement.job_id
                found.append((position, number))
        return found

    def computed(self, job_id: int, chunk: Computed) -> None:
        """A chunk has ended. Raises `Broken` when the core was another's, or had two chunks at a time."""
        core = chunk.core
        if self._users.get(core) != job_id:
            raise Broken(
                f"core {core} computed for job {job_id}, and is job {self._users.get(core)}'s, at {chunk.end_us} us"
            )
        if chunk.begin_us < self._busy_until_us.get(core, 0):
            raise Broken(f"core {core} computed two chunks at {chunk.begin_us} us")
        self._busy_until_us[core] = chunk.end_us
        self.busy_us += chunk.end_us - chunk.begin_us
        self.lent_us += self._owned_within(core, chunk.begin_us, chunk.end_us)

    def lend(self, job_id: int, core: Core, now_us: int) -> None:
        """The user gives the core to others and goes on owning it (R-04)."""
        self.release(job_id, core)
        owners = self.owners.setdefault(core, [])
        if not owners:
            self._owned.setdefault(core, []).append((now_us, _OPEN))
        owners.append(job_id)

    def release(self, job_id: int, core: Core) -> None:
        """The user leaves the core. Raises `Broken` when it is not the user."""
        if self._users.pop(core, None) != job_id:
            raise Broken(f"job {job_id} gives up core {core}, which it does not use")
        self._free[core[0]].add(core[1])

    def end(self, job_id: int, cores: Iterable[Core], now_us: int) -> None:
        """A job has ended: what it used is free, what it lent has one owner less."""
        for core in cores:
            if self._users.get(core) == job_id:
                self.release(job_id, core)
            else:
                self._disown(job_id, core, now_us)

    def _owned_within(self, core: Core, begin_us: int, end_us: int) -> int:
        """Time in which a job owned the core that did not use it. Earlier times are forgotten."""
        owned = self._owned.get(core)
        if not owned:
            return 0
        owned[:] = [one for one in owned if one[1] > begin_us]
        return sum(max(min(end_us, until_us) - max(begin_us, from_us), 0) for from_us, until_us in owned)

    def _disown(self, job_id: int, core: Core, now_us: int) -> None:
        owners = self.owners.get(core, [])
        if job_id not in owners:
            raise Broken(f"job {job_id} neither uses nor owns core {core}")
        owners.remove(job_id)
        if not owners:
            del self.owners[core]
            from_us, _ = self._owned[core][-1]
            self._owned[core][-1] = (from_us, now_us)
