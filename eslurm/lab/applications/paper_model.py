"""Cooperation at the batch level as the paper of seed 002 models it (Listing 2: `release_host`; Fig. 1).

As soon as an application reports a core to which it can assign no more tasks, the planner may give it to a waiting job,
while the owner runs on with the rest. No owner ever wants a core back, because it reports one only when all tasks are
assigned; so nothing has to be returned, and a borrower may use a core for as long as it runs.

This stands in for the lending of the controller's core, which has owners, borrowers, confirmations and returns. It is all of
the model that a core with lending replaces.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.model.placement import Placement
from eslurm.core.resources.vector import CORES, Vector
from eslurm.lab.applications.application import Core
from eslurm.lab.applications.batch import positions_of
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.planner_driver import PlannerDriver


class PaperModel(PlannerDriver):
    """The planner of a cluster whose applications report idle cores."""

    def __init__(self, machine: Machine, policy: str) -> None:
        super().__init__(machine, policy)
        self._left: dict[int, Placement] = {}
        """What each running job still holds."""

    def idle(self, job_id: int, cores: Sequence[Core]) -> bool:
        """Take cores out of what the job holds; the owner's memory and devices stay with it."""
        placement = self._left[job_id]
        taken = positions_of(cores)
        spans = []
        for span in placement.spans:
            count = taken.pop(self._machine.topology.positions[span.node], 0)
            if count:
                amounts = _without(span.amounts, count)
                self._ledger.give_back(span.node, span.amounts, placement.until_us)
                if any(amounts):
                    self._ledger.hold(span.node, amounts, placement.until_us)
                    spans.append(replace(span, amounts=amounts))
            else:
                spans.append(span)
        assert not taken, f"job {job_id} reports cores that it does not have: {taken}"
        left = self._left[job_id] = replace(placement, spans=tuple(spans))
        key = (job_id, 1)
        pairs = tuple((span.node, span.amounts) for span in left.spans)
        self._running[key] = replace(self._running[key], spans=pairs)
        self._generation += 1
        return True

    def leave(self, placement: Placement) -> str:
        """A job has ended: the rest of its cores is free."""
        return super().leave(self._left.pop(placement.job_id))

    def _start(self, placement: Placement, now_us: int) -> None:
        super()._start(placement, now_us)
        self._left[placement.job_id] = placement


def _without(amounts: Vector, cores: int) -> Vector:
    changed = list(amounts)
    changed[CORES] -= cores
    return tuple(changed)
