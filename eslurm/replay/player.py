"""Replays a log of facts: the state at a moment, and the first fact after which the state contradicts itself.

Invariant: nothing is decided anew. Facts are applied as they were written, so the state is the one that the controller had
committed, whatever today's release would have decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from eslurm.core.model import facts as core_facts
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Job
from eslurm.core.model.node import Node
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State, Touched, attempts_of
from eslurm.core.state.invariants import check_job
from eslurm.ports.store import LoggedFact
from eslurm.replay.base import BadBase, unpack_base
from eslurm.replay.logfile import DamagedLog, LogFile
from eslurm.replay.state_check import check

RECORDS_WHOLE_MAX = 64
"""A state of at most so many jobs and nodes is checked as a whole after each fact."""
RECORDS_PER_FACT = 4
"""A larger one is checked as a whole each time so many records per fact have come together: checking then costs about
as much as applying. Where a whole check fails, the facts since the one before are gone through one by one."""
PROGRESS_EVERY = 20_000
OBJECTS_MAX = 16
"""Of each kind, in the report of a contradiction."""

Progress = Callable[[int], None]
"""Told now and then how many facts have been played."""


class CannotApply(Exception):
    """A fact does not fit the state, or is invalid: the log or the program is wrong."""

    def __init__(self, fact: LoggedFact, why: str) -> None:
        super().__init__(f"revision {fact.revision} ({fact.kind} {fact.version}): {why}")
        self.fact = fact
        self.why = why


class Violation(msgspec.Struct, frozen=True):
    """The first contradiction: its fact, its text, and a line for each record of the fact."""

    fact: LoggedFact
    content: core_facts.Fact | None
    text: str
    objects: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """Result of the search for a contradiction. `whole_checks` of the `facts` were followed by a check of everything."""

    facts: int
    whole_checks: int
    violation: Violation | None = None


class Player:
    """A log under replay. `state` is as of the last fact; time and revision only go forward."""

    def __init__(self, log: LogFile) -> None:
        """Raises `DamagedLog` for an invalid base state."""
        header = log.header
        self._facts = log.facts()
        self._waiting: LoggedFact | None = None
        self.played = 0
        if not log.base:
            self.state = State(header.owner)
            self.state.revision = header.first_revision - 1
            return
        try:
            self.state = unpack_base(header.owner, log.base)
        except BadBase as error:
            raise DamagedLog(f"{log.path}: {error}") from None
        if self.state.revision != header.first_revision - 1:
            raise DamagedLog(
                f"{log.path}: the base state is of revision {self.state.revision}, the facts begin at "
                f"{header.first_revision}"
            )

    def play(
        self,
        *,
        until_us: int | None = None,
        until_revision: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Apply all facts up to a time, a revision, or the end. Raises `CannotApply` and `DamagedLog`."""
        while (fact := self.peek()) is not None:
            if until_us is not None and fact.at_us > until_us:
                return
            if until_revision is not None and fact.revision > until_revision:
                return
            self.step()
            if progress is not None and self.played % PROGRESS_EVERY == 0:
                progress(self.played)

    def peek(self) -> LoggedFact | None:
        """The next fact; None at the end."""
        if self._waiting is None:
            self._waiting = next(self._facts, None)
        return self._waiting

    def step(self) -> tuple[core_facts.Fact, Touched]:
        """Apply the next fact; returns it and the records that it changed. Raises `CannotApply`."""
        logged = self.peek()
        assert logged is not None, "the log has ended"
        content = decoded(logged)
        try:
            apply(self.state, content, logged.revision, logged.at_us)
        except Exception as error:
            # Any error: the log is from outside, and the fact does not fit.
            raise CannotApply(logged, f"{type(error).__name__}: {error}") from error
        self._waiting = None
        self.played += 1
        return content, self.state.take_touched()


def decoded(fact: LoggedFact) -> core_facts.Fact:
    """A logged fact in today's form. Raises `CannotApply` for bytes that are no fact that this release knows."""
    try:
        return core_facts.decode_fact(fact.kind, fact.version, fact.blob)
    except msgspec.MsgspecError as error:
        raise CannotApply(fact, f"not a fact that this release knows: {error}") from None


def find_violation(log: LogFile, *, until_us: int | None = None, progress: Progress | None = None) -> Verdict:
    """Play until the state contradicts itself. Raises `DamagedLog`."""
    player = Player(log)
    last_good = player.state.revision
    since_whole = whole_checks = 0
    while (fact := player.peek()) is not None and (until_us is None or fact.at_us <= until_us):
        violation = _step_checked(player, fact)
        if violation is not None and since_whole == 0:
            return Verdict(player.played, whole_checks, violation)
        since_whole += 1
        if violation is not None or since_whole >= _stride(player.state):
            whole_checks += 1
            if violation is not None or _whole(player.state):
                return _narrowed(log, last_good, whole_checks)
            last_good, since_whole = player.state.revision, 0
        if progress is not None and player.played % PROGRESS_EVERY == 0:
            progress(player.played)
    if since_whole:
        whole_checks += 1
        if _whole(player.state):
            return _narrowed(log, last_good, whole_checks)
    return Verdict(player.played, whole_checks)


