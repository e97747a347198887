"""Dependencies of jobs, and the facts that follow when another job starts or ends.

An array is one job to others: it ends with its last task; `afterok:17_4` names one of its tasks, and `aftercorr` looks at
task after task. So is a pack: it ends with its last job, and `afterok:17+0` names its first one alone. All dependencies of a
job must be met, or one of them (`JobSpec.dependency_any`): those that can never be met are dropped then, and the last one
ends the job.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from msgspec.structs import replace

from eslurm.core.control.jobs import growing, pack_ends, pack_starts
from eslurm.core.control.jobs.access import part_of
from eslurm.core.control.jobs.growth_specs import grown_by_itself
from eslurm.core.control.privacy import Visibility
from eslurm.core.model import facts, ranges
from eslurm.core.model.job import Dependency, Job, JobSpec
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import JobRef, RefusalCode, Refused
from eslurm.core.model.ranges import Ranges
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import quoted
from eslurm.core.state.cluster import State, name_key
from eslurm.core.state.endings import settled_outcome

MET, NEVER, WAIT = "met", "never", "wait"
KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")


def task_outcome(array: Job, task: int) -> JobState | None:
    """The final state of an array's task as its array knows it: COMPLETED, FAILED for any other, None before its end."""
    if ranges.contains(array.tasks_ok, task):
        return JobState.COMPLETED
    return JobState.FAILED if ranges.contains(array.tasks_failed, task) else None


def verdict_of(kind: str, outcome: JobState) -> str:
    """The verdict of a dependency of this kind on a job with this outcome: met or never."""
    if kind in ("after", "afterany"):
        return MET
    if kind == "afternotok":
        return NEVER if outcome is JobState.COMPLETED else MET
    return MET if outcome is JobState.COMPLETED else NEVER


def forgotten_targets(dependencies: Iterable[Dependency], jobs: Container[int]) -> list[int]:
    """Ids of the jobs that are depended on and that are not in memory (`jobs`) any more."""
    return [one.job_id for one in dependencies if one.job_id and one.job_id not in jobs]


def settled_by(dependencies: Iterable[Dependency], ended: Mapping[int, Job]) -> tuple[Dependency, ...]:
    """The dependencies with those on jobs that have left memory settled, by the last records from the store.

    A dependency on a task that its array does not have stays open, and is refused as one on no job.
    """
    return tuple([_settled(one, ended[one.job_id]) if one.job_id in ended else one for one in dependencies])


def _settled(dependency: Dependency, ended: Job) -> Dependency:
    outcome = ended.state if dependency.task < 0 else task_outcome(ended, dependency.task)
    if pack_ends.is_pack(dependency, ended):
        # A first member stays in memory until all of its pack have ended.
        outcome = pack_ends.outcome_of_old(ended)
    return (
        dependency if outcome is None else replace(dependency, settled=verdict_of(dependency.kind, outcome))
    )


def judge(state: State, dependency: Dependency, dependent: JobSpec, dependent_id: int) -> str:
    """The verdict of one dependency now: met, never, or wait."""
    if dependency.kind == "singleton":
        twins = state.same_name.get(name_key(dependent))
        return WAIT if twins and min(twins) < dependent_id else MET
    if dependency.due_us:
        return MET if dependency.due_us <= state.now_us else WAIT
    if dependency.settled:
        return dependency.settled
    target = state.find_job(dependency.job_id)
    if target is None:
        return NEVER
    if dependency.task >= 0:
        outcome = task_outcome(target, dependency.task)
        target = state.find_task(dependency.job_id, dependency.task)
    elif pack_ends.is_pack(dependency, target):
        if pack_ends.has_failed(target) and dependency.kind in ("afterok", "aftercorr"):
            return NEVER
        outcome = pack_ends.outcome_of_pack(state, target)
    else:
        outcome = settled_outcome(target)
        if _goes_by_task(dependency, target, dependent):
            return WAIT if outcome is None else MET
    if outcome is not None:
        return verdict_of(dependency.kind, outcome)
    has_begun = target is not None and target.started_us
    return MET if dependency.kind == "after" and has_begun else WAIT


def _goes_by_task(dependency: Dependency, target: Job, dependent: JobSpec) -> bool:
    """Check for `aftercorr` between arrays, which concerns task after task."""
    by_task = dependency.kind == "aftercorr" and dependency.task < 0
    return by_task and target.is_array and dependent.array is not None


