"""Draws of the changes that users of a simulated cluster make to the nodes of running jobs; in most worlds there are none.

They have a random source of their own: they move no other draw.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.job import Job, JobSpec, Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import CreateStep, JobRef, ResizeJob
from eslurm.core.model.request import Request
from eslurm.core.model.step_claim import ClaimWish
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.ports.store import content_hash

WORLDS_SHARE: Final = 0.3
EVERY_US: Final = SECOND_US // 2
ELASTIC_SHARE: Final = 0.35
"""Share of the submitted jobs of one part that may grow by themselves."""


class ElasticDraws:
    """The draws of one world."""

    def __init__(self, seed: float, environment: bytes) -> None:
        self._random = random.Random(f"{seed}/elastic")
        self._claims_random = random.Random(f"{seed}/claims of steps over nodes that change")
        self._environment = content_hash(environment)
        self.is_on = self._random.random() < WORLDS_SHARE

    def spec(self, spec: JobSpec, nodes: int) -> JobSpec:
        """The job, with a range of nodes now and then."""
        rng = self._random
        if not self.is_on or rng.random() >= ELASTIC_SHARE:
            return spec
        if len(spec.components) > 1 or spec.gateway is not None or spec.cells or spec.array is not None:
            return spec
        most = rng.randint(2, max(2, nodes // 2))
        request = Request(cpus_per_task=rng.choice((1, 1, 2)), nodes_min=1, nodes_max=most)
        return replace(spec, components=(request,), elastic=rng.random() < 0.6)

    def act(self, state: State, operator: Principal) -> list[tuple[int, CreateStep | ResizeJob]]:
        """Calls at these times from now on: a step on all nodes of a job and a change of them, or one alone."""
        rng = self._random
        jobs = [job for job in state.jobs.values() if _may_change(job)]
        if not jobs or rng.random() < 0.3:
            return []
        job = rng.choice(jobs)
        assert job.attempt is not None
        nodes = len(job.attempt.held)
        ref, by = JobRef(job.job_id), rng.choice((job.spec.user, operator))
        how = rng.choice((1, 1, 2, 2, -1, -1, -2, 0, 9))
        change = (
            ResizeJob(by, ref, to_nodes=rng.randint(1, nodes + 2)) if not how else ResizeJob(by, ref, how)
        )
        calls: list[tuple[int, CreateStep | ResizeJob]] = []
        if nodes > 1 and rng.random() < 0.6:
            step = CreateStep(
                *(job.spec.user, job.job_id, nodes, nodes, ("hostname",), self._environment, "/home"),
                *("login:1", b"c"),
                tasks_open=True,
                nodes_open=True,
                claim=self._claims_random.choice((None, ClaimWish(), ClaimWish(whole=True))),
            )
            calls.append((0, step))
        return [*calls, (rng.randint(0, 2 * SECOND_US), change)]


def _may_change(job: Job) -> bool:
    return job.state is JobState.RUNNING and len(job.spec.components) == 1 and job.pack is None
