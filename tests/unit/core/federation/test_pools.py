"""Pools: one claim at a time, tickets in their order, what only the lender may do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.federation import pools, runs
from eslurm.core.federation.patience import READY_US, Patience
from eslurm.core.federation.values import Keys, Reader, Unreadable, encode
from eslurm.core.model.federation import (
    CLAIMS_MAX,
    NODES_MAX,
    PASSES_MAX,
    RUNS_MAX,
    Claim,
    Pool,
)

NODES = ((0, 10),)


def wish(borrower: int = 2, serial: int = 1, wanted: int = 0, revision: int = 1, kind: int = 0) -> Claim:
    return Claim(borrower, serial, 1, (revision, borrower, serial), kind, wanted=wanted)


def offered(count: int = 10, kind: int = 0, for_s: int = 0) -> Pool:
    return pools.offer(pools.empty(1), ((0, count),), kind, for_s)


def held(pool: Pool, borrower: int, serial: int = 1) -> int:
    found = pools.find_claim(pool, (borrower, serial))
    return runs.size(found.nodes) if found is not None else -1


def test_a_claim_takes_what_it_asks_for_or_nothing() -> None:
    pool = pools.claim(offered(), wish(), 6)
    assert pool is not None and pools.free(pool) == 4
    assert pools.claim(pool, wish(3), 5) is None
    assert pools.claim(pool, wish(2), 1) is None, "the name is in use"
    assert pools.claim(pool, wish(3), 0) is None
    assert pools.faults(pool, NODES) == ""


def test_nodes_that_are_booked_soon_go_to_claims_that_end_before() -> None:
    pool = pools.offer(offered(5), ((5, 5),), for_s=300)
    assert (pools.free(pool), pools.free(pool, for_s=60), pools.free(pool, for_s=900)) == (5, 10, 5)
    short = pools.claim(pool, wish(), 4, for_s=60)
    assert short is not None and pools.free(short) == 5, "those with a booking go first"
    assert pools.claim(short, wish(3), 6) is None
    assert pools.claim(pool, wish(), 1, for_s=300) is not None
    assert pools.free(pool, kind=1) == 0


def test_nodes_of_an_ended_claim_are_offered_again() -> None:
    pool = pools.claim(offered(), wish(), 6)
    assert pool is not None
    assert pools.free(pools.close(pool, [(2, 1), (9, 9)])) == 10


def test_offering_a_node_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="are in the pool already"):
        pools.offer(offered(), ((9, 2),))


def test_tickets_are_filled_in_their_order_whenever_they_come() -> None:
    pool = pools.claim(offered(), wish(9), 10)
    assert pool is not None
    later = pools.queue(pool, wish(3, wanted=6, revision=20))
    assert later is not None and held(later, 3) == 0
    half = pools.offer(later, ((10, 5),))
    assert held(half, 3) == 5
    both = pools.queue(half, wish(2, wanted=4, revision=10))
    assert both is not None and (held(both, 2), held(both, 3)) == (4, 1), "the earlier one takes over"
    assert pools.faults(both) == ""
    full = pools.close(both, [(9, 1)])
    assert (held(full, 2), held(full, 3), pools.free(full)) == (4, 6, 5)


def test_only_a_ready_ticket_becomes_a_claim() -> None:
    pool = pools.queue(offered(3), wish(2, wanted=4))
    assert pool is not None and pools.convert(pool, (2, 1)) is None
    ready = pools.offer(pool, ((20, 1),))
    mine = pools.convert(ready, (2, 1))
    assert mine is not None and held(mine, 2) == 4
    assert pools.without_ticket(mine, (1, 2, 1)) is mine, "a claim is the lender's to end"
    assert pools.convert(mine, (2, 1)) is None


def test_a_withdrawn_ticket_gives_its_nodes_to_the_next_one() -> None:
    pool = pools.queue(offered(3), wish(2, wanted=3))
    pool = pool and pools.queue(pool, wish(3, wanted=3, revision=5))
    pool = pool and pools.without_ticket(pool, (1, 2, 1))
    assert pool is not None and (held(pool, 2), held(pool, 3)) == (-1, 3)


def test_a_ticket_of_another_class_does_not_hold_up_this_one() -> None:
    pool = pools.queue(offered(3, kind=1), wish(2, wanted=4, kind=0))
    assert pool is not None and pools.free(pool, kind=1) == 3
    assert pools.faults(pool) == ""


def test_a_pool_that_stops_takes_no_more_claims_and_keeps_those_it_has() -> None:
    pool = pools.claim(offered(), wish(), 4)
    assert pool is not None
    stopped = replace(pool, offers=(), stopped=True)
    assert pools.room(stopped) == 0
    assert pools.claim(stopped, wish(3), 1) is None
    assert pools.queue(stopped, wish(3, wanted=1)) is None
    assert held(stopped, 2) == 4
    assert pools.all_nodes(pools.close(stopped, [(2, 1)])) == ()


def test_a_ready_ticket_lets_others_pass_and_keeps_its_place() -> None:
    pool = pools.queue(offered(4), wish(2, wanted=4))
    assert pool is not None and pools.turn(pool, (2, 1)) is None, "no other one waits"
    both = pools.queue(pool, wish(3, wanted=3, revision=5))
    passed = both and pools.turn(both, (2, 1))
    assert passed is not None and (held(passed, 2), held(passed, 3)) == (1, 3)
    back = pools.turn(passed, (2, 1))
    assert back is not None and (held(back, 2), held(back, 3)) == (4, 0)
    used = pools.convert(passed, (3, 1))
    assert used is not None
    assert held(pools.close(used, [(3, 1)]), 2) == 4, "freed nodes are its own"


def test_a_ticket_lets_others_pass_only_so_often() -> None:
    pool = pools.queue(offered(4), wish(2, wanted=4))
    pool = pool and pools.queue(pool, wish(3, wanted=4, revision=5))
    for _ in range(PASSES_MAX):
        pool = pool and pools.turn(pool, (2, 1))
        pool = pool and pools.turn(pool, (2, 1))
    assert pool is not None and held(pool, 2) == 4
    assert pools.turn(pool, (2, 1)) is None
    assert pools.turn(pool, (9, 9)) is None


def test_a_lender_passes_nodes_on_after_two_seconds_and_back_after_as_many() -> None:
    pool = pools.queue(offered(4), wish(2, wanted=4))
    pool = pool and pools.queue(pool, wish(3, wanted=4, revision=5))
    assert pool is not None
    patience = Patience()
    assert patience.next_us is None
    patience.note(pool, 100)
    patience.note(pool, 500_000)
    assert patience.next_us == READY_US + 100
    assert patience.pass_on(pool, READY_US + 99) is pool
    passed = patience.pass_on(pool, READY_US + 100)
    assert (held(passed, 2), held(passed, 3)) == (0, 4)
    patience.note(passed, READY_US + 100)
    assert patience.next_us == 2 * READY_US + 100
    assert held(patience.pass_on(passed, 2 * READY_US + 100), 2) == 4
    alone = pools.without_ticket(passed, (5, 3, 1))
    patience.note(pools.without_ticket(alone, (1, 2, 1)), 0)
    assert patience.next_us is None


def test_claims_and_runs_have_a_bound() -> None:
    pool: Pool | None = offered(NODES_MAX)
    for serial in range(CLAIMS_MAX):
        pool = pool and pools.claim(pool, wish(serial=serial), 1)
    assert pool is not None
    assert pools.claim(pool, wish(serial=CLAIMS_MAX), 1) is None
    assert pools.queue(pool, wish(serial=CLAIMS_MAX, wanted=1)) is None
    comb = pools.offer(pools.empty(1), tuple((2 * place, 1) for place in range(RUNS_MAX)))
    assert pools.claim(comb, wish(), 2) is not None
    wider = pools.offer(pools.empty(1), tuple((3 * place, 2) for place in range(RUNS_MAX)))
    assert pools.claim(wider, wish(), 1) is None, "it would split a run"


def test_the_largest_pool_fits_into_a_value() -> None:
    nodes = tuple((2**20 - 2 * (RUNS_MAX - place), 1) for place in range(RUNS_MAX))
    pool = pools.offer(pools.empty(2**53), nodes)
    claims = [
        Claim(
            1_000_000,
            2**53 - serial,
            2**53,
            (2**53, 1_000_000, 2**53 - serial),
            63,
            wanted=NODES_MAX,
            aside=True,
        )
        for serial in range(CLAIMS_MAX)
    ]
    full = Pool(1, 2**53, 2**53, pool.offers, tuple(claims))
    assert pools.faults(full) == ""
    assert len(encode(full)) <= 16 * 1024


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ((Claim(2, 1, 1, (1, 2, 1), 0, ((5, 6),)),), "twice"),
        ((Claim(2, 1, 1, (1, 2, 1), 0, ((20, 2), (22, 1))),), "runs"),
        ((Claim(2, 1, 1, (1, 2, 1), 0),), "empty"),
        ((Claim(2, 1, 1, (1, 2, 1), 0, ((20, 4),), wanted=3),), "holds 4"),
        ((Claim(2, 1, 1, (1, 2, 1), 0, wanted=3),), "waits for them"),
        ((Claim(2, 1, 1, (1, 2, 1), 0, ((20, 1),)), Claim(2, 1, 1, (1, 2, 1), 0, ((21, 1),))), "one name"),
    ],
)
def test_a_pool_that_makes_no_sense_is_unreadable(claims: tuple[Claim, ...], reason: str) -> None:
    keys = Keys("lab")
    reader: Reader[Pool] = Reader(Pool, keys.pool)
    good = offered()
    assert reader.read(keys.pool + "beta", encode(good)) == good
    bad = Pool(1, 1, 1, good.offers, claims)
    read = reader.read(keys.pool + "beta", encode(bad))
    assert isinstance(read, Unreadable) and reason in read.reason
