"""The attempts of all nodes of this process: effects of a checked command.

`machine` has checked the fence (epoch, incarnation, expiry); this module looks at the attempt alone. Invariants: a batch
script is started at most once per attempt and node, save for the very same step to the same runner, which is idempotent;
each waiter is answered exactly once; a tombstone is written before anything is ended.
"""

from __future__ import annotations

import heapq

import msgspec

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import (
    AcknowledgeSteps,
    RunBatch,
    SignalStep,
    TerminateStep,
)
from eslurm.core.agent.adjustments import Adjustments
from eslurm.core.agent.attempt import Attempt, Stage, Waiter
from eslurm.core.agent.blob_waiters import BlobWaiters
from eslurm.core.agent.gateways import GatewaySteps
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.orphan_steps import OrphanSteps
from eslurm.core.agent.outcomes import gone_outcome, started_outcome
from eslurm.core.agent.phases import Phases
from eslurm.core.agent.records import Buried, EpilogOwed, Prepared, Preparing, Signalled, StartIntended
from eslurm.core.agent.reports import Reports
from eslurm.core.agent.tasks import Tasks
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    Body,
    End,
    GatewayReported,
    JobLaunch,
    NodeGone,
    PhaseReported,
    Prepare,
    Signal,
    Start,
    StepEnded,
)
from eslurm.core.model.step_key import BATCH_STEP, EPILOG_STEP, GATEWAY_STEPS, PROLOG_STEP, StepKey
from eslurm.core.relay.results import FAILED, OK, failed

ATTEMPTS_PER_NODE_MAX = 4_096
RESUMED_GRACE_S = 30.0
"""For what was being ended when the agent stopped; the runner keeps a shorter grace it was given before."""


