"""Many waiting jobs, leader after leader: the first plan of each keeps what the log has promised, under every policy.

At full size, 3,000 waiting jobs and 20 leaders: `make bench-recovery RECOVERY=promises`.
"""

from __future__ import annotations

import pytest

from benchmarks.recovery.promises import succeed
from eslurm.core.plan.cycle.policies import BUILT_IN
from tests.support.seeds import Seeds


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_promised_starts_are_kept_over_changes_of_leader(policy: str, seeds: Seeds) -> None:
    looked = 0
    for seed in seeds(2):
        found = succeed(policy, waiting=100, nodes=15, leaders=6, seed=seed)
        assert not found.broken, found.broken[0]
        assert found.waiting >= 80
        looked += found.looked
    # Under FCFS none is promised, under EASY the first blocked jobs alone.
    assert looked >= {"fcfs": 0, "easy": 10}.get(policy, 1_000)
