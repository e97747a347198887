"""Cycles of dependencies: a changed job must not wait for a job that waits for it, directly or through others.

A new job waits for older ones only, so only a changed job can close a cycle. The search follows the jobs that wait for the
changed one, of which most have none. Invariant: its cost is bounded by `LOOKS_MAX`, whatever waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from eslurm.core.control.jobs.pack_requests import is_whole
from eslurm.core.control.privacy import Visibility
from eslurm.core.model import facts
from eslurm.core.model.job import Job, Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.state.cluster import State, name_key

LOOKS_MAX: Final = 20_000
"""Dependencies examined for one change: some ten milliseconds."""
SHOWN_MAX: Final = 12
"""Jobs of a cycle that a refusal names."""


def check_cycles(state: State, job: Job, changed: facts.JobChanged, by: Principal) -> None:
    """Raise `Refused` with the cycle that the change would close."""
    cycle = find_cycle(state, job, changed)
    if not cycle:
        return
    sight = Visibility(state, by)
    shown = [str(one) if sight.job(state.get_job(one)) else "another user's job" for one in cycle]
    if len(shown) > SHOWN_MAX:
        shown[SHOWN_MAX - 2 : -1] = [f"{len(shown) - SHOWN_MAX + 1} more"]
    raise Refused(
        RefusalCode.CONFLICT, f"--dependency: job {job.job_id} would wait for itself: {' -> '.join(shown)}"
    )


def find_cycle(state: State, job: Job, changed: facts.JobChanged) -> tuple[int, ...]:
    """The cycle that the change would close, from the job to itself; each job waits for the next. Empty: none.

    Raises `Refused` when too much waits for the job to be sure.
    """
    search = _Search(state, job, changed)
    targets = search.targets()
    if not targets:
        return ()
    if job.job_id in targets:
        return (job.job_id, job.job_id)
    return search.path_from(targets)


class _Search:
    def __init__(self, state: State, job: Job, changed: facts.JobChanged) -> None:
        self._state = state
        self._job = job
        self._key = name_key(changed.spec)
        self._open = job.open if changed.open is None else changed.open
        self._looks = 0
        # By name the least id from which on all singletons are known to wait.
        self._named: dict[tuple[int, str], int] = {}

    def targets(self) -> frozenset[int]:
        """The jobs that the changed job waits for; a task stands for its array."""
        found: set[int] = set()
        for dependency in self._open:
            if dependency.kind == "singleton":
                found.update(twin for twin in self._twins(self._key) if twin < self._job.job_id)
            elif (target := self._state.find_job(dependency.job_id)) is not None:
                found.add(target.array_job_id or target.job_id)
        return frozenset(found)

    def path_from(self, targets: frozenset[int]) -> tuple[int, ...]:
        """The shortest way from a job of `targets` to the changed one, which stands at both ends."""
        waits_for: dict[int, int] = {self._job.job_id: 0}
        front = [self._job.job_id]
        while front:
            behind: list[int] = []
            for job_id in front:
                for other in self._waiting_for(job_id):
                    if other in waits_for:
                        continue
                    waits_for[other] = job_id
                    if other in targets:
                        return (self._job.job_id, *_way(waits_for, other))
                    behind.append(other)
            front = behind
        return ()

    def _waiting_for(self, job_id: int) -> Iterator[int]:
        """The jobs that wait for this one, for a task of it, or for jobs of its name before them; those of its pack."""
        state = self._state
        if job_id in state.packs and is_whole(state.get_job(job_id)):
            yield from self._counted(state.packs[job_id][1:])
        yield from self._counted(state.dependents.get(job_id, ()))
        for waiting in state.task_dependents.get(job_id, {}).values():
            yield from self._counted(waiting)
        for task_id in self._counted(state.tasks_of.get(job_id, ())):
            yield from self._counted(state.dependents.get(task_id, ()))
        if singletons := state.dependents.get(0):
            key = self._key if job_id == self._job.job_id else name_key(state.get_job(job_id).spec)
            least = self._named.get(key)
            if least is None or job_id < least:
                self._named[key] = job_id
                for twin in self._twins(key):
                    if twin > job_id and twin in singletons:
                        yield twin

    def _twins(self, key: tuple[int, str]) -> Iterator[int]:
        return self._counted(self._state.same_name.get(key, ()))

    def _counted(self, found: Collection[int]) -> Iterator[int]:
        self._looks += len(found)
        if self._looks > LOOKS_MAX:
            raise Refused(
                RefusalCode.CONFLICT,
                f"--dependency: more than {LOOKS_MAX} dependencies lead to job {self._job.job_id}: whether it would wait "
                "for itself cannot be examined: cancel it and submit it again",
            )
        return iter(found)


def _way(waits_for: dict[int, int], job_id: int) -> Iterator[int]:
    while job_id:
        yield job_id
        job_id = waits_for[job_id]
