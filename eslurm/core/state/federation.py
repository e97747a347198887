"""The state's part in a federation: the ids that are leased to the cluster."""

from __future__ import annotations

from eslurm.core.model import facts
from eslurm.core.model.job_ids import IdRange
from eslurm.core.state.cluster import State


def apply_block_taken(state: State, fact: facts.IdBlockTaken) -> None:
    """Keep the leased ranges that are not used up; ids that the cell had by its own word are not drawn any more."""
    kept = [one for one in state.id_blocks if one.version and one.end > state.next_id]
    state.id_blocks = (*kept, IdRange(fact.first, fact.count, fact.version))
    state.touched.settings = True
    # Tasks may have waited for ids.
    state.want_plan()
