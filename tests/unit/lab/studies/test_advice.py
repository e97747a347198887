"""Which limit would have done: from enough jobs only, and the promised chance holds for any distribution."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.forecast import Forecast, exactly
from eslurm.lab.studies.advice import CUT_SHARE, JOBS_MIN, Review, Run, review, rounded_up, suggest

DAY_S = 86_400


def runs(*times_s: int, limit_s: int = DAY_S) -> list[Run]:
    return [Run(ran_s, limit_s) for ran_s in times_s]


def test_the_longest_but_what_the_chance_allows() -> None:
    suggestion, note = suggest(runs(*range(100, 119)))
    assert suggestion is not None and note == ""
    # The longest of 19 and a minute, in whole minutes: one of twenty such jobs is longer.
    assert (suggestion.limit_s, suggestion.chance, suggestion.jobs) == (180, 0.05, 19)
    suggestion, _ = suggest(runs(*[100] * 38, 9_000))
    assert suggestion is not None and suggestion.limit_s == 180
    assert suggestion.chance == 2 / 40
    suggestion, _ = suggest(runs(*[100] * 37, 9_000))
    assert suggestion is not None and suggestion.limit_s == 9_600


def test_too_few() -> None:
    assert suggest(runs(*[100] * 18)) == (
        None,
        "too few jobs to say: 18 ended well or at their limit, 19 are needed",
    )
    failed = [Run(5, DAY_S, is_whole=False)] * 50
    assert suggest([*failed, *runs(*[100] * 18)])[0] is None


def test_those_cut_by_their_limit_needed_more() -> None:
    cut = Run(600, 600, is_whole=False, was_cut=True)
    assert suggest([*runs(*[100] * 18), cut]) == (
        None,
        "1 of 19 were ended by their limit: how long they need is not known, ask for more",
    )
    suggestion, _ = suggest([*runs(*[100] * 38), cut, *runs(100)])
    assert suggestion is not None and suggestion.limit_s == 180


def test_a_limit_that_fits_is_left_alone() -> None:
    assert suggest(runs(*[3_000] * 30, limit_s=3_300)) == (None, "the limit fits")
    suggestion, _ = suggest(runs(*[3_000] * 30, limit_s=3_600))
    assert suggestion is not None and suggestion.limit_s == 3_060
    # Rounding is no reason to ask for more.
    assert suggest(runs(*[3_590] * 30, limit_s=3_600)) == (None, "the limit fits")
    assert suggest(runs(*[3_600] * 30, limit_s=3_600)) == (None, "the limit fits")
    assert suggest(runs(*[3_000] * 30, limit_s=0))[0] is not None


def test_a_limit_that_would_cut_most_is_named_too_short() -> None:
    suggestion, _ = suggest([*runs(*[3_000] * 29, limit_s=7_200), *runs(50, limit_s=600)])
    assert suggestion is not None and suggestion.limit_s == 3_060


@given(st.integers(1, 10**8))
def test_rounding_is_upwards_and_small(seconds: int) -> None:
    rounded = rounded_up(seconds)
    assert seconds <= rounded <= max(seconds + 60, seconds * 1.17)
    assert rounded % (60 if seconds <= 3_600 else 600 if seconds <= DAY_S else 3_600) == 0


@pytest.mark.parametrize("jobs", [19, 20, 41, 100, 397])
def test_the_promised_chance_holds(jobs: int) -> None:
    chances = random.Random(jobs)
    tries, missed = 3_000, 0
    for _ in range(tries):
        # Times in hours apart, so that what rounding up adds hides nothing.
        times_s = [int(3_600 * 10 * chances.paretovariate(0.5)) for _ in range(jobs + 1)]
        suggestion, _ = suggest([Run(one) for one in times_s[:-1]])
        assert suggestion is not None and suggestion.chance <= CUT_SHARE
        missed += times_s[-1] > suggestion.limit_s
    assert missed / tries < CUT_SHARE + 0.01


@given(
    st.lists(
        st.builds(
            Run,
            st.integers(1, 10**6),
            st.integers(0, 10**6),
            st.integers(0, 10**6),
            st.none() | st.builds(exactly, st.integers(1, 10**6)),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_anything_can_be_reviewed(given_runs: list[Run]) -> None:
    found = review(given_runs)
    assert found.jobs == len(given_runs)
    assert (found.suggestion is None) == bool(found.note)
    for one in (found.limit, found.estimate):
        assert one is None or (0 < one.aea <= 1 and 0 <= one.under <= 1 and one.jobs <= found.jobs)
    if found.suggestion is not None:
        assert JOBS_MIN <= found.suggestion.jobs <= found.jobs


def test_accuracy_of_limits_and_forecasts() -> None:
    forecast = Forecast(50, 100, 120, 110)
    found = review(
        [
            Run(100, 200, 50, forecast),
            Run(130, 0, 130, forecast),
            Run(10, 40, 0, None, is_whole=False),
        ]
    )
    assert isinstance(found, Review)
    assert found.limit is not None and (found.limit.jobs, found.limit.aea, found.limit.under) == (
        2,
        0.375,
        0.0,
    )
    assert found.estimate is not None and (found.estimate.aea, found.estimate.under) == (0.75, 0.5)
    assert found.coverage == 0.5
    assert found.limit_s == 40
