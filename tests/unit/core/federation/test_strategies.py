"""The strategies one by one: which cells they ask, what they remember, when they give up."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from eslurm.core.federation import pools
from eslurm.core.federation.strategies.balanced import Balanced
from eslurm.core.federation.strategies.cached import EVICTIONS, Cache, Cached, Eviction
from eslurm.core.federation.strategies.free_index import FreeIndex
from eslurm.core.federation.strategies.guided import Guided
from eslurm.core.federation.strategies.interface import (
    Convert,
    Done,
    Enqueue,
    GiveBack,
    Later,
    Leave,
    Look,
    Need,
    PoolSeen,
    Step,
    Strategy,
    Take,
)
from eslurm.core.federation.strategies.joint import LOOKS, Joint
from eslurm.core.federation.strategies.one_by_one import Tries
from eslurm.core.federation.strategies.sampling import Sampling
from eslurm.core.federation.strategies.sorted import Sorted
from eslurm.core.federation.strategies.stealing import Stealing
from eslurm.core.federation.strategies.subscribed import Subscribed
from eslurm.core.federation.strategies.tickets import TRIES, Tickets, divide
from eslurm.core.model.federation import Claim
from tests.kits.searches import Hunter, Table


def half() -> float:
    return 0.5


def hunter(table: Table, strategy: Strategy, nodes: int, own: int = 0, serial: int = 1) -> Hunter:
    strategy.on_word(table.seen(own), 0)
    return Hunter(table, strategy, Need(own, serial, nodes, (1, own + 1, serial)))


def drive(one: Hunter, steps: int = 200, draw: Callable[[], float] = half, now_us: int = 0) -> list[Step]:
    """Alone, with each answer at once and each pause over."""
    taken: list[Step] = []
    for _ in range(steps):
        taken.append(one.choose(now_us, draw))
        now_us = max(now_us, one.until_us)
        if one.pending is not None:
            one.answer(now_us)
        if one.is_done:
            break
    return taken


def full(table: Table, cell: int) -> None:
    """A stranger takes all nodes of a cell."""
    taken = pools.claim(
        table.pools[cell], Claim(99, table.versions[cell], 1, (1, 99, 1), 0), table.sizes[cell]
    )
    assert taken is not None
    table.put(cell, taken)


# ---- all of them ----


def made(name: str, cells: int, counts: FreeIndex) -> Strategy:
    from eslurm.core.federation.strategies.table import STRATEGIES

    return STRATEGIES[name](0, range(cells), counts)


@pytest.mark.parametrize(
    "name", ["stealing", "cached", "sorted", "subscribed", "sampling", "balanced", "joint", "tickets"]
)
def test_own_nodes_come_first_and_cost_one_swap(name: str) -> None:
    table = Table([4, 9, 9])
    one = hunter(table, made(name, 3, FreeIndex()), 4)
    assert [type(step) for step in drive(one)] == [Take, Done]
    assert one.held() == {0: 4}


@pytest.mark.parametrize(
    "name", ["stealing", "cached", "sorted", "subscribed", "sampling", "balanced", "joint", "tickets"]
)
def test_what_the_own_cell_lacks_comes_from_others(name: str) -> None:
    table, counts, draws = Table([4, 3, 5]), FreeIndex(), random.Random(1)
    counts.put(1, 3)
    counts.put(2, 5)
    strategy = made(name, 3, counts)
    for cell in strategy.interests(0, half).pools:
        strategy.on_word(table.seen(cell), 0)
    one = hunter(table, strategy, 12)
    drive(one, draw=draws.random)
    assert one.held() == {0: 4, 1: 3, 2: 5}
    assert strategy.name == name


@pytest.mark.parametrize("strategy", [Stealing, Cached, Sampling, Balanced, Subscribed])
def test_a_cell_alone_waits_for_its_own_nodes(strategy: type[Guided]) -> None:
    table = Table([2])
    full(table, 0)
    one = hunter(table, strategy(0, [0]), 2)
    assert {type(step) for step in drive(one, 30)} == {Later}
    table.put(0, pools.close(table.pools[0], [(99, 1)]))
    one.strategy.on_word(table.seen(0), 0)
    drive(one, now_us=10**9)
    assert one.is_done


# ---- stealing ----


def test_stealing_sleeps_and_gives_all_back_after_more_than_num_retry_tries() -> None:
    table = Table([2, 0])
    one = hunter(table, Stealing(0, [0, 1], Tries(num_retry=3, sleep_ms=10)), 5)
    steps = drive(one, 12)
    kinds = [type(step) for step in steps]
    assert kinds[:2] == [Take, Look], "own nodes first"
    assert kinds[2:9] == [Later, Look, Later, Look, Later, Look, Later], "four tries"
    assert kinds[9] is GiveBack
    assert table.seen(0).free() == 2
    assert [step.at_us for step in steps if isinstance(step, Later)][:4] == [10_000, 20_000, 30_000, 40_000]


def test_stealing_never_asks_itself() -> None:
    table, draws = Table([0, 0, 0]), random.Random(3)
    one = hunter(table, Stealing(1, [0, 1, 2]), 5, own=1)
    asked = {cell for step in drive(one, 200, draws.random) if isinstance(step, Look) for cell in step.cells}
    assert asked == {0, 2}


def test_a_cell_without_a_pool_is_a_try() -> None:
    strategy = Stealing(0, [0, 1], Tries(num_retry=1))
    strategy.on_word(PoolSeen(0, 1, pools.empty(1)), 0)
    search = strategy.begin(Need(0, 1, 5, (1, 1, 1)))
    look = search.choose(0, half)
    assert look == Look((1,))
    search.answered(look, True, [PoolSeen(1, 0, None)], 0)
    assert isinstance(search.choose(0, half), Later)


def test_a_failed_claim_goes_on_from_its_answer() -> None:
    table = Table([0, 9])
    one = hunter(table, Stealing(0, [0, 1]), 8)
    assert isinstance(one.choose(0, half), Look)
    one.answer(0)
    assert isinstance(one.choose(0, half), Take)
    other = pools.claim(table.pools[1], Claim(7, 1, 1, (1, 7, 1), 0), 4)
    assert other is not None
    table.put(1, other)
    assert not one.answer(0)
    again = one.choose(0, half)
    assert isinstance(again, Take) and again.parts[0][1] == 5, "no second read, and as many as are left"
    assert one.answer(0)


# ---- cached ----


@pytest.mark.parametrize(
    ("eviction", "left"), [("lru", [1, 3, 4]), ("fifo", [2, 3, 4]), ("clock", [2, 3, 4])]
)
def test_a_full_cache_drops_one_by_its_rule(eviction: Eviction, left: list[int]) -> None:
    cache = Cache(3, 10**9, eviction)
    for cell in (1, 2, 3):
        cache.put(PoolSeen(cell, 1, None), 0)
    cache.get(1)
    cache.put(PoolSeen(4, 1, None), 0)
    assert [cell for cell in range(5) if cache.get(cell) is not None] == left
    assert len(cache) == 3


def test_the_clock_spares_what_was_used_since_it_passed() -> None:
    cache = Cache(2, 10**9, "clock")
    for cell in (1, 2, 3):
        cache.put(PoolSeen(cell, 1, None), 0)
    # The hand has passed 2 and 3 was entered after it: 2 is not used, 3 is.
    cache.put(PoolSeen(4, 1, None), 0)
    assert cache.get(2) is None and cache.get(3) is not None


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_a_cache_is_flushed_and_keeps_the_latest_version(eviction: Eviction) -> None:
    cache = Cache(3, 5_000_000, eviction)
    cache.put(PoolSeen(1, 7, None), 0)
    cache.put(PoolSeen(1, 6, None), 1)
    found = cache.get(1)
    assert found is not None and found.version == 7
    cache.put(PoolSeen(2, 1, None), 5_000_000)
    assert cache.get(1) is None and cache.get(2) is not None


def test_cached_takes_from_the_cell_with_most_without_a_read() -> None:
    table = Table([0, 3, 8, 5])
    strategy = Cached(0, range(4))
    for cell in (1, 2, 3):
        strategy.on_word(table.seen(cell), 0)
    one = hunter(table, strategy, 10)
    assert [type(step) for step in drive(one)] == [Take, Take, Done]
    assert one.held() == {2: 8, 3: 2}


# ---- monitors ----


def test_sorted_asks_the_first_cells_of_the_list() -> None:
    table, counts, draws = Table([0, 3, 8, 5]), FreeIndex(), random.Random(1)
    for cell in (1, 2, 3):
        counts.put(cell, table.seen(cell).free())
    strategy = Sorted(0, range(4), counts, first=1)
    assert strategy.interests(0, half).summaries
    one = hunter(table, strategy, 6)
    assert drive(one, draw=draws.random)[0] == Look((2,))
    assert one.held() == {2: 6}


def test_subscribed_watches_a_few_others_and_changes_them() -> None:
    strategy, draws = Subscribed(3, range(20), k=4), random.Random(1)
    first = strategy.interests(0, draws.random)
    second = strategy.interests(first.until_us, draws.random)
    assert len(set(first.pools)) == 4 and 3 not in first.pools
    assert first.until_us == 10_000_000
    assert set(first.pools) != set(second.pools)
    assert Subscribed(0, range(3), k=8).interests(0, half).pools == (1, 2)


def test_subscribed_sees_only_what_it_watches() -> None:
    table, draws = Table([0, 5, 5, 5, 5]), random.Random(2)
    strategy = Subscribed(0, range(5), k=1)
    (watched,) = strategy.interests(0, draws.random).pools
    for cell in range(5):
        strategy.on_word(table.seen(cell), 0)
    one = hunter(table, strategy, 6)
    drive(one, 10)
    assert one.held() == {watched: 5}


def test_sampling_reads_two_cells_for_each_job_that_waits_and_shares_them() -> None:
    table, draws = Table([0, 4, 4, 4, 4, 4, 4, 4, 4]), random.Random(1)
    strategy = Sampling(0, range(9))
    jobs = [hunter(table, strategy, 4, serial=serial) for serial in (1, 2, 3)]
    look = jobs[0].choose(0, draws.random)
    assert isinstance(look, Look) and len(look.cells) == 6
    jobs[0].answer(0)
    for one in jobs[1:]:
        assert isinstance(one.choose(0, draws.random), Take), "the sample is everyone's"
        one.answer(0)
        assert isinstance(one.choose(0, draws.random), Done)
    drive(jobs[0], draw=draws.random)
    assert jobs[0].is_done


# ---- balanced and joint ----


def test_the_index_finds_the_best_fit() -> None:
    index = FreeIndex()
    for cell, free in ((1, 4), (2, 9), (3, 6), (4, 0), (5, 6)):
        index.put(cell, free)
    assert index.best_fit(5) == 3
    assert index.best_fit(5, {3}) == 5
    assert index.best_fit(20) == 2, "none has enough: the one with most"
    assert index.best_fit(1, {1, 2, 3, 5}) is None, "a full cell is none"
    assert index.most_free(2) == [2, 5]
    index.put(2, 1)
    index.remove(3)
    index.remove(77)
    assert (index.best_fit(5), index.get(2), len(index)) == (5, 1, 4)


def test_balanced_takes_the_best_fit() -> None:
    table = Table([0, 9, 6, 4])
    strategy = Balanced(0, range(4))
    for cell in (1, 2, 3):
        strategy.on_word(table.seen(cell), 0)
    one = hunter(table, strategy, 5)
    drive(one)
    assert one.held() == {2: 5}


def test_joint_takes_all_at_once_own_nodes_first() -> None:
    table = Table([2, 9, 6, 4])
    strategy = Joint(0, range(4))
    for cell in (1, 2, 3):
        strategy.on_word(table.seen(cell), 0)
    one = hunter(table, strategy, 13)
    assert [type(step) for step in drive(one)] == [Take, Done]
    assert one.held() == {0: 2, 1: 9, 3: 2}, "11 are missing: the largest, and for the last 2 the best fit"


def test_joint_reads_others_at_once_then_after_pauses() -> None:
    table, draws = Table([0] * 40), random.Random(1)
    one = hunter(table, Joint(0, range(40)), 3)
    steps = drive(one, 9, draws.random)
    assert [type(step) for step in steps] == [Look, Later, Look, Later, Look, Later, Look, Later, Look]
    assert all(len(set(step.cells)) == LOOKS for step in steps if isinstance(step, Look))
    pauses = [step.at_us for step in steps if isinstance(step, Later)]
    assert all(later - before <= 80_000 for before, later in zip([0, *pauses], pauses, strict=False))


def test_a_joint_claim_that_failed_chooses_anew_from_its_answer() -> None:
    table = Table([0, 5, 5, 5])
    strategy = Joint(0, range(4))
    for cell in (1, 2, 3):
        strategy.on_word(table.seen(cell), 0)
    one = hunter(table, strategy, 10)
    first = one.choose(0, half)
    assert isinstance(first, Take)
    full(table, first.parts[0][0].cell)
    assert not one.answer(0)
    assert sum(one.held().values()) == 0, "nothing anywhere"
    again = one.choose(0, half)
    assert isinstance(again, Take)
    assert first.parts[0][0].cell not in [seen.cell for seen, _ in again.parts]
    assert one.answer(0)


# ---- tickets ----


def queued(table: Table) -> Hunter:
    """A job of 12 nodes that has tickets, where cell 2 is in use."""
    full(table, 2)
    one = hunter(table, Tickets(0, range(3)), 12)
    now_us = 0
    while not one.tickets:
        one.choose(now_us, half)
        now_us = max(now_us, one.until_us)
        if one.pending is not None:
            one.answer(now_us)
    return one


def tell(one: Hunter) -> None:
    for cell in one.tickets:
        one.strategy.on_word(one.table.seen(cell), 0)


def test_tickets_are_entered_after_a_few_failures_free_nodes_first() -> None:
    table = Table([4, 3, 9])
    one = queued(table)
    assert sum(isinstance(step, Later) for step in one.steps) == TRIES
    assert isinstance(one.steps[-1], Enqueue)
    assert {seen.cell: count for seen, count in one.steps[-1].parts} == {0: 4, 1: 3, 2: 5}
    assert [table.seen(cell).free() for cell in range(3)] == [0, 0, 0], "kept for it"
    assert one.held() == {}
    waits = one.choose(10**9, half)
    assert isinstance(waits, Later) and waits.wakes, "it asks nothing"


def test_all_tickets_become_claims_at_once_when_all_are_ready() -> None:
    table = Table([4, 3, 9])
    one = queued(table)
    table.put(2, pools.close(table.pools[2], [(99, 1)]))
    assert isinstance(one.choose(10**9, half), Later), "it has not heard of it"
    tell(one)
    assert isinstance(one.choose(10**9 + 1_000, half), Convert)
    table.put(1, table.pools[1])
    assert not one.answer(0), "another change of a pool came first"
    assert isinstance(one.choose(10**9 + 2_000, half), Convert)
    assert one.answer(0)
    assert isinstance(one.choose(10**9 + 3_000, half), Done)
    assert one.held() == {0: 4, 1: 3, 2: 5}


def test_a_job_whose_ticket_is_lost_leaves_all_queues_and_keeps_its_order() -> None:
    table = Table([4, 3, 9])
    one = queued(table)
    table.put(2, pools.without_ticket(table.pools[2], one.need.order))
    tell(one)
    assert isinstance(one.choose(10**9, half), Leave)
    assert one.answer(0)
    assert all(not pools.find_ticket(pool, one.need.order) for pool in table.pools)
    table.put(2, pools.close(table.pools[2], [(99, 1)]))
    drive(one, now_us=2 * 10**9)
    assert one.is_done
    orders = {claim.order for pool in table.pools for claim in pool.claims}
    assert orders == {one.need.order}


def test_a_ticket_that_its_pool_can_never_fill_is_withdrawn() -> None:
    table = Table([4, 3, 9])
    one = queued(table)
    gone = [claim for claim in table.pools[2].claims if claim.wanted]
    table.put(2, replace(table.pools[2], claims=tuple(gone)))
    tell(one)
    assert isinstance(one.choose(10**9, half), Leave)


def test_nodes_that_are_not_free_are_divided_where_fewest_wait() -> None:
    table = Table([0, 20, 20, 20, 20, 20])
    for cell in range(1, 6):
        full(table, cell)
    first = pools.queue(table.pools[3], Claim(7, 1, 1, (1, 7, 1), 0, wanted=9))
    assert first is not None
    table.put(3, first)
    known = [table.seen(cell) for cell in range(6)]
    assert divide(Need(0, 1, 40, (2, 1, 1)), known) == {1: 10, 2: 10, 4: 10, 5: 10}
    assert divide(Need(0, 1, 100, (2, 1, 1)), known) == dict.fromkeys([1, 2, 4, 5, 3], 20)
    assert divide(Need(0, 1, 101, (2, 1, 1)), known) is None


def test_pauses_double_to_their_bound_and_are_drawn() -> None:
    tries = Tries(sleep_ms=5, longest_ms=80)
    assert [tries.pause_us(failures, lambda: 0.999999) for failures in (1, 2, 4, 9, 900)] == [
        9_999,
        19_999,
        79_999,
        79_999,
        79_999,
    ]
    assert tries.pause_us(3, lambda: 0.0) == 1
    assert Tries(sleep_ms=10).pause_us(50, half) == 10_000
