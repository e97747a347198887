"""Jobs that push each other out, stand still, lend their cores and go on, while nodes are late or lost and people interfere.

After each fact the world checks every invariant, that rows and log give the same state, and what a restart would find.
"""

from __future__ import annotations

import random

import pytest

from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.accounts import Qos
from eslurm.core.model.config import Partition
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import (
    CancelJobs,
    ChangePolicies,
    HoldJobs,
    JobRef,
    PolicyChange,
    RequeueJobs,
    SuspendJobs,
    UpdateJob,
    UpdateNodes,
)
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import ROOT, World
from tests.kits.walks import deliver_some, end_some
from tests.support.profiles import draws

SEEDS = draws(40)
STEPS = 60
NODES = 3


class Walk:
    """One seed, one history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        policy = self.rng.choice(("fcfs", "easy", "conservative", "planned"))
        names = tuple(f"cn{number}" for number in range(NODES))
        partitions = (
            Partition(
                "main", names, default=True, preempt_mode=self.rng.choice(("off", "suspend", "requeue"))
            ),
            Partition("up", names, tier=1),
        )
        self.world = World(
            NODES, restarts=False, policy=policy, partitions=partitions, node_lost_after_s=60.0
        )
        mode = self.rng.choice(("suspend", "suspend", "requeue", "cancel"))
        qos = (Qos("low", preempt_mode=mode), Qos("high", preempts=("low",)))
        self.world.send(ChangePolicies(ROOT, tuple(PolicyChange("add", "qos", one.name, one) for one in qos)))
        self.schedule = Schedule()
        self.unsent: list[Send] = []

    def act(self) -> None:
        rng = self.rng
        acts = (
            self.submit,
            self.plan,
            self.plan,
            self.deliver,
            self.deliver,
            self.end,
            self.people,
            self.nodes,
        )
        rng.choice(acts)()
        self.world.pass_time(rng.choice((0, 0, 1, 5, 40)))
        if rng.random() < 0.03:
            self.world.restart()
            self.schedule, self.unsent = Schedule(), []

    def submit(self) -> None:
        rng = self.rng
        nodes = rng.choice((1, 1, 2, 3))
        request = Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes, cpus_per_task=rng.choice((1, 2, 4)))
        self.world.try_submit(
            request=request,
            qos=rng.choice(("low", "high", "")),
            time_limit_s=rng.choice((0, 20, 100)),
            no_kill=rng.random() < 0.4,
            tasks=((0, 2),) if rng.random() < 0.2 else None,
        )

    def plan(self) -> None:
        world = self.world
        plan = exhaust(plan_slices(world.state, world.now_us, self.schedule, PlanLimits()))
        self.schedule.book.check()
        message = message_of(plan)
        if message is not None:
            world.send(message)

    def deliver(self) -> None:
        deliver_some(self.world, self.unsent, self.rng)

    def end(self) -> None:
        end_some(self.world, self.rng)

    def people(self) -> None:
        rng, world = self.rng, self.world
        jobs = [job for job in world.state.jobs.values() if job.state not in FINAL]
        if not jobs:
            return
        refs = []
        for job in rng.sample(jobs, min(len(jobs), 3)):
            refs.append(JobRef(job.job_id))
            if job.array_job_id:
                refs.append(JobRef(job.array_job_id, job.array_task))
        one = refs[0]
        begin_us = world.now_us + 1_000_000 * rng.choice((0, 50))
        message = rng.choice(
            (
                CancelJobs(ROOT, tuple(refs)),
                HoldJobs(ROOT, tuple(refs), release=rng.random() < 0.5),
                RequeueJobs(ROOT, tuple(refs)),
                SuspendJobs(ROOT, tuple(refs)),
                SuspendJobs(ROOT, tuple(refs), resume=True),
                SuspendJobs(ROOT, tuple(refs), resume=True),
                UpdateJob(ROOT, one, time_limit_s=rng.choice((30, 300))),
                UpdateJob(ROOT, one, begin_us=begin_us),
                UpdateJob(ROOT, one, partition="up"),
            )
        )
        world.send(message)

    def nodes(self) -> None:
        rng, world = self.rng, self.world
        name = f"cn{rng.randrange(NODES)}"
        if rng.random() < 0.15:
            world.send(UpdateNodes(ROOT, (name,), "lost", "gone"))
            world.register(int(name[2:]), boot=f"b{rng.random()}", session=f"s{rng.random()}")
        else:
            world.send(UpdateNodes(ROOT, (name,), rng.choice(("drain", "resume")), "test"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.act()
