"""Jobs whose parts share nodes, placed at random, while nodes are late or lost and people interfere.

After each fact the world checks every invariant, that rows and log give the same state, and what a restart would find;
after each act a naive sum over all records has to give what the ledger has free.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.accounts import Qos
from eslurm.core.model.job import Span
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    CancelJobs,
    ChangePolicies,
    CreateStep,
    FinishPart,
    FinishStep,
    JobRef,
    PartGivenBack,
    PlanMade,
    PolicyChange,
    Preemption,
    RequeueJobs,
    SuspendJobs,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import attempts_of
from tests.kits.core import ALICE, ROOT, SECOND, World
from tests.kits.parts import parted, submit
from tests.kits.walks import deliver_some, end_some, lose_some
from tests.support.profiles import draws

SEEDS = draws(30)
STEPS = 60
NODES = 4
CORES = 6


class Walk:
    """One seed, one history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(NODES, CORES, restarts=seed % 3 == 0, node_lost_after_s=60.0)
        qos = (Qos("low", preempt_mode="suspend"), Qos("high", preempts=("low",)))
        self.world.send(ChangePolicies(ROOT, tuple(PolicyChange("add", "qos", one.name, one) for one in qos)))
        self.unsent: list[Send] = []
        self.shared = 0
        self.finished = 0

    def act(self) -> None:
        acts = (
            self.finish,
            self.finish,
            self.submit,
            self.place,
            self.place,
            self.deliver,
            self.deliver,
            self.step,
            self.end,
            self.people,
            self.people,
            self.lose,
        )
        self.rng.choice(acts)()
        self.check()
        self.world.pass_time(self.rng.choice((0, 0, 1, 5, 40)))
        if self.rng.random() < 0.03:
            self.world.restart()
            self.unsent = []
        self.check()

    def check(self) -> None:
        """Compare the free amounts of each node with the plainest sum, which leaves lent cores out."""
        state = self.world.state
        used: Counter[int] = Counter()
        for job in state.jobs.values():
            for attempt in attempts_of(job):
                lent = bool(attempt.room_for) and not attempt.informing
                for span in attempt.spans:
                    is_held = span.node in attempt.held and (span.component, span.node) not in attempt.given
                    if is_held and not (lent and span.node not in attempt.leaving):
                        used[span.node] += span.amounts[0]
        for node in range(NODES):
            assert state.ledger.free(node)[0] == CORES - used[node]

    def submit(self) -> None:
        parts = self.rng.choice((1, 2, 2, 3))
        spec = parted(
            *[Request()] * parts,
            qos=self.rng.choice(("low", "low", "high")),
            requeue=self.rng.random() < 0.7,
            no_kill=self.rng.random() < 0.5,
            time_limit_s=self.rng.choice((0, 20, 100)),
        )
        submit(self.world, spec)

    def place(self) -> None:
        """Start a waiting job anywhere: on too much of a node, the controller has to refuse."""
        rng, state = self.rng, self.world.state
        waiting = [job for job in state.jobs.values() if job.job_id in state.queue]
        if not waiting:
            return
        job = rng.choice(waiting)
        fits, tries = False, 0
        while not fits and tries < 4:
            spans, fits = self.anywhere(len(job.spec.components))
            tries += 1
        limit_us = job.spec.time_limit_s * SECOND
        until_us = self.world.now_us + limit_us if limit_us else INFINITY_US
        older = max(
            state.generation - 1, state.configured, state.policies_changed, state.changed.get(job.job_id, 0)
        )
        if older == state.generation and not fits:
            return
        self.world.send(PlanMade((Placement(job.job_id, spans, until_us),), older))
        placed = self.world.job(job.job_id).attempt is not None
        assert placed == fits
        self.shared += placed and len({span.node for span in spans}) < len(spans)

    def anywhere(self, parts: int) -> tuple[tuple[Span, ...], bool]:
        """Places for the parts, and whether there is room for them."""
        rng, ledger = self.rng, self.world.state.ledger
        spans: list[Span] = []
        asked: Counter[int] = Counter()
        for component in range(parts):
            for node in sorted(rng.sample(range(NODES), rng.choice((1, 1, 2, 3)))):
                spans.append(Span(node, (rng.randint(1, 3), 0), 1, component))
                asked[node] += spans[-1].amounts[0]
        return tuple(spans), all(ledger.fits_on(node, (cores, 0)) for node, cores in asked.items())

    def deliver(self) -> None:
        """Each node hears what is owed to it once, even if several parts are on it."""
        deliver_some(self.world, self.unsent, self.rng)

    def step(self) -> None:
        """A step over some parts of a running job, if there is room on what is left of each."""
        jobs = [job for job in self.world.state.jobs.values() if job.attempt is not None]
        if jobs:
            job = self.rng.choice(jobs)
            size = len(job.spec.components)
            chosen = tuple(sorted(self.rng.sample(range(size), self.rng.randint(1, size))))
            message = CreateStep(ALICE, job.job_id, 0, 0, ("x",), b"", "/", "h:1", b"", components=chosen)
            self.world.send(message)

    def finish(self) -> None:
        """A running job gives back one of its parts, or a step of it ends."""
        world, rng = self.world, self.rng
        steps = sorted(world.state.steps)
        if steps and rng.random() < 0.5:
            world.send(FinishStep(ALICE, *rng.choice(steps), 0))
            return
        jobs = [
            job
            for job in world.state.jobs.values()
            if job.state is JobState.RUNNING and len(job.spec.components) > 1
        ]
        if jobs:
            job = rng.choice(jobs)
            part = rng.randrange(1, len(job.spec.components))
            answer = world.send(FinishPart(ALICE, JobRef(job.job_id, part=part), kill=rng.random() < 0.7))
            self.finished += isinstance(answer, PartGivenBack)

    def end(self) -> None:
        end_some(self.world, self.rng)

    def people(self) -> None:
        rng, world = self.rng, self.world
        jobs = [job for job in world.state.jobs.values() if job.state not in FINAL]
        if not jobs:
            return
        running = [job for job in jobs if job.attempt is not None and job.attempt.started_us]
        one = rng.choice(running if running and rng.random() < 0.8 else jobs)
        refs = (JobRef(one.job_id),)
        victim = Preemption(one.job_id, one.attempts, "suspend", rng.choice(jobs).job_id)
        make_room = PlanMade((), world.state.generation, (victim,))
        world.send(
            rng.choice(
                (
                    CancelJobs(ROOT, refs),
                    RequeueJobs(ROOT, refs),
                    SuspendJobs(ROOT, refs),
                    SuspendJobs(ROOT, refs, resume=True),
                    *[make_room] * 4,
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


def test_histories_share_nodes() -> None:
    walks = [Walk(seed) for seed in range(8)]
    for walk in walks:
        for _ in range(STEPS):
            walk.act()
    assert sum(walk.shared for walk in walks) >= 4
    assert sum(walk.finished for walk in walks)
