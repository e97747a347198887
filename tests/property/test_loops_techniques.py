"""Every technique under drawn loops and drawn feedback: sizes of at least 1 that sum to the loop, the same each time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eslurm.loops.techniques import TECHNIQUES, chunks, technique_of

SECONDS = st.one_of(st.just(0.0), st.floats(1e-12, 1e12))


@st.composite
def loops(draw: st.DrawFn) -> tuple[str, int, int, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(TECHNIQUES)))
    n, workers = draw(st.integers(0, 3000)), draw(st.integers(1, 70))
    options: dict[str, Any] = {}
    if name in ("FSC", "FAC"):
        options["sigma"] = draw(SECONDS)
        options["h" if name == "FSC" else "mu"] = draw(st.floats(1e-12, 1e12))
    if name == "WF" and draw(st.booleans()):
        options["weights"] = draw(st.lists(st.floats(1e-6, 1e6), min_size=workers, max_size=workers))
    options["smallest"] = draw(st.sampled_from([1, 1, 7]))
    options["largest"] = draw(st.sampled_from([0, 0, 11]))
    return name, n, workers, options


@given(loops())
def test_sizes_sum_to_the_loop(loop: tuple[str, int, int, dict[str, Any]]) -> None:
    name, n, workers, options = loop
    found = list(chunks(n, workers, name, **options))
    assert sum(found) == n
    assert all(size >= options["smallest"] for size in found[:-1])
    assert all(1 <= size <= (options["largest"] or n) for size in found)
    assert found == list(chunks(n, workers, name, **options))


@given(loops(), st.data())
def test_any_feedback_ends_in_the_whole_loop(
    loop: tuple[str, int, int, dict[str, Any]], data: st.DataObject
) -> None:
    """Workers ask in any order, take any time, and tell of chunks late, twice or never."""
    name, n, workers, options = loop
    technique = technique_of(name, n, workers, **options)
    draws = data.draw(
        st.lists(
            st.tuples(st.integers(0, workers - 1), SECONDS, SECONDS, st.integers(0, 2)),
            min_size=1,
            max_size=40,
        )
    )
    taken, turn = 0, 0
    while True:
        worker, seconds, overhead, times = draws[turn % len(draws)]
        turn += 1
        before = technique.remaining
        size = technique.next_chunk(worker)
        if not size:
            break
        assert 1 <= size <= before
        taken += size
        for _ in range(times):
            technique.record(worker, size, seconds, overhead)
    assert taken == n
    assert technique.next_chunk(0) == 0
