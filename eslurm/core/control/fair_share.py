"""Inputs of priorities from the cluster's state, in slices; and a ranking that follows the queue.

Reads only. Invariant: no step between two yields examines more than some thousand records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from eslurm.core.model.accounts import Account, Qos, User
from eslurm.core.plan.cycle.fair_tree import Association, FairTree
from eslurm.core.plan.cycle.priority import PriorityInputs, Ranking, normalised, weighs
from eslurm.core.plan.cycle.queue import PendingQueue, QueueEntry
from eslurm.core.plan.slices import parts
from eslurm.core.state.usage import usage_now

if TYPE_CHECKING:
    from eslurm.core.state.cluster import State

JOBS_PER_SLICE: Final = 10_000
SYNCS_MAX: Final = 4

OthersUsage: TypeAlias = Callable[[], Generator[None, None, Mapping[Association, float]]]
"""Usage in other clusters as of now, in slices. It is advice: no fact depends on it, and a planner without it has another
order until it is there again.
"""


def tree_of(
    state: State,
    now_us: int,
    waiting: Iterable[Association] = (),
    others_usage: OthersUsage | None = None,
) -> Generator[None, None, FairTree]:
    """The fair tree as of `now_us`; `waiting` are associations with jobs but perhaps without usage."""
    # All as of one moment: what ends in a pause is either charged or runs, never both.
    slices = usage_now(state, list(state.jobs.values()), now_us)
    accounts = [one for one in state.policies["account"].values() if isinstance(one, Account)]
    users = [one for one in state.policies["user"].values() if isinstance(one, User)]
    usage = yield from slices
    others = (yield from others_usage()) if others_usage is not None else None
    return (yield from FairTree.growing(accounts, users, usage, waiting, others))


def priority_inputs(
    state: State,
    now_us: int,
    waiting: Iterable[Association] = (),
    others_usage: OthersUsage | None = None,
) -> Generator[None, None, PriorityInputs]:
    """The inputs of priorities at `now_us`."""
    weights = state.config.priority
    fair: dict[Association, float] = {}
    newcomers: dict[str, float] = {}
    if weights.fairshare:
        tree = yield from tree_of(state, now_us, waiting, others_usage)
        fair, newcomers = tree.factors, tree.best
        yield from tree.letting_go()
    qos = {one.name: one.priority for one in state.policies["qos"].values() if isinstance(one, Qos)}
    return PriorityInputs(
        weights=weights,
        fair=fair,
        newcomers=newcomers,
        partitions=normalised({one.name: one.priority for one in state.config.partitions}),
        qos=normalised(qos),
        nodes=len(state.config.nodes),
        cores=sum(node.total[0] for node in state.config.nodes),
    )


def rank(
    state: State,
    ranking: Ranking,
    now_us: int,
    queues: Sequence[PendingQueue],
    others_usage: OthersUsage | None = None,
) -> Generator[None, None, None]:
    """Bring a planner's ranking in line with the jobs in `queues`; recompute it when due.

    Nothing to do, and nothing kept, where all weights are 0: the queues' own order is right then.
    """
    weights = state.config.priority
    if not weighs(weights):
        ranking.clear()
        return
    if ranking.is_due(weights, now_us):
        waiting: dict[Association, None] = {}
        for part in parts(_entries(queues), JOBS_PER_SLICE):
            waiting.update(dict.fromkeys([(entry.job.account, entry.job.user) for entry in part]))
            yield
        standing = yield from priority_inputs(state, now_us, waiting, others_usage)
        yield from ranking.refresh(standing, now_us)
    for _ in range(SYNCS_MAX):
        paused = yield from ranking.sync(_entries(queues))
        if not paused:
            return


def _entries(queues: Sequence[PendingQueue]) -> list[QueueEntry]:
    return [entry for queue in queues for entry in queue.first(len(queue))]