def delayed_until_us(state: State, dependencies: Iterable[Dependency]) -> int:
    """The latest `after:ID+minutes` instant of the dependencies that are met."""
    latest = 0
    for dependency in dependencies:
        if dependency.kind == "after" and dependency.delay_s:
            target = state.find_job(dependency.job_id)
            if dependency.task >= 0:
                target = state.find_task(dependency.job_id, dependency.task)
            since_us = (target.started_us or target.ended_us) if target is not None else state.now_us
            latest = max(latest, since_us + dependency.delay_s * SECOND_US)
    return latest


def open_dependencies(
    state: State, spec: JobSpec, job_id: int, names: Collection[tuple[int, str]] = (), members: int = 0
) -> tuple[tuple[Dependency, ...], int]:
    """The open dependencies of a new or changed job, and its earliest start (microseconds; 0: no delay). Raises `Refused`.

    `names` are those of the jobs before it in the same message, which the state does not know yet. It is the first of a pack
    of so many `members`; 0: of none.
    """
    still_open: list[Dependency] = []
    met: list[Dependency] = []
    never: list[Dependency] = []
    for given in spec.dependencies:
        dependency, target = _known(state, spec, given, members)
        verdict = judge(state, dependency, spec, job_id)
        if dependency.kind == "singleton" and name_key(spec) in names:
            verdict = WAIT
        if target is not None and not dependency.settled and _goes_by_task(dependency, target, spec):
            # Even of an array that has ended: each task has its own verdict.
            verdict = WAIT
        elif dependency.kind == "aftercorr" and spec.array is not None:
            # It holds back the whole array, whatever else lets its tasks go one by one.
            dependency = replace(dependency, kind="afterok")
        if verdict == MET and spec.dependency_any:
            due_us = delayed_until_us(state, (dependency,))
            if due_us <= state.now_us:
                return (), 0
            dependency, verdict = replace(dependency, due_us=due_us), WAIT
        {WAIT: still_open, MET: met, NEVER: never}[verdict].append(dependency)
    if never and not (spec.dependency_any and still_open):
        raise Refused(
            RefusalCode.INVALID,
            f"--dependency: {name_of(never[-1])} can never be met: that job has ended otherwise",
        )
    return tuple(still_open), delayed_until_us(state, met)


def _known(state: State, spec: JobSpec, given: Dependency, members: int) -> tuple[Dependency, Job | None]:
    """The dependency, and the job that it names. Raises `Refused` when the user sees no such job or task."""
    if given.kind not in KINDS:
        raise Refused(
            RefusalCode.INVALID,
            f"--dependency: {quoted(given.kind)} is unknown: use one of {', '.join(KINDS)}",
        )
    target = state.find_named(given.job_id) if given.job_id else None
    known = target is not None or given.settled or given.kind == "singleton"
    if not known or (target is not None and not Visibility(state, spec.user).job(target)):
        raise Refused(RefusalCode.INVALID, f"--dependency: job {given.job_id} does not exist")
    if target is not None and target.owes_outcome and target.is_away:
        raise Refused(
            RefusalCode.CONFLICT,
            f"--dependency: job {given.job_id} is arriving from another cell: try again in a moment",
        )
    if target is not None and (given.part >= 0 or target.job_id != given.job_id):
        _check_part(target, given)
        # Of a pack it is the first job alone.
        is_first = target.pack is not None and not target.pack.index and given.kind != "after"
        given = replace(given, job_id=target.job_id, part=0 if is_first else -1)
    if target is not None and members and given.kind == "aftercorr" and pack_ends.is_pack(given, target):
        _check_corresponds(target, members)
    if given.task >= 0 and target is not None:
        if target.spec.array is None or not target.is_array:
            raise Refused(
                RefusalCode.INVALID,
                f"--dependency: job {given.job_id} is no array and has no task {given.task}: name the job alone",
            )
        if not ranges.contains(target.spec.array.tasks, given.task):
            raise Refused(RefusalCode.INVALID, f"--dependency: array {given.job_id} has no task {given.task}")
    return given, target


def _check_corresponds(first: Job, members: int) -> None:
    """Raise `Refused` for `aftercorr` between packs of different sizes. A pack begins as a whole: it is `afterok` then."""
    if first.pack is not None and first.pack.count != members:
        raise Refused(
            RefusalCode.INVALID,
            f"--dependency: aftercorr:{first.job_id}: pack {first.job_id} has {first.pack.count} jobs and this one "
            f"{members}: use afterok:{first.job_id}, or as many jobs",
        )


def _check_part(target: Job, given: Dependency) -> None:
    try:
        part_of(target, JobRef(given.job_id, part=given.part))
    except Refused as refused:
        hint = f" (minutes are for after alone: after:{given.job_id}+{given.part})"
        raise Refused(RefusalCode.INVALID, f"--dependency: {refused.text}{hint}") from None


