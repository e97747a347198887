"""The steps of esrun on one node each, and those of gateways: tasks started inside a prepared or running attempt.

Invariant: a step in `attempt.steps` still owes an answer, which a step of gateways has once it is handed to the runner; a
step in `attempt.live` has or may have processes; a step that is in neither is over or unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import RunTasks
from eslurm.core.agent.adjustments import Adjustments
from eslurm.core.agent.attempt import MAY_START_STEPS, Attempt, PendingStep, Waiter
from eslurm.core.agent.blob_waiters import BlobWaiters
from eslurm.core.agent.gateways import GatewaySteps
from eslurm.core.agent.node import LocalNode
from eslurm.core.model.job import StepEnd
from eslurm.core.model.node_groups import find_share
from eslurm.core.model.protocol import LaunchStep
from eslurm.core.model.step_key import GATEWAY_STEPS, StepKey
from eslurm.core.relay.results import OK, Outcome, failed

_GATEWAYS: Final = frozenset(GATEWAY_STEPS.values())


class Share(NamedTuple):
    """One node's part of a step."""

    tasks: int
    first_task: int
    node_index: int


class Tasks:
    """Starts steps and answers for them; ending them is the attempt's business."""

    def __init__(
        self,
        buffer: ActionBuffer,
        blob_waiters: BlobWaiters,
        adjustments: Adjustments,
        nodes: Mapping[int, LocalNode],
        gateways: GatewaySteps,
    ) -> None:
        self.gateways = gateways
        self._buffer = buffer
        self._nodes = nodes
        self._adjustments = adjustments
        self._blob_waiters = blob_waiters

    def launch(self, node: LocalNode, command: LaunchStep, waiter: Waiter) -> None:
        """Start this node's tasks of the step, once."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        may_start = attempt is not None and attempt.stage in MAY_START_STEPS
        is_gateway = command.step in _GATEWAYS
        is_step = command.step >= 0 or is_gateway
        if attempt is None or attempt.launch is None or not may_start or not is_step:
            self._buffer.settle(waiter, node.number, failed("the attempt does not run on this node"))
            return
        pending = attempt.steps.get(command.step)
        if pending is not None:
            pending.waiters.append(waiter)
        elif command.step in attempt.live:
            self._buffer.settle(waiter, node.number, OK)
        else:
            attempt.steps[command.step] = PendingStep(command, [waiter], waiter.sealed)
            self.on_ready(attempt, command.step)

    def on_ready(self, attempt: Attempt, step: int) -> None:
        """Run the step's tasks unless its environment is still to be fetched."""
        pending = attempt.steps.get(step)
        if pending is None or step in attempt.live or attempt.launch is None:
            return
        request = pending.request
        share = _share(request, attempt.node)
        if share is None:
            self.refuse(attempt, step, "the step has no tasks for this node")
        elif not self._blob_waiters.ask(attempt, step, (request.environment_hash,)):
            attempt.live.add(step)
            if not request.is_counted and step not in _GATEWAYS:
                attempt.uncounted.add(step)
            key = StepKey(attempt.job_id, attempt.number, step, attempt.node)
            contact_us = self._nodes[attempt.node].contact_us
            self._buffer.emit(RunTasks(key, attempt.launch, request, *share, pending.credential, contact_us))
            self._adjustments.on_run(attempt, key)
            if step in _GATEWAYS:
                self._answer(attempt, step, OK)

    def on_started(self, attempt: Attempt, step: int, lines: tuple[str, ...] = ()) -> None:
        """The tasks exist; those of gateways have said so in these lines."""
        if step in _GATEWAYS:
            self.gateways.on_ready(attempt, step, lines)
            return
        self._answer(attempt, step, OK)

    def on_ended(self, attempt: Attempt, step: int, end: StepEnd) -> None:
        """The tasks are over; if their start was not answered yet, this answers it."""
        if step in _GATEWAYS:
            self.gateways.on_ended(attempt, step, end)
            return
        could_not_start = end.cause in ("spawn_failed", "lost")
        self._answer(attempt, step, failed(end.text, end.exit_code) if could_not_start else OK)

    def refuse(self, attempt: Attempt, step: int, why: str) -> None:
        """The step does not start here."""
        if step in _GATEWAYS and step not in attempt.steps:
            self.gateways.refuse(attempt, step, why)
        self._answer(attempt, step, failed(why))

    def refuse_waiting(self, attempt: Attempt, why: str) -> None:
        """Give up the steps that have not been handed to the runner."""
        for step in [step for step in attempt.steps if step not in attempt.live]:
            self.refuse(attempt, step, why)

    def _answer(self, attempt: Attempt, step: int, outcome: Outcome) -> None:
        pending = attempt.steps.pop(step, None)
        if pending is not None:
            for waiter in pending.waiters:
                self._buffer.settle(waiter, attempt.node, outcome)


def _share(request: LaunchStep, node: int) -> Share | None:
    found = find_share(request.groups, node)
    if found is None:
        return None
    index, first_task, group = found
    return Share(group.tasks, request.rank_first + first_task, index)
