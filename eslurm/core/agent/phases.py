"""The site's prolog and epilog on a node, for each attempt whose launch names them (F-01).

Each is a step of the runner with a number of its own, so it runs at most once per attempt and node. Invariants: the prolog
ends well before anything of the job starts here; the epilog runs when nothing else of the attempt is left, and the attempt
is kept until the controller has committed how it ended. A prolog that failed needs no epilog. No order of the controller
shortens either of them: the limit is the node's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import AcknowledgeSteps, RunPhase
from eslurm.core.agent.attempt import Attempt, Stage, Waiter
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.outcomes import preparing_outcome
from eslurm.core.agent.records import EpilogOwed, Preparing
from eslurm.core.agent.reports import Reports
from eslurm.core.model.job import StepEnd
from eslurm.core.model.step_key import EPILOG, EPILOG_STEP, PROLOG, PROLOG_STEP, StepKey
from eslurm.core.relay.results import OK

UNCLAIMED_MAX: Final = 1_024
"""Ends of prologs that no attempt here knows, kept in the runner for a launch that may come again; older ones go."""


class Phases:
    """Starts phases and says how they ended; the stages around them are the attempt's business (`lifecycle`)."""

    def __init__(self, buffer: ActionBuffer, reports: Reports, nodes: Mapping[int, LocalNode]) -> None:
        self._buffer = buffer
        self._reports = reports
        self._nodes = nodes
        self._unclaimed: dict[StepKey, None] = {}

    def has_prolog(self, attempt: Attempt) -> bool:
        """Check whether the attempt runs a prolog here."""
        return self._is_named(attempt, PROLOG)

    def owes_epilog(self, attempt: Attempt) -> bool:
        """Check whether the attempt must not leave the node without its epilog."""
        if not attempt.was_prepared:
            return False
        if attempt.lost_launch:
            return EPILOG in self._nodes[attempt.node].offer.phases
        return self._is_named(attempt, EPILOG)

    def _is_named(self, attempt: Attempt, phase: str) -> bool:
        launch = attempt.launch
        return (
            launch is not None and phase in launch.phases and phase in self._nodes[attempt.node].offer.phases
        )

    # ---- the prolog ----

    def begin_prolog(self, attempt: Attempt) -> None:
        """Run the prolog, and answer the launch: the report of its end follows."""
        attempt.move(Stage.PREPARING)
        self._unclaimed.pop(_key(attempt, PROLOG_STEP), None)
        self.write_owed(attempt)
        self.run(attempt, PROLOG_STEP)
        for waiter in attempt.starts:
            self.answer_preparing(attempt, waiter)
        attempt.starts.clear()

    def answer_preparing(self, attempt: Attempt, waiter: Waiter) -> None:
        """Answer a launch while the prolog runs. The answer is not kept: the next copy hears how things are then."""
        limit_s = self._nodes[attempt.node].offer.phase_limit_s
        self._buffer.answer(waiter.ref, attempt.node, preparing_outcome(limit_s))

    def report_prolog(self, attempt: Attempt, end: StepEnd) -> None:
        """Owe the report of the prolog's end."""
        self._reports.owe_phase(self._nodes[attempt.node], attempt, PROLOG, end)

    # ---- the epilog ----

    def begin_epilog(self, attempt: Attempt) -> None:
        """Run the epilog: nothing else of the attempt is left. The batch script is reported as ended first."""
        attempt.move(Stage.EPILOG)
        self.resume_epilog(attempt)

    def resume_epilog(self, attempt: Attempt) -> None:
        """Run the epilog, or find it."""
        if attempt.end is not None:
            self._reports.owe_end(self._nodes[attempt.node], attempt, attempt.end, gone=False)
        if attempt.launch is None:
            text = f"the agent lost its records of job {attempt.job_id}, whose epilog has not run"
            self.on_epilog_ended(attempt, StepEnd(1, cause="lost", text=text))
            return
        self.write_owed(attempt)
        if EPILOG_STEP not in attempt.live:
            self.run(attempt, EPILOG_STEP)

    def on_epilog_ended(self, attempt: Attempt, end: StepEnd) -> None:
        """The report says that the node is free, and how the epilog ended: no answer to an `End` does."""
        attempt.move(Stage.ENDED)
        self._reports.owe_gone(self._nodes[attempt.node], attempt, end)
        self.answer_ends(attempt)

    # ---- both ----

    def run(self, attempt: Attempt, step: int) -> None:
        """Tell the runner to start a phase, or to say what became of it."""
        assert attempt.launch is not None
        attempt.live.add(step)
        end = attempt.end if step == EPILOG_STEP else None
        self._buffer.emit(RunPhase(_key(attempt, step), attempt.launch, attempt.phase_credential, end))

    def write_owed(self, attempt: Attempt) -> None:
        """Put into the spool what of the attempt's phases is still to be done or reported; durable, for a host may die."""
        if (record := self.owed_record(attempt)) is not None:
            self._buffer.write(record, durable=True)

    def owed_record(self, attempt: Attempt) -> Preparing | EpilogOwed | None:
        """The spool's record of what the attempt owes of its phases; None: nothing.

        It is a tombstone as well, for a crash may keep one of two records.
        """
        launch = attempt.launch
        if launch is None or not launch.phases:
            return None
        what = (attempt.node, attempt.owner, attempt.revision, launch, attempt.phase_credential)
        tombstones = self._buffer.fence(attempt.owner).tombstones
        ended = attempt.stage is Stage.ENDING or (attempt.node, *attempt.key) in tombstones
        if not attempt.was_prepared:
            is_over = attempt.stage in (Stage.PREPARING, Stage.ENDED)
            return Preparing(*what, ended) if is_over or PROLOG_STEP in attempt.live else None
        if attempt.stage in (Stage.ENDING, Stage.EPILOG, Stage.ENDED) and self.owes_epilog(attempt):
            return EpilogOwed(*what, ended, attempt.started_us if attempt.batch_was_started else 0)
        return None

    def answer_ends(self, attempt: Attempt) -> None:
        """Accept the orders to end the attempt: a report follows."""
        for waiter in attempt.ends:
            self._buffer.answer(waiter.ref, attempt.node, OK)
        attempt.ends.clear()

    def acknowledge(self, attempt: Attempt) -> None:
        """The attempt is over: the runner may forget its phases."""
        launch = attempt.launch
        if launch.phases if launch is not None else self._nodes[attempt.node].offer.phases:
            self._buffer.emit(AcknowledgeSteps((_key(attempt, PROLOG_STEP), _key(attempt, EPILOG_STEP))))

    def on_unknown(self, step: StepKey) -> None:
        """A phase ended that no attempt here knows. The end of a prolog is kept: its launch may come again."""
        if step.step != PROLOG_STEP:
            self._buffer.emit(AcknowledgeSteps((step,)))
            return
        self._unclaimed[step] = None
        while len(self._unclaimed) > UNCLAIMED_MAX:
            oldest = next(iter(self._unclaimed))
            del self._unclaimed[oldest]
            self._buffer.emit(AcknowledgeSteps((oldest,)))

    def forget(self, step: StepKey) -> None:
        """The attempt will never be launched here again: the end of its prolog, if one is kept, may go."""
        if step in self._unclaimed:
            del self._unclaimed[step]
            self._buffer.emit(AcknowledgeSteps((step,)))


def _key(attempt: Attempt, step: int) -> StepKey:
    return StepKey(attempt.job_id, attempt.number, step, attempt.node)
