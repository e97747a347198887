"""Whoever says that nothing was found must be able to find something: bugs planted one at a time, and none without."""

from __future__ import annotations

import pytest

from eslurm.sim.run import SeedFailed, draw_nodes, run_seed
from tests.sim import planted


def first_failure(seeds_max: int, nodes_min: int, nodes_max: int) -> SeedFailed | None:
    for seed in range(1, seeds_max + 1):
        try:
            run_seed(seed, draw_nodes(seed, nodes_min, nodes_max))
        except SeedFailed as failure:
            return failure
    return None


@pytest.mark.parametrize(
    ("plant", "seeds_max", "says"),
    [
        (planted.show_before_commit, 3, "is durable"),
        (planted.one_core_too_few, 3, "ledger|resource"),
        (planted.drop_completions, 5, "no recovery|accounted"),
        (planted.forget_reports, 20, "no recovery"),
        (planted.requeue_at_once, 10, "still runs|resource|accounted|second time"),
        (planted.effects_forgotten, 10, "no recovery"),
        (planted.tombstones_unwritten, 30, ""),
        (planted.launch_again, 60, ""),
        (planted.no_fence, 150, ""),
    ],
)
@pytest.mark.slow
def test_a_planted_bug_is_found_within_so_many_seeds(
    plant: planted.Plant, seeds_max: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        failure = first_failure(seeds_max, 4, 12)
    assert failure is not None, f"not found within {seeds_max} seeds"
    assert any(word in str(failure) for word in says.split("|")), str(failure)
    run_seed(failure.seed, draw_nodes(failure.seed, 4, 12))
