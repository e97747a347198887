"""The time that a world has to come to rest."""

from __future__ import annotations

import pytest

from eslurm.lab.sim.recovery import GATEWAYS_MAX_US, RECOVERY_MAX_US, Patience


def test_a_world_without_gateways_has_one_deadline() -> None:
    patience = Patience(1_000, has_gateways=False)
    for left in (3, 2, 1):
        patience.check(1_000 + RECOVERY_MAX_US - 1, left, "job 1 is PENDING")
    with pytest.raises(AssertionError, match="no recovery within 300 s: job 1 is PENDING"):
        patience.check(1_000 + RECOVERY_MAX_US, 0, "job 1 is PENDING")


def test_waits_for_gateways_add_up_while_jobs_end() -> None:
    patience = Patience(0, has_gateways=True)
    limit_us = RECOVERY_MAX_US + GATEWAYS_MAX_US
    now_us = 0
    for left in (3, 2, 1):
        patience.check(now_us, left, "it waits")
        now_us += limit_us - 1
    # One more job does not begin it anew, nor does the same number.
    patience.check(now_us - 1, 2, "it waits")
    with pytest.raises(AssertionError, match="no recovery"):
        patience.check(now_us + 1, 1, "it waits")
