"""The call `Shares`: the tree as of now, running jobs included."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from esctld.serve.shares import UNUSED, Shares
from eslurm.core.control.fair_share import rank
from eslurm.core.federation.usage import OtherUsage
from eslurm.core.model.accounts import Account, User
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.job import Principal
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.state.apply_accounts import put_policy
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE, ROOT, World
from tests.support.loops import run


async def committed() -> None:
    """Nothing waits for its commit."""


def shares(
    world: World, ranking: Ranking | None = None, jobs: list[int] | None = None, others: Any = None
) -> pb.SharesReply:
    caller = Caller(Principal("eve", 7, 7), b"", False, None, "socket")
    request = pb.SharesRequest(priorities=jobs is not None, jobs=jobs)
    answers = Shares(world.state, world.state, ranking or Ranking(), lambda: world.now_us, committed)
    if others is not None:
        answers.count_others(others)
    return run(answers.call(request, caller))


def test_policies_usage_and_what_runs() -> None:
    world = World(priority=PriorityWeights(half_life_s=0), restarts=False)
    put_policy(world.state, Account("physics", shares=3))
    put_policy(world.state, User("alice", ("physics",)))
    put_policy(world.state, User("idle", ("physics",)))
    world.submit(user=ALICE, account="physics")
    world.start()
    world.pass_time(100)
    reply = shares(world)
    assert reply.now_us == world.now_us
    account, alice, idle = reply.shares
    assert (account.account, account.user, account.usage, account.level) == ("physics", "", 100.0, 1.0)
    assert (alice.user, alice.parent, alice.usage, alice.factor) == ("alice", "physics", 100.0, 0.5)
    assert (idle.user, idle.level, idle.factor) == ("idle", UNUSED, 1.0)


def test_nobody_yet() -> None:
    reply = shares(World())
    assert list(reply.shares) == []
    assert reply.half_life_s == 604_800


def test_how_priorities_came_about() -> None:
    world = World(nodes=1, priority=PriorityWeights(age=100, size=1000, age_max_s=100))
    small, large = world.submit(), world.submit(request=Request(tasks=4), nice=7)
    given = world.submit(user=ROOT, priority=5)
    world.pass_time(50)
    ranking = Ranking()
    for _ in rank(world.state, ranking, world.now_us, (world.state.queue, world.state.later)):
        pass
    found = shares(world, ranking, []).priorities
    assert [(one.job_id, one.priority) for one in found] == [(small, 1050), (large, 1043), (given, 5)]
    (one,) = shares(world, ranking, [large]).priorities
    assert (one.age_points, one.size_points, one.nice, one.given) == (50.0, 1000.0, 7, False)
    assert [one.given for one in shares(world, ranking, [given]).priorities] == [True]
    assert [one.given for one in shares(world, Ranking(), []).priorities] == [True] * 3


class Elsewhere:
    """Usage in other cells, as `lead.others_usage` says it."""

    def summed(self) -> Generator[None, None, dict[tuple[str, str], float]]:
        yield
        return {("physics", "alice"): 300.0, ("physics", ""): 50.0, ("elsewhere", "zoe"): 9.0}

    def words(self) -> list[OtherUsage]:
        return [
            OtherUsage("beta", 4_200_000),
            OtherUsage("gamma", 0, problem="its keys are not trusted here"),
        ]


def test_usage_in_other_cells_is_shown_beside_and_counts() -> None:
    world = World(priority=PriorityWeights(half_life_s=0, fairshare=100), restarts=False)
    put_policy(world.state, Account("physics"))
    put_policy(world.state, User("alice", ("physics",)))
    put_policy(world.state, User("bob", ("physics",)))
    world.submit(user=ALICE, account="physics")
    world.start()
    world.pass_time(100)
    reply = shares(world, others=Elsewhere())
    physics, alice, bob = reply.shares
    assert (physics.usage, physics.others, physics.norm_usage) == (100.0, 350.0, 1.0)
    assert (alice.usage, alice.others, alice.norm_usage) == (100.0, 300.0, 400 / 450)
    assert (bob.usage, bob.others, bob.level) == (0.0, 0.0, UNUSED)
    assert reply.sums
    assert [(one.cell, one.age_ms, one.problem) for one in reply.cells] == [
        ("beta", 4_200, ""),
        ("gamma", 0, "its keys are not trusted here"),
    ]
    alone = shares(world)
    assert not alone.sums and not alone.cells and alone.shares[0].others == 0.0


def test_private_usage_is_private_over_cells() -> None:
    world = World(priority=PriorityWeights(half_life_s=0), restarts=False, private=("usage",))
    for name in ("alice", "eve"):
        put_policy(world.state, User(name, ("physics",)))
    reply = shares(world, others=Elsewhere())
    assert [(one.account, one.user, one.others) for one in reply.shares] == [
        ("physics", "", 350.0),
        ("physics", "eve", 0.0),
    ]
