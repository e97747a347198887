"""The order in which tests on several processes are handed out, and what is handed out one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import workers

ROOT = workers.TESTS.parent


def in_order(*names: str) -> list[str]:
    """These tests as a process that runs tests has them."""
    items: Any = [SimpleNamespace(nodeid=name, path=ROOT / name.partition("::")[0]) for name in names]
    config: Any = SimpleNamespace(workerinput={})
    workers.pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def scope_of(nodeid: str) -> str:
    """The tests with the same scope are one process's."""
    scope: str = workers.Scheduling._split_scope(workers.Scheduling.__new__(workers.Scheduling), nodeid)
    return scope


def test_what_takes_long_comes_first_and_small_files_last() -> None:
    alone, long = workers.ALONE[0], workers.LONG[0]
    waits, computes, small = "tests/contract/test_a.py", "tests/property/test_b.py", "tests/unit/test_c.py"
    given = [f"{file}::test_{at}" for file in (small, waits, computes, long, alone) for at in range(2)]
    assert in_order(*given) == [
        *(f"{file}::test_{at}" for file in (alone, long) for at in range(2)),
        *(f"{file}::test_{at}" for at in range(2) for file in (waits, computes)),
        *(f"{small}::test_{at}" for at in range(2)),
    ]


def test_a_file_is_one_process_s_unless_its_tests_share_nothing() -> None:
    assert scope_of("tests/unit/test_c.py::test_one") == scope_of("tests/unit/test_c.py::test_two")
    for alone in (workers.ALONE[0], "tests/property/test_b.py"):
        assert scope_of(f"{alone}::test_one") != scope_of(f"{alone}::test_two")


@pytest.mark.parametrize("name", workers.ALONE)
def test_tests_that_are_handed_out_one_by_one_share_no_cluster(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "scope=" not in text and "shared_cluster" not in text and "def test_" in text


@pytest.mark.parametrize("name", workers.LONG)
def test_files_that_take_long_are_there(name: str) -> None:
    assert (ROOT / name).exists()
