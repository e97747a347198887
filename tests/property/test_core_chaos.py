"""Random histories of a whole cluster: invariants after each fact, every job reaches its end, nothing is left.

Run one seed again with `make test TESTS=tests/property/test_core_chaos.py ARGS='--seed N'`.
"""

from __future__ import annotations

import pytest

from tests.kits.chaos import Chaos
from tests.support.profiles import draws
from tests.support.seeds import Seeds


def run(seed: int, events: int, *, checked: bool) -> Chaos:
    chaos = Chaos(seed, checked=checked)
    for _ in range(events):
        chaos.act()
    chaos.recover()
    chaos.assert_clean()
    chaos.assert_retries()
    return chaos


@pytest.mark.parametrize("first", range(1, draws(100) + 1, 10))
def test_everything_comes_to_an_end(seeds: Seeds, first: int) -> None:
    for seed in seeds(10, first):
        run(seed, 250, checked=False)


@pytest.mark.parametrize("first", range(1, draws(25) + 1, 5))
def test_a_crash_between_any_two_facts_changes_nothing(seeds: Seeds, first: int) -> None:
    """After every fact: what the rows give, what replaying the log gives, and the living state are the same."""
    for seed in seeds(5, first):
        run(seed, 150, checked=True)


@pytest.mark.parametrize("first", range(1, draws(3) + 1))
def test_long_histories_leave_no_more_behind_than_short_ones(seeds: Seeds, first: int) -> None:
    for seed in seeds(1, first):
        state = run(seed, 2_000, checked=False).world.state
        assert len(state.timers) < 200
        assert len(state.finished) <= state.config.finished_jobs_max + 15
        assert len(state.changed) < 50


def test_histories_have_retries() -> None:
    assert sum(run(seed, 250, checked=False).assert_retries() for seed in range(1, 6)) >= 5


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (run(7, 150, checked=False).world.log for _ in range(2))
    assert first == second
