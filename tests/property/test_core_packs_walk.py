"""Packs begun at random, also by wrong plans, while nodes are late or lost and people interfere.

After each fact the world checks every invariant, that rows and log give the same state, and what a restart would find. A
plain model beside it follows the facts of the log only: no job of a pack is placed before the first, or before its time, and
none after its cancellation was answered.
"""

from __future__ import annotations

import random

import pytest

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.facts import AttemptEnded, Fact, JobFinished, JobPlaced, JobSubmitted
from eslurm.core.model.job import Job, Span
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    HoldJobs,
    JobRef,
    Message,
    PlanMade,
    Preemption,
    RequeueJobs,
    SubmitJobs,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.model.pack import PackDraft, PackPlace
from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.core import ALICE, ROOT, SECOND, World, depends
from tests.kits.packs import member
from tests.kits.walks import deliver_some, end_some, lose_some
from tests.support.profiles import draws

SEEDS = draws(40)
STEPS = 70
NODES = 4
CORES = 3


class Model:
    """The state of packs by the log: the time at which each began, and its jobs that may start."""

    def __init__(self) -> None:
        self.places: dict[int, PackPlace] = {}
        self.anchors: dict[int, int] = {}
        self.live: set[int] = set()
        self.dead: set[int] = set()
        self.lost: set[int] = set()
        self.failed = 0
        self.begun = 0
        self.again = 0

    def follow(self, batch: list[Fact], now_us: int) -> None:
        for fact in batch:
            match fact:
                case JobSubmitted(pack=PackPlace() as place):
                    self.places[fact.job_id] = place
                case JobPlaced() if (own := self.places.get(fact.job_id)) is not None:
                    self.place(fact, own, batch, now_us)
                case AttemptEnded():
                    self.live.discard(fact.job_id)
                    self.end(fact.job_id, fact.outcome)
                case JobFinished():
                    self.end(fact.job_id, fact.state)

    def end(self, job_id: int, outcome: JobState) -> None:
        """A job's end otherwise than well lets no other one of its pack begin, if the pack is such a one."""
        own = self.places[job_id]
        if (
            own.cancels
            and own.pack_id in self.anchors
            and outcome not in (JobState.COMPLETED, JobState.PENDING)
        ):
            self.failed += own.pack_id not in self.lost
            self.lost.add(own.pack_id)
            self.dead.update(one for one, place in self.places.items() if place.pack_id == own.pack_id)

    def place(self, fact: JobPlaced, own: PackPlace, batch: list[Fact], now_us: int) -> None:
        assert fact.job_id not in self.dead, f"job {fact.job_id} starts after its cancellation"
        if fact.anchor_us:
            assert own.index == 0 and fact.job_id == own.pack_id
            together = {one.job_id for one in batch if isinstance(one, JobPlaced)}
            members = {job_id for job_id, one in self.places.items() if one.pack_id == own.pack_id}
            missing = {one for one in members if not self.places[one].delay_us} - together
            assert not missing, f"pack {own.pack_id} begins without {missing}"
            assert not self.live & members, f"pack {own.pack_id} begins while some of it runs"
            self.again += own.pack_id in self.anchors
            self.anchors[own.pack_id] = fact.anchor_us
            self.begun += 1
        assert own.pack_id in self.anchors, f"job {fact.job_id} starts before its pack"
        assert now_us >= self.anchors[own.pack_id] + own.delay_us, f"job {fact.job_id} starts too early"
        self.live.add(fact.job_id)


