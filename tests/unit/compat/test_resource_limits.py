"""Soft limits as variables of a job: which travel, and what is no limit."""

from __future__ import annotations

import resource

import pytest

from eslurm.compat.environment import describes_a_job
from eslurm.compat.errors import OptionError
from eslurm.compat.resource_limits import NAMES, limits_in, propagated, soft_limit, without_limits


def test_all_limits_travel_unless_some_are_named() -> None:
    found = propagated("", "--propagate")
    assert set(found) == {f"SLURM_RLIMIT_{name}" for name in NAMES}
    assert found["SLURM_RLIMIT_STACK"] == str(resource.getrlimit(resource.RLIMIT_STACK)[0])
    assert set(propagated("stack, RLIMIT_CORE", "--propagate")) == {"SLURM_RLIMIT_STACK", "SLURM_RLIMIT_CORE"}
    assert propagated("NONE", "--propagate") == {}
    assert soft_limit("NONSENSE") is None


def test_a_wrong_name_is_named() -> None:
    with pytest.raises(OptionError, match=r"--propagate.*names no limit: STAKC.*use ALL, NONE"):
        propagated("STAKC", "--propagate")


def test_only_numbers_are_limits() -> None:
    told = {
        "SLURM_RLIMIT_CORE": "0",
        "SLURM_RLIMIT_STACK": "-1",
        "SLURM_RLIMIT_CPU": "-7",
        "SLURM_RLIMIT_NPROC": "many",
        "SLURM_RLIMIT_AS": "9" * 40,
        "SLURM_RLIMIT_DATA": "٣",
        "SLURM_RLIMIT_OTHER": "1",
    }
    assert limits_in(told) == {"CORE": 0, "STACK": -1, "CPU": -1}
    assert without_limits({**told, "A": "1"}) == {"A": "1"}


def test_they_go_with_a_job_though_their_names_begin_as_those_of_another_one_s() -> None:
    assert not describes_a_job("SLURM_RLIMIT_STACK") and describes_a_job("SLURM_JOB_ID")