class Lifecycle:
    """Commands and runner events for attempts. Everything to do goes into the action buffer."""

    def __init__(
        self, buffer: ActionBuffer, reports: Reports, blob_waiters: BlobWaiters, nodes: dict[int, LocalNode]
    ) -> None:
        self.storage_error = ""
        self.orphan_steps = OrphanSteps(buffer)
        self._buffer = buffer
        self._reports = reports
        self._blob_waiters = blob_waiters
        self._nodes = nodes
        self.adjustments = Adjustments(buffer)
        self.phases = Phases(buffer, reports, nodes)
        self._gateways = GatewaySteps(buffer, reports, nodes)
        self._tasks = Tasks(buffer, blob_waiters, self.adjustments, nodes, self._gateways)
        self._deferred: list[tuple[int, int, Attempt, Waiter]] = []
        self._deferrals = 0

    @property
    def tasks(self) -> Tasks:
        """The steps of esrun."""
        return self._tasks

    # ---- commands ----

    def prepare(self, node: LocalNode, command: Prepare, waiter: Waiter) -> None:
        """Make the node ready for the attempt, once; with `start` the script starts too."""
        launch = command.launch
        attempt = node.attempts.get((launch.job_id, launch.attempt))
        if launch.phases and command.start:
            why = "a launch with a prolog or epilog is started by a command of its own"
            self._buffer.settle(waiter, node.number, failed(why))
            return
        if attempt is not None:
            self._prepare_again(attempt, command, waiter)
            return
        refusal = self._refusal(node, launch, waiter)
        if refusal:
            self._buffer.settle(waiter, node.number, failed(refusal))
            return
        if self.storage_error:
            # Nothing of it is or will be written: there is no record that this answer would have to wait for.
            why = f"the node's spool cannot be written: {self.storage_error}"
            self._buffer.settle(waiter, node.number, failed(why), stands_alone=True)
            return
        attempt = Attempt(
            node.number,
            launch.job_id,
            launch.attempt,
            waiter.owner,
            waiter.revision,
            launch,
            Stage.FETCHING,
            start=command.start,
            credential=waiter.sealed if command.start else b"",
            phase_credential=waiter.sealed if launch.phases else b"",
        )
        node.attempts[attempt.key] = attempt
        attempt.starts.append(waiter)
        if not self._fetches_batch(attempt):
            self._on_ready(attempt)

    def start(self, node: LocalNode, command: Start, waiter: Waiter) -> None:
        """Start the prepared batch script."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is None or attempt.launch is None:
            self._buffer.settle(waiter, node.number, failed("the attempt is not prepared on this node"))
        elif attempt.stage is Stage.PREPARED:
            self._start_prepared(attempt, waiter)
        elif attempt.stage is Stage.PREPARING or (attempt.stage is Stage.FETCHING and not attempt.start):
            self._buffer.settle(waiter, node.number, failed("the attempt is not prepared yet"))
        else:
            self._answer_started(attempt, waiter)

    def end(self, node: LocalNode, command: End, waiter: Waiter) -> None:
        """End everything of the attempt and never start it again."""
        key = (command.job_id, command.attempt)
        attempt = node.attempts.get(key)
        if attempt is None:
            self.phases.forget(StepKey(*key, PROLOG_STEP, node.number))
            tombstone = self._buffer.fence(waiter.owner).tombstones.get((node.number, *key))
            started = tombstone is not None and tombstone.started
            self._put_tombstone(node.number, key, waiter.owner, waiter.revision, started)
            self._buffer.answer(waiter.ref, node.number, gone_outcome(started))
            return
        attempt.revision = max(attempt.revision, waiter.revision)
        if BATCH_STEP not in attempt.live:
            # Otherwise the script runs or is about to: to say that it never will would be a lie.
            self._refuse_starts(attempt, "the attempt was ended")
        self._tasks.refuse_waiting(attempt, "the attempt was ended")
        if attempt.stage is Stage.ENDED:
            # How a phase ended is in a report, and this answer must not come before it.
            outcome = OK if self._reports.owes_phase(node, attempt) else gone_outcome(True)
            self._buffer.answer(waiter.ref, node.number, outcome)
        elif not attempt.live and attempt.end is None and not self.phases.owes_epilog(attempt):
            self._bury(attempt)
            self._buffer.answer(waiter.ref, node.number, gone_outcome(attempt.batch_was_started))
        else:
            attempt.ends.append(waiter)
            self._end_live(attempt, command.grace_s, command.cause)
            self._deferrals += 1
            heapq.heappush(self._deferred, (waiter.answer_by_us, self._deferrals, attempt, waiter))

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
            self._put_tombstone(node.number, key, waiter.owner, waiter.revision, started=False)
        elif attempt.batch_was_started or attempt.stage is Stage.ENDED or self._has_steps_for(attempt, body):
            self._answer_started(attempt, waiter)
            return
        else:
            self._refuse_starts(attempt, why)
            self._tasks.refuse_waiting(attempt, why)
            if attempt.live or self.phases.owes_epilog(attempt):
                self._end_live(attempt, 0.0, "refused")
            else:
                self._bury(attempt)
        self._buffer.settle(waiter, node.number, failed(why))

    def _has_steps_for(self, attempt: Attempt, body: Body) -> bool:
        """Check whether live steps prove that the launch has been carried out: steps of gateways precede the script."""
        return bool(attempt.live) and not (type(body) is Start and attempt.stage is Stage.PREPARED)

    # ---- blobs ----

    def on_blobs(self, hashes: tuple[bytes, ...]) -> None:
        """These blobs are here: go on with what waited for them."""
        for attempt, step in self._blob_waiters.take(hashes):
            if step != BATCH_STEP:
                self._tasks.on_ready(attempt, step)
            elif attempt.stage is Stage.FETCHING and not self._fetches_batch(attempt):
                self._on_ready(attempt)

    def on_blobs_missing(self, hashes: tuple[bytes, ...]) -> None:
        """These blobs are missing: this node cannot start the attempt, which is no job's fault."""
        for attempt, step in self._blob_waiters.take(hashes):
            if step != BATCH_STEP:
                self._tasks.refuse(attempt, step, "the environment could not be fetched")
            elif attempt.stage is Stage.FETCHING:
                self.abandon(attempt, "the script or environment could not be fetched")

    def abandon(self, attempt: Attempt, why: str) -> None:
        """Give up an attempt that is not prepared yet; nothing of it exists. One whose node was prepared stays so."""
        self._refuse_starts(attempt, why)
        if attempt.was_prepared or attempt.live:
            attempt.start, attempt.credential = False, b""
            attempt.move(Stage.PREPARED)
            return
        attempt.move(Stage.BURIED)
        del self._nodes[attempt.node].attempts[attempt.key]

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
            self._tasks.on_started(attempt, step.step, lines)
        elif attempt.stage is Stage.STARTING:
            attempt.move(Stage.RUNNING)
            attempt.credential = b""
            attempt.started_us = at_us
            self._answer_starts(attempt)
        elif attempt.started_us == 0:
            attempt.started_us = at_us
            self._answer_starts(attempt)
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
            if not step.is_gateway:
                self._buffer.emit(AcknowledgeSteps((step,)))
            self._tasks.on_ended(attempt, step.step, end)
        elif attempt.end is None:
            self._on_batch_ended(attempt, end)
        if was_live and not attempt.live:
            self._on_empty(attempt)

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
            self._tasks.refuse(attempt, step.step, text)
        elif attempt.in_inventory:
            # The controller was told that it runs: only a report can take that back.
            self._refuse_starts(attempt, text)
            self._on_batch_ended(attempt, StepEnd(1, cause="lost", text=text))
        else:
            self._refuse_starts(attempt, text, code)
            if attempt.live:
                self._end_live(attempt, 0.0, "launch_failed")
        if not attempt.live:
            self._on_empty(attempt)

    # ---- time, acknowledgements, restart ----

    def on_timer(self, now_us: int) -> None:
        """Answer the ends that took too long: a report follows when all is gone."""
        while self._deferred and self._deferred[0][0] <= now_us:
            _, _, attempt, waiter = heapq.heappop(self._deferred)
            if waiter in attempt.ends:
                attempt.ends.remove(waiter)
                attempt.owes_gone = True
                self._buffer.answer(waiter.ref, attempt.node, OK)

    def next_timer_us(self) -> int | None:
        """Time of the next deferred answer."""
        while self._deferred and self._deferred[0][3] not in self._deferred[0][2].ends:
            heapq.heappop(self._deferred)
        return self._deferred[0][0] if self._deferred else None

    def on_committed(
        self, node: LocalNode, body: StepEnded | NodeGone | PhaseReported | GatewayReported, revision: int
    ) -> None:
        """The controller knows what was reported, by `revision`: in the end a tombstone is all that is kept."""
        attempt = node.attempts.get((body.job_id, body.attempt))
        if attempt is None:
            return
        steps = [BATCH_STEP] if isinstance(body, StepEnded) else []
        if attempt.stage is Stage.ENDED and self._reports.is_settled(node, attempt):
            if attempt.launch is None:
                # Its launch, whose revision the spool lost, is older than the commit of its end.
                attempt.revision = max(attempt.revision, revision)
            self._bury(attempt)
        elif isinstance(body, PhaseReported):
            steps.append(GATEWAY_STEPS.get(body.phase, PROLOG_STEP))
        elif attempt.stage not in (Stage.EPILOG, Stage.ENDED):
            return
        if steps:
            keys = [StepKey(*attempt.key, step, node.number) for step in steps]
            self._buffer.emit(AcknowledgeSteps(tuple(keys)))

    def resume(self, attempt: Attempt) -> None:
        """After a restart: start again what was told to start, or end again what was told to end."""
        if attempt.stage is Stage.EPILOG:
            attempt.owes_gone = True
            self.phases.resume_epilog(attempt)
        elif attempt.stage is Stage.PREPARING:
            if PROLOG_STEP not in attempt.live:
                self.phases.run(attempt, PROLOG_STEP)
        elif attempt.stage is Stage.ENDED and attempt.end is not None:
            self._reports.owe_end(self._nodes[attempt.node], attempt, attempt.end)
        elif attempt.stage is Stage.CLOSING and not attempt.live:
            self._on_empty(attempt)
        elif attempt.stage is Stage.CLOSING:
            self._terminate(attempt, RESUMED_GRACE_S, "batch_ended")
        elif attempt.stage is Stage.ENDING and not attempt.live:
            attempt.owes_gone = True
            self._on_empty(attempt)
        elif attempt.stage is Stage.ENDING:
            attempt.owes_gone = True
            self._end_live(attempt, RESUMED_GRACE_S, "ended")
        elif attempt.stage is Stage.PREPARED and attempt.start:
            self._run_batch(attempt)
        self._gateways.resume(attempt)
        self.adjustments.repeat(attempt)

    # ---- inside ----

    def _find(self, step: StepKey) -> Attempt | None:
        node = self._nodes.get(step.node)
        return node.attempts.get((step.job_id, step.attempt)) if node is not None else None

    def _refusal(self, node: LocalNode, launch: JobLaunch, waiter: Waiter) -> str:
        """The reason why this new attempt is refused here; empty when it is not."""
        fence = self._buffer.fence(waiter.owner)
        if (node.number, launch.job_id, launch.attempt) in fence.tombstones:
            return "the attempt has already ended on this node"
        if waiter.revision < fence.floor:
            return f"revision {waiter.revision} is below the floor {fence.floor}"
        if len(node.attempts) >= ATTEMPTS_PER_NODE_MAX:
            return f"the node already holds {len(node.attempts)} attempts"
        return ""

    def _prepare_again(self, attempt: Attempt, command: Prepare, waiter: Waiter) -> None:
        if attempt.stage is Stage.PREPARING:
            self.phases.answer_preparing(attempt, waiter)
        elif attempt.stage is Stage.FETCHING:
            if command.start and not attempt.start:
                attempt.start, attempt.credential = True, waiter.sealed
            attempt.starts.append(waiter)
        elif command.start:
            if attempt.stage is Stage.PREPARED:
                self._start_prepared(attempt, waiter)
            else:
                self._answer_started(attempt, waiter)
        elif attempt.stage is Stage.ENDING or not self._may_be_prepared(attempt):
            self._buffer.settle(waiter, attempt.node, failed("the attempt was ended"))
        else:
            self._buffer.settle(waiter, attempt.node, OK)

    def _may_be_prepared(self, attempt: Attempt) -> bool:
        """False once phases have closed an attempt whose script never began here."""
        return attempt.batch_was_started or attempt.stage not in (Stage.EPILOG, Stage.ENDED)

    def _fetches_batch(self, attempt: Attempt) -> bool:
        """Check whether something must be fetched first. Only the first node runs the script and needs it."""
        launch = attempt.launch
        if launch is None or launch.groups[0].runs[0][0] != attempt.node:
            return False
        return self._blob_waiters.ask(
            attempt, BATCH_STEP, (launch.spec.script_hash, launch.spec.environment_hash)
        )

    def _on_ready(self, attempt: Attempt) -> None:
        """Its script and environment are here. A prolog runs before the node is prepared, once."""
        assert attempt.launch is not None
        if attempt.launch.phases and not attempt.was_prepared and self.phases.has_prolog(attempt):
            self.phases.begin_prolog(attempt)
            return
        self._on_prepared(attempt)

    def _on_prepared(self, attempt: Attempt) -> None:
        launch = attempt.launch
        assert launch is not None
        attempt.move(Stage.PREPARED)
        attempt.was_prepared = bool(launch.phases)
        has_prolog = attempt.was_prepared and self.phases.has_prolog(attempt)
        self._buffer.write(
            Prepared(
                attempt.node,
                attempt.owner,
                attempt.revision,
                launch,
                attempt.start,
                attempt.credential,
                has_prolog,
                attempt.phase_credential,
            )
        )
        if attempt.start:
            self._run_batch(attempt)
            return
        for waiter in attempt.starts:
            self._buffer.settle(waiter, attempt.node, OK)
        attempt.starts.clear()

    def _start_prepared(self, attempt: Attempt, waiter: Waiter) -> None:
        launch = attempt.launch
        if launch is None or launch.groups[0].runs[0][0] != attempt.node:
            self._buffer.settle(waiter, attempt.node, failed("this is not the attempt's first node"))
            return
        attempt.starts.append(waiter)
        attempt.start = True
        attempt.credential = waiter.sealed
        if self._fetches_batch(attempt):
            attempt.move(Stage.FETCHING)
            return
        self._buffer.write(StartIntended(attempt.node, attempt.job_id, attempt.number, attempt.credential))
        self._run_batch(attempt)

    def _run_batch(self, attempt: Attempt) -> None:
        assert attempt.launch is not None
        attempt.move(Stage.STARTING)
        attempt.live.add(BATCH_STEP)
        step = StepKey(attempt.job_id, attempt.number, BATCH_STEP, attempt.node)
        contact_us = self._nodes[attempt.node].contact_us
        self._buffer.emit(RunBatch(step, attempt.launch, attempt.credential, contact_us))
        self.adjustments.on_run(attempt, step)

    def _answer_started(self, attempt: Attempt, waiter: Waiter) -> None:
        """A start of what is, or was, already started."""
        if attempt.stage in (Stage.STARTING, Stage.FETCHING) or (
            attempt.stage is Stage.ENDING and BATCH_STEP in attempt.live and not attempt.started_us
        ):
            attempt.starts.append(waiter)
        elif not attempt.batch_was_started and attempt.stage is not Stage.PREPARED:
            self._buffer.settle(waiter, attempt.node, failed("the attempt was ended"))
        else:
            self._buffer.settle(waiter, attempt.node, started_outcome(attempt.started_us))

    def _answer_starts(self, attempt: Attempt) -> None:
        outcome = started_outcome(attempt.started_us)
        for waiter in attempt.starts:
            self._buffer.settle(waiter, attempt.node, outcome)
        attempt.starts.clear()

    def _refuse_starts(self, attempt: Attempt, why: str, code: int = FAILED) -> None:
        for waiter in attempt.starts:
            self._buffer.settle(waiter, attempt.node, failed(why, code))
        attempt.starts.clear()

    def _on_batch_ended(self, attempt: Attempt, end: StepEnd) -> None:
        attempt.end = end
        attempt.started_us = attempt.started_us or end.started_us or end.ended_us
        self._answer_starts(attempt)
        if attempt.live and attempt.stage is not Stage.ENDING:
            grace_s = attempt.launch.kill_grace_s if attempt.launch is not None else 0.0
            attempt.move(Stage.CLOSING)
            self._terminate(attempt, grace_s, "batch_ended")

    def _on_phase_ended(self, attempt: Attempt, step: StepKey, end: StepEnd) -> None:
        if step.step == EPILOG_STEP:
            self.phases.on_epilog_ended(attempt, end)
        elif not end.is_good:
            attempt.move(Stage.ENDED)
            self.phases.report_prolog(attempt, end)
            self.phases.answer_ends(attempt)
        elif attempt.stage is Stage.PREPARING:
            self.phases.report_prolog(attempt, end)
            self._on_prepared(attempt)
        else:
            attempt.was_prepared = True
            self._buffer.emit(AcknowledgeSteps((step,)))
            self._on_empty(attempt)

    def _on_empty(self, attempt: Attempt) -> None:
        """No step is left: a prepared node goes on waiting, any other has its epilog or is done."""
        if attempt.stage is not Stage.PREPARED and self.phases.owes_epilog(attempt):
            if not attempt.batch_was_started:
                self._buffer.fence(attempt.owner).never_started((attempt.node, *attempt.key))
            self.phases.begin_epilog(attempt)
            return
        if attempt.end is not None:
            attempt.move(Stage.ENDED)
            self._reports.owe_end(self._nodes[attempt.node], attempt, attempt.end)
        elif attempt.stage in (Stage.ENDING, Stage.STARTING):
            if not attempt.batch_was_started:
                self._buffer.fence(attempt.owner).never_started((attempt.node, *attempt.key))
            self._bury(attempt)
        else:
            return
        outcome = gone_outcome(attempt.batch_was_started)
        for waiter in attempt.ends:
            self._buffer.answer(waiter.ref, attempt.node, outcome)
        attempt.ends.clear()
        if attempt.owes_gone:
            self._reports.owe_gone(self._nodes[attempt.node], attempt)

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
        self._on_empty(attempt)

    def _end_live(self, attempt: Attempt, grace_s: float, cause: str) -> None:
        if not attempt.live and attempt.stage is not Stage.ENDING:
            attempt.move(Stage.EPILOG)
        elif attempt.stage not in (Stage.ENDING, Stage.EPILOG):
            attempt.move(Stage.ENDING)
        started = attempt.batch_was_started
        self._put_tombstone(
            attempt.node,
            attempt.key,
            attempt.owner,
            attempt.revision,
            started,
            self.phases.owed_record(attempt),
        )
        if attempt.stage is Stage.EPILOG and not attempt.live:
            self.phases.resume_epilog(attempt)
        self._terminate(attempt, grace_s, cause)

    def _terminate(self, attempt: Attempt, grace_s: float, cause: str) -> None:
        attempt.grace_s = grace_s
        for step in sorted(attempt.live):
            key = StepKey(attempt.job_id, attempt.number, step, attempt.node)
            if not key.is_phase:
                self._buffer.emit(TerminateStep(key, grace_s, cause))

    def _bury(self, attempt: Attempt) -> None:
        started = attempt.batch_was_started
        attempt.move(Stage.BURIED)
        del self._nodes[attempt.node].attempts[attempt.key]
        self._put_tombstone(attempt.node, attempt.key, attempt.owner, attempt.revision, started)
        self.phases.acknowledge(attempt)
        self._gateways.acknowledge(attempt)

    def _put_tombstone(
        self,
        node: int,
        key: tuple[int, int],
        owner: str,
        revision: int,
        started: bool,
        owed: Preparing | EpilogOwed | None = None,
    ) -> None:
        fence = self._buffer.fence(owner)
        fence.bury((node, *key), revision, started)
        if owed is not None:
            self._buffer.write(msgspec.structs.replace(owed, ended=True), durable=True)
            return
        tombstone = fence.tombstones.get((node, *key))
        if tombstone is not None:
            revision, started = tombstone.revision, tombstone.started
        # Below the floor it is needed all the same: the spool still says that the attempt is prepared.
        self._buffer.write(Buried(node, *key, owner, revision, started))
