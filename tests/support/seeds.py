"""Seeds for tests that draw at random, and what to type to run a failure again.

    def test_survives(seeds: Seeds) -> None:
        for seed in seeds(20):
            simulate(seed)

runs seeds 1 to 20; when one fails, the report ends with the command that runs that one alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

_drawn = pytest.StashKey[int]()


class Seeds:
    """Hands out seeds and remembers the last one for the report."""

    def __init__(self, stash: pytest.Stash, only: int | None) -> None:
        self._stash = stash
        self._only = only

    def __call__(self, count: int, first: int = 1) -> Iterator[int]:
        """So many seeds from `first` on, or only the one given with `--seed`."""
        for seed in range(first, first + count) if self._only is None else (self._only,):
            self._stash[_drawn] = seed
            yield seed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="run seeded tests with this seed only")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """Callable that yields the seeds to run: `for seed in seeds(20)`."""
    return Seeds(request.node.stash, request.config.getoption("--seed"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    seed = item.stash.get(_drawn, None)
    if report.failed and seed is not None:
        report.sections.append(
            ("seed", f"run it again: make test TESTS='{item.nodeid}' ARGS='--seed {seed}'")
        )
    return report
