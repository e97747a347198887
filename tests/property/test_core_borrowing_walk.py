"""Applications that report, lend and want their cores back, while borrowers come and go and nodes are late or lost.

After each fact the world checks every invariant (nothing is lent twice, or unconfirmed), that rows and log give the same
state, and what a restart would find. A naive node beside it keeps what it has confirmed: nothing is launched on other cores.
"""

from __future__ import annotations

import random

import pytest

from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.facts import CoresConfirmed, JobPlaced
from eslurm.core.model.job_states import FINAL, AttemptPhase
from eslurm.core.model.messages import CancelJobs, JobRef, RequeueJobs, SuspendJobs
from eslurm.core.model.protocol import Exclude
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import ROOT, World
from tests.kits.walks import end_some, lose_some
from tests.support.profiles import draws

SEEDS = draws(40)
STEPS = 80
NODES = 3
CORES = 4


class Walk:
    """One seed, one history. `confirmed` is what nodes have said, by (job, attempt, node)."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        policy = self.rng.choice(("fcfs", "easy", "conservative", "planned"))
        self.world = World(NODES, CORES, restarts=False, policy=policy, node_lost_after_s=60.0)
        self.schedule = Schedule()
        self.unsent: list[Send] = []
        self.confirmed: dict[tuple[int, int, int], int] = {}
        self.loans = 0

    def act(self) -> None:
        rng = self.rng
        acts = (
            self.submit,
            self.plan,
            self.plan,
            self.deliver,
            self.deliver,
            self.tell,
            self.tell,
            self.end,
            self.people,
        )
        rng.choice(acts)()
        if rng.random() < 0.03:
            lose_some(self.world, NODES, rng)
        self.world.pass_time(rng.choice((0, 0, 1, 5, 40)))
        if rng.random() < 0.03:
            self.world.restart()
            self.schedule, self.unsent = Schedule(), []

    def submit(self) -> None:
        rng = self.rng
        nodes = rng.choice((1, 1, 2, 3))
        request = Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes, cpus_per_task=rng.choice((1, 2, 3)))
        self.world.try_submit(
            request=request,
            time_limit_s=rng.choice((0, 20, 100)),
            no_kill=rng.random() < 0.3,
            cooperate=rng.choice(("", "report", "full", "full")),
            borrow=rng.choice(("", "requeue", "end,5")),
        )

    def plan(self) -> None:
        world = self.world
        plan = exhaust(plan_slices(world.state, world.now_us, self.schedule, PlanLimits()))
        self.schedule.book.check()
        message = message_of(plan)
        if message is not None:
            before = len(world.log)
            world.send(message)
            for fact in world.log[before:]:
                if isinstance(fact, JobPlaced):
                    self.placed(fact)

    def placed(self, fact: JobPlaced) -> None:
        """Compare a start with what the naive nodes have confirmed."""
        for loan in fact.loans:
            key = loan.owner, loan.attempt, loan.node
            used = sum(self.world.state.loans[key].values())
            assert used <= self.confirmed.get(key, 0), f"{fact.job_id} started on unconfirmed cores of {key}"
            self.loans += 1

    def deliver(self) -> None:
        world, rng = self.world, self.rng
        self.unsent += world.sends()
        rng.shuffle(self.unsent)
        while self.unsent and rng.random() < 0.8:
            send = self.unsent.pop()
            nodes = tuple(node for node in send.nodes if rng.random() < 0.9)
            status = rng.choice(("ok",) * 9 + ("failed",))
            body = send.body
            before = len(world.log)
            world.done(send, status, nodes, world.answer_of(send))
            if isinstance(body, Exclude) and any(
                isinstance(one, CoresConfirmed) for one in world.log[before:]
            ):
                for node in nodes if status == "ok" else ():
                    self.confirmed[body.job_id, body.attempt, node] = body.cores

    def tell(self) -> None:
        """An application says anything at all of one of its nodes."""
        rng, world = self.rng, self.world
        running = [
            job
            for job in world.state.jobs.values()
            if job.attempt is not None and job.attempt.phase is AttemptPhase.RUNNING and job.spec.cooperate
        ]
        if not running:
            return
        job = rng.choice(running)
        assert job.attempt is not None
        node = rng.choice(job.attempt.nodes)
        one = next((one for one in job.attempt.exclusions if one.node == node), None)
        excluded = rng.choice((one.cores if one is not None else 0, 0, 1))
        world.report_cores(
            job.job_id, job.attempt.number, idle=rng.randrange(CORES + 1), excluded=excluded, node=node
        )

    def end(self) -> None:
        end_some(self.world, self.rng)

    def people(self) -> None:
        rng, world = self.rng, self.world
        jobs = [job for job in world.state.jobs.values() if job.state not in FINAL]
        if not jobs:
            return
        refs = (JobRef(rng.choice(jobs).job_id),)
        message = rng.choice(
            (
                CancelJobs(ROOT, refs),
                RequeueJobs(ROOT, refs),
                SuspendJobs(ROOT, refs),
                SuspendJobs(ROOT, refs, resume=True),
            )
        )
        world.send(message)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lent_twice_or_lost(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.act()


def test_the_walks_lend() -> None:
    total = 0
    for seed in range(8):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.act()
        total += walk.loans
    assert total > 0
