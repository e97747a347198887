"""Imports of the small daemons: they load nothing that only a controller decides by."""

from __future__ import annotations

import subprocess
import sys

import pytest

CONTROLLERS = (
    "eslurm.core.control.decide",
    "eslurm.core.state.apply",
    "eslurm.core.control.planning",
    "eslurm.core.control.reactor",
    "sqlalchemy",
)


@pytest.mark.parametrize("daemon", ["esnoded", "essatd"])
def test_the_controllers_core_stays_out(daemon: str) -> None:
    code = f"import sys, {daemon}.daemon; print(*sorted(set({CONTROLLERS}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
