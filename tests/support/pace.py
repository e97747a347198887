"""A bound on what one test may compute: it fails with its name before it makes all others wait.

CPU time, not time that passes: a busy machine changes little about it. Counted are the process that runs the test, with all
its threads, and the commands for which it has waited. A daemon that a fixture keeps is not counted, nor is its start.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator

import pytest

CPU_MAX_S = 60.0
"""Several times what the slowest test takes (a planted bug of the simulator)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-max-s", type=float, default=CPU_MAX_S, help="seconds of CPU time after which a test has failed"
    )


def spent_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test that passed and computed for too long; thorough runs draw several times as much."""
    before_s = spent_s()
    yield
    took_s = spent_s() - before_s
    most_s = item.config.getoption("--cpu-max-s")
    if took_s > most_s and not os.environ.get("THOROUGH"):
        pytest.fail(
            f"the test takes {took_s:.1f} s of CPU time, more than the {most_s:g} s that a test may take: "
            "draw or repeat less, or share what it builds with the tests beside it",
            pytrace=False,
        )
