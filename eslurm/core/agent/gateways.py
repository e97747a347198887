"""The steps of a job's gateways on a node: daemons on gateway nodes, helpers on the first node (X-52).

They are taken on as tasks are (`tasks`); how they go on is reported. Invariants: nothing is reported of an attempt that is
being ended; a step's end is reported once, and the runner keeps it until the controller has committed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import AcknowledgeSteps, AwaitStep
from eslurm.core.agent.attempt import MAY_START_STEPS, Attempt
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.reports import Reports
from eslurm.core.model.job import StepEnd
from eslurm.core.model.step_key import GATEWAY_STEP, GATEWAY_STEPS, ROUTE_STEP, StepKey

_NAMES: Final = {step: name for name, step in GATEWAY_STEPS.items()}


class GatewaySteps:
    """Reports when daemons serve, when the routes are written, and how steps ended."""

    def __init__(self, buffer: ActionBuffer, reports: Reports, nodes: Mapping[int, LocalNode]) -> None:
        self._buffer = buffer
        self._reports = reports
        self._nodes = nodes

    def on_ready(self, attempt: Attempt, step: int, lines: tuple[str, ...]) -> None:
        """The daemons have told their addresses, or the helper has written the routes and stays to remove them."""
        if attempt.stage not in MAY_START_STEPS or step not in attempt.live:
            return
        node = self._nodes[attempt.node]
        if step == GATEWAY_STEP:
            self._reports.owe_addresses(node, attempt, lines)
        elif step == ROUTE_STEP and not attempt.has_routes:
            attempt.has_routes = True
            self._reports.owe_phase(node, attempt, _NAMES[step], StepEnd(0))

    def on_ended(self, attempt: Attempt, step: int, end: StepEnd) -> None:
        """A step is over: its outcome stays in the runner while its report is owed."""
        is_told = step == ROUTE_STEP and attempt.has_routes
        if attempt.stage not in MAY_START_STEPS or is_told:
            self._buffer.emit(AcknowledgeSteps((_key(attempt, step),)))
            return
        attempt.has_routes |= step == ROUTE_STEP
        self._reports.owe_phase(self._nodes[attempt.node], attempt, _NAMES[step], end)

    def refuse(self, attempt: Attempt, step: int, why: str) -> None:
        """A step that was taken on does not start here."""
        self.on_ended(attempt, step, StepEnd(1, cause="spawn_failed", text=why))

    def resume(self, attempt: Attempt) -> None:
        """After a restart of the agent: what was ready may never have been reported."""
        for step in sorted(attempt.live & {GATEWAY_STEP, ROUTE_STEP}):
            if attempt.stage in MAY_START_STEPS:
                self._buffer.emit(AwaitStep(_key(attempt, step)))

    def acknowledge(self, attempt: Attempt) -> None:
        """The attempt is over: the runner may forget its steps."""
        launch = attempt.launch
        if launch is not None and launch.spec.gateway is not None:
            self._buffer.emit(AcknowledgeSteps(tuple(_key(attempt, step) for step in sorted(_NAMES))))


def _key(attempt: Attempt, step: int) -> StepKey:
    return StepKey(attempt.job_id, attempt.number, step, attempt.node)
