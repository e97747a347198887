"""The attempts of all nodes of this process: what commands, blobs, runner and acknowledgements mean for one of them.

`machine` has checked the fence (epoch, incarnation, expiry); this module looks at the attempt alone, whose start and end
are in `starts` and `ends`. Invariant: each waiter is answered exactly once.
"""

from __future__ import annotations

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import (
    AcknowledgeSteps,
    SignalStep,
    TerminateStep,
)
from eslurm.core.agent.adjustments import Adjustments
from eslurm.core.agent.attempt import Attempt, Stage, Waiter
from eslurm.core.agent.blob_waiters import BlobWaiters
from eslurm.core.agent.ends import Ends
from eslurm.core.agent.gateways import GatewaySteps
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.orphan_steps import OrphanSteps
from eslurm.core.agent.phases import Phases
from eslurm.core.agent.records import Signalled
from eslurm.core.agent.reports import Reports
from eslurm.core.agent.starts import Starts
from eslurm.core.agent.tasks import Tasks
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    Body,
    GatewayReported,
    NodeGone,
    PhaseReported,
    Prepare,
    Signal,
    Start,
    StepEnded,
    TasksOver,
)
from eslurm.core.model.step_key import BATCH_STEP, EPILOG_STEP, GATEWAY_STEPS, PROLOG_STEP, StepKey
from eslurm.core.relay.results import FAILED, OK, failed

RESUMED_GRACE_S = 30.0
"""For what was being ended when the agent stopped; the runner keeps a shorter grace it was given before."""


