"""The call `Shares`: the tree as of now, running jobs included."""

from __future__ import annotations

from esctld.serve.shares import UNUSED, Shares
from eslurm.core.control.fair_share import rank
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


def shares(world: World, ranking: Ranking | None = None, jobs: list[int] | None = None) -> pb.SharesReply:
    caller = Caller(Principal("eve", 7, 7), b"", False, None, "socket")
    request = pb.SharesRequest(priorities=jobs is not None, jobs=jobs)
    answers = Shares(world.state, world.state, ranking or Ranking(), lambda: world.now_us, committed)
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
