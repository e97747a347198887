"""Random histories of jobs that depend on each other, next to the plain rules of the simulator's checker.

After each step every waiting job is where those rules say: it waits for others, may start, or is given up. So it is after a
restart, and after changes of what it depends on.
"""

from __future__ import annotations

import random

import pytest

from eslurm.core.control.jobs.dependency_cycles import find_cycle
from eslurm.core.model import ranges
from eslurm.core.model.facts import Fact, JobChanged
from eslurm.core.model.job import Dependency, Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import Changed, JobRef, Submitted, UpdateJob
from eslurm.core.state.cluster import State
from eslurm.lab.sim.naive_dependencies import DependencyChecks
from tests.kits.core import ROOT, World
from tests.support.profiles import draws
from tests.support.seeds import Seeds

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr")
STEPS = 60
JOBS_MAX = 12


class Followed(World):
    """A world whose facts the checker follows, too."""

    def __init__(self) -> None:
        self.checks = DependencyChecks()
        super().__init__(nodes=3, restarts=False)

    def _observe(self, state: State, fact: Fact) -> None:
        super()._observe(state, fact)
        self.checks.on_logged(state, fact, state.now_us)


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = Followed()
        self.arrays: dict[int, int] = {}
        self.cycles = 0

    def act(self) -> None:
        rng = self.rng
        acts = (
            self._submit,
            self._start,
            self._end,
            self._end,
            self._cancel,
            self._change,
            self._pass,
            self._restart,
        )
        rng.choices(acts, (6, 4, 4, 4, 1, 4, 3, 1))[0]()
        self._settle()
        self.compare()

    def _settle(self) -> None:
        # Nodes of jobs that are being ended give back what they hold.
        for job in list(self.world.state.jobs.values()):
            if job.attempt is not None and job.attempt.stop is not None and job.state is JobState.RUNNING:
                self.world.end(job.job_id, 15)

    def _known(self) -> list[int]:
        return [job_id for job_id, job in self.world.state.jobs.items() if not job.array_job_id]

    def _dependencies(self) -> tuple[Dependency, ...]:
        rng, known = self.rng, self._known()
        found = []
        for _ in range(rng.choice((1, 1, 2, 3)) if known else 0):
            kind, job_id = rng.choice(KINDS), rng.choice(known)
            has_task = job_id in self.arrays and rng.random() < 0.5
            task = rng.randrange(self.arrays[job_id]) if has_task else -1
            found.append(Dependency(kind, job_id, rng.choice((0, 0, 3)) if kind == "after" else 0, task=task))
        return tuple(found)

    def _submit(self) -> None:
        rng = self.rng
        if sum(job.state not in FINAL for job in self.world.state.jobs.values()) >= JOBS_MAX:
            return
        count = rng.choice((0, 0, 1, 3))
        answer = self.world.try_submit(
            tasks=((0, count - 1),) if count else None,
            dependencies=self._dependencies() if rng.random() < 0.8 else (),
            dependency_any=rng.random() < 0.5,
            requeue=rng.random() < 0.7,
        )
        if isinstance(answer, Submitted) and count:
            self.arrays[answer.job_ids[0]] = count

    def _start(self) -> None:
        self.world.start()

    def _end(self) -> None:
        running = [job.job_id for job in self.world.state.jobs.values() if job.state is JobState.RUNNING]
        if running:
            cause = "lost" if self.rng.random() < 0.15 else "exited"
            self.world.end(self.rng.choice(running), self.rng.choice((0, 0, 1)), cause=cause)

    def _cancel(self) -> None:
        if known := self._known():
            job_id = self.rng.choice(known)
            task = (
                self.rng.randrange(self.arrays[job_id])
                if job_id in self.arrays and self.rng.random() < 0.5
                else -1
            )
            self.world.cancel(job_id, task, ROOT)

    def _change(self) -> None:
        """Change what a job waits for; a refusal for a cycle is right, and an accepted change closes none."""
        if not (known := self._known()):
            return
        job_id, world = self.rng.choice(known), self.world
        answer = world.send(
            UpdateJob(
                ROOT,
                JobRef(job_id),
                dependencies=self._dependencies(),
                dependency_any=self.rng.random() < 0.5,
            )
        )
        assert isinstance(answer, Changed)
        self.cycles += any("would wait for itself" in problem.text for problem in answer.problems)
        job = world.state.find_job(job_id)
        if job is not None and job.open:
            assert not find_cycle(
                world.state, job, JobChanged(job_id, job.spec, job.priority, 0, "", job.open)
            )

    def _pass(self) -> None:
        self.world.pass_time(self.rng.choice((1, 2, 4)))

    def _restart(self) -> None:
        self.world.restart()

    def compare(self) -> None:
        world = self.world
        while world.state.unsettled:
            world.pass_time(0)
        for job in world.state.jobs.values():
            if job.state is not JobState.PENDING or job.attempts or job.array_job_id:
                continue
            if job.is_array:
                self._compare_array(job)
                continue
            verdict = world.checks.verdict(job, -1, world.now_us)
            may_start = job.job_id in world.state.queue
            assert verdict == ("met" if may_start else "wait"), (verdict, job)

    def _compare_array(self, array: Job) -> None:
        world = self.world
        for task in ranges.iterate(array.tasks_left or ()):
            verdict = world.checks.verdict(array, task, world.now_us)
            is_ready = array.tasks_ready is None or ranges.contains(array.tasks_ready, task)
            may_start = array.job_id in world.state.queue and is_ready
            assert verdict == ("met" if may_start else "wait"), (verdict, task, array)


@pytest.mark.parametrize("first", range(1, draws(120) + 1, 10))
def test_jobs_wait_exactly_as_long_as_the_plain_rules_say(seeds: Seeds, first: int) -> None:
    for seed in seeds(10, first):
        history = History(seed)
        for _ in range(STEPS):
            history.act()


def test_the_histories_meet_what_they_are_for() -> None:
    seen: dict[str, int] = {}
    cycles = 0
    for seed in range(12):
        history = History(seed)
        for _ in range(STEPS):
            history.act()
        cycles += history.cycles
        for what, count in history.world.checks.seen.items():
            seen[what] = seen.get(what, 0) + count
    assert cycles and seen.keys() >= {"any", "all", "never", "changed"}
