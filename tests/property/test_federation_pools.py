"""Pools beside a naive model of sets and lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.federation import pools, runs
from eslurm.core.model.federation import PASSES_MAX, Claim, Pool

SIZE = 12
SETS = st.sets(st.integers(0, 30))


class Model:
    """A pool as sets: offered nodes, claims, and tickets with what they hold."""

    def __init__(self) -> None:
        self.free: set[int] = set()
        self.claims: dict[int, set[int]] = {}
        self.tickets: dict[int, tuple[int, int]] = {}
        self.aside: set[int] = set()
        self.passes: dict[int, int] = {}

    def fills(self) -> dict[int, int]:
        """The nodes that each ticket holds: first come by order, first served."""
        left, found = len(self.free), {}
        for serial, (_, wanted) in sorted(
            self.tickets.items(), key=lambda one: (one[0] in self.aside, one[1][0], one[0])
        ):
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


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(1, 8)), max_size=40))
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
            model.aside.discard(serial)
            model.passes.pop(serial, None)
    elif kind == 2:
        ready = serial in model.tickets and model.fills()[serial] == model.tickets[serial][1]
        changed = pools.convert(pool, (2, serial))
        assert (changed is not None) == ready
        if changed is not None:
            del model.tickets[serial]
            model.aside.discard(serial)
            _claimed(changed, model, serial)
    elif kind == 3:
        changed = pools.without_ticket(pool, wish.order)
        if serial in model.tickets and model.tickets[serial][0] == count:
            del model.tickets[serial]
        else:
            assert changed is pool
    elif kind == 4:
        ended = [(2, serial)] if serial in model.claims else []
        changed = pools.close(pool, ended)
        model.free |= model.claims.pop(serial, set())
    elif kind == 5:
        fills = model.fills()
        lacks = any(fills[one] < wanted for one, (_, wanted) in model.tickets.items())
        ready = serial in model.tickets and fills[serial] == model.tickets[serial][1]
        changed = pools.turn(pool, (2, serial))
        if serial in model.aside:
            assert changed is not None
            model.aside.discard(serial)
        else:
            may = ready and lacks and model.passes.get(serial, 0) < PASSES_MAX
            assert (changed is not None) == may
            if may:
                model.aside.add(serial)
                model.passes[serial] = model.passes.get(serial, 0) + 1
    return changed or pool


def _claimed(pool: Pool, model: Model, serial: int) -> None:
    found = pools.find_claim(pool, (2, serial))
    assert found is not None
    model.claims[serial] = set(runs.numbers_of(found.nodes))
    model.free -= model.claims[serial]
