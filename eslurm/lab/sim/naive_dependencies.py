"""The rules of dependencies once more, as plainly as they can be written, judged by the log alone.

A job is placed only when its dependencies are met, it is given up only when they can never be met, and no jobs wait for each
other. Nothing here is shared with the controller but facts and records. That a met dependency also lets its job go shows
at the end of a run, when nothing waits any more.
"""

from __future__ import annotations

import re

from eslurm.core.model import facts
from eslurm.core.model.job import Dependency, Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.ranges import Ranges
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim.violation import require

NEVER = re.compile(r"^dependency .* can never be met$")
Named = tuple[int, int]
"""A job (task -1), or a task of an array."""


class DependencyChecks:
    """Follows the log."""

    def __init__(self) -> None:
        self._named: dict[int, Named] = {}
        self._arrays: dict[int, frozenset[int]] = {}
        # Tasks with a record of their own: what becomes of their array is not their end.
        self._split: set[Named] = set()
        # Arrays that were cancelled: they do not end well, whatever becomes of the tasks that run.
        self._cancelled: set[int] = set()
        # By the first job of a pack all of them, and of each other job that.
        self._packs: dict[int, list[int]] = {}
        self._begun_us: dict[Named, int] = {}
        # Whether it has ended well, and when that was.
        self._ended: dict[Named, tuple[bool, int]] = {}
        self.seen: dict[str, int] = {}

    def on_logged(self, replica: State, fact: facts.Fact, at_us: int) -> None:
        """The replay of the log has applied this."""
        match fact:
            case facts.JobSubmitted(job_id, spec):
                if fact.pack is not None:
                    self._packs.setdefault(fact.pack.pack_id, []).append(job_id)
                for number in range(len(spec.components)):
                    self._named[job_id + number] = (job_id, -1)
                if spec.array is not None:
                    self._arrays[job_id] = frozenset(
                        task for first, last in spec.array.tasks for task in range(first, last + 1)
                    )
            case facts.GrowthAsked():
                self._named[fact.growth_id] = (fact.growth_id, -1)
            case facts.JobChanged() if fact.open is not None:
                self._check_cycle(replica, fact.job_id)
            case facts.JobPlaced():
                if fact.array_job_id:
                    self._named[fact.job_id] = (fact.array_job_id, fact.task)
                    self._split.add((fact.array_job_id, fact.task))
                if fact.attempt == 1:
                    self._check_placed(replica.jobs[fact.job_id], at_us)
            case facts.AttemptStarted(job_id, _, started_us):
                self._begin(job_id, started_us)
            case facts.AttemptEnded():
                if fact.end is not None and fact.end.started_us:
                    self._begin(fact.job_id, fact.end.started_us)
                if fact.outcome is not JobState.PENDING:
                    self._end(self._named[fact.job_id], fact.outcome, at_us)
            case facts.TasksDropped(job_id, tasks, text):
                if NEVER.match(text):
                    self._check_dropped(replica.jobs[job_id], tasks)
                self._end_waiting(job_id, JobState.CANCELLED, at_us, tasks)
            case facts.JobFinished(job_id, state, text):
                if NEVER.match(text):
                    job = replica.jobs[job_id]
                    # The dependencies of a pack are those of its first member.
                    self._check_given_up(replica.jobs[job.pack.pack_id] if job.pack is not None else job)
                if job_id in self._arrays:
                    self._cancelled.add(job_id)
                    if (job_id, -1) in self._ended:
                        # All its tasks have ended, and the last of them had not given its nodes back yet.
                        self._ended[job_id, -1] = (False, at_us)
                    self._end_waiting(job_id, state, at_us, replica.jobs[job_id].tasks_failed)
                else:
                    self._end(self._named[job_id], state, at_us)
            case facts.TransferEnded(job_id, _, outcome):
                # The other cell tells both at once.
                if replica.jobs[job_id].started_us:
                    self._begin(job_id, replica.jobs[job_id].started_us)
                self._end(self._named[job_id], JobState(outcome.state), at_us)
            case _:
                pass

    def _begin(self, job_id: int, at_us: int) -> None:
        named = self._named[job_id]
        self._begun_us.setdefault(named, at_us)
        self._begun_us.setdefault((named[0], -1), at_us)

    def _end(self, named: Named, state: JobState, at_us: int) -> None:
        job_id, task = named
        self._ended.setdefault(named, (state is JobState.COMPLETED, at_us))
        if task >= 0:
            ends = [self._ended.get((job_id, one)) for one in self._arrays[job_id]]
            if all(ends):
                is_well = all(end[0] for end in ends if end) and job_id not in self._cancelled
                self._ended.setdefault((job_id, -1), (is_well, at_us))

    def _end_waiting(self, array_id: int, state: JobState, at_us: int, tasks: Ranges) -> None:
        for task in self._arrays[array_id]:
            is_meant = any(first <= task <= last for first, last in tasks)
            if is_meant and (array_id, task) not in self._split:
                self._end((array_id, task), state, at_us)

    # ---- one condition ----

    def _target(self, one: Dependency, task: int) -> Named:
        """The job that a condition names; for `aftercorr` of an array's task, the task of the same number.

        An array that had left memory at the submission counts as a whole.
        """
        job_id, own = self._named[one.job_id]
        if one.task >= 0:
            return job_id, one.task
        if one.kind == "aftercorr" and own < 0 and job_id in self._arrays and task >= 0 and not one.settled:
            return job_id, task
        return job_id, own

    def _whole(self, one: Dependency) -> list[int]:
        """The jobs of the pack that a condition names by its id alone."""
        return (
            self._packs.get(one.job_id, []) if one.task < 0 and one.part < 0 and one.kind != "after" else []
        )

    def _is_met(self, one: Dependency, task: int, at_us: int) -> bool:
        if members := self._whole(one):
            ends = [self._ended.get((job_id, -1)) for job_id in members]
            is_well = all(end[0] for end in ends if end)
            return all(ends) and (one.kind == "afterany" or is_well is (one.kind != "afternotok"))
        target = self._target(one, task)
        begun_us, ended = self._begun_us.get(target), self._ended.get(target)
        if one.kind == "after":
            since_us = begun_us if begun_us is not None else ended[1] if ended else None
            return since_us is not None and since_us + one.delay_s * SECOND_US <= at_us
        if ended is None:
            return False
        return one.kind == "afterany" or ended[0] is (one.kind != "afternotok")

    def _is_hopeless(self, one: Dependency, task: int) -> bool:
        if one.kind in ("after", "afterany", "singleton"):
            return False
        if members := self._whole(one):
            ends = [self._ended.get((job_id, -1)) for job_id in members]
            if one.kind == "afternotok":
                return all(end and end[0] for end in ends)
            return any(end and not end[0] for end in ends)
        target = self._target(one, task)
        if one.kind == "aftercorr" and target[1] >= 0 and target[1] not in self._arrays[target[0]]:
            return True
        ended = self._ended.get(target)
        return ended is not None and ended[0] is (one.kind == "afternotok")

    def verdict(self, job: Job, task: int, at_us: int) -> str:
        """Check whether the dependencies of a job, or of one task of it, are met, can never be met, or are to be waited for.

        For jobs without a `singleton`.
        """
        spec = job.spec
        met = [self._is_met(one, task, at_us) for one in spec.dependencies]
        hopeless = [self._is_hopeless(one, task) for one in spec.dependencies]
        if not met or (any(met) if spec.dependency_any else all(met)):
            return "met"
        return "never" if (all(hopeless) if spec.dependency_any else any(hopeless)) else "wait"

    # ---- what follows ----

    def _check_placed(self, job: Job, at_us: int) -> None:
        spec = job.spec
        judged = [one for one in spec.dependencies if one.kind != "singleton"]
        met = [self._is_met(one, job.array_task, at_us) for one in judged]
        if len(judged) < len(spec.dependencies):
            # A singleton is judged by the records while it waits: here it counts as met.
            met.append(True)
        if not met:
            return
        kind = "any" if spec.dependency_any else "all"
        self._count(kind)
        holds = any(met) if spec.dependency_any else all(met)
        require(
            holds,
            f"job {job.job_id} begins, and of its dependencies ({kind}) {spec.dependencies} are met: {met}",
        )

    def _check_given_up(self, job: Job) -> None:
        self._check_hopeless(job, -1)

    def _check_dropped(self, array: Job, tasks: Ranges) -> None:
        for task in self._arrays[array.job_id]:
            if any(first <= task <= last for first, last in tasks):
                self._check_hopeless(array, task)

    def _check_hopeless(self, job: Job, task: int) -> None:
        self._count("never")
        spec = job.spec
        hopeless = [self._is_hopeless(one, task) for one in spec.dependencies]
        is_over = all(hopeless) if spec.dependency_any else any(hopeless)
        require(is_over, f"job {job.job_id} is given up, without hope are {hopeless} of {spec.dependencies}")

    def _check_cycle(self, replica: State, job_id: int) -> None:
        self._count("changed")
        seen: set[int] = set()
        front = [job_id]
        while front:
            job = replica.find_job(front.pop())
            if job is None or job.state in FINAL:
                continue
            for one in job.open:
                if one.kind == "singleton":
                    behind = [
                        other.job_id
                        for other in replica.jobs.values()
                        if other.state not in FINAL
                        and not other.array_job_id
                        and other.job_id < job.job_id
                        and (other.spec.user.uid, other.spec.name) == (job.spec.user.uid, job.spec.name)
                    ]
                else:
                    behind = self._whole(one) or [self._named[one.job_id][0]]
                require(job_id not in behind, f"job {job_id} waits for itself, by job {job.job_id}")
                front += [other for other in behind if other not in seen]
                seen.update(behind)

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
