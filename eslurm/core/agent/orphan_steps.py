"""Steps in the runner but not in the spool: the spool was lost, or their node is not served here any more.

The runner knows a node by its number, which without the spool only the controller knows. Invariant: until each node of the
process has its number, the end of such a step is kept; after that none is left here: it was handed to its node, or is
unowned and is ended.
"""

from __future__ import annotations

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import AcknowledgeSteps, TerminateStep
from eslurm.core.model.job import StepEnd
from eslurm.core.model.step_key import StepKey


class OrphanSteps:
    """Steps without a node. `is_open` while a node may still claim them."""

    def __init__(self, buffer: ActionBuffer) -> None:
        self.is_open = True
        self._buffer = buffer
        self._live: dict[StepKey, int] = {}
        self._ended: dict[StepKey, StepEnd] = {}

    def add_live(self, step: StepKey, at_us: int) -> None:
        """It has processes since then."""
        self._live[step] = at_us

    def add_end(self, step: StepKey, end: StepEnd) -> None:
        """It is over; the runner says so until it is acknowledged."""
        self._live.pop(step, None)
        self._ended[step] = end

    def take(self, number: int) -> tuple[list[tuple[StepKey, int]], list[tuple[StepKey, StepEnd]]]:
        """The steps of the node with this number: live ones with their start, ended ones with their end."""
        live = [(step, at_us) for step, at_us in self._live.items() if step.node == number]
        ended = [(step, end) for step, end in self._ended.items() if step.node == number]
        for step, _ in live:
            del self._live[step]
        for step, _ in ended:
            del self._ended[step]
        return live, ended

    def close(self) -> None:
        """Every node has its number: end and acknowledge the rest, which is unowned."""
        self.is_open = False
        for step in self._live:
            self._buffer.emit(TerminateStep(step, 0.0, "unknown"))
        if self._ended:
            self._buffer.emit(AcknowledgeSteps(tuple(self._ended)))
        self._live.clear()
        self._ended.clear()
