"""Dependencies of jobs, and the facts that follow when another job starts or ends.

An array is one job to others: it ends with its last task. `aftercorr` alone looks at single tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from msgspec.structs import replace

from eslurm.core.control.privacy import Visibility
from eslurm.core.model import facts, ranges
from eslurm.core.model.job import Dependency, Job, JobSpec
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.plurals import quoted
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State, name_key

MET, NEVER, WAIT = "met", "never", "wait"
KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")


def settled_outcome(job: Job) -> JobState | None:
    """The final state of a job as soon as it is known."""
    if job.state in FINAL:
        return job.state
    if job.state is JobState.COMPLETING and job.outcome is not JobState.PENDING:
        return job.outcome
    return None


def verdict_of(kind: str, outcome: JobState) -> str:
    """The verdict of a dependency of this kind on a job with this outcome: met or never."""
    if kind in ("after", "afterany"):
        return MET
    if kind == "afternotok":
        return NEVER if outcome is JobState.COMPLETED else MET
    return MET if outcome is JobState.COMPLETED else NEVER


def forgotten_targets(spec: JobSpec, jobs: Container[int]) -> list[int]:
    """Ids of the jobs that a new job depends on and that are not in memory (`jobs`) any more."""
    return [one.job_id for one in spec.dependencies if one.job_id and one.job_id not in jobs]


def settled_by(spec: JobSpec, ended: Mapping[int, JobState]) -> JobSpec:
    """The new job with its dependencies on jobs that have left memory settled, by the final states from the store."""
    settled = tuple(
        replace(one, settled=verdict_of(one.kind, ended[one.job_id])) if one.job_id in ended else one
        for one in spec.dependencies
    )
    return replace(spec, dependencies=settled)


def judge(state: State, dependency: Dependency, dependent: JobSpec, dependent_id: int) -> str:
    """The verdict of one dependency now: met, never, or wait."""
    if dependency.kind == "singleton":
        twins = state.same_name.get(name_key(dependent))
        return WAIT if twins and min(twins) < dependent_id else MET
    if dependency.settled:
        return dependency.settled
    target = state.find_job(dependency.job_id)
    if target is None:
        return NEVER
    outcome = settled_outcome(target)
    if dependency.kind == "aftercorr" and target.is_array and dependent.array is not None:
        return WAIT if outcome is None else MET
    if outcome is not None:
        return verdict_of(dependency.kind, outcome)
    return MET if dependency.kind == "after" and target.started_us else WAIT


def delayed_until_us(state: State, dependencies: Iterable[Dependency]) -> int:
    """The latest `after:ID+minutes` instant of the dependencies that are met."""
    latest = 0
    for dependency in dependencies:
        if dependency.kind == "after" and dependency.delay_s:
            target = state.find_job(dependency.job_id)
            since_us = (target.started_us or target.ended_us) if target is not None else state.now_us
            latest = max(latest, since_us + dependency.delay_s * SECOND_US)
    return latest


def open_dependencies(
    state: State, spec: JobSpec, job_id: int, names: Collection[tuple[int, str]] = ()
) -> tuple[tuple[Dependency, ...], int]:
    """A new job's open dependencies, and its earliest start (microseconds; 0: no delay). Raises `Refused`.

    `names` are those of the jobs before it in the same message, which the state does not know yet.
    """
    still_open: list[Dependency] = []
    met: list[Dependency] = []
    for dependency in spec.dependencies:
        if dependency.kind not in KINDS:
            raise Refused(
                RefusalCode.INVALID,
                f"--dependency: {quoted(dependency.kind)} is unknown: use one of {', '.join(KINDS)}",
            )
        target = state.find_job(dependency.job_id)
        known = target is not None or dependency.settled or dependency.kind == "singleton"
        if not known or (target is not None and not Visibility(state, spec.user).job(target)):
            raise Refused(RefusalCode.INVALID, f"--dependency: job {dependency.job_id} does not exist")
        verdict = judge(state, dependency, spec, job_id)
        if dependency.kind == "singleton" and name_key(spec) in names:
            verdict = WAIT
        if verdict == NEVER:
            raise Refused(
                RefusalCode.INVALID,
                f"--dependency: {dependency.kind}:{dependency.job_id} can never be met: that job has ended otherwise",
            )
        if verdict == WAIT:
            still_open.append(dependency)
        elif verdict == MET:
            met.append(dependency)
            if dependency.kind == "aftercorr" and spec.array is not None:
                target = state.find_job(dependency.job_id)
                if target is not None and target.is_array:
                    still_open.append(dependency)
    return tuple(still_open), delayed_until_us(state, met)


def affected(state: State, fact: facts.Fact) -> list[int]:
    """Jobs whose dependencies must be checked again because of the fact just applied."""
    match fact:
        case facts.JobSubmitted():
            return [fact.job_id] if any(dep.kind == "aftercorr" for dep in fact.open) else []
        case facts.AttemptStarted() | facts.AttemptEnded() | facts.JobFinished() | facts.NodesReleased():
            return _waiting_for(state, fact.job_id)
        case facts.TasksDropped() | facts.TasksReleased():
            return [fact.job_id, *_waiting_for(state, fact.job_id)]
        case facts.JobChanged(was_named=str(name)) if name:
            twins = state.same_name.get((fact.spec.user.uid, name), ())
            return [fact.job_id, *([min(twins)] if twins else [])]
        case _:
            return []


def dependents_of_all(state: State) -> list[int]:
    """Every job that waits for another one, the first one last."""
    return sorted({job_id for waiting in state.dependents.values() for job_id in waiting}, reverse=True)


def _singletons(state: State) -> set[int] | None:
    """Jobs that wait for those of the same name, if any: most jobs of a site share one of few names."""
    return state.dependents.get(0)


def _waiting_for(state: State, job_id: int) -> list[int]:
    job = state.find_job(job_id)
    if job is None:
        return []
    found = set(state.dependents.get(job_id, ()))
    if job.array_job_id:
        found |= state.dependents.get(job.array_job_id, set())
        # The array is what other jobs know, by its own name.
        job = state.find_job(job.array_job_id) or job
    if _singletons(state) and job.state in FINAL and (twins := state.same_name.get(name_key(job.spec))):
        found.add(min(twins))
    return sorted(found)


def reconsider(state: State, job_id: int) -> list[facts.Fact]:
    """The facts that the present state implies for one waiting job; none if nothing has changed for it."""
    job = state.find_job(job_id)
    if job is None or job.state is not JobState.PENDING or not job.open:
        return []
    if corresponding := _corresponding(state, job):
        return corresponding
    still_open: list[Dependency] = []
    met: list[Dependency] = []
    for dependency in job.open:
        verdict = judge(state, dependency, job.spec, job_id)
        if verdict == NEVER:
            text = f"dependency {dependency.kind}:{dependency.job_id} can never be met"
            return [facts.JobFinished(job_id, JobState.CANCELLED, text)]
        (still_open if verdict == WAIT else met).append(dependency)
    if not met:
        return []
    until_us = delayed_until_us(state, met)
    return [facts.DependenciesChanged(job_id, tuple(still_open), until_us if until_us > state.now_us else 0)]


def _corresponding(state: State, job: Job) -> list[facts.Fact]:
    """`aftercorr` between arrays: tasks whose counterpart ended well may start, the others never will."""
    targets = [
        target
        for dependency in job.open
        if dependency.kind == "aftercorr"
        and (target := state.find_job(dependency.job_id)) is not None
        and target.is_array
    ]
    if not targets or not job.tasks_left:
        return []
    found: list[facts.Fact] = []
    ready = job.tasks_left
    for target in targets:
        assert target.spec.array is not None
        ready = ranges.intersection(ready, target.tasks_ok)
        hopeful = ranges.difference(target.spec.array.tasks, target.tasks_failed)
        if target.state in FINAL:
            hopeful = target.tasks_ok
        if dropped := ranges.difference(job.tasks_left, hopeful):
            text = f"dependency aftercorr:{target.job_id} can never be met"
            found.append(facts.TasksDropped(job.job_id, dropped, text))
    if ready := ranges.difference(ready, job.tasks_ready or ()):
        found.append(facts.TasksReleased(job.job_id, ready))
    return found
