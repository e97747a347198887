"""Chunk sizes of the techniques: the published sequences, values worked out by hand from the formulas, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from eslurm.loops.statistics import Rates, RunningStatistics
from eslurm.loops.technique import TechniqueError
from eslurm.loops.techniques import TECHNIQUES, Feedback, chunks, technique_of
from eslurm.loops.weighted import History


def sizes(technique: str, n: int = 1000, workers: int = 4, **options: Any) -> list[int]:
    return list(chunks(n, workers, technique, **options))


def test_static_gives_each_worker_one_chunk() -> None:
    assert sizes("STATIC") == [250] * 4
    assert sizes("STATIC", 10, 4) == [3, 3, 3, 1]


def test_self_scheduling_gives_one_iteration_at_a_time() -> None:
    assert sizes("SS", 5, 2) == [1] * 5


def test_guided_self_scheduling_as_published() -> None:
    """1,000 iterations on 4 processors, the example that the literature repeats."""
    published = [250, 188, 141, 106, 79, 59, 45, 33, 25, 19, 14, 11, 8, 6, 4, 3, 3, 2, 1, 1, 1, 1]
    assert sizes("GSS") == published
    assert sizes("GSS", smallest=50)[:7] == [250, 188, 141, 106, 79, 59, 50]


def test_trapezoid_self_scheduling_as_published() -> None:
    """1,000 iterations on 4 processors: first 125, last 1, 16 chunks, each 8 smaller."""
    assert sizes("TSS") == [125, 117, 109, 101, 93, 85, 77, 69, 61, 53, 45, 37, 28]
    assert sizes("TSS", 100, 4, first=20, last=20) == [20] * 5
    assert sizes("TSS", 1, 4) == [1]


def test_practical_factoring_as_published() -> None:
    """1,000 iterations on 4 processors, halves rounded up: 62.5, 15.5 and 7.5 become 63, 16 and 8."""
    published = [size for size in (125, 63, 31, 16, 8, 4, 2, 1) for _ in range(4)]
    assert sizes("FAC2") == published


def test_factoring_by_hand() -> None:
    """mu 1, sigma 0.5: b = 4 / (2 sqrt 1000) / 2 = 0.03162, x = 1 + 0.001 + 0.03162 sqrt(2.001) = 1.04573: 239.06.

    Then 40 remain: b = 0.15811, x = 2 + 0.025 + 0.15811 sqrt(4.025) = 2.34222; 40 / 9.3689 = 4.27.
    """
    assert sizes("FAC", mu=1.0, sigma=0.5)[:8] == [240] * 4 + [5] * 4
    assert sizes("FAC", mu=1.0, sigma=0.0) == [250] * 4
    assert sizes("FAC", mu=2.0, sigma=1.0) == sizes("FAC", mu=1.0, sigma=0.5)


def test_fixed_size_chunking_by_hand() -> None:
    """sqrt 2 * 1000 * 0.05 / (0.1 * 4 * sqrt(ln 4)) = 150.14; to the power of 2/3: 28.25."""
    assert sizes("FSC", sigma=0.1, h=0.05) == [29] * 34 + [14]
    assert sizes("FSC", sigma=0.0, h=0.05) == [250] * 4
    assert sizes("FSC", workers=1, sigma=0.1, h=0.05) == [1000]


@pytest.mark.parametrize(("n", "workers"), [(1000, 4), (17, 3), (5, 8), (1, 1), (100_000, 64)])
def test_modified_fixed_size_chunking_counts_the_chunks_of_fac2(n: int, workers: int) -> None:
    of_fac2 = len(sizes("FAC2", n, workers))
    assert sizes("mFSC", n, workers)[0] == math.ceil(n / of_fac2)
    assert len(sizes("mFSC", n, workers)) <= of_fac2


def test_weighted_factoring_by_hand() -> None:
    """Weights 1 : 2 : 3 : 4 are 0.4, 0.8, 1.2, 1.6 of 125."""
    assert sizes("WF", weights=[1, 2, 3, 4])[:8] == [50, 100, 150, 200, 25, 50, 75, 100]
    assert sizes("WF") == sizes("FAC2") == sizes("WF", weights=[3.0] * 4)


def test_awf_learns_from_one_time_step_to_the_next() -> None:
    history = History(2)
    first = technique_of("AWF", 80, 2, history=history)
    assert [first.next_chunk(0), first.next_chunk(1)] == [20, 20]
    first.record(0, 20, 1.0)
    first.record(1, 20, 3.0)
    assert [first.next_chunk(0), first.next_chunk(1)] == [10, 10]  # within the step the weights stand
    first.record(0, 10, 0.5)
    first.record(1, 10, 1.5)
    first.end_loop()
    assert history.weights() == pytest.approx([1.5, 0.5])
    second = technique_of("AWF", 80, 2, history=history)
    assert [second.next_chunk(0), second.next_chunk(1)] == [30, 10]


def test_awf_b_has_new_weights_at_the_next_batch_and_awf_c_at_the_next_chunk() -> None:
    def second_chunk(name: str) -> list[int]:
        technique = technique_of(name, 80, 2)
        found = [technique.next_chunk(0)]
        technique.record(0, 20, 1.0)
        found.append(technique.next_chunk(1))
        technique.record(1, 20, 3.0)
        return [*found, technique.next_chunk(0), technique.next_chunk(1)]

    assert second_chunk("AWF-B") == [20, 20, 15, 5]
    # R / (2 P) of what remains at each request: 80, 60, 40, 25.
    assert second_chunk("AWF-C") == [20, 15, 17, 4]


@pytest.mark.parametrize(("plain", "total"), [("AWF-B", "AWF-D"), ("AWF-C", "AWF-E")])
def test_the_variants_d_and_e_count_the_overhead_too(plain: str, total: str) -> None:
    def weights(name: str, seconds: float, overhead: float) -> int:
        technique = technique_of(name, 800, 2)
        for worker in (0, 1):
            size = technique.next_chunk(worker)
            technique.record(worker, size, size * (seconds if worker else 1.0), size * overhead * worker)
        return technique.next_chunk(0)

    assert weights(plain, 1.0, 2.0) == weights(plain, 1.0, 0.0)
    assert weights(total, 1.0, 2.0) == weights(total, 3.0, 0.0) > weights(total, 1.0, 0.0)


def test_later_chunks_weigh_more() -> None:
    rates = Rates(2)
    for seconds in (1.0, 2.0, 4.0):
        rates.add(0, 1, seconds)
    rates.add(1, 1, 1.0)
    # pi of worker 0 is (1 + 4 + 12) / (1 + 2 + 3) = 17 / 6.
    assert rates.weights() == pytest.approx([2 * (6 / 17) / (1 + 6 / 17), 2 / (1 + 6 / 17)])


def test_adaptive_factoring_by_hand() -> None:
    technique = technique_of("AF", 1000, 2, pilot=10)
    for worker, times in ((0, (8.0, 12.0)), (1, (16.0, 24.0))):
        for seconds in times:
            assert technique.next_chunk(worker) == 10
            technique.record(worker, 10, seconds)
    # mu 1 and 2; sigma^2 = 10 * 0.2^2 * 2 = 0.8 and 10 * 0.4^2 * 2 = 3.2; D = 0.8 + 1.6, T = 2 / 3, R = 960.
    d, tr = 2.4, 640.0
    expected = (d + 2 * tr - math.sqrt(d * d + 4 * d * tr)) / 2
    assert technique.next_chunk(0) == math.ceil(expected) == 602
    technique = technique_of("AF", 1000, 2, pilot=10)
    for worker in (0, 1):
        for _ in range(2):
            technique.next_chunk(worker)
            technique.record(worker, 10, 10.0 * (worker + 1))
    # Without variance each takes what it does by the common end: 960 in the ratio 2 : 1.
    assert [technique.next_chunk(0), technique.remaining] == [640, 320]


def test_the_statistics_of_chunks_estimate_those_of_iterations() -> None:
    statistics = RunningStatistics()
    statistics.add(4, 4.0)
    assert (statistics.mean, statistics.variance) == (1.0, 0.0)
    statistics.add(12, 36.0)
    assert statistics.mean == pytest.approx(2.5)
    assert statistics.variance == pytest.approx(4 * 1.5**2 + 12 * 0.5**2)


def test_feedback_asks_for_the_next_chunk_of_its_worker() -> None:
    generator = chunks(80, 2, "AWF-C")
    assert [next(generator), next(generator)] == [20, 15]
    assert generator.send(Feedback(0, 20, 1.0)) == math.ceil(45 / 4)
    assert generator.send(Feedback(1, 15, 3.0)) == math.ceil(33 / 4 * 0.4)


def test_no_chunk_of_an_empty_loop() -> None:
    for name, options in OPTIONS.items():
        assert sizes(name, 0, 3, **options) == [], name


OPTIONS: dict[str, dict[str, Any]] = {name: {} for name in TECHNIQUES} | {
    "FSC": {"sigma": 0.1, "h": 0.05},
    "FAC": {"mu": 1.0, "sigma": 0.5},
}

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: chunks(10, 2, "LIFO"), "no technique 'LIFO': use one of STATIC"),
    (lambda: chunks(-1, 2), "n is -1"),
    (lambda: chunks(10, 0), "workers is 0"),
    (lambda: chunks(10, 2, smallest=0), "smallest is 0"),
    (lambda: chunks(10, 2, smallest=3, largest=2), "largest 2 is below smallest 3"),
    (lambda: chunks(10, 2, "FSC"), "FSC missing 2 required keyword-only arguments: 'sigma' and 'h'"),
    (lambda: chunks(10, 2, "GSS", sigma=1.0), "GSS got an unexpected keyword argument 'sigma'"),
    (lambda: chunks(10, 2, "FSC", sigma=1.0, h=0.0), "h is 0"),
    (lambda: chunks(10, 2, "FAC", sigma=1.0, mu=0.0), "mu is 0"),
    (lambda: chunks(10, 2, "FAC", sigma=math.nan, mu=1.0), "sigma is nan"),
    (lambda: chunks(10, 2, "WF", weights=[1.0]), "1 weights for 2 workers"),
    (lambda: chunks(10, 2, "WF", weights=[1.0, 0.0]), "a weight is 0"),
    (lambda: chunks(10, 2, "AWF", history=History(3)), "the history is of 3 workers and the loop has 2"),
    (lambda: technique_of("AF", 10, 2).record(2, 1, 1.0), "worker is 2"),
    (lambda: technique_of("AF", 10, 2).record(0, 0, 1.0), "size is 0"),
    (lambda: technique_of("AF", 10, 2).record(0, 1, math.inf), "seconds is inf"),
    (lambda: technique_of("AF", 10, 2).record(0, 1, 1.0, -1.0), "overhead is -1.0"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_refusals_name_the_value_and_a_way_out(call: Callable[[], object], says: str) -> None:
    with pytest.raises(TechniqueError) as refused:
        call()
    assert says in str(refused.value)
