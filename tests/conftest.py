"""Fixtures of every test: a time limit, leak checks, golden texts, seeds and short directories.

Invariant: a test that hangs, leaks or depends on the machine's speed fails; see `tests/support/`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import loops, profiles

pytest_plugins = (
    "pytester",
    "tests.support.directories",
    "tests.support.golden",
    "tests.support.groups",
    "tests.support.leaks",
    "tests.support.pace",
    "tests.support.seeds",
    "tests.support.terminated",
    "tests.support.workers",
    "tests.support.zone",
)


SLOW_S = 480
"""Time limit of slow tests and of those with real clusters: many times what they take where nobody else computes."""
NAME_MOST = 15
"""Bytes of a parameter that is shown as it is in the name of its test."""
CLUSTERS = {Path(__file__).parent / name for name in ("integration", "security")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--upgrade-from", metavar="DIRECTORY", help="sources of the release that a cluster is upgraded from"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("timeout") or float(config.getini("timeout") or 0) <= 0:
        raise pytest.UsageError(
            "tests need a time limit: install pytest-timeout and set `timeout` in pyproject.toml"
        )
    profiles.load()
    _keep_bytecode()
    _compute_on_one_thread()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_slow = item.get_closest_marker("slow") or CLUSTERS.intersection(item.path.parents)
        if is_slow and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keys and tokens are drawn at random, and no names: in each process that runs tests a test has the same one."""
    is_drawn = (isinstance(val, bytes) and len(val) > NAME_MOST) or (
        isinstance(val, str) and len(val) > 2 * NAME_MOST
    )
    return argname if is_drawn else None


def _keep_bytecode() -> None:
    # Tests start Python hundreds of times: where bytecode is not kept, each of them compiles all of eslurm anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _compute_on_one_thread() -> None:
    # Libraries of linear algebra start a thread for each core, which spin while they wait; other tests run there.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@pytest.fixture
def run() -> Callable[..., object]:
    """`tests.support.loops.run`, for tests that take it as a fixture."""
    return loops.run
