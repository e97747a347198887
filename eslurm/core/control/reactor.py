"""One batch through the core: messages in; facts, answers and effects out. The heart of the controller.

For each message: decide, then apply its facts one by one, each followed by the facts that it implies for dependent jobs,
up to the size of one batch: thousands may wait for one job. The rest is owed (`State.unsettled`) and done by the following
batches, which the caller makes as long as `next_timer_us` is now. Nothing leaves a batch before the caller has committed
it in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from eslurm.core.control import lending
from eslurm.core.control.decide import Answer, decide
from eslurm.core.control.effects import Effect, effect_of
from eslurm.core.control.jobs.controller_phases import begun
from eslurm.core.control.jobs.dependency import affected, dependents_of_all, reconsider
from eslurm.core.control.jobs.preemption import resumptions
from eslurm.core.control.steps import next_turn
from eslurm.core.control.timers import pop_due
from eslurm.core.model import facts
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, AttemptPhase
from eslurm.core.model.messages import (
    Changed,
    JobProblem,
    Message,
    RefusalCode,
    Refused,
    Reports,
    Tick,
    UpdateNodes,
)
from eslurm.core.model.protocol import CoresReported, RegistrationReply, ReportAck
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State, Touched
from eslurm.core.state.endings import settled_outcome

BatchAnswer: TypeAlias = Answer | Refused | tuple[ReportAck, ...]
TIMERS_PER_BATCH = 1000
SETTLED_PER_BATCH = 256
"""Jobs whose dependencies are looked at again in one batch: about two milliseconds."""


class Batch:
    """Result of one batch. `revision_first` is that of its first fact (if any)."""

    def __init__(self, revision_first: int, now_us: int) -> None:
        self.revision_first = revision_first
        self.now_us = now_us
        self.facts: list[facts.Fact] = []
        self.effects: list[Effect] = []
        self.answers: list[BatchAnswer] = []
        self.touched = Touched()


Observer: TypeAlias = Callable[[State, facts.Fact], None]


class Reactor:
    """Drives the state. `observe` is called after each applied fact (invariants in tests and simulation); `on_bug` gets an
    exception that refused a message.
    """

    def __init__(
        self,
        state: State,
        observe: Observer | None = None,
        on_bug: Callable[[Exception], None] | None = None,
    ) -> None:
        self.state = state
        # A batch without facts has a time too, and its answers are committed with it.
        self._now_us = 0
        self._observe = observe
        self._on_bug = on_bug
        self._settles_left = 0
        # Until it leads itself, nothing begins on its host.
        self._epoch_before = state.epoch
        # The former leader may have owed some of them; a needless check costs little.
        state.unsettled = dict.fromkeys(dependents_of_all(state))
        state.step_use.due = dict.fromkeys(state.step_use.waiting)

    def process(self, messages: Iterable[Message], wall_us: int) -> Batch:
        """Decide and apply all messages. Time never goes back: the batch's `now` is at least the last one's."""
        now_us = self._now_us = max(wall_us, self.state.now_us, self._now_us)
        batch = Batch(self.state.revision + 1, now_us)
        self._settles_left = SETTLED_PER_BATCH
        for message in messages:
            batch.answers.append(self._answer(message, batch))
        self._settle(batch)
        if self.state.reports and (self.state.reports.changed or self.state.borrowers):
            self._apply_all(lending.due(self.state, now_us), batch)
        if self.state.lending:
            # Before any plan uses the released resources: they are theirs.
            self._apply_all(resumptions(self.state, now_us), batch)
        if self.state.phases_waiting and self.state.epoch != self._epoch_before:
            self._apply_all(begun(self.state), batch)
        self._give_turns(batch)
        batch.touched = self.state.take_touched()
        return batch

    def _give_turns(self, batch: Batch) -> None:
        """Launch the steps that have waited for what has become free, each job's in their order."""
        use = self.state.step_use
        while use.due:
            job_id, _ = use.due.popitem()
            while found := next_turn(self.state, job_id):
                self._apply_all(found, batch)
            use.due.pop(job_id, None)

    def _answer(self, message: Message, batch: Batch) -> BatchAnswer:
        match message:
            case Reports():
                return self._on_reports(message, batch)
            case Tick():
                self._on_tick(batch)
                return None
            case UpdateNodes(action="lost") if len(message.names) > 1:
                return self._on_each_lost(message, batch)
            case _:
                return self._step(message, batch)

    def _step(self, message: Message, batch: Batch) -> Answer | Refused:
        try:
            found, answer = decide(self.state, message, batch.now_us)
        except Refused as refused:
            return refused
        except Exception as bug:
            return self._refuse_bug(bug)
        self._apply_all(found, batch)
        return answer

    def _refuse_bug(self, bug: Exception) -> Refused:
        if self._on_bug is None:
            raise bug
        self._on_bug(bug)
        return Refused(RefusalCode.INTERNAL, f"the controller could not decide this ({bug}): see its log")

    def _apply_all(self, found: list[facts.Fact], batch: Batch) -> None:
        for fact in found:
            left = _left_of(self.state, fact)
            if left is not None:
                self._apply(left, batch)
                self._settle(batch)

    def _settle(self, batch: Batch) -> None:
        """Check the jobs whose dependencies may be settled, each in turn, because the state may have changed by then."""
        unsettled = self.state.unsettled
        while unsettled and self._settles_left:
            self._settles_left -= 1
            job_id, _ = unsettled.popitem()
            for consequence in reconsider(self.state, job_id):
                self._apply(consequence, batch)

    def _apply(self, fact: facts.Fact, batch: Batch) -> None:
        """Apply one fact, and note the dependent jobs: the first of them is checked next."""
        apply(self.state, fact, self.state.revision + 1, batch.now_us)
        batch.facts.append(fact)
        if (effect := effect_of(self.state, fact)) is not None:
            batch.effects.append(effect)
        for job_id in reversed(affected(self.state, fact)):
            self.state.unsettled[job_id] = None
        if (waiting := self.state.step_use.waiting) and getattr(fact, "job_id", None) in waiting:
            self.state.step_use.due[fact.job_id] = None  # type: ignore[union-attr]
        if self._observe is not None:
            self._observe(self.state, fact)

    def _on_reports(self, message: Reports, batch: Batch) -> tuple[ReportAck, ...]:
        """Decide each report by itself; all are acknowledged per agent process once the batch is committed."""
        seqs: dict[str, list[int]] = {}
        replies: dict[str, list[RegistrationReply]] = {}
        for report in message.reports:
            if type(report.body) is CoresReported:
                lending.note(self.state, report.body, batch.now_us)
                seqs.setdefault(report.process, []).append(report.seq)
                continue
            try:
                found, answer = decide(self.state, report.body, batch.now_us)
            except Exception as bug:
                # Left unacknowledged: the agent keeps it and an administrator finds it in the log.
                self._refuse_bug(bug)
                continue
            self._apply_all(found, batch)
            seqs.setdefault(report.process, []).append(report.seq)
            if isinstance(answer, RegistrationReply):
                replies.setdefault(report.process, []).append(answer)
        return tuple(
            ReportAck(process, tuple(numbers), tuple(replies.get(process, ())), self.state.revision)
            for process, numbers in seqs.items()
        )

    def _on_each_lost(self, message: UpdateNodes, batch: Batch) -> Answer | Refused:
        """Decide each lost node of one job on the state that the one before has left."""
        count = 0
        problems: list[JobProblem] = []
        for name in message.names:
            single = UpdateNodes(message.by, (name,), message.action, message.reason)
            answer = self._step(single, batch)
            if isinstance(answer, Refused):
                return answer
            assert isinstance(answer, Changed)
            count += answer.count
            problems += answer.problems
        return Changed(count, tuple(problems))

    def _on_tick(self, batch: Batch) -> None:
        for _ in range(TIMERS_PER_BATCH):
            due = pop_due(self.state, batch.now_us)
            if due is None:
                return
            self._apply_all(due, batch)


