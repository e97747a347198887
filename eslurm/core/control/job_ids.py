"""Job ids: positive 31-bit numbers, leased in durable blocks per controller and never reused."""

from __future__ import annotations

from eslurm.core.model import facts
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.state.cluster import State

JOB_ID_MAX = 2**31 - 1


def take_ids(state: State, count: int) -> tuple[list[facts.Fact], range]:
    """The next `count` ids, and the lease fact that must come first when the current block is too short."""
    first = max(state.next_id, state.config.job_id_first)
    end = first + count
    if end > JOB_ID_MAX:
        raise Refused(RefusalCode.EXHAUSTED, "all job ids are used; start a new cluster with an empty store")
    if end <= state.lease_end:
        return [], range(first, end)
    return [facts.IdsLeased(max(end, state.lease_end) + state.config.job_id_block)], range(first, end)
