"""The order of jobs for users: the tree of accounts and users with shares and usage, and the parts of each waiting job's
priority.

Reads only, in slices: a tree of thousands of users over a long queue does not block the loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from esctld.lead.time_slicing import paced
from eslurm.core.control.fair_share import tree_of
from eslurm.core.control.privacy import Visibility
from eslurm.core.control.rights import Rules
from eslurm.core.plan.cycle.fair_tree import FairTree, Member
from eslurm.core.plan.cycle.priority import Priority, PriorityInputs, Ranking, explained
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.slices import parts
from eslurm.core.state.cluster import State
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from esctld.lead.others_usage import OthersUsage
    from eslurm.core.federation.usage import OtherUsage

UNUSED = -1.0
"""The level of an association without usage on the wire: JSON has no infinity."""
JOBS_PER_SLICE = 500
MEMBERS_PER_SLICE = 1_000


class Shares:
    """Answers the call `Shares`. `now_us` is the time at which a batch would be decided; `ranking` the planner's.

    Results from the live `state` are returned after `committed`: all of it is durable then.
    """

    def __init__(
        self,
        state: State,
        rules: Rules,
        ranking: Ranking,
        now_us: Callable[[], int],
        committed: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._rules = rules
        self._ranking = ranking
        self._now_us = now_us
        self._committed = committed
        self._others_usage: OthersUsage | None = None

    def count_others(self, others_usage: OthersUsage) -> None:
        """Show usage in the other cells of the federation, which fair share counts."""
        self._others_usage = others_usage

    async def call(self, request: pb.SharesRequest, caller: Caller) -> pb.SharesReply:
        """All shares and usage as of now, accounts before those below them; or the jobs' priorities."""
        reply = await self._reply(request, Visibility(self._rules, caller.principal))
        await self._committed()
        return reply

    async def _reply(self, request: pb.SharesRequest, sight: Visibility) -> pb.SharesReply:
        now_us = self._now_us()
        if request.priorities:
            return pb.SharesReply(
                priorities=await self._priorities(self._named(request.jobs), sight), now_us=now_us
            )
        others = self._others_usage
        summed = others.summed if others is not None else None
        tree: FairTree = await paced(tree_of(self._state, now_us, others_usage=summed))
        members = await paced(tree.listing())
        shares: list[pb.ShareInfo] = []
        for part in parts(members, MEMBERS_PER_SLICE):
            shares += (_info(member) for member in part if sight.share(member.user, member.account))
            await asyncio.sleep(0)
        return pb.SharesReply(
            shares=shares,
            half_life_s=self._state.config.priority.half_life_s,
            now_us=now_us,
            sums=others is not None,
            cells=[_word(one) for one in (others.words() if others is not None else ())],
        )

    def _named(self, ids: Iterable[int]) -> set[int]:
        """The jobs of these ids, some of which may be those of parts."""
        return {self._state.alias.get(job_id, job_id) for job_id in ids}

    async def _priorities(self, jobs: set[int], sight: Visibility) -> list[pb.PriorityInfo]:
        found: list[pb.PriorityInfo] = []
        for number, entry in enumerate(self._entries()):
            if number % JOBS_PER_SLICE == JOBS_PER_SLICE - 1:
                await asyncio.sleep(0)
            if (not jobs or entry.job_id in jobs) and sight.job_of(entry.job.user, entry.job.account):
                # One that has come after the last cycle has no number of its own yet.
                parts = self._ranking.factors(entry.job_id) or explained(PriorityInputs(), entry.job, 0)
                found.append(_priority(entry.job, parts))
        return found

    def _entries(self) -> list[QueueEntry]:
        """The waiting jobs in the planner's order: the computed one, or the queue's own."""
        if len(self._ranking):
            return self._ranking.ordered()
        return self._state.queue.first(len(self._state.queue)) + self._state.later.first(
            len(self._state.later)
        )


def _word(one: OtherUsage) -> pb.CellUsageInfo:
    left_out = one.usage.left_out if one.usage is not None else 0
    return pb.CellUsageInfo(cell=one.cell, age_ms=one.age_us // 1_000, problem=one.problem, left_out=left_out)


def _info(member: Member) -> pb.ShareInfo:
    return pb.ShareInfo(
        account=member.account,
        user=member.user,
        parent=member.parent,
        shares=member.shares,
        norm_shares=member.norm_shares,
        usage=member.usage,
        norm_usage=member.norm_usage,
        level=member.level if math.isfinite(member.level) else UNUSED,
        factor=member.factor,
        others=member.others,
    )


def _priority(job: Pending, parts: Priority) -> pb.PriorityInfo:
    return pb.PriorityInfo(
        job_id=job.job_id,
        user=job.user,
        account=job.account,
        partition=job.partition,
        qos=job.qos,
        priority=parts.value,
        given=parts.given,
        age_points=parts.age,
        fairshare_points=parts.fairshare,
        size_points=parts.size,
        partition_points=parts.partition,
        qos_points=parts.qos,
        nice=parts.nice,
    )