class Walk:
    """One seed, one history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(NODES, CORES, restarts=seed % 3 == 0, node_lost_after_s=60.0)
        self.model = Model()
        self.seen = 0
        self.unsent: list[Send] = []

    def act(self) -> None:
        acts = (
            self.submit,
            *(self.place,) * 4,
            *(self.deliver,) * 2,
            self.end,
            *(self.people,) * 2,
            self.lose,
        )
        self.rng.choice(acts)()
        self.check()
        self.world.pass_time(self.rng.choice((0, 0, 1, 5, 40)))
        if self.rng.random() < 0.04:
            self.world.restart()
            self.unsent = []
        self.check()

    def check(self) -> None:
        fresh, self.seen = self.world.log[self.seen :], len(self.world.log)
        self.model.follow(fresh, self.world.now_us)
        state = self.world.state
        for pack_id, job_ids in state.packs.items():
            jobs = [state.jobs[job_id] for job_id in job_ids]
            begun = any(job.pack is not None and job.pack.anchor_us for job in jobs)
            waiting = [job.job_id for job in jobs if job.state is JobState.PENDING]
            assert pack_id not in self.model.lost or not waiting, f"pack {pack_id} has failed: {waiting} wait"
            assert begun or all(job.state is JobState.PENDING for job in jobs), f"some of pack {pack_id} run"

    def submit(self) -> None:
        rng = self.rng
        count = rng.choice((2, 2, 3))
        delays = (0, *[rng.choice((0, 0, 3, 20)) for _ in range(count - 1)])
        more: dict[str, object] = {}
        if self.world.state.jobs and rng.random() < 0.3:
            more = {
                "dependencies": depends(
                    rng.choice(("after", "afterok", "afterany", "afternotok")),
                    rng.choice(list(self.world.state.jobs)),
                )
            }
        if rng.random() < 0.2:
            more["begin_us"] = self.world.now_us + 10 * SECOND
        specs = [
            member(
                str(at),
                requeue=rng.random() < 0.7,
                time_limit_s=rng.choice((0, 20, 100)),
                held=rng.random() < 0.05,
                **(more if at == 0 else {}),
            )
            for at in range(count)
        ]
        self.world.send(SubmitJobs(tuple(specs), (PackDraft(0, delays, cancels=rng.random() < 0.4),)))

    def place(self) -> None:
        """A plan, right or wrong: too early, of some members only, without room."""
        rng, state = self.rng, self.world.state
        waiting = [job for job in state.jobs.values() if job.state is JobState.PENDING]
        if not waiting:
            return
        one = rng.choice(waiting)
        assert one.pack is not None
        together = [job for job in waiting if job.pack is not None and job.pack.pack_id == one.pack.pack_id]
        if rng.random() < 0.7:
            together = [job for job in together if self.is_due(job)]
        elif rng.random() < 0.5:
            together = rng.sample(together, rng.randint(1, len(together)))
        found = [self.anywhere(job) for job in together]
        fits = all(fit for _, fit in found) and len({placed.spans[0].node for placed, _ in found}) == len(
            found
        )
        older = max(state.generation - 1, state.configured, state.policies_changed)
        generation = older if not fits or rng.random() < 0.5 else state.generation
        if generation < state.generation or fits:
            self.world.send(PlanMade(tuple(placed for placed, _ in found), generation))

    def is_due(self, job: Job) -> bool:
        assert job.pack is not None
        return job.pack.start_us <= self.world.now_us if job.pack.anchor_us else not job.pack.delay_us

    def anywhere(self, job: Job) -> tuple[Placement, bool]:
        node, cores = self.rng.randrange(NODES), self.rng.randint(1, CORES)
        limit_us = job.spec.time_limit_s * SECOND
        until_us = self.world.now_us + limit_us if limit_us else INFINITY_US
        first = job.pack is not None and job.pack.index == 0
        anchor_us = self.world.now_us if first and self.rng.random() < 0.95 else 0
        placement = Placement(job.job_id, (Span(node, (cores, 0)),), until_us, anchor_us=anchor_us)
        return placement, self.world.state.ledger.fits_on(node, (cores, 0))

    def deliver(self) -> None:
        deliver_some(self.world, self.unsent, self.rng)

    def end(self) -> None:
        end_some(self.world, self.rng)

    def people(self) -> None:
        rng, state = self.rng, self.world.state
        jobs = [job for job in state.jobs.values() if job.state not in FINAL]
        if not jobs:
            return
        one = rng.choice(jobs)
        refs = (JobRef(one.job_id),)
        victim = Preemption(
            one.job_id, one.attempts, rng.choice(("requeue", "cancel")), rng.choice(jobs).job_id
        )
        acts: tuple[Message, ...] = (
            CancelJobs(ROOT, refs),
            CancelJobs(ROOT, name=one.spec.name, state="PENDING"),
            HoldJobs(ROOT, refs),
            *[HoldJobs(ROOT, refs, release=True)] * 3,
            RequeueJobs(ALICE, refs),
            SuspendJobs(ROOT, refs),
            SuspendJobs(ROOT, refs, resume=True),
            UpdateJob(ROOT, JobRef(one.job_id), priority=rng.randint(1, 9)),
            UpdateJob(ROOT, JobRef(one.job_id), time_limit_s=50),
            UpdateJob(ROOT, JobRef(one.job_id), begin_us=self.world.now_us + 9 * SECOND),
            PlanMade((), state.generation, (victim,)),
        )
        act = rng.choice(acts)
        assert one.pack is not None
        whole = (
            state.packs[one.pack.pack_id]
            if one.job_id == one.pack.pack_id or not one.pack.anchor_us
            else (one.job_id,)
        )
        self.check()
        answer = self.world.send(act)
        if isinstance(act, CancelJobs) and act.jobs and isinstance(answer, Changed) and not answer.problems:
            self.model.dead.update(whole)

    def lose(self) -> None:
        lose_some(self.world, NODES, self.rng)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_packs_are_never_partial(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.act()


def test_the_walks_begin_packs_and_begin_some_again() -> None:
    """Goal: the walks reach what they are for."""
    begun = again = failed = 0
    for seed in range(14):
        walk = Walk(3 * seed + 1)
        for _ in range(STEPS):
            walk.act()
        begun += walk.model.begun
        again += walk.model.again
        failed += walk.model.failed
    assert begun > 10 and again > 0 and failed > 3
