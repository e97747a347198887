"""The clusters that end-to-end tests share, and the daemons' last words in the report of a test that fails.

Invariant: a test leaves a shared cluster with nothing running on it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kits.cluster import LiveCluster
from tests.kits.daemons import ROOT, forked_daemons

__all__ = ["forked_daemons"]

ClusterT = TypeVar("ClusterT", bound=LiveCluster)

_DIRECTORY_MODE = 0o755


@contextmanager
def made(make: Callable[..., ClusterT], **options: Any) -> Iterator[ClusterT]:
    """A cluster of some kind in a directory of its own, up and whole; nothing is left of it afterwards."""
    # Short, so that sockets below it have paths that the kernel takes.
    directory = Path(tempfile.mkdtemp(prefix="es-", dir="/tmp"))
    directory.chmod(_DIRECTORY_MODE)
    cluster = make(directory, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory)


def running(**options: Any) -> AbstractContextManager[LiveCluster]:
    """A plain cluster; see `made`."""
    return made(LiveCluster, **options)


@pytest.fixture
def upgrade_from(request: pytest.FixtureRequest) -> Path:
    """The sources of the daemons that are replaced: the release before when `make verify-upgrade` says so, else this."""
    return Path(request.config.getoption("--upgrade-from") or ROOT)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A release whose daemons shared a key is converted, a later one is replaced daemon by daemon."""
    source = Path(config.getoption("--upgrade-from") or ROOT)
    is_shared = not (source / "eslurm" / "security").is_dir()
    other = "test_rolling.py" if is_shared else "test_conversion.py"
    return True if collection_path.name == other else None


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[LiveCluster]:
    """Sixteen nodes in two agents under two satellites, for tests that break nothing: no node is ever missed."""
    with running(policy={"heartbeats_missed_max": 100}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The shared cluster with an empty work directory; what a test leaves running is cancelled."""
    shared_cluster.empty_work()
    yield shared_cluster
    shared_cluster.clear()
    shared_cluster.hang_up()


@pytest.fixture(scope="module")
def breakable_cluster() -> Iterator[LiveCluster]:
    """A cluster whose daemons a module's tests kill."""
    with running() as cluster:
        yield cluster


@pytest.fixture
def broken(breakable_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster, whole at the start of each test whatever the one before did to it."""
    breakable_cluster.empty_work()
    breakable_cluster.start()
    yield breakable_cluster
    breakable_cluster.start()
    breakable_cluster.clear()
    breakable_cluster.hang_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {}).values()
        for cluster in {id(one): one for one in used if isinstance(one, LiveCluster)}.values():
            report.sections.append(("daemons", cluster.logs()))
    return report
