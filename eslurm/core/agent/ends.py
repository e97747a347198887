"""Ends of attempts on one node each: what runs is ended, a tombstone stands, and the controller hears when all is gone.

Invariants: a tombstone is written before anything is ended; each order to end is answered exactly once.
"""

from __future__ import annotations

import heapq

import msgspec

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import TerminateStep, Vacate
from eslurm.core.agent.attempt import Attempt, Stage, Waiter
from eslurm.core.agent.gateways import GatewaySteps
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.outcomes import gone_outcome
from eslurm.core.agent.phases import Phases
from eslurm.core.agent.records import Buried, EpilogOwed, Preparing
from eslurm.core.agent.reports import Reports
from eslurm.core.agent.starts import Starts
from eslurm.core.agent.tasks import Tasks
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import End
from eslurm.core.model.step_key import BATCH_STEP, PROLOG_STEP, StepKey
from eslurm.core.relay.results import OK


class Ends:
    """Ends attempts and buries them."""

    def __init__(
        self,
        buffer: ActionBuffer,
        reports: Reports,
        nodes: dict[int, LocalNode],
        starts: Starts,
        phases: Phases,
        gateways: GatewaySteps,
        tasks: Tasks,
    ) -> None:
        self._buffer = buffer
        self._reports = reports
        self._nodes = nodes
        self._starts = starts
        self._phases = phases
        self._gateways = gateways
        self._tasks = tasks
        self._deferred: list[tuple[int, int, Attempt, Waiter]] = []
        self._deferrals = 0

    def end(self, node: LocalNode, command: End, waiter: Waiter) -> None:
        """End everything of the attempt and never start it again."""
        key = (command.job_id, command.attempt)
        attempt = node.attempts.get(key)
        if attempt is None:
            self._phases.forget(StepKey(*key, PROLOG_STEP, node.number))
            tombstone = self._buffer.fence(waiter.owner).tombstones.get((node.number, *key))
            started = tombstone is not None and tombstone.started
            self.put_tombstone(node.number, key, waiter.owner, waiter.revision, started)
            self._buffer.answer(waiter.ref, node.number, gone_outcome(started))
            return
        attempt.revision = max(attempt.revision, waiter.revision)
        if BATCH_STEP not in attempt.live:
            # Otherwise the script runs or is about to: to say that it never will would be a lie.
            self._starts.refuse_all(attempt, "the attempt was ended")
        self._tasks.refuse_waiting(attempt, "the attempt was ended")
        if attempt.stage is Stage.ENDED:
            # How a phase ended is in a report, and this answer must not come before it.
            outcome = OK if self._reports.owes_phase(node, attempt) else gone_outcome(True)
            self._reports.repeat_gone(node, attempt)
            self._buffer.answer(waiter.ref, node.number, outcome)
        elif not attempt.live and attempt.end is None and not self._phases.owes_epilog(attempt):
            self.bury(attempt)
            self._buffer.answer(waiter.ref, node.number, gone_outcome(attempt.batch_was_started))
        else:
            attempt.ends.append(waiter)
            self.end_live(attempt, command.grace_s, command.cause)
            self._deferrals += 1
            heapq.heappush(self._deferred, (waiter.answer_by_us, self._deferrals, attempt, waiter))

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

    def on_batch_ended(self, attempt: Attempt, end: StepEnd) -> None:
        """The batch script is over: other steps of the attempt are ended."""
        attempt.end = end
        attempt.started_us = attempt.started_us or end.started_us or end.ended_us
        self._starts.answer_all(attempt)
        if attempt.live and attempt.stage is not Stage.ENDING:
            grace_s = attempt.launch.kill_grace_s if attempt.launch is not None else 0.0
            attempt.move(Stage.CLOSING)
            self.terminate(attempt, grace_s, "batch_ended")

    def on_empty(self, attempt: Attempt) -> None:
        """No step is left: a prepared node goes on waiting, any other has its epilog or is done."""
        if attempt.stage is not Stage.PREPARED and self._phases.owes_epilog(attempt):
            if not attempt.batch_was_started:
                self._buffer.fence(attempt.owner).never_started((attempt.node, *attempt.key))
            self._phases.begin_epilog(attempt)
            return
        if attempt.end is not None:
            attempt.move(Stage.ENDED)
            self._reports.owe_end(self._nodes[attempt.node], attempt, attempt.end)
        elif attempt.stage in (Stage.ENDING, Stage.STARTING):
            if not attempt.batch_was_started:
                self._buffer.fence(attempt.owner).never_started((attempt.node, *attempt.key))
            self.bury(attempt)
        else:
            return
        outcome = gone_outcome(attempt.batch_was_started)
        for waiter in attempt.ends:
            self._buffer.answer(waiter.ref, attempt.node, outcome)
        attempt.ends.clear()
        if attempt.owes_gone:
            self._reports.owe_gone(self._nodes[attempt.node], attempt)

    def end_live(self, attempt: Attempt, grace_s: float, cause: str) -> None:
        """End what runs, behind a tombstone; without steps the epilog follows at once."""
        if not attempt.live and attempt.stage is not Stage.ENDING:
            attempt.move(Stage.EPILOG)
        elif attempt.stage not in (Stage.ENDING, Stage.EPILOG):
            attempt.move(Stage.ENDING)
        started = attempt.batch_was_started
        self.put_tombstone(
            attempt.node,
            attempt.key,
            attempt.owner,
            attempt.revision,
            started,
            self._phases.owed_record(attempt),
        )
        if attempt.stage is Stage.EPILOG and not attempt.live:
            self._phases.resume_epilog(attempt)
        self.terminate(attempt, grace_s, cause)

    def terminate(self, attempt: Attempt, grace_s: float, cause: str) -> None:
        """Tell the runner to end all steps but phases."""
        attempt.grace_s = grace_s
        for step in sorted(attempt.live):
            key = StepKey(attempt.job_id, attempt.number, step, attempt.node)
            if not key.is_phase:
                self._buffer.emit(TerminateStep(key, grace_s, cause))

    def bury(self, attempt: Attempt) -> None:
        """Forget the attempt but for its tombstone."""
        started = attempt.batch_was_started
        attempt.move(Stage.BURIED)
        del self._nodes[attempt.node].attempts[attempt.key]
        self._buffer.emit(Vacate(((attempt.node, *attempt.key),)))
        self.put_tombstone(attempt.node, attempt.key, attempt.owner, attempt.revision, started)
        self._phases.acknowledge(attempt)
        self._gateways.acknowledge(attempt)

    def put_tombstone(
        self,
        node: int,
        key: tuple[int, int],
        owner: str,
        revision: int,
        started: bool,
        owed: Preparing | EpilogOwed | None = None,
    ) -> None:
        """Make it true that the attempt never starts here again; `owed`: its phases, which the same record keeps."""
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