class Lifecycle:
    """Commands and runner events for attempts. Everything to do goes into the action buffer."""

    def __init__(
        self, buffer: ActionBuffer, reports: Reports, blob_waiters: BlobWaiters, nodes: dict[int, LocalNode]
    ) -> None:
        self.orphan_steps = OrphanSteps(buffer)
        self._buffer = buffer
        self._reports = reports
        self._blob_waiters = blob_waiters
        self._nodes = nodes
        self.adjustments = Adjustments(buffer)
        self.phases = Phases(buffer, reports, nodes)
        self._gateways = GatewaySteps(buffer, reports, nodes)
        self.tasks = Tasks(buffer, blob_waiters, self.adjustments, nodes, self._gateways)
        self.starts = Starts(buffer, blob_waiters, nodes, self.phases, self.adjustments)
        self.ends = Ends(buffer, reports, nodes, self.starts, self.phases, self._gateways, self.tasks)

    # ---- commands ----

    def signal(self, node: LocalNode, command: Signal, waiter: Waiter) -> None:
        """Send a signal, at most once."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is None or command.step not in attempt.live or attempt.phase_runs:
            self._buffer.settle(waiter, node.number, failed("no such step runs on this node"))
            return
        self._buffer.write(Signalled(node.number, waiter.owner, waiter.revision, waiter.index))
        step = StepKey(attempt.job_id, attempt.number, command.step, node.number)
        self._buffer.emit(SignalStep(step, command.signal))
        self._buffer.fence(waiter.owner).keep_signal((waiter.revision, waiter.index, node.number))
        self._buffer.answer(waiter.ref, node.number, OK)

    def refuse(self, node: LocalNode, body: Body, waiter: Waiter, why: str) -> None:
        """Refuse a command that came too late or for another incarnation.

        The controller takes a refused launch for one that never happened and never will: a copy that came in time
        may have started it, then that is the answer; otherwise a tombstone makes the promise true.
        """
        match body:
            case Prepare(launch=launch):
                key = (launch.job_id, launch.attempt)
            case Start():
                key = (body.job_id, body.attempt)
            case _:
                self._buffer.answer(waiter.ref, node.number, failed(why))
                return
        attempt = node.attempts.get(key)
        if attempt is not None and attempt.stage is Stage.PREPARING and type(body) is Prepare:
            self.phases.answer_preparing(attempt, waiter)
            return
        if attempt is None:
            self.ends.put_tombstone(node.number, key, waiter.owner, waiter.revision, started=False)
        elif attempt.batch_was_started or attempt.stage is Stage.ENDED or self._has_steps_for(attempt, body):
            self.starts.answer_started(attempt, waiter)
            return
        else:
            self.starts.refuse_all(attempt, why)
            self.tasks.refuse_waiting(attempt, why)
            if attempt.live or self.phases.owes_epilog(attempt):
                self.ends.end_live(attempt, 0.0, "refused")
            else:
                self.ends.bury(attempt)
        self._buffer.settle(waiter, node.number, failed(why))

    def _has_steps_for(self, attempt: Attempt, body: Body) -> bool:
        """Check whether live steps prove that the launch has been carried out: steps of gateways precede the script."""
        return bool(attempt.live) and not (type(body) is Start and attempt.stage is Stage.PREPARED)

    # ---- blobs ----

    def on_blobs(self, hashes: tuple[bytes, ...]) -> None:
        """These blobs are here: go on with what waited for them."""
        for attempt, step in self._blob_waiters.take(hashes):
            if step != BATCH_STEP:
                self.tasks.on_ready(attempt, step)
            elif attempt.stage is Stage.FETCHING and not self.starts.fetches_batch(attempt):
                self.starts.on_ready(attempt)

    def on_blobs_missing(self, hashes: tuple[bytes, ...]) -> None:
        """These blobs are missing: this node cannot start the attempt, which is no job's fault."""
        for attempt, step in self._blob_waiters.take(hashes):
            if step != BATCH_STEP:
                self.tasks.refuse(attempt, step, "the environment could not be fetched")
            elif attempt.stage is Stage.FETCHING:
                self.starts.abandon(attempt, "the script or environment could not be fetched")

    # ---- the runner ----

    def on_step_started(self, step: StepKey, at_us: int, lines: tuple[str, ...] = ()) -> None:
        """The step's processes exist; `lines` as of `StepStarted.ready`."""
        attempt = self._find(step)
        if step.is_phase:
            return
        if attempt is None:
            self._buffer.emit(TerminateStep(step, 0.0, "unknown"))
            return
        if not step.is_batch:
            self.tasks.on_started(attempt, step.step, lines)
        elif attempt.stage is Stage.STARTING:
            attempt.move(Stage.RUNNING)
            attempt.credential = b""
            attempt.started_us = at_us
            self.starts.answer_all(attempt)
        elif attempt.started_us == 0:
            attempt.started_us = at_us
            self.starts.answer_all(attempt)
        if attempt.stage is Stage.ENDING:
            # The order to end it may have overtaken its launch.
            self._buffer.emit(TerminateStep(step, attempt.grace_s, "ended"))

    def on_step_ended(self, step: StepKey, end: StepEnd) -> None:
        """All processes of the step are gone; the runner keeps saying so until it is acknowledged."""
        attempt = self._find(step)
        if attempt is None:
            self._on_unknown_end(step, end)
            return
        was_live = step.step in attempt.live
        attempt.live.discard(step.step)
        if step.is_phase:
            if was_live:
                self._on_phase_ended(attempt, step, end)
            elif self._reports.is_settled(self._nodes[step.node], attempt):
                self._buffer.emit(AcknowledgeSteps((step,)))
            return
        if not step.is_batch:
            self.tasks.on_ended(attempt, step.step, end)
            if step.step in attempt.uncounted:
                self._buffer.emit(AcknowledgeSteps((step,)))
            elif not step.is_gateway:
                self._reports.owe_tasks(self._nodes[step.node], attempt, step.step, end)
        elif attempt.end is None:
            self.ends.on_batch_ended(attempt, end)
        if was_live and not attempt.live:
            self.ends.on_empty(attempt)

    def on_step_refused(self, step: StepKey, text: str, code: int = FAILED) -> None:
        """This node could not start the step: nothing of it exists or ever will."""
        attempt = self._find(step)
        if attempt is None or step.step not in attempt.live:
            return
        attempt.live.discard(step.step)
        if step.is_phase:
            self._on_phase_ended(attempt, step, StepEnd(1, cause="lost", text=text))
            return
        if not step.is_batch:
            self.tasks.refuse(attempt, step.step, text)
        elif attempt.in_inventory:
            # The controller was told that it runs: only a report can take that back.
            self.starts.refuse_all(attempt, text)
            self.ends.on_batch_ended(attempt, StepEnd(1, cause="lost", text=text))
        else:
            self.starts.refuse_all(attempt, text, code)
            if attempt.live:
                self.ends.end_live(attempt, 0.0, "launch_failed")
        if not attempt.live:
            self.ends.on_empty(attempt)

    # ---- acknowledgements, restart ----

    def on_committed(
        self,
        node: LocalNode,
        body: StepEnded | NodeGone | PhaseReported | GatewayReported | TasksOver,
        revision: int,
    ) -> None:
        """The controller knows what was reported, by `revision`: in the end a tombstone is all that is kept."""
        if isinstance(body, TasksOver):
            step = StepKey(body.job_id, body.attempt, body.step, node.number)
            self._buffer.emit(AcknowledgeSteps((step,)))
            return
        attempt = node.attempts.get((body.job_id, body.attempt))
        if attempt is None:
            return
        steps = [BATCH_STEP] if isinstance(body, StepEnded) else []
        if attempt.stage is Stage.ENDED and self._reports.is_settled(node, attempt):
            if attempt.launch is None:
                # Its launch, whose revision the spool lost, is older than the commit of its end.
                attempt.revision = max(attempt.revision, revision)
            self.ends.bury(attempt)
        elif isinstance(body, PhaseReported):
            steps.append(GATEWAY_STEPS.get(body.phase, PROLOG_STEP))
        elif attempt.stage not in (Stage.EPILOG, Stage.ENDED):
            return
        # A helper that has written its routes stays: what was committed is not its end, which the runner has still to tell.
        keys = [StepKey(*attempt.key, step, node.number) for step in steps if step not in attempt.live]
        if keys:
            self._buffer.emit(AcknowledgeSteps(tuple(keys)))

    def resume(self, attempt: Attempt) -> None:
        """After a restart: repeat the order to start the step, or to end it."""
        if attempt.stage is Stage.EPILOG:
            attempt.owes_gone = True
            self.phases.resume_epilog(attempt)
        elif attempt.stage is Stage.PREPARING:
            if PROLOG_STEP not in attempt.live:
                self.phases.run(attempt, PROLOG_STEP)
        elif attempt.stage is Stage.ENDED and attempt.end is not None:
            self._reports.owe_end(self._nodes[attempt.node], attempt, attempt.end)
        elif attempt.stage is Stage.CLOSING and not attempt.live:
            self.ends.on_empty(attempt)
        elif attempt.stage is Stage.CLOSING:
            self.ends.terminate(attempt, RESUMED_GRACE_S, "batch_ended")
        elif attempt.stage is Stage.ENDING and not attempt.live:
            attempt.owes_gone = True
            self.ends.on_empty(attempt)
        elif attempt.stage is Stage.ENDING:
            attempt.owes_gone = True
            self.ends.end_live(attempt, RESUMED_GRACE_S, "ended")
        elif attempt.stage is Stage.PREPARED and attempt.start:
            self.starts.run_batch(attempt)
        self._gateways.resume(attempt)
        self.adjustments.repeat(attempt)

    # ---- inside ----

    def _find(self, step: StepKey) -> Attempt | None:
        node = self._nodes.get(step.node)
        return node.attempts.get((step.job_id, step.attempt)) if node is not None else None

    def _on_phase_ended(self, attempt: Attempt, step: StepKey, end: StepEnd) -> None:
        if step.step == EPILOG_STEP:
            self.phases.on_epilog_ended(attempt, end)
        elif not end.is_good:
            attempt.move(Stage.ENDED)
            self.phases.report_prolog(attempt, end)
            self.phases.answer_ends(attempt)
        elif attempt.stage is Stage.PREPARING:
            self.phases.report_prolog(attempt, end)
            self.starts.on_prepared(attempt)
        else:
            attempt.was_prepared = True
            self._buffer.emit(AcknowledgeSteps((step,)))
            self.ends.on_empty(attempt)

    def _on_unknown_end(self, step: StepKey, end: StepEnd) -> None:
        """An outcome of an attempt that is not in memory: old news, or the spool was lost."""
        node = self._nodes.get(step.node)
        if node is None and step.is_batch and self.orphan_steps.is_open:
            self.orphan_steps.add_end(step, end)
            return
        key = (step.node, step.job_id, step.attempt)
        buried = any(key in fence.tombstones for fence in self._buffer.fences.values())
        if step.is_phase and not buried:
            self.phases.on_unknown(step)
            return
        if node is None or buried or not step.is_batch:
            self._buffer.emit(AcknowledgeSteps((step,)))
            return
        attempt = Attempt(*key, self._buffer.owner, 0, None, Stage.CLOSING, end=end)
        attempt.was_prepared = attempt.lost_launch = True
        node.attempts[attempt.key] = attempt
        self.ends.on_empty(attempt)
