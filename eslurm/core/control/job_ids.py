"""Job ids: positive 31-bit numbers, leased in durable blocks per controller and never reused.

A cell of a federation draws only ids that it has leased in the shared store (`core.federation.blocks`), so no other cell has
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.model import facts
from eslurm.core.model.job_ids import ID_BLOCK, JOB_ID_MAX, IdRange
from eslurm.core.model.messages import IdsBounded, IdsTaken, RefusalCode, Refused
from eslurm.core.model.wording import counted
from eslurm.core.state.cluster import State


def take_ids(state: State, count: int) -> tuple[list[facts.Fact], range]:
    """The next `count` ids, and the lease fact that must come first when the current block is too short."""
    if state.id_blocks:
        return _of_blocks(state, count)
    first = max(state.next_id, state.config.job_id_first)
    end = first + count
    if end > JOB_ID_MAX:
        raise Refused(RefusalCode.EXHAUSTED, "all job ids are used; start a new cluster with an empty store")
    return _leased(state, end), range(first, end)


def take_task_ids(state: State, most: int) -> tuple[list[facts.Fact], Sequence[int]]:
    """Ids for tasks that start, in any order of numbers; of a cell of a federation as many as there are."""
    if not state.id_blocks:
        return take_ids(state, most)
    found: list[int] = []
    for block in state.id_blocks:
        first = max(state.next_id, block.first)
        found += range(first, min(first + most - len(found), block.end))
    return (_leased(state, found[-1] + 1) if found else []), found


def on_ids_taken(state: State, message: IdsTaken) -> list[facts.Fact]:
    """Blocks of a cell rise: what is known, or lies below ids that are used, is left out."""
    least = max([state.next_id, *(one.end for one in state.id_blocks if one.version)])
    if message.first < least or message.first + message.count > JOB_ID_MAX:
        return []
    return [facts.IdBlockTaken(message.first, message.count, message.version)]


def on_ids_bounded(state: State, message: IdsBounded) -> list[facts.Fact]:
    """Bound the ids that a cluster draws by its own word before it leases any; or take the bound away when it has left."""
    last = state.id_blocks[-1] if state.id_blocks else None
    if message.is_open:
        if last is None or last.is_open:
            return []
        first = max(state.next_id, last.end if last.version else last.first)
        return [facts.IdBlockTaken(first, JOB_ID_MAX - first)] if first < JOB_ID_MAX else []
    if last is not None and not last.is_open:
        return []
    first = max(state.next_id, state.config.job_id_first)
    # Half a block at least, up to a round number.
    end = min(-(-(first + ID_BLOCK // 2) // ID_BLOCK) * ID_BLOCK, JOB_ID_MAX - 1)
    return [facts.IdBlockTaken(first, end - first)] if end > first else []


def _of_blocks(state: State, count: int) -> tuple[list[facts.Fact], range]:
    """Ids of a cell: they follow each other, for those of one job do."""
    run: IdRange | None = None
    most = 0
    for block in state.id_blocks:
        if run is not None and run.end == block.first:
            run = IdRange(run.first, run.count + block.count)
        else:
            run = block
        first = max(state.next_id, run.first)
        if first + count <= run.end:
            return _leased(state, first + count), range(first, first + count)
        most = max(most, run.end - first)
    if most >= ID_BLOCK // 2:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"{counted(count, 'id')} in a row are more than this cell of the federation has ({most}): "
            "submit fewer jobs in one call",
        )
    raise Refused(
        RefusalCode.EXHAUSTED,
        "no job ids are left that no other cell may have: this cell gets more when it reaches the federation's etcd "
        "(esctl federation status), or makes all further ids its own when it leaves (esctl federation leave)",
    )


def _leased(state: State, end: int) -> list[facts.Fact]:
    if end <= state.lease_end:
        return []
    return [facts.IdsLeased(end + state.config.job_id_block)]