def name_of(dependency: Dependency) -> str:
    """The dependency as a person writes it, without its delay: `afterok:17_4`, `afterok:17+0`."""
    if dependency.kind == "singleton":
        return dependency.kind
    task = f"_{dependency.task}" if dependency.task >= 0 else ""
    part = f"+{dependency.part}" if dependency.part >= 0 else ""
    return f"{dependency.kind}:{dependency.job_id}{task}{part}"


def affected(state: State, fact: facts.Fact) -> list[int]:
    """Jobs whose dependencies must be checked again because of the fact just applied."""
    match fact:
        case facts.JobSubmitted():
            return [fact.job_id] if any(dep.kind == "aftercorr" for dep in fact.open) else []
        case facts.AttemptEnded():
            others = [*pack_starts.without_first(state, fact), *pack_ends.concerned(state, fact.job_id)]
            return [*_waiting_for(state, fact.job_id), *others, *growing.concerned(state, fact.job_id)]
        case facts.StopRequested():
            return growing.concerned(state, fact.job_id)
        case facts.AttemptStarted():
            return [*_waiting_for(state, fact.job_id), *growing.hungry(state, fact.job_id)]
        case facts.NodesReleased() | facts.ControllerPhaseEnded() | facts.TransferEnded():
            return _waiting_for(state, fact.job_id)
        case facts.JobFinished():
            waiting = {*_waiting_for(state, fact.job_id), *_waiting_for_tasks(state, fact.job_id)}
            others = [*pack_ends.concerned(state, fact.job_id), *growing.after_growth(state, fact.job_id)]
            return [*sorted(waiting), *others]
        case facts.TasksDropped():
            waiting = {*_waiting_for(state, fact.job_id), *_waiting_for_tasks(state, fact.job_id, fact.tasks)}
            return [fact.job_id, *sorted(waiting)]
        case facts.TasksReleased():
            return [fact.job_id, *_waiting_for(state, fact.job_id)]
        case facts.ArrivalDropped():
            # Its name is gone with it.
            return sorted(_singletons(state) or ())
        case facts.JobChanged(was_named=str(name), open=still_open) if name or still_open:
            twins = state.same_name.get((fact.spec.user.uid, name), ()) if name else ()
            return [fact.job_id, *([min(twins)] if twins else [])]
        case _:
            return []


def dependents_of_all(state: State) -> list[int]:
    """Every job that waits for another one or for its cancellation with its pack, the first one last."""
    waiting = {*pack_ends.all_concerned(state), *growing.all_growths(state)}
    waiting |= {job_id for jobs in state.dependents.values() for job_id in jobs}
    for tasks in state.task_dependents.values():
        waiting.update(job_id for jobs in tasks.values() for job_id in jobs)
    return sorted(waiting, reverse=True)


def _singletons(state: State) -> set[int] | None:
    """Jobs that wait for those of the same name, if any: most jobs of a site share one of few names."""
    return state.dependents.get(0)


def _waiting_for(state: State, job_id: int) -> list[int]:
    job = state.find_job(job_id)
    if job is None:
        return []
    found = set(state.dependents.get(job_id, ()))
    if job.pack is not None:
        found |= state.dependents.get(job.pack.pack_id, set())
    if job.array_job_id:
        found |= state.dependents.get(job.array_job_id, set())
        if (tasks := state.task_dependents.get(job.array_job_id)) is not None:
            found |= tasks.get(job.array_task, set())
        # The array is what other jobs know, by its own name.
        job = state.find_job(job.array_job_id) or job
    if _singletons(state) and job.state in FINAL and (twins := state.same_name.get(name_key(job.spec))):
        found.add(min(twins))
    return sorted(found)


def _waiting_for_tasks(state: State, array_id: int, tasks: Ranges | None = None) -> set[int]:
    """Jobs that wait for single tasks of an array: for these, or for any."""
    found: set[int] = set()
    for task, waiting in state.task_dependents.get(array_id, {}).items():
        if tasks is None or ranges.contains(tasks, task):
            found |= waiting
    return found


def reconsider(state: State, job_id: int) -> list[facts.Fact]:
    """The facts that the present state implies for one waiting job; none if nothing has changed for it."""
    job = state.find_job(job_id)
    if job is not None and job.grows is not None:
        return growing.withdrawn(state, job)
    if job is not None and job.spec.elastic and job.attempt is not None:
        return grown_by_itself(state, job)
    if job is not None and job.pack is not None:
        if gone := pack_ends.cancelled(state, job):
            return gone
        if job.state is JobState.LAUNCHING:
            return pack_starts.taken_back(state, job)
    if job is None or job.state is not JobState.PENDING or not job.open:
        return []
    if job.spec.dependency_any:
        return _reconsider_any(state, job)
    if corresponding := _corresponding(state, job):
        return corresponding
    still_open: list[Dependency] = []
    met: list[Dependency] = []
    for dependency in job.open:
        verdict = judge(state, dependency, job.spec, job_id)
        if verdict == NEVER:
            return _never(state, job, dependency)
        (still_open if verdict == WAIT else met).append(dependency)
    if not met:
        return []
    until_us = delayed_until_us(state, met)
    return [facts.DependenciesChanged(job_id, tuple(still_open), until_us if until_us > state.now_us else 0)]


