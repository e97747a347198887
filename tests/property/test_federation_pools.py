"""Pools beside a naive model of sets and lists, and claims of several cells that meet in one store."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.federation import pools, runs
from eslurm.core.federation.actions import SwapKeys
from eslurm.core.federation.pool_changes import LendersChange, Part, PoolReader, TakeNodes
from eslurm.core.federation.swapping import Result, Swap
from eslurm.core.federation.values import Keys
from eslurm.core.model.federation import Claim, Pool
from eslurm.lab.kv.image import KvImage
from eslurm.ports.kv import Entry
from tests.kits.federation import swap

SIZE = 12
KEYS = Keys("lab")
SETS = st.sets(st.integers(0, 30))


class Model:
    """A pool as sets: offered nodes, claims, and tickets with what they hold."""

    def __init__(self) -> None:
        self.free: set[int] = set()
        self.claims: dict[int, set[int]] = {}
        self.tickets: dict[int, tuple[int, int]] = {}

    def fills(self) -> dict[int, int]:
        """The nodes that each ticket holds: first come by order, first served."""
        left, found = len(self.free), {}
        for serial, (_, wanted) in sorted(self.tickets.items(), key=lambda one: (one[1][0], one[0])):
            found[serial] = min(wanted, left)
            left -= found[serial]
        return found


@given(SETS, SETS)
def test_runs_are_sets(left: set[int], right: set[int]) -> None:
    one, other = runs.runs_of(left), runs.runs_of(right)
    for found, expected in (
        (runs.union(one, other), left | right),
        (runs.difference(one, other), left - right),
        (runs.overlap(one, other), left & right),
    ):
        assert set(runs.numbers_of(found)) == expected
        assert runs.is_proper(found)
        assert runs.size(found) == len(expected)


@given(SETS, st.integers(0, 31))
def test_some_nodes_of_a_set_split_one_run_at_most(numbers: set[int], count: int) -> None:
    whole = runs.runs_of(numbers)
    part = runs.taken(whole, count)
    left = runs.difference(whole, part)
    assert runs.size(part) == min(count, len(numbers))
    assert runs.is_proper(part)
    assert runs.union(part, left) == whole
    assert len(part) + len(left) <= len(whole) + 1


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 7), st.integers(1, 8)), max_size=40))
def test_a_pool_counts_as_the_model_does(steps: list[tuple[int, int, int]]) -> None:
    pool, model = pools.offer(pools.empty(1), ((0, SIZE),)), Model()
    model.free = set(range(SIZE))
    for kind, serial, count in steps:
        pool = _step(pool, model, kind, serial, count)
        assert pools.faults(pool, ((0, SIZE),)) == ""
        fills = model.fills()
        assert pools.free(pool) == len(model.free) - sum(fills.values())
        for one in pool.claims:
            held = set(runs.numbers_of(one.nodes))
            if one.wanted:
                assert len(held) == fills[one.serial]
            else:
                assert held == model.claims[one.serial]
        assert len(pool.claims) == len(model.claims) + len(model.tickets)


def _step(pool: Pool, model: Model, kind: int, serial: int, count: int) -> Pool:
    """One change of both; returns the pool."""
    known = serial in model.claims or serial in model.tickets
    free = len(model.free) - sum(model.fills().values())
    wish = Claim(2, serial, 1, (count, 2, serial), 0, wanted=count)
    changed: Pool | None = None
    if kind == 0:
        changed = pools.claim(pool, wish, count)
        assert (changed is not None) == (not known and free >= count)
        if changed is not None:
            _claimed(changed, model, serial)
    elif kind == 1:
        changed = pools.queue(pool, wish)
        assert (changed is not None) == (not known)
        if changed is not None:
            model.tickets[serial] = (count, count)
    elif kind == 2:
        ready = serial in model.tickets and model.fills()[serial] == model.tickets[serial][1]
        changed = pools.convert(pool, (2, serial))
        assert (changed is not None) == ready
        if changed is not None:
            del model.tickets[serial]
            _claimed(changed, model, serial)
    elif kind == 3:
        changed = pools.leave_queue(pool, (2, serial))
        assert (changed is not None) == (serial in model.tickets)
        model.tickets.pop(serial, None)
    elif kind == 4:
        ended = [(2, serial)] if serial in model.claims else []
        changed = pools.close(pool, ended)
        model.free |= model.claims.pop(serial, set())
    elif kind == 5:
        back = runs.runs_of(range(count, SIZE))
        offered = {number for one in pool.offers for number in runs.numbers_of(one.nodes)}
        changed = pools.withdraw(pool, back)
        model.free -= offered & set(range(count, SIZE))
    else:
        missing = runs.difference(((0, SIZE),), pools.all_nodes(pool))
        changed = pools.offer(pool, missing)
        model.free |= set(runs.numbers_of(missing))
    return changed or pool


def _claimed(pool: Pool, model: Model, serial: int) -> None:
    found = pools.find_claim(pool, (2, serial))
    assert found is not None
    model.claims[serial] = set(runs.numbers_of(found.nodes))
    model.free -= model.claims[serial]


def test_two_cells_that_take_a_hundred_each_of_a_thousand_leave_eight_hundred() -> None:
    # S-06: both have read 1,000.
    image, reader = KvImage(), PoolReader(KEYS)
    _run(image, _offering(reader, "alpha", 1_000))
    parts = [Part("alpha", 100)]
    swaps = [Swap(_taking(reader, cell, parts), _known(image, reader, parts)) for cell in (2, 3)]
    _meet(image, swaps, random.Random(1))
    assert [one.result for one in swaps] == [Result.DONE, Result.DONE]
    assert sorted(one.tries for one in swaps) == [1, 2], "a failed swap brings what the other has left"
    assert pools.free(_pool(image, reader, "alpha")) == 800


@given(st.integers(0, 10_000))
def test_joint_claims_that_meet_take_everywhere_or_nowhere(seed: int) -> None:
    draws = random.Random(seed)
    image, reader = KvImage(), PoolReader(KEYS)
    cells = ("alpha", "beta", "gamma")
    for cell in cells:
        _run(image, _offering(reader, cell, 10))
    wishes = [[Part(cell, draws.randint(1, 6)) for cell in draws.sample(cells, 2)] for _ in range(4)]
    swaps = [
        Swap(_taking(reader, 2 + place, parts), _known(image, reader, parts))
        for place, parts in enumerate(wishes)
    ]
    _meet(image, swaps, draws)
    for cell in cells:
        pool = _pool(image, reader, cell)
        assert pools.faults(pool, ((0, 10),)) == ""
        taken = sum(
            part.count
            for one, parts in zip(swaps, wishes, strict=True)
            for part in parts
            if part.cell == cell and one.result is Result.DONE
        )
        assert pools.free(pool) == 10 - taken
    assert all(one.result in (Result.DONE, Result.NEEDLESS) for one in swaps)
    assert any(one.result is Result.DONE for one in swaps)


def _offering(reader: PoolReader, cell: str, count: int) -> Swap:
    return Swap(LendersChange(reader, cell, 1, lambda pool: pools.offer(pool, ((0, count),))), {})


def _taking(reader: PoolReader, borrower: int, parts: list[Part]) -> TakeNodes:
    return TakeNodes(reader, Claim(borrower, 1, 1, (1, borrower, 1), 0), parts)


def _known(image: KvImage, reader: PoolReader, parts: list[Part]) -> dict[str, Entry | None]:
    return {reader.prefix + part.cell: image.get(reader.prefix + part.cell).entry for part in parts}


def _pool(image: KvImage, reader: PoolReader, cell: str) -> Pool:
    found = reader.find({reader.prefix + cell: image.get(reader.prefix + cell).entry}, cell)
    assert found is not None
    return found


def _run(image: KvImage, one: Swap) -> None:
    _meet(image, [one], random.Random(1))


def _meet(image: KvImage, swaps: list[Swap], draws: random.Random) -> None:
    """Drive swaps together: calls reach the store, and answers come, in any order."""
    sent: list[tuple[Swap, SwapKeys]] = []
    now_us = 0
    while any(one.result is None for one in swaps):
        now_us += 1_000_000
        asked = [(one, one.tick(now_us, draws.random())) for one in swaps]
        sent += [(one, action) for one, action in asked if action is not None]
        if sent:
            one, action = sent.pop(draws.randrange(len(sent)))
            one.swapped(action, swap(image, action))
