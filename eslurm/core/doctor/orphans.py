"""Attempts that run unknown to the controller, and attempts in its state that run nowhere.

`Watch` remembers the inventories of registrations, because the state keeps only what follows from them. It gets every
committed batch. Invariant: its memory is bounded: one inventory for each node, `ORPHANS_MAX` orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from eslurm.core.doctor.finding import ERROR, WARNING, Finding, Sliced
from eslurm.core.model import facts
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import EffectDone, Message, Reports
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import NodeGone, Registration
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.allocation_amounts import limit_s
from eslurm.core.state.cluster import State, attempts_of

ORPHANS = "orphans"
ENDINGS = "endings"
ORPHANS_MAX = 10_000
SETTLING_US = 60 * SECOND_US
"""Younger differences may be in transit: messages, retries, a skewed clock."""

Key = tuple[int, int, int]
"""(node, job, attempt)"""
_NOTHING: frozenset[tuple[int, int]] = frozenset()


class _Inventory(msgspec.Struct, frozen=True, gc=False):
    """The attempts on a node when it registered."""

    at_us: int
    held: frozenset[tuple[int, int]]


class _Orphan(msgspec.Struct, frozen=True, gc=False):
    """Time of its detection, and the fact that ordered its end."""

    since_us: int
    revision: int


class Watch:
    """Call `on_committed` after each batch."""

    def __init__(self) -> None:
        self._inventories: dict[int, _Inventory] = {}
        self._orphans: dict[Key, _Orphan] = {}

    def on_committed(
        self, messages: Iterable[Message], found: Sequence[facts.Fact], revision_first: int, now_us: int
    ) -> None:
        """Process a durable batch: its registrations and their facts."""
        # Nodes of one process share its session.
        offered: dict[tuple[str, str], Registration] = {}
        for message in messages:
            if isinstance(message, Reports):
                for report in message.reports:
                    if isinstance(report.body, Registration):
                        offered[report.body.node_uid, report.body.session] = report.body
                    elif isinstance(report.body, NodeGone):
                        self._orphans.pop((report.body.node, report.body.job_id, report.body.attempt), None)
            elif isinstance(message, EffectDone) and self._orphans:
                self._on_effect(message)
        for revision, fact in enumerate(found, revision_first):
            if isinstance(fact, facts.NodeRegistered):
                self._on_registered(fact, offered.get((fact.node_uid, fact.session)), now_us)
            elif isinstance(fact, facts.OrphanFound):
                if len(self._orphans) >= ORPHANS_MAX:
                    del self._orphans[next(iter(self._orphans))]
                self._orphans[fact.number, fact.job_id, fact.attempt] = _Orphan(now_us, revision)

    def _on_registered(self, fact: facts.NodeRegistered, offered: Registration | None, now_us: int) -> None:
        # What it does not hold any more is no orphan any more; what it still holds is found again.
        for key in [key for key in self._orphans if key[0] == fact.number]:
            del self._orphans[key]
        entries = offered.held if offered is not None else ()
        held = frozenset((one.job_id, one.attempt) for one in entries if one.stage != "tombstone")
        self._inventories[fact.number] = _Inventory(now_us, held or _NOTHING)

    def _on_effect(self, message: EffectDone) -> None:
        """Forget the orphan on a node that answers with a payload: nothing of the attempt is left there."""
        for outcome in message.outcomes:
            if outcome.status == "ok" and outcome.payload:
                for key, orphan in list(self._orphans.items()):
                    if orphan.revision == message.revision and key[0] in outcome.nodes:
                        del self._orphans[key]

    def check(self, state: State, now_us: int) -> Sliced:
        """Findings: attempts that run unknown, and known ones that do not run."""
        for (number, job_id, attempt), orphan in list(self._orphans.items()):
            yield None
            yield self._orphan(state, number, f"{job_id}.{attempt}", orphan, now_us)
        for job in list(state.jobs.values()):
            yield None
            if state.find_job(job.job_id) is job:
                for attempt_held in attempts_of(job):
                    yield from self._misplaced(state, job, attempt_held)

    @staticmethod
    def _orphan(state: State, number: int, what: str, orphan: _Orphan, now_us: int) -> Finding:
        name = state.node_names([number])[0]
        grace_us = int(state.config.kill_grace_s * SECOND_US) + SETTLING_US
        age_us = now_us - orphan.since_us
        text = f"attempt {what} runs there, no job explains it; told to end {age_us // SECOND_US} s ago"
        severity = ERROR if age_us > grace_us else WARNING
        advice = "the node gets the order with each registration; if it stays, look at its processes and restart its agent"
        return Finding(ORPHANS, severity, f"node {name}", text, advice)

    def _misplaced(self, state: State, job: Job, attempt: Attempt) -> Sliced:
        """Nodes that registered without an attempt that was running there long before."""
        if attempt.phase is not AttemptPhase.RUNNING or not attempt.started_us:
            return
        absent = []
        grown = attempt.more.grown if attempt.more is not None else ()
        joined_us = {number: joined.at_us for joined in grown for number in joined.nodes}
        for number in attempt.held:
            inventory = self._inventories.get(number)
            since_us = joined_us.get(number, attempt.started_us)
            if (
                inventory is not None
                and (job.job_id, attempt.number) not in inventory.held
                and since_us + SETTLING_US < inventory.at_us
            ):
                absent.append(number)
        if absent:
            text = (
                f"attempt {attempt.number} is held on {fold(state.node_names(sorted(absent)))}, "
                "registered without it since it started"
            )
            advice = f"requeue it: esctl requeue {job.job_id}"
            yield Finding(ORPHANS, ERROR, f"job {job.job_id}", text, advice)


def check_endings(state: State, now_us: int) -> Sliced:
    """Findings: attempts past their end, and ends that nodes do not confirm."""
    grace_us = int(state.config.kill_grace_s * SECOND_US) + SETTLING_US
    for job in list(state.jobs.values()):
        yield None
        if state.find_job(job.job_id) is job:
            for attempt in attempts_of(job):
                yield from _ending(state, job, attempt, now_us - grace_us)


def _ending(state: State, job: Job, attempt: Attempt, before_us: int) -> Sliced:
    what = f"job {job.job_id}"
    by_state: dict[NodeState, list[int]] = {}
    for number in attempt.held:
        node = state.nodes.get(number)
        if node is not None:
            by_state.setdefault(node.state, []).append(number)
    if NodeState.LOST in by_state:
        names = fold(state.node_names(sorted(by_state[NodeState.LOST])))
        text = f"attempt {attempt.number} still holds {names}, given up as lost"
        advice = "declare the node lost again: esctl down NODE"
        yield Finding(ENDINGS, ERROR, what, text, advice)
    up = fold(state.node_names(sorted(by_state.get(NodeState.UP, ()))))
    if not up:
        return
    if attempt.phase is AttemptPhase.RELEASING and 0 < attempt.ended_us < before_us:
        text = f"attempt {attempt.number} has ended; {up} did not confirm that nothing is left"
        yield Finding(ENDINGS, WARNING, what, text, "restart the agents of these nodes: they register anew")
    if attempt.phase is AttemptPhase.RUNNING and attempt.until_us < before_us:
        text = f"attempt {attempt.number} runs on {up} beyond its time limit of {limit_s(job, attempt)} s"
        yield Finding(ENDINGS, WARNING, what, text, f"end it: escancel {job.job_id}")
