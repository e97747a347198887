"""The adapter for MPI with a communicator of queues: mpi4py itself is not among the development requirements."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from eslurm import loops
from eslurm.loops import mpi
from tests.kits import loop_functions as functions


class Comm:
    """A rank among threads: `send` and `recv` of whole objects, as mpi4py's lower-case methods."""

    def __init__(self, rank: int, inboxes: list[queue.Queue[Any]]) -> None:
        self._rank, self._inboxes = rank, inboxes

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return len(self._inboxes)

    def send(self, obj: Any, dest: int) -> None:
        self._inboxes[dest].put(obj)

    def recv(self) -> Any:
        return self._inboxes[self._rank].get(timeout=30)


def on_ranks(size: int, function: Any, items: int | range, **options: Any) -> loops.Run:
    inboxes: list[queue.Queue[Any]] = [queue.Queue() for _ in range(size)]
    answers: list[loops.Run | None] = []

    def other(rank: int) -> None:
        answers.append(mpi.run(function, items, comm=Comm(rank, inboxes), **options))

    threads = [threading.Thread(target=other, args=(rank,)) for rank in range(1, size)]
    for thread in threads:
        thread.start()
    try:
        found = mpi.run(function, items, comm=Comm(0, inboxes), **options)
    finally:
        for thread in threads:
            thread.join()
    assert answers == [None] * (size - 1)
    assert found is not None
    return found


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("technique", ["GSS", "AF"])
def test_all_ranks_share_the_loop(size: int, technique: str) -> None:
    found = on_ranks(size, functions.square, range(3, 500), technique=technique)
    assert found.results == [at * at for at in range(3, 500)]
    assert len(found.record.labels) == max(size - 1, 1)


def test_a_failed_chunk_is_done_again(tmp_path: Path) -> None:
    found = on_ranks(3, functions.fails_once, 20, arguments=(str(tmp_path),))
    assert found.results == list(range(20))


@pytest.mark.parametrize("size", [1, 3])
def test_a_chunk_that_always_fails_ends_all_ranks(size: int) -> None:
    with pytest.raises(loops.ChunkFailed, match="seven is not to be had"):
        on_ranks(size, functions.fails_at_seven, 20)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("options", [{"technique": "FAC"}, {"retries": -1}, {"technique": "none"}])
def test_values_that_are_refused_end_each_rank(rank: int, options: dict[str, Any]) -> None:
    inboxes: list[queue.Queue[Any]] = [queue.Queue() for _ in range(3)]
    with pytest.raises((loops.TechniqueError, ValueError)):
        mpi.run(functions.square, 20, comm=Comm(rank, inboxes), **options)
    assert all(inbox.empty() for inbox in inboxes)


def test_mpi4py_is_asked_for_only_when_no_communicator_is_given() -> None:
    try:
        import mpi4py  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="mpi4py"):
            mpi.run(functions.square, 10)
