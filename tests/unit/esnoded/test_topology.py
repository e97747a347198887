"""Cores as the kernel shows them, from a directory in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from esnoded.topology import Core, format_cpus, parse_cpus, read_cores
from tests.kits.topology import make_system


def test_cores_are_in_the_order_of_sockets_and_numa_nodes_and_have_their_threads(tmp_path: Path) -> None:
    make_system(tmp_path, [(0, 1), (0, 0), (1, 2)], threads=2)
    assert read_cores(range(6), str(tmp_path)) == (
        Core((1, 4), 0, 0),
        Core((0, 3), 0, 1),
        Core((2, 5), 1, 2),
    )


def test_a_core_has_only_the_threads_that_are_asked_for(tmp_path: Path) -> None:
    make_system(tmp_path, [(0, 0), (0, 0)], threads=2)
    assert read_cores({0, 3}, str(tmp_path)) == (Core((0,)), Core((3,)))


def test_older_kernels_call_the_threads_siblings(tmp_path: Path) -> None:
    make_system(tmp_path, [(0, 0)], threads=2)
    for path in tmp_path.glob("cpu/cpu*/topology/core_cpus_list"):
        path.rename(path.with_name("thread_siblings_list"))
    assert read_cores(range(2), str(tmp_path)) == (Core((0, 1)),)


@pytest.mark.parametrize("text", [None, "", "x", "-5", "3-1", "0-99999999"])
def test_what_the_kernel_does_not_show_is_alike_for_all(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        make_system(tmp_path, [(0, 0), (0, 0)])
        for path in (*tmp_path.glob("cpu/cpu*/topology/*"), *tmp_path.glob("node/node*/cpulist")):
            path.write_text(text)
    assert read_cores(range(2), str(tmp_path)) == (Core((0,)), Core((1,)))


def test_lists_of_cpus() -> None:
    assert parse_cpus("0-2,8,10-11\n") == [0, 1, 2, 8, 10, 11]
    assert format_cpus([11, 0, 2, 1, 8, 10]) == "0-2,8,10-11"
    assert (parse_cpus("\n"), format_cpus([])) == ([], "")