def delay_over(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """The facts of a job for which one `after:ID+minutes` of several is enough, once that delay is over."""
    job = state.find_job(job_id)
    if job is None or job.state is not JobState.PENDING:
        return []
    is_over = any(0 < dependency.due_us <= now_us for dependency in job.open)
    return [facts.DependenciesChanged(job_id, (), 0)] if is_over else []


def _never(state: State, job: Job, dependency: Dependency) -> list[facts.Fact]:
    """End a job that can never run; with the others of its pack, whose first one it is."""
    text = f"dependency {name_of(dependency)} can never be met"
    others = state.packs.get(job.job_id, ()) if job.pack is not None else (job.job_id,)
    return [facts.JobFinished(one, JobState.CANCELLED, text, never_met=True) for one in reversed(others)]


def _reconsider_any(state: State, job: Job) -> list[facts.Fact]:
    """One met dependency is enough; with `aftercorr` between arrays, for the tasks that it names."""
    still_open: list[Dependency] = []
    never: list[Dependency] = []
    targets: list[Job] = []
    for dependency in job.open:
        target = state.find_job(dependency.job_id)
        if target is not None and _goes_by_task(dependency, target, job.spec):
            targets.append(target)
            still_open.append(dependency)
            continue
        verdict = judge(state, dependency, job.spec, job.job_id)
        if verdict == MET:
            due_us = 0 if dependency.due_us else delayed_until_us(state, (dependency,))
            if due_us <= state.now_us:
                return [facts.DependenciesChanged(job.job_id, (), 0)]
            dependency, verdict = replace(dependency, due_us=due_us), WAIT
        (still_open if verdict == WAIT else never).append(dependency)
    if not still_open:
        return _never(state, job, never[-1])
    found: list[facts.Fact] = []
    if tuple(still_open) != job.open:
        found.append(facts.DependenciesChanged(job.job_id, tuple(still_open), 0))
    if targets and job.tasks_left:
        others_wait = len(targets) < len(still_open)
        by_task = _any_by_task(job, targets, others_wait=others_wait)
        if not by_task and not others_wait and all(target.state in FINAL for target in targets):
            return [facts.DependenciesChanged(job.job_id, (), 0)]
        found += by_task
    return found


def _any_by_task(job: Job, targets: list[Job], *, others_wait: bool) -> list[facts.Fact]:
    ready: Ranges = ()
    hopeful: Ranges = ()
    for target in targets:
        ready = ranges.union(ready, target.tasks_ok)
        hopeful = ranges.union(hopeful, _hopeful(target))
    left = job.tasks_left or ()
    found: list[facts.Fact] = []
    if not others_wait and (dropped := ranges.difference(left, hopeful)):
        text = f"dependency aftercorr:{targets[-1].job_id} can never be met"
        found.append(facts.TasksDropped(job.job_id, dropped, text))
    if ready := ranges.difference(ranges.intersection(left, ready), job.tasks_ready or ()):
        found.append(facts.TasksReleased(job.job_id, ready))
    return found


def _hopeful(target: Job) -> Ranges:
    """The tasks of an array that have ended well or still may."""
    assert target.spec.array is not None
    if target.state in FINAL:
        return target.tasks_ok
    return ranges.difference(target.spec.array.tasks, target.tasks_failed)


def _corresponding(state: State, job: Job) -> list[facts.Fact]:
    """`aftercorr` between arrays: tasks whose counterpart ended well may start, the others never will."""
    targets = [
        target
        for dependency in job.open
        if (target := state.find_job(dependency.job_id)) is not None
        and _goes_by_task(dependency, target, job.spec)
    ]
    if not targets or not job.tasks_left:
        return []
    found: list[facts.Fact] = []
    ready = job.tasks_left
    for target in targets:
        ready = ranges.intersection(ready, target.tasks_ok)
        if dropped := ranges.difference(job.tasks_left, _hopeful(target)):
            text = f"dependency aftercorr:{target.job_id} can never be met"
            found.append(facts.TasksDropped(job.job_id, dropped, text))
    if ready := ranges.difference(ready, job.tasks_ready or ()):
        found.append(facts.TasksReleased(job.job_id, ready))
    return found
