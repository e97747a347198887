"""A job that made room gets its cores back: no other job takes them for longer than the preemptor."""

from __future__ import annotations

import pytest

from eslurm.core.model.accounts import Qos
from eslurm.core.model.messages import ChangePolicies, PolicyChange
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import ROOT, World
from tests.kits.planned import plan_all
from tests.kits.running import end, run

POLICIES = ("fcfs", "easy", "conservative", "planned")
HALF, WHOLE = Request(cpus_per_task=2), Request(cpus_per_task=4)


class Site:
    """One node of four cores, and a planner; `high` suspends `low`."""

    def __init__(self, policy: str) -> None:
        self.world = World(1, restarts=False, policy=policy)
        low, high = Qos("low", preempt_mode="suspend"), Qos("high", preempts=("low",))
        changes = tuple(PolicyChange("add", "qos", one.name, one) for one in (low, high))
        self.world.send(ChangePolicies(ROOT, changes))
        self.schedule = Schedule()

    def submit(self, request: Request, qos: str, limit_s: int) -> int:
        return self.world.submit(request=request, qos=qos, time_limit_s=limit_s)

    def plan(self) -> None:
        """Cycles as long as they change anything; the nodes do what they are told."""
        plan_all(self.world, self.schedule)

    def states(self, *jobs: int) -> list[str]:
        return [self.world.state_of(job) for job in jobs]


@pytest.mark.parametrize("policy", POLICIES)
def test_others_fill_what_is_left_only_until_it_returns(policy: str) -> None:
    site = Site(policy)
    world = site.world
    lender = run(world, (0,), qos="low", time_limit_s=1000)
    site.plan()
    urgent = site.submit(HALF, "high", 100)
    site.plan()
    assert site.states(lender, urgent) == ["SUSPENDED", "RUNNING"]
    short, long = site.submit(HALF, "low", 50), site.submit(HALF, "low", 5000)
    site.plan()
    if policy != "fcfs":
        assert site.states(short, long) == ["RUNNING", "PENDING"]
    world.pass_time(60)
    for job in (short, urgent):
        if world.state_of(job) == "RUNNING":
            end(world, job)
        site.plan()
    assert site.states(lender, long) == ["RUNNING", "PENDING"]
