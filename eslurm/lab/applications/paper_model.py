"""Cooperation at the batch level as the paper of seed 002 models it (Listing 2: `release_host`; Fig. 1).

As soon as an application reports a core to which it can assign no more tasks, the planner may give it to a waiting job,
while the owner runs on with the rest. No owner wants such a core back, because it reports one only when all tasks are
assigned; so nothing is confirmed or returned, and no application is asked for more.

`core_lending` is the same with the controller's own core. This file stands beside it to compare the core with the paper.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model.placement import Placement
from eslurm.core.resources.vector import CORES
from eslurm.lab.applications.batch import Exclusive, Idle
from eslurm.lab.workloads.machine import Machine


class PaperModel(Exclusive):
    """The planner of a cluster whose applications release idle cores."""

    cooperates = True

    def __init__(self, machine: Machine, policy: str) -> None:
        super().__init__(machine, policy)
        self._whole: dict[int, Placement] = {}
        self._held: dict[int, Placement] = {}
        """Present holdings of each running job, of the whole that it was given."""

    def idle(self, reports: list[Idle]) -> None:
        """Take the cores out of what the job holds; the owner's memory and devices stay with it."""
        for report in reports:
            self._shrink(report)

    def leave(self, placement: Placement) -> str:
        """A job has ended: the rest of its cores is free."""
        del self._whole[placement.job_id]
        return super().leave(self._held.pop(placement.job_id))

    def _start(self, placement: Placement, now_us: int) -> None:
        super()._start(placement, now_us)
        self._held[placement.job_id] = self._whole[placement.job_id] = placement

    def _shrink(self, report: Idle) -> None:
        node = self._machine.topology.numbers[report.position]
        held = self._held[report.job_id]
        whole = next(span for span in self._whole[report.job_id].spans if span.node == node)
        spans = []
        for span in held.spans:
            if span.node == node:
                self._ledger.give_back(node, span.amounts, held.until_us)
                amounts = list(whole.amounts)
                amounts[CORES] -= report.cores
                span = replace(span, amounts=tuple(amounts))
                if not any(amounts):
                    continue
                self._ledger.hold(node, span.amounts, held.until_us)
            spans.append(span)
        self._held[report.job_id] = replace(held, spans=tuple(spans))
        key = (report.job_id, 1)
        pairs = tuple((span.node, span.amounts) for span in spans)
        self._running[key] = replace(self._running[key], spans=pairs)
        self._generation += 1
