"""Fixtures of the tests of replays and of applications."""

from __future__ import annotations

from pathlib import Path

import pytest

from eslurm.lab.workloads import gantt
from tests.kits.workloads import record, run


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib is there, and has opened the fonts that it keeps open: no test is blamed for that."""
    pytest.importorskip("matplotlib")
    path: Path = tmp_path_factory.mktemp("pictures") / "first.svg"
    result = run([record(1, 0, 10, 1)], "fcfs")
    gantt.draw(path, result, gantt.window_of(result, None, None))
