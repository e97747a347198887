"""A search's lower bounds, against a list of all that has happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.plan.profile.search import SearchBounds

TIME = st.integers(0, 30)
LEARNT = st.tuples(st.just("learn"), st.integers(0, 2), TIME)
FREED = st.tuples(st.just("freed"), TIME, st.just(0))


@given(st.lists(st.one_of(LEARNT, FREED), max_size=12), st.integers(1, 10))
def test_a_bound_is_lowered_by_what_was_given_back_since_and_by_nothing_else(
    events: list[tuple[str, int, int]], duration: int
) -> None:
    """A stay of `duration` that ends before what was given back gains nothing from it: it was looked at in vain."""
    hints = SearchBounds()
    for at, (kind, first, second) in enumerate(events):
        if kind == "learn":
            hints.learn(first, second)
        else:
            hints.freed(first)
        for query in range(3):
            learnt = [n for n, one in enumerate(events[: at + 1]) if one[:2] == ("learn", query)]
            if not learnt:
                assert hints.bound_us(query, duration) == 0
                continue
            bound = events[learnt[-1]][2]
            since = [one[1] for one in events[learnt[-1] : at + 1] if one[0] == "freed"]
            # The first start whose stay reaches an instant that has become free.
            reaching = [
                next(start for start in range(-duration, 31) if start + duration > freed) for freed in since
            ]
            assert hints.bound_us(query, duration) == max(0, min([bound, *reaching]))
