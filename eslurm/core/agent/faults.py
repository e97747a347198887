"""Standing faults of this process's nodes, and when their checks run (F-03).

The controller keeps the faults and says which stand when it registers a node; a phase whose failure it has committed adds
one. Of failures of one kind the controller keeps the last, and acknowledgements come in any order: a check answers for all.
Invariant: a check begins only while a fault stands, one at a time for each node, and a passed one is reported for just
the faults that stood when it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import RunCheck
from eslurm.core.agent.node import LocalNode, OwedBody
from eslurm.core.agent.reports import Reports
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import CheckPassed, NodeGone, PhaseReported
from eslurm.core.model.step_key import CHECK, EPILOG, PROLOG
from eslurm.core.model.units import SECOND_US

CHECK_EVERY_US: Final = 60_000_000


class Faults:
    """Asks for checks and reports those that passed."""

    def __init__(self, buffer: ActionBuffer, reports: Reports, nodes: Mapping[int, LocalNode]) -> None:
        self._buffer = buffer
        self._reports = reports
        self._nodes = nodes
        # Nodes with a fault and a check.
        self._watched: set[int] = set()

    def on_registered(self, node: LocalNode, faults: tuple[tuple[str, int], ...]) -> None:
        """These faults of the node stand."""
        before, node.faults = node.faults, set(faults)
        if node.faults - before:
            node.check_us = 0
        self._watch(node)

    def on_committed(self, node: LocalNode, body: OwedBody) -> None:
        """The controller has taken note of a report: a failed phase is a fault, a passed check ends the faults it names."""
        match body:
            case CheckPassed():
                node.faults.difference_update(body.faults)
                self._watch(node)
            case PhaseReported(phase=phase) if phase == PROLOG:
                self._on_phase(node, phase, body.job_id, body.end)
            case NodeGone(epilog=end) if end is not None:
                self._on_phase(node, EPILOG, body.job_id, end)

    def _on_phase(self, node: LocalNode, kind: str, job_id: int, end: StepEnd) -> None:
        if not end.is_good:
            node.faults.add((kind, job_id))
            self._reports.withdraw_check(node)
            # No check has begun since: the next one does not wait for its turn.
            node.check_us = 0
            self._watch(node)

    def on_checked(self, number: int, *, passed: bool) -> None:
        """The check ended."""
        node = self._nodes.get(number)
        if node is None:
            return
        node.check_ends_us = 0
        # A check that is due at once is asked for faults that this one may not have seen.
        if node.faults and passed and node.check_us:
            self._reports.owe_check(node)

    def on_timer(self, now_us: int) -> None:
        """Run the checks that are due; the first one follows the fault at once."""
        for number in sorted(self._watched):
            node = self._nodes[number]
            if _due_us(node) <= now_us:
                node.check_us = now_us + CHECK_EVERY_US
                node.check_ends_us = node.check_us + node.offer.phase_limit_s * SECOND_US
                self._buffer.emit(RunCheck(number))

    def next_timer_us(self) -> int | None:
        """Time of the next check."""
        return min((_due_us(self._nodes[number]) for number in self._watched), default=None)

    def _watch(self, node: LocalNode) -> None:
        if node.faults and CHECK in node.offer.phases:
            self._watched.add(node.number)
        else:
            self._watched.discard(node.number)
            node.check_us = 0


def _due_us(node: LocalNode) -> int:
    """Time of the next check: after the one that runs. One of which nothing is heard is lost."""
    return max(node.check_us, node.check_ends_us)
