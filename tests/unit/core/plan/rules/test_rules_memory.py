"""Rules that nobody uses any more go, with all that they remembered of jobs."""

from __future__ import annotations

import gc

from eslurm.core.plan.rules.constraints import Rules
from tests.kits.plan_ruling import World, job


def living() -> int:
    return sum(isinstance(one, Rules) for one in gc.get_objects())


def test_rules_of_a_job_with_licences_go_with_the_rules() -> None:
    gc.collect()
    before = living()
    for _ in range(5):
        World().of(job(), licences=2)
    gc.collect()
    assert living() == before
