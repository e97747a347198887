"""Orders about an attempt that runs: stand still, go on, another time limit.

Commands come doubled and out of order, so the latest of each kind counts, by its revision. Invariants: an order is in
the spool before it is answered, and a later process of the agent repeats it to the runner; what is being ended is never
stopped, for it has to hear its signal.
"""

from __future__ import annotations

import msgspec

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import LimitStep, SuspendStep
from eslurm.core.agent.attempt import MAY_START_STEPS, Attempt, Stage, Waiter
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.records import Adjusted
from eslurm.core.model.protocol import SetTime, Suspend
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.relay.results import OK

_OPEN = frozenset({Stage.FETCHING, Stage.PREPARING, *MAY_START_STEPS})


class Adjustments:
    """Carries out such orders for all nodes of the process. What to do goes into the action buffer."""

    def __init__(self, buffer: ActionBuffer) -> None:
        self._buffer = buffer

    def suspend(self, node: LocalNode, command: Suspend, waiter: Waiter) -> None:
        """Stop every step of the attempt here, or let all go on. Nothing is left to do for what is over or unknown."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is not None and attempt.stage in _OPEN and waiter.revision > attempt.suspend_revision:
            attempt.suspend_revision = waiter.revision
            attempt.is_suspended = not command.resume
            self._buffer.write(adjusted(attempt))
            self._stop_or_continue(attempt)
        self._buffer.settle(waiter, node.number, OK)

    def set_time(self, node: LocalNode, command: SetTime, waiter: Waiter) -> None:
        """Give the batch script another time limit; a node that does not run it only remembers it."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is not None and attempt.stage in _OPEN and waiter.revision > attempt.time_revision:
            attempt.time_revision = waiter.revision
            attempt.time_credential = waiter.sealed
            _limit(attempt, command.time_limit_s)
            self._buffer.write(adjusted(attempt))
            self._set_limit(attempt)
        self._buffer.settle(waiter, node.number, OK)

    def on_run(self, attempt: Attempt, step: StepKey) -> None:
        """The runner was just told to start this step; what its credential says of the time limit may be out of date."""
        if attempt.is_suspended:
            self._buffer.emit(SuspendStep(step))
        if attempt.time_credential and step.is_batch:
            self._set_limit(attempt)

    def repeat(self, attempt: Attempt) -> None:
        """After a restart of the agent: the runner may never have heard the latest orders."""
        if attempt.stage not in _OPEN:
            return
        if attempt.suspend_revision:
            self._stop_or_continue(attempt)
        if attempt.time_revision:
            self._set_limit(attempt)

    def _stop_or_continue(self, attempt: Attempt) -> None:
        for step in sorted(attempt.live):
            key = StepKey(attempt.job_id, attempt.number, step, attempt.node)
            if not key.is_phase:
                self._buffer.emit(SuspendStep(key, resume=not attempt.is_suspended))

    def _set_limit(self, attempt: Attempt) -> None:
        if BATCH_STEP in attempt.live and attempt.launch is not None:
            key = StepKey(attempt.job_id, attempt.number, BATCH_STEP, attempt.node)
            self._buffer.emit(LimitStep(key, attempt.launch.spec.time_limit_s, attempt.time_credential))


def adjusted(attempt: Attempt) -> Adjusted:
    """The latest orders as the spool keeps them."""
    launch = attempt.launch
    return Adjusted(
        attempt.node,
        attempt.job_id,
        attempt.number,
        attempt.suspend_revision,
        attempt.is_suspended,
        attempt.time_revision,
        launch.spec.time_limit_s if launch is not None else 0,
        attempt.time_credential,
    )


def readjust(attempt: Attempt, record: Adjusted | None) -> None:
    """Bring an attempt back under the orders that the spool remembers."""
    if record is None:
        return
    attempt.suspend_revision = record.suspend_revision
    attempt.is_suspended = record.is_suspended
    attempt.time_revision = record.time_revision
    attempt.time_credential = record.time_credential
    if record.time_revision:
        _limit(attempt, record.time_limit_s)


def _limit(attempt: Attempt, time_limit_s: int) -> None:
    if attempt.launch is not None:
        spec = msgspec.structs.replace(attempt.launch.spec, time_limit_s=time_limit_s)
        attempt.launch = msgspec.structs.replace(attempt.launch, spec=spec)
