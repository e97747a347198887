"""Growth of the limits of retried jobs, next to a naive model in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.control.jobs.growth import grown_memory_mib, grown_time_s, memory_of, reached_s
from eslurm.core.model.request import Chunk, Request
from eslurm.core.model.request_limits import MEMORY_MAX_MIB, TIME_LIMIT_MAX_S
from eslurm.core.model.retry import Retried
from eslurm.core.state.apply_retries import grown_spec
from tests.kits.core import ALICE, JobSpec

limits = st.integers(1, 1000) | st.integers(1, TIME_LIMIT_MAX_S)
percents = st.integers(100, 1000)
estimates = st.just(0) | limits
amounts = st.integers(0, 4096) | st.integers(0, MEMORY_MAX_MIB)


def naive_time_s(old_s: int, percent: int, estimate_s: int, ceiling_s: int) -> int | None:
    """The rule in words: the larger of factor and estimate, at most the ceiling; nothing that is no more than before."""
    if percent == 100:
        return old_s if old_s <= ceiling_s else None
    wanted = max(Fraction(old_s) * Fraction(percent, 100), Fraction(estimate_s))
    found = min(math.ceil(wanted), ceiling_s, TIME_LIMIT_MAX_S)
    return found if found > old_s else None


@given(limits, percents, estimates, limits)
def test_the_next_limit_is_the_models(old_s: int, percent: int, estimate_s: int, ceiling_s: int) -> None:
    assert (grown_time_s(old_s, percent, estimate_s, ceiling_s) or None) == naive_time_s(
        old_s, percent, estimate_s, ceiling_s
    )


@given(limits, percents, estimates, limits)
def test_growth_ends(old_s: int, percent: int, estimate_s: int, ceiling_s: int) -> None:
    """Goal: a chain of retries never shrinks, never passes the ceiling, and stands still only where nothing grows."""
    for _ in range(40):
        found_s = grown_time_s(old_s, percent, estimate_s, ceiling_s)
        if not found_s:
            assert old_s >= min(ceiling_s, TIME_LIMIT_MAX_S)
            return
        assert found_s <= ceiling_s
        assert found_s > old_s or percent == 100
        old_s = found_s


@given(limits, percents, st.integers(1, 100))
def test_without_a_maximum_the_factor_alone_is_the_bound(old_s: int, percent: int, retries: int) -> None:
    """Goal: whatever is estimated, no limit of any of the retries passes what the factor reaches in all of them."""
    most_s, limit_s = reached_s(old_s, percent, retries), old_s
    for _ in range(min(retries, 12)):
        limit_s = grown_time_s(limit_s, percent, 0, TIME_LIMIT_MAX_S) or limit_s
    assert limit_s <= most_s <= TIME_LIMIT_MAX_S
    assert retries > 12 or limit_s == most_s


@given(st.lists(amounts, min_size=2, max_size=4), percents, amounts)
def test_memory_grows_by_the_factor_up_to_its_maximum(old: list[int], percent: int, most_mib: int) -> None:
    found = grown_memory_mib(tuple(old), percent, most_mib)
    for before, after in zip(old, found, strict=True):
        wanted = min(math.ceil(Fraction(before) * Fraction(percent, 100)), most_mib or MEMORY_MAX_MIB)
        assert after == max(before, wanted), "never less than before, also above a maximum"


@given(st.lists(st.tuples(amounts, st.lists(amounts, max_size=3)), min_size=1, max_size=3), limits)
def test_a_grown_request_differs_in_its_limits_alone(
    parts: list[tuple[int, list[int]]], limit_s: int
) -> None:
    requests = tuple(
        Request(
            tasks=3,
            memory_per_node_mib=mib,
            constraint="a",
            chunks=tuple(Chunk(memory_mib=one) for one in of),
        )
        for mib, of in parts
    )
    spec = JobSpec("job", ALICE, "", requests, b"", b"", "/", time_limit_s=7)
    memory = tuple(grown_memory_mib(memory_of(one), 200, 0) for one in requests)
    grown = grown_spec(spec, Retried("oom", limit_s, memory))
    assert grown.time_limit_s == limit_s
    assert tuple(map(memory_of, grown.components)) == memory
    shrunk = grown_spec(grown, Retried("oom", 7, tuple(map(memory_of, requests))))
    assert shrunk == spec and grown_spec(spec, Retried("node-fail")) == spec
