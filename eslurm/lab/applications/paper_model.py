"""Cooperation at the batch level as the paper of seed 002 models it (Listing 2: `release_host`; Fig. 1; section 3).

Reports: as soon as an application reports a core to which it can assign no more tasks, the planner may give it to a waiting
job, while the owner runs on with the rest. No owner wants such a core back: it reports one only when all tasks are assigned.

Requests: when the first waiting job cannot start, while cores are free that no waiting job can use, applications are asked
for the missing ones, those with the most time left first. The cores are lent for that job alone and go back to their owners,
whose processes are suspended meanwhile.

This stands in for the lending of the controller's core, which has owners, borrowers, confirmations and returns. It is all of
the model that a core with lending replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.job import Span
from eslurm.core.model.placement import Placement
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.snapshot import RunningKey
from eslurm.core.resources.vector import CORES
from eslurm.lab.applications.application import Core
from eslurm.lab.applications.batch import Offer, Wish, positions_of
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.planner_driver import PlannerDriver

WORTH_US: Final = 5 * SECOND_US
"""A report of an application that ends within this time is of no use: its job ends before another one gets going."""

ASKED_MAX: Final = 1.0
"""Cores are asked for only when at least so many lie idle for each of them: a loan suspends work."""


class PaperModel(PlannerDriver):
    """The planner of a cluster whose applications report idle cores and, if `asks`, answer requests."""

    def __init__(self, machine: Machine, policy: str, *, asks: bool) -> None:
        super().__init__(machine, policy)
        self._asks = asks
        self._held: dict[int, Placement] = {}
        """What each running job holds at the moment."""
        self._keys: dict[int, RunningKey] = {}
        self._free = machine.processors

    # ---- reports ----

    def hears(self, job_id: int, left_us: int) -> bool:
        """Check whether the application will run for long enough."""
        return left_us >= WORTH_US

    def idle(self, job_id: int, cores: Sequence[Core]) -> None:
        """Take the cores out of what the job holds; the owner's memory and devices stay with it."""
        self._move(job_id, positions_of(cores), -1)

    # ---- requests ----

    def find_wish(self) -> Wish | None:
        """The first waiting job, if free cores lie idle because it has too few."""
        if not self._asks or not self._free or not len(self._queue):
            return None
        (entry,) = self._queue.first(1)
        job = entry.job
        missing = job.request.tasks - self._free
        return Wish(job.job_id, missing, job.stay_us) if 0 < missing <= self._free * ASKED_MAX else None

    def choose(self, wish: Wish, offers: Sequence[Offer]) -> list[tuple[int, int]]:
        """Applications with the most time left first: the loan delays them least."""
        found: list[tuple[int, int]] = []
        missing = wish.missing
        for offer in sorted(offers, key=lambda one: (-one.left_us, one.job_id)):
            count = min(offer.cores, missing)
            if count:
                found.append((offer.job_id, count))
                missing -= count
        return [] if missing else found

    def lend(self, job_id: int, cores: Sequence[Core]) -> None:
        """Take the cores out of what the owner holds: the planner finds them free."""
        self._move(job_id, positions_of(cores), -1)

    def give_back(self, borrower: int, owner: int, cores: Sequence[Core]) -> None:
        """Move cores from the borrower's holdings, or from what is free, to the owner's."""
        taken = positions_of(cores)
        if borrower:
            self._move(borrower, taken, -1)
        self._move(owner, taken, 1)

    # ---- the planner's books ----

    def leave(self, placement: Placement) -> str:
        """A job has ended: the rest of its cores is free."""
        held = self._held.pop(placement.job_id)
        self._free += _cores_of(held.spans)
        self._rename(placement.job_id, 1)
        del self._keys[placement.job_id]
        return super().leave(held)

    def _start(self, placement: Placement, now_us: int) -> None:
        super()._start(placement, now_us)
        self._held[placement.job_id] = placement
        self._keys[placement.job_id] = (placement.job_id, 1)
        self._free -= _cores_of(placement.spans)

    def _move(self, job_id: int, cores: dict[int, int], sign: int) -> None:
        """Give the job more cores (1) or fewer (-1) by their positions."""
        topology = self._machine.topology
        held = self._held[job_id]
        spans = {topology.positions[span.node]: span for span in held.spans}
        for position, count in cores.items():
            span = spans.get(position)
            if span is None:
                # Its last core there was taken before; the order of spans is that of positions again.
                span = Span(topology.numbers[position], (0, 0))
            else:
                self._ledger.give_back(span.node, span.amounts, held.until_us)
            amounts = list(span.amounts)
            amounts[CORES] += sign * count
            assert amounts[CORES] >= 0, f"job {job_id} has fewer cores at position {position} than it gives up"
            span = spans[position] = replace(span, amounts=tuple(amounts))
            if any(span.amounts):
                self._ledger.hold(span.node, span.amounts, held.until_us)
            else:
                del spans[position]
            self._free -= sign * count
        held = self._held[job_id] = replace(held, spans=tuple(spans[position] for position in sorted(spans)))
        pairs = tuple((span.node, span.amounts) for span in held.spans)
        if sign > 0:
            # The planner knows attempts that release resources; what gets some back is another attempt to it.
            self._rename(job_id, self._keys[job_id][1] + 1)
        key = self._keys[job_id]
        self._running[key] = replace(self._running[key], spans=pairs)
        self._generation += 1

    def _rename(self, job_id: int, number: int) -> None:
        old, new = self._keys[job_id], (job_id, number)
        one = self._running.pop(old)
        self._overdue.leave(old)
        self._running[new] = one
        self._overdue.start(new, one.expected_us, one.until_us)
        self._keys[job_id] = new


def _cores_of(spans: Iterable[Span]) -> int:
    return sum(span.amounts[CORES] for span in spans)
