"""The coordinator: chunks that come back, workers that go, words of workers that do not hold the chunk, and its
record.
"""

from __future__ import annotations

import math

import pytest

from eslurm.loops.coordinator import Coordinator
from eslurm.loops.techniques import technique_of


def machine(n: int = 12, workers: int = 2, technique: str = "STATIC", retries: int = 2) -> Coordinator:
    found = Coordinator(technique_of(technique, n, workers), retries=retries)
    for worker in range(1, workers + 1):
        assert found.joined(worker, f"node/{worker}")
    return found


def held(coordinator: Coordinator, now: float = 0.0) -> dict[int, tuple[int, int, int]]:
    return {each.worker: (each.number, each.start, each.stop) for each in coordinator.grants(now)}


def test_a_loop_that_goes_well() -> None:
    loop = machine()
    assert held(loop) == {1: (1, 0, 6), 2: (2, 6, 12)}
    assert held(loop) == {}
    assert loop.finished(2, 2, 3.0, 4.0) == range(6, 12)
    assert not loop.is_done
    assert loop.finished(1, 1, 2.0, 2.0) == range(6)
    assert loop.is_done
    assert loop.record.finishing_times() == [2.0, 4.0]
    assert loop.record.imbalance == pytest.approx(4 / 3)
    assert loop.record.efficiency == pytest.approx(5 / 8)


def test_a_lost_workers_chunk_goes_to_one_that_waits() -> None:
    loop = machine()
    held(loop)
    loop.finished(2, 2, 1.0, 1.0)
    assert held(loop) == {}
    loop.lost(1, 2.0)
    assert held(loop) == {2: (3, 0, 6)}
    assert loop.finished(1, 1, 1.0, 3.0) is None  # a word from the dead
    assert loop.finished(2, 1, 1.0, 3.0) is None  # another number
    assert loop.finished(2, 3, 1.0, 3.0) == range(6)
    assert loop.finished(2, 3, 1.0, 3.0) is None  # twice
    assert loop.is_done
    assert [(each.worker, each.outcome, each.attempt) for each in loop.record.chunks] == [
        (2, "done", 1),
        (1, "lost", 1),
        (2, "done", 2),
    ]


def test_a_failed_chunk_goes_to_another_worker_first() -> None:
    loop = machine(n=40, technique="FAC2")
    assert held(loop) == {1: (1, 0, 10), 2: (2, 10, 20)}
    loop.failed(1, 1, "no", 1.0)
    assert held(loop) == {1: (3, 20, 25)}
    loop.finished(2, 2, 1.0, 1.0)
    assert held(loop) == {2: (4, 0, 10)}


def test_the_only_worker_does_its_failed_chunk_again_and_gives_up_in_the_end() -> None:
    loop = machine(n=4, workers=1, retries=1)
    assert held(loop) == {1: (1, 0, 4)}
    loop.failed(1, 1, "first", 1.0)
    assert held(loop) == {1: (2, 0, 4)}
    loop.failed(1, 2, "second", 2.0)
    assert loop.given_up is not None
    assert (loop.given_up.start, loop.given_up.stop, loop.given_up.attempts) == (0, 4, 2)
    assert loop.given_up.text == "second"
    assert held(loop) == {}


def test_a_chunk_that_kills_each_of_its_workers_is_given_up() -> None:
    loop = machine(n=4, workers=1, retries=1)
    held(loop)
    loop.lost(1, 1.0)
    assert loop.joined(2, "node/2")
    held(loop)
    loop.lost(2, 2.0)
    assert loop.given_up is not None and "node/2 has ended within the chunk" in loop.given_up.text


def test_no_more_workers_than_places_and_no_number_twice() -> None:
    loop = machine()
    assert not loop.joined(3, "one too many")
    loop.lost(1, 0.0)
    assert not loop.joined(1, "a number of the dead")
    assert loop.joined(3, "a replacement")
    loop.lost(1, 0.0)
    assert loop.present == 2


@pytest.mark.parametrize("said", [math.nan, math.inf, -1.0, 1e300])
def test_a_workers_clock_is_not_believed_beyond_what_passed(said: float) -> None:
    loop = machine(technique="AF")
    (first, _) = loop.grants(10.0)
    loop.finished(first.worker, first.number, said, 12.0)
    assert loop.record.busy_s == pytest.approx(2.0)


def test_the_record_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.loops.record.CHUNKS_KEPT", 3)
    loop = machine(n=10, workers=1, technique="SS")
    while grants := loop.grants(0.0):
        loop.finished(1, grants[0].number, 1.0, 1.0)
    assert loop.is_done
    assert (len(loop.record.chunks), loop.record.handed_out, loop.record.done) == (3, 10, 10)