def _left_of(state: State, fact: facts.Fact) -> facts.Fact | None:
    """The rest of a fact when another one of the same message has already brought the job, or its attempt, to its end.

    The end of one member of a pack may end the attempts of others, and that of a running job its growth.
    """
    if isinstance(fact, facts.JobFinished):
        job = state.get_job(fact.job_id)
        is_over = job.state in FINAL or (job.pack is not None and settled_outcome(job) is not None)
        return None if is_over else fact
    if isinstance(fact, facts.JobsPromised):
        # A job that is ended to make room takes its growth with it.
        waiting = tuple([one for one in fact.promises if not _has_ended(state, one.job_id)])
        return (
            fact if len(waiting) == len(fact.promises) else facts.JobsPromised(waiting) if waiting else None
        )
    if isinstance(fact, facts.AttemptEnded | facts.StopRequested):
        job = state.get_job(fact.job_id)
        if job.pack is not None and _is_over(job, fact.attempt):
            return _released(state, fact) if isinstance(fact, facts.AttemptEnded) else None
    return fact


def _has_ended(state: State, job_id: int) -> bool:
    job = state.find_job(job_id)
    return job is None or job.state in FINAL


def _is_over(job: Job, number: int) -> bool:
    attempt = job.attempt
    over = AttemptPhase.RELEASING, AttemptPhase.SETTLING
    return attempt is None or attempt.number != number or attempt.phase in over


def _released(state: State, fact: facts.AttemptEnded) -> facts.NodesReleased | None:
    """The release of the nodes that an end which came too late gives back."""
    found = state.find_attempt(fact.job_id, fact.attempt)
    nodes = tuple([node for node in fact.released if found is not None and node in found[1].held])
    return facts.NodesReleased(fact.job_id, fact.attempt, nodes) if nodes else None
