"""Running jobs get nodes and give them back at random, while nodes are late or lost and people interfere.

After each fact the world checks every invariant, that rows and log give the same state, and what a restart would find;
after each act a naive account by node and time has to give what the ledger has free, and what usage was charged.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model import facts
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.job import Job, Span
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    CancelJobs,
    CreateStep,
    JobRef,
    PlanMade,
    RequeueJobs,
    ResizeJob,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import attempts_of
from eslurm.core.state.job_indexes import fills
from tests.kits.core import ALICE, ROOT, SECOND, World
from tests.kits.walks import deliver_some, end_some, lose_some
from tests.support.profiles import draws

SEEDS = draws(30)
STEPS = 120
NODES = 6
CORES = 4
WEIGHTS = PriorityWeights(half_life_s=0, billing=(("cores", 1.0),))


class Walk:
    """One seed, one history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            NODES,
            CORES,
            restarts=seed % 3 == 0,
            node_lost_after_s=60.0,
            launch_failures_max=3,
            priority=WEIGHTS,
        )
        self.unsent: list[Send] = []
        self.grown = 0
        self.shrunk = 0

    def act(self) -> None:
        acts = (
            *[self.submit] * 2,
            *[self.place] * 6,
            *[self.deliver] * 6,
            *[self.resize] * 5,
            *[self.step] * 2,
            self.end,
            self.people,
            self.lose,
        )
        since = len(self.world.log)
        self.rng.choice(acts)()
        self.check()
        self.world.pass_time(self.rng.choice((0, 0, 1, 5, 20)))
        kinds = self.world.kinds(since)
        self.grown += kinds.count("NodesJoined")
        self.shrunk += kinds.count("JobShrunk")
        if self.rng.random() < 0.03:
            self.world.restart()
            self.unsent = []
        self.check()

    def check(self) -> None:
        """Compare the free amounts with the plainest sum; a node is of one attempt of a job once, and in one place."""
        state = self.world.state
        used: Counter[int] = Counter()
        for job in state.jobs.values():
            for attempt in attempts_of(job):
                assert len({span.node for span in attempt.spans}) == len(attempt.spans)
                used.update(
                    {span.node: span.amounts[0] for span in attempt.spans if span.node in attempt.held}
                )
        for node in range(NODES):
            assert state.ledger.free(node)[0] == CORES - used[node]
        for job_id, growth_id in state.growing.items():
            growth = state.get_job(growth_id)
            assert growth.attempt is None and growth.grows is not None and growth.grows.job_id == job_id

    def submit(self) -> None:
        most = self.rng.choice((1, 4))
        self.world.submit(
            request=Request(nodes_min=1, nodes_max=most),
            elastic=most > 1,
            requeue=self.rng.random() < 0.7,
            no_kill=self.rng.random() < 0.5,
            time_limit_s=self.rng.choice((0, 60, 300)),
        )

    def place(self) -> None:
        """Start a waiting job, or a growth, on nodes where there is room."""
        state, rng = self.world.state, self.rng
        waiting = [job for job in state.jobs.values() if job.job_id in state.queue or fills(job)]
        if not waiting:
            return
        growths = [job for job in waiting if job.grows is not None]
        job = rng.choice(growths if growths and rng.random() < 0.7 else waiting)
        apart = job.grows.apart if job.grows is not None else frozenset[int]()
        count = job.spec.components[0].nodes_max if job.grows is not None else rng.choice((1, 2, 3))
        cores = rng.choice((1, 1, 2, 3))
        room = [node for node in range(NODES) if node not in apart and state.ledger.fits_on(node, (cores, 0))]
        if len(room) < count:
            return
        spans = tuple([Span(node, (cores, 0)) for node in sorted(rng.sample(room, count))])
        limit_us = job.spec.time_limit_s * SECOND
        until_us = self.world.now_us + limit_us if limit_us else INFINITY_US
        self.world.send(PlanMade((Placement(job.job_id, spans, until_us),), state.generation))

    def running(self) -> list[Job]:
        return [job for job in self.world.state.jobs.values() if job.state is JobState.RUNNING]

    def resize(self) -> None:
        rng = self.rng
        if jobs := self.running():
            job = rng.choice(jobs)
            how: dict[str, int] = {"by_nodes": rng.choice((1, 1, 2, -1, -2))}
            if rng.random() < 0.3:
                how = {"to_nodes": rng.randint(1, 4)}
            self.world.send(ResizeJob(ALICE, JobRef(job.job_id), **how))

    def deliver(self) -> None:
        deliver_some(self.world, self.unsent, self.rng)

    def step(self) -> None:
        """A step never gets a node that is joining or leaving."""
        if jobs := self.running():
            job = self.rng.choice(jobs)
            self.world.send(CreateStep(ALICE, job.job_id, 0, 0, ("x",), b"", "/", "h:1", b""))
            for fact in self.world.log[-1:]:
                if isinstance(fact, facts.StepCreated):
                    attempt = self.world.attempt(job.job_id)
                    assert not {node for node, _ in fact.layout} & (attempt.joining | attempt.leaving)

    def end(self) -> None:
        end_some(self.world, self.rng)

    def people(self) -> None:
        rng, world = self.rng, self.world
        jobs = [job for job in world.state.jobs.values() if job.state not in FINAL]
        if not jobs:
            return
        refs = (JobRef(rng.choice(jobs).job_id),)
        world.send(
            rng.choice(
                (
                    CancelJobs(ROOT, refs),
                    RequeueJobs(ROOT, refs),
                    SuspendJobs(ROOT, refs),
                    SuspendJobs(ROOT, refs, resume=True),
                    SuspendJobs(ROOT, refs, resume=True),
                    UpdateJob(ROOT, refs[0], time_limit_s=rng.choice((30, 400))),
                )
            )
        )

    def lose(self) -> None:
        lose_some(self.world, NODES, self.rng)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.act()


def test_histories_grow_and_shrink() -> None:
    walks = [Walk(seed) for seed in range(6)]
    for walk in walks:
        for _ in range(STEPS):
            walk.act()
    assert sum(walk.grown for walk in walks) >= 6
    assert sum(walk.shrunk for walk in walks) >= 6