def _stride(state: State) -> int:
    """Number of facts after which the whole state is checked again."""
    records = len(state.jobs) + len(state.nodes)
    return 1 if records <= RECORDS_WHOLE_MAX else -(-records // RECORDS_PER_FACT)


def _narrowed(log: LogFile, last_good: int, whole_checks: int) -> Verdict:
    """Search fact by fact from the last good revision to the first bad one."""
    player = Player(log)
    player.play(until_revision=last_good)
    while (fact := player.peek()) is not None:
        violation = _step_checked(player, fact, whole=True)
        whole_checks += 1
        if violation is not None:
            return Verdict(player.played, whole_checks, violation)
    raise AssertionError("a contradiction was found once and not again")


def _step_checked(player: Player, fact: LoggedFact, *, whole: bool = False) -> Violation | None:
    """Apply a fact and check the records that it touched, or everything."""
    state = player.state
    try:
        content, touched = player.step()
    except CannotApply as error:
        return _unfit(state, fact, error.why)
    text = _touched(state, touched)
    if not text and whole:
        text = _whole(state)
    if not text:
        return None
    return Violation(fact, content, text, objects_of(state, touched.jobs, touched.nodes))


def _unfit(state: State, fact: LoggedFact, why: str) -> Violation:
    """A fact that could not be applied, with the records it names as they were left."""
    try:
        content = decoded(fact)
    except CannotApply:
        return Violation(fact, None, why)
    nodes = {span.node for span in getattr(content, "spans", ())} | {*getattr(content, "nodes", ())}
    for field, found in (("number", nodes), ("job_id", jobs := set[int]())):
        if hasattr(content, field):
            found.add(getattr(content, field))
    return Violation(fact, content, why, objects_of(state, jobs, nodes))


def objects_of(state: State, jobs: Collection[int], nodes: Collection[int]) -> tuple[str, ...]:
    """A line for each of these records, and for the nodes on which the jobs hold something; a bounded number."""
    found = [job for job_id in sorted(jobs) if (job := state.find_job(job_id)) is not None]
    near = {number for job in found for attempt in attempts_of(job) for number in attempt.held}
    lines = [_job_line(state, job) for job in found[:OBJECTS_MAX]]
    numbers = [*sorted(nodes), *sorted(near - {*nodes})]
    lines += [
        _node_line(state, state.nodes[number]) for number in numbers[:OBJECTS_MAX] if number in state.nodes
    ]
    left_out = max(0, len(found) - OBJECTS_MAX) + max(0, len(numbers) - OBJECTS_MAX)
    return (*lines, f"and {left_out} more") if left_out else tuple(lines)


def _job_line(state: State, job: Job) -> str:
    attempts = [
        f"attempt {attempt.number} ({attempt.phase.value}) holds "
        f"{fold(state.node_names(sorted(attempt.held))) or 'nothing'}"
        for attempt in attempts_of(job)
    ]
    return f"job {job.job_id}: {', '.join([job.state.value, *attempts])}"


def _node_line(state: State, node: Node) -> str:
    jobs = ",".join(map(str, sorted(state.jobs_on.get(node.number, ())))) or "none"
    used = "not in the configuration"
    if node.number in state.ledger.topology.positions:
        used = f"free {state.ledger.free(node.number)} of {node.total}"
    return f"node {node.name} (#{node.number}): {node.state.value}, {used}, jobs {jobs}"


def _touched(state: State, touched: Touched) -> str:
    try:
        for job_id in touched.jobs:
            job = state.find_job(job_id)
            if job is not None:
                check_job(state, job)
    except Exception as error:
        return _said(error)
    return ""


def _whole(state: State) -> str:
    """The contradiction in the whole state; empty when there is none."""
    try:
        check(state)
    except Exception as error:
        return _said(error)
    return ""


def _said(error: Exception) -> str:
    """A broken rule in its own words; a failed check by its kind, too."""
    return (
        str(error) if isinstance(error, (AssertionError, ValueError)) else f"{type(error).__name__}: {error}"
    )


def listed(log: LogFile, first: int, last: int) -> Iterator[LoggedFact]:
    """The facts of a range of revisions, not applied. Raises `DamagedLog`."""
    for fact in log.facts():
        if fact.revision > last:
            return
        if fact.revision >= first:
            yield fact
