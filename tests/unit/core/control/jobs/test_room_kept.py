"""Room that is made for a job becomes its own: nobody else takes it, and nobody pushes out in a circle."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import Amount, Limit, Qos
from eslurm.core.model.config import Partition, PriorityWeights
from eslurm.core.model.messages import ChangePolicies, JobRef, PolicyChange, UpdateJob
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.core import ROOT, SECOND, World
from tests.kits.planned import plan_all
from tests.kits.running import end, place, preempt, run, start

POLICIES = ("fcfs", "easy", "conservative", "planned")
LOW = Qos("low", preempt_mode="requeue")
MID = Qos("mid", preempts=("low",), preempt_mode="requeue")
HIGH = Qos("high", preempts=("low", "mid"))


class Site:
    """Nodes of four cores, and a planner; nodes do what they are told at once, jobs end when the test says so."""

    def __init__(self, policy: str = "easy", *qos: Qos, nodes: int = 2, **config: object) -> None:
        self.world = World(nodes, 4, restarts=False, policy=policy, **config)  # type: ignore[arg-type]
        changes = tuple(PolicyChange("add", "qos", one.name, one) for one in qos or (LOW, MID, HIGH))
        self.world.send(ChangePolicies(ROOT, changes))
        self.schedule = Schedule()
        self.ranking = Ranking()

    def submit(self, qos: str, nodes: int = 1, limit_s: int = 1000) -> int:
        request = Request(tasks=nodes, cpus_per_task=4, nodes_min=nodes, nodes_max=nodes)
        return self.world.submit(request=request, qos=qos, time_limit_s=limit_s)

    def plan(self) -> None:
        """Cycles as long as they change anything."""
        plan_all(self.world, self.schedule, self.ranking)

    def end(self, job: int) -> None:
        """It has left its nodes, and the retry delay of whoever waits again has passed."""
        end(self.world, job)
        self.plan()
        self.world.pass_time(1)
        self.plan()

    def states(self, *jobs: int) -> list[str]:
        return [self.world.state_of(job) for job in jobs]


@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_waits_for_the_same_to_leave_does_not_come_first(policy: str) -> None:
    site = Site(policy)
    world = site.world
    late = run(world, (0,), qos="mid", time_limit_s=100)
    # Nobody knows any more when it ends: in front of that many would fit.
    world.pass_time(1000)
    rider = site.submit("mid", 2, 60)
    urgent = site.submit("high", 2, 60)
    site.plan()
    site.end(late)
    assert site.states(rider, urgent) == ["PENDING", "RUNNING"]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_free_of_the_room_already_is_not_for_the_short(policy: str) -> None:
    site = Site(policy, replace(LOW, preempt_grace_s=300), MID, HIGH)
    world = site.world
    run(world, (0,), qos="mid")
    victim = run(world, (1,), qos="low", time_limit_s=1000)
    end(world, 1)
    urgent = site.submit("high", 2)
    site.plan()
    short = site.submit("", 1, 100)
    site.plan()
    assert site.states(urgent, short) == ["PENDING", "PENDING"]
    world.pass_time(10)
    site.end(victim)
    assert site.states(urgent, short) == ["RUNNING", "PENDING"], "long before its grace was over"


@pytest.mark.parametrize("policy", POLICIES)
def test_cores_that_go_back_to_their_lender_are_asked_for_again(policy: str) -> None:
    site = Site(policy, replace(LOW, preempt_mode="suspend"), MID, HIGH)
    world = site.world
    lender, other = run(world, (0,), qos="low"), run(world, (1,), qos="mid")
    borrower = site.submit("mid")
    site.plan()
    assert site.states(lender, borrower) == ["SUSPENDED", "RUNNING"]
    urgent = site.submit("high", 2)
    site.plan()
    waiting = site.submit("", 1)
    site.plan()
    for one in (borrower, other):
        end(world, one)
    site.plan()
    assert site.states(lender, urgent, waiting) == ["SUSPENDED", "RUNNING", "PENDING"]
    world.pass_time(1)
    site.plan()
    end(world, urgent)
    assert site.states(lender) == ["RUNNING"]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_may_not_push_out_the_lender_does_not_push_out_the_borrower(policy: str) -> None:
    site = Site(policy, replace(LOW, preempt_mode="suspend"), MID, Qos("high", preempts=("mid",)), nodes=1)
    lender = run(site.world, (0,), qos="low")
    borrower = site.submit("mid")
    site.plan()
    site.submit("high")
    site.plan()
    assert site.states(lender, borrower) == ["SUSPENDED", "RUNNING"]
    assert site.world.attempt(borrower).stop is None


# ---- who may push out whom ----


def crosswise() -> World:
    """By QOS `high` stands above `low`, by partition `top` above `middle` above `main`."""
    names = ("cn0", "cn1")
    partitions = (
        Partition("main", names, default=True, preempt_mode="requeue"),
        Partition("middle", names, tier=1, preempt_mode="requeue"),
        Partition("top", names, tier=2, preempt_mode="requeue"),
    )
    return Site("easy", LOW, Qos("high", preempts=("low",)), partitions=partitions).world


@pytest.mark.parametrize(
    ("preemptor", "victim", "pushes"),
    [
        (("high", "main"), ("low", "top"), True),
        (("low", "top"), ("", "middle"), True),
        (("", "middle"), ("high", "main"), False),
        # Nobody may push these out: whom they push out closes no circle.
        (("", "top"), ("high", "main"), True),
        (("low", "top"), ("high", "main"), False),
        (("high", "middle"), ("high", "main"), True),
        (("", "middle"), ("low", "main"), True),
        (("high", "main"), ("", "main"), False),
    ],
)
def test_no_circle_closes_through_qos_and_partitions(
    preemptor: tuple[str, str], victim: tuple[str, str], pushes: bool
) -> None:
    world = crosswise()
    waiting, running = (world.submit(time_limit_s=100, qos=qos) for qos, _ in (preemptor, victim))
    for job, (_, partition) in ((waiting, preemptor), (running, victim)):
        world.send(UpdateJob(ROOT, JobRef(job), partition=partition))
    place(world, running, (0,))
    start(world, running)
    preempt(world, running, "requeue", waiting)
    assert (world.attempt(running).stop is not None) is pushes


def test_the_victim_of_the_lowest_priority_as_it_is_computed() -> None:
    site = Site("easy", nodes=3, priority=PriorityWeights(size=1000))
    world = site.world
    small, large = run(world, (2,), qos="low"), run(world, (0, 1), qos="low")
    assert world.job(large).priority == world.job(small).priority
    world.pass_time(1)
    site.submit("high")
    site.plan()
    assert world.attempt(large).stop is None and world.attempt(small).stop is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_room_that_is_made_no_more_is_no_planned_start_which_a_new_limit_would_not_hold_up(
    policy: str,
) -> None:
    """An on-time start is not held against areas, for they were asked when it was planned; nobody asks them about room."""
    site = Site(policy, replace(LOW, preempt_grace_s=100), MID, HIGH)
    world = site.world
    victim = run(world, (0,), qos="low", time_limit_s=1000)
    run(world, (1,), qos="high", time_limit_s=2000)
    site.submit("low", 1, 500)
    site.plan()
    urgent = site.submit("high", 1, 500)
    site.plan()
    (room,) = site.schedule.bookings[urgent]
    budget = Limit("budget", "partition", "main", "cores", Amount(), area_s=7000)
    world.send(ChangePolicies(ROOT, (PolicyChange("add", "limit", budget.name, budget),)))
    site.plan()
    # No further jobs may be preempted for it.
    site.schedule.pushes[urgent] = 2, room.start_us + SECOND
    end(world, victim)
    site.plan()
    world.pass_time((room.start_us - world.now_us) / SECOND)
    assert world.now_us == room.start_us
    site.plan()
    assert world.state_of(urgent) == "PENDING", (
        "2,000 core seconds are too many beside the 7,600 of the other job"
    )
