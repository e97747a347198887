"""Starts of attempts on one node each: the launch is prepared, its batch script starts on the first node.

Invariant: a batch script is started at most once per attempt and node, save for the very same step to the same runner, which
is idempotent.
"""

from __future__ import annotations

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import RunBatch
from eslurm.core.agent.adjustments import Adjustments
from eslurm.core.agent.attempt import Attempt, Stage, Waiter
from eslurm.core.agent.blob_waiters import BlobWaiters
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.outcomes import started_outcome
from eslurm.core.agent.phases import Phases
from eslurm.core.agent.records import Prepared, StartIntended
from eslurm.core.model.protocol import JobLaunch, Prepare, Start
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.relay.results import FAILED, OK, failed

ATTEMPTS_PER_NODE_MAX = 4_096


class Starts:
    """Prepares and starts attempts, and answers the commands that wait for it."""

    def __init__(
        self,
        buffer: ActionBuffer,
        blob_waiters: BlobWaiters,
        nodes: dict[int, LocalNode],
        phases: Phases,
        adjustments: Adjustments,
    ) -> None:
        self.storage_error = ""
        self._buffer = buffer
        self._blob_waiters = blob_waiters
        self._nodes = nodes
        self._phases = phases
        self._adjustments = adjustments

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
        if not self.fetches_batch(attempt):
            self.on_ready(attempt)

    def start(self, node: LocalNode, command: Start, waiter: Waiter) -> None:
        """Start the prepared batch script."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is None or (attempt.launch is None and not attempt.batch_was_started):
            self._buffer.settle(waiter, node.number, failed("the attempt is not prepared on this node"))
        elif attempt.stage is Stage.PREPARED:
            self._start_prepared(attempt, waiter)
        elif attempt.stage is Stage.PREPARING or (attempt.stage is Stage.FETCHING and not attempt.start):
            self._buffer.settle(waiter, node.number, failed("the attempt is not prepared yet"))
        else:
            self.answer_started(attempt, waiter)

    def abandon(self, attempt: Attempt, why: str) -> None:
        """Give up an attempt that is not prepared yet; nothing of it exists. One whose node was prepared stays so."""
        self.refuse_all(attempt, why)
        if attempt.was_prepared or attempt.live:
            attempt.start, attempt.credential = False, b""
            attempt.move(Stage.PREPARED)
            return
        attempt.move(Stage.BURIED)
        del self._nodes[attempt.node].attempts[attempt.key]

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
            self._phases.answer_preparing(attempt, waiter)
        elif attempt.stage is Stage.FETCHING:
            if command.start and not attempt.start:
                attempt.start, attempt.credential = True, waiter.sealed
            attempt.starts.append(waiter)
        elif command.start:
            if attempt.stage is Stage.PREPARED:
                self._start_prepared(attempt, waiter)
            else:
                self.answer_started(attempt, waiter)
        elif attempt.stage is Stage.ENDING or not self._may_be_prepared(attempt):
            self._buffer.settle(waiter, attempt.node, failed("the attempt was ended"))
        else:
            self._buffer.settle(waiter, attempt.node, OK)

    def _may_be_prepared(self, attempt: Attempt) -> bool:
        """False once phases have closed an attempt whose script never began here."""
        return attempt.batch_was_started or attempt.stage not in (Stage.EPILOG, Stage.ENDED)

    def fetches_batch(self, attempt: Attempt) -> bool:
        """Check whether something must be fetched first. Only the first node runs the script and needs it."""
        launch = attempt.launch
        if launch is None or launch.groups[0].runs[0][0] != attempt.node:
            return False
        return self._blob_waiters.ask(
            attempt, BATCH_STEP, (launch.spec.script_hash, launch.spec.environment_hash)
        )

    def on_ready(self, attempt: Attempt) -> None:
        """Its script and environment are here. A prolog runs before the node is prepared, once."""
        assert attempt.launch is not None
        if attempt.launch.phases and not attempt.was_prepared and self._phases.has_prolog(attempt):
            self._phases.begin_prolog(attempt)
            return
        self.on_prepared(attempt)

    def on_prepared(self, attempt: Attempt) -> None:
        """The node is ready for the attempt."""
        launch = attempt.launch
        assert launch is not None
        attempt.move(Stage.PREPARED)
        attempt.was_prepared = bool(launch.phases)
        has_prolog = attempt.was_prepared and self._phases.has_prolog(attempt)
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
            self.run_batch(attempt)
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
        if self.fetches_batch(attempt):
            attempt.move(Stage.FETCHING)
            return
        self._buffer.write(StartIntended(attempt.node, attempt.job_id, attempt.number, attempt.credential))
        self.run_batch(attempt)

    def run_batch(self, attempt: Attempt) -> None:
        """Hand the batch script to the runner."""
        assert attempt.launch is not None
        attempt.move(Stage.STARTING)
        attempt.live.add(BATCH_STEP)
        step = StepKey(attempt.job_id, attempt.number, BATCH_STEP, attempt.node)
        contact_us = self._nodes[attempt.node].contact_us
        self._buffer.emit(RunBatch(step, attempt.launch, attempt.credential, contact_us))
        self._adjustments.on_run(attempt, step)

    def answer_started(self, attempt: Attempt, waiter: Waiter) -> None:
        """A start of what is, or was, already started."""
        if attempt.stage in (Stage.STARTING, Stage.FETCHING) or (
            attempt.stage is Stage.ENDING and BATCH_STEP in attempt.live and not attempt.started_us
        ):
            attempt.starts.append(waiter)
        elif not attempt.batch_was_started and attempt.stage is not Stage.PREPARED:
            self._buffer.settle(waiter, attempt.node, failed("the attempt was ended"))
        else:
            self._buffer.settle(waiter, attempt.node, started_outcome(attempt.started_us))

    def answer_all(self, attempt: Attempt) -> None:
        """Answer the starts that wait: the script has begun."""
        outcome = started_outcome(attempt.started_us)
        for waiter in attempt.starts:
            self._buffer.settle(waiter, attempt.node, outcome)
        attempt.starts.clear()

    def refuse_all(self, attempt: Attempt, why: str, code: int = FAILED) -> None:
        """Answer the starts that wait: the script does not begin here."""
        for waiter in attempt.starts:
            self._buffer.settle(waiter, attempt.node, failed(why, code))
        attempt.starts.clear()
