"""Membership: joining, its lease, its word that it is alive, wishes, and what it never writes."""

from __future__ import annotations

import random

import msgspec
import pytest

from eslurm.core.federation.actions import (
    Failure,
    GrantLease,
    KeepLease,
    List,
    Problem,
    RevokeLease,
    SwapKeys,
)
from eslurm.core.federation.member_changes import EPOCH_JUMP_MAX, Join
from eslurm.core.federation.membership import AGAIN_US, ECHO_US, Identity, Lead, Standing
from eslurm.core.federation.values import Reader, encode
from eslurm.core.model.federation import NUMBER_MAX, Alive, CellRecord, NextNumber
from eslurm.lab.kv.image import KvImage
from eslurm.ports.kv import Page
from tests.kits.federation import KEYS, LEASE_S, Controller, Network, put, remove

RECORD_KEY = f"{KEYS.cells}alpha"
ALIVE_KEY = f"{KEYS.alive}alpha"
SUMMARY_KEY = f"{KEYS.summary}alpha"


def network(*controllers: Controller) -> Network:
    one = Network(KvImage(), random.Random(1))
    one.faults = 0.0
    one.controllers += controllers
    return one


def record_of(net: Network, name: str = "alpha") -> CellRecord:
    entry = net.image.get(KEYS.cells + name).entry
    assert entry is not None
    record = Reader(CellRecord, KEYS.cells).read_entry(entry)
    assert isinstance(record, CellRecord), record
    return record


def alive_of(net: Network, name: str = "alpha") -> Alive | None:
    entry = net.image.get(KEYS.alive + name).entry
    if entry is None:
        return None
    alive = Reader(Alive, KEYS.alive).read_entry(entry)
    assert isinstance(alive, Alive), alive
    return alive


def joined(name: str = "alpha", epoch: int = 1) -> tuple[Network, Controller]:
    one = Controller(name, epoch)
    net = network(one)
    net.settle(3)
    assert one.membership.standing is Standing.MEMBER
    assert one.membership.problem == ""
    return net, one


def test_a_cell_joins_gets_a_number_and_is_alive() -> None:
    net, one = joined()
    assert record_of(net) == CellRecord(1, 1, "alpha", "alpha", b"ring of alpha", 1)
    assert alive_of(net) == Alive(1, 1, "host-alpha:1", (), "2.0", 3, 1)
    entry = net.image.get(ALIVE_KEY).entry
    assert entry is not None and entry.lease == one.membership.lease
    assert one.membership.number == 1


def test_a_controller_that_does_not_lead_asks_nothing() -> None:
    one = Controller("alpha")
    one.membership._lead = None
    for mirror in one.mirrors:
        mirror.is_listed = True
    assert one.membership.tick(0, 0.0) == ()


def test_cells_that_join_at_once_get_different_numbers() -> None:
    controllers = [Controller(name) for name in ("alpha", "beta", "gamma", "delta")]
    net = network(*controllers)
    net.settle(5)
    assert sorted(one.membership.number for one in controllers) == [1, 2, 3, 4]


def test_a_number_is_not_given_again_and_a_forged_counter_gives_no_twin() -> None:
    net, _ = joined()
    beta = Controller("beta")
    put(net.image, KEYS.number, encode(NextNumber(1, 1)))
    net.controllers.append(beta)
    net.settle(3)
    assert beta.membership.number == 2
    put(net.image, KEYS.number, encode(NextNumber(1, NUMBER_MAX)))
    for name, number in (("gamma", NUMBER_MAX), ("delta", 3)):
        one = Controller(name)
        net.controllers.append(one)
        net.settle(3)
        assert one.membership.number == number
    put(net.image, KEYS.number, b"\xc1 nonsense")
    last = Controller("epsilon")
    net.controllers.append(last)
    net.settle(3)
    assert last.membership.number == 4


def test_joining_waits_for_a_mirror_that_lacks_the_last_joining() -> None:
    net, one = joined()
    behind = Controller("beta")
    asked = behind.cells.tick(0, 0.0)
    assert isinstance(asked, List)
    behind.cells.listed(asked, Page((), 1, more=False), 0)
    record = msgspec.structs.replace(record_of(net), name="beta")
    join = Join(behind.membership.own, record, behind.cells)
    put(net.image, KEYS.number, encode(NextNumber(1, 1)))
    current = {KEYS.number: net.image.get(KEYS.number).entry, f"{KEYS.cells}beta": None}
    assert join.writes(current) == (), "number 1 would be that of two cells"
    caught_up = Join(behind.membership.own, record, one.cells)
    net.settle(1)
    writes = caught_up.writes(current)
    assert [write.key for write in writes] == [KEYS.number, f"{KEYS.cells}beta"]
    assert b"\x02" in (writes[1].value or b"")[:3]


def test_a_record_stays_that_of_its_cell_over_a_restart() -> None:
    net, one = joined()
    before = record_of(net)
    net.stop(one)
    net.settle(LEASE_S + 1)
    assert alive_of(net) is None
    again = Controller("alpha", 2)
    net.controllers.append(again)
    net.settle(3)
    assert again.membership.standing is Standing.MEMBER
    assert record_of(net) == before
    assert alive_of(net) is not None


def test_the_name_of_another_site_is_refused_with_the_way_out() -> None:
    net, _ = joined()
    other = Controller("alpha", 9, ring=b"another ring")
    net.controllers.append(other)
    net.settle(3)
    assert other.membership.standing is Standing.REFUSED
    assert "name of a cell of another site (cluster alpha" in other.membership.problem
    assert "choose another federation.cell" in other.membership.problem
    assert other.membership.lease == 0
    alive = alive_of(net)
    assert alive is not None and alive.epoch == 1
    # The name is free again when its record has been removed.
    net.controllers = [other]
    remove(net.image, RECORD_KEY)
    net.settle(3)
    assert other.membership.standing is Standing.MEMBER
    assert other.membership.number == 2


def test_a_higher_epoch_of_another_site_does_not_hide_whose_name_it_is() -> None:
    """Epochs of two sites compare to nothing: the controller said that it was superseded, for ever."""
    net, first = joined()
    net.stop(first)
    net.settle(LEASE_S + 1)
    newer = Controller("alpha", 7)
    net.controllers.append(newer)
    net.settle(3)
    other = Controller("alpha", 2, ring=b"another ring")
    net.controllers.append(other)
    net.settle(3)
    assert other.membership.standing is Standing.REFUSED
    assert "name of a cell of another site" in other.membership.problem
    net.stop(newer)
    net.settle(LEASE_S + 1)
    remove(net.image, RECORD_KEY)
    net.settle(3)
    assert other.membership.standing is Standing.MEMBER


@pytest.mark.parametrize(
    "value",
    [
        b"\xc1",
        b"x" * 20_000,
        msgspec.msgpack.encode(CellRecord(2, 1, "alpha", "alpha", b"ring of alpha", 1)),
        msgspec.msgpack.encode(CellRecord(1, 1, "beta", "alpha", b"ring of alpha", 1)),
    ],
)
def test_an_unreadable_record_of_this_cell_is_not_written_over(value: bytes) -> None:
    one = Controller("alpha")
    net = network(one)
    put(net.image, RECORD_KEY, value)
    net.settle(3)
    assert one.membership.standing is Standing.REFUSED
    assert f"remove the key {RECORD_KEY}" in one.membership.problem
    entry = net.image.get(RECORD_KEY).entry
    assert entry is not None and entry.value == value
    assert alive_of(net) is None


def test_unreadable_records_of_others_are_left_alone() -> None:
    net, one = joined()
    put(net.image, f"{KEYS.cells}beta", b"\xc1")
    put(net.image, f"{KEYS.cells}gamma", encode(record_of(net)))
    put(net.image, f"{KEYS.cells}../x", b"")
    net.settle(3)
    assert one.membership.standing is Standing.MEMBER
    view = one.view(net.now_us)
    assert {found.key for found in view.unreadable} == {
        f"{KEYS.cells}{name}" for name in ("beta", "gamma", "../x")
    }


def test_a_newer_leader_ends_the_former_one() -> None:
    net, one = joined()
    newer = Controller("alpha", 2)
    net.controllers.append(newer)
    net.settle(3)
    assert one.membership.standing is Standing.SUPERSEDED
    assert one.membership.problem == "epoch 2 leads cell alpha, this controller has epoch 1"
    assert one.membership.lease == 0
    assert newer.membership.standing is Standing.MEMBER
    assert net.image.get(SUMMARY_KEY).entry is not None, "the end of the former lease took the newer summary"
    # It stays so when the newer one is gone: only a new lead makes it write again.
    net.stop(newer)
    net.settle(LEASE_S + 2)
    assert alive_of(net) is None
    one.membership.leads(Lead(3, "host-alpha:3"))
    net.settle(3)
    assert one.membership.standing is Standing.MEMBER


def test_a_former_leader_that_looks_late_overwrites_nothing() -> None:
    net, one = joined()
    net.controllers = [Controller("alpha", 2)]
    net.settle(LEASE_S + 2)
    words = alive_of(net)
    # Its copy is old, its lease has ended: what it asks now fails, and it finds out.
    net.controllers.append(one)
    net.watches = [watch for watch in net.watches if watch.controller is not one]
    net.settle(3)
    assert alive_of(net) == words
    assert one.membership.standing is Standing.SUPERSEDED


@pytest.mark.parametrize(
    "value",
    [b"\xc1", msgspec.msgpack.encode(Alive(2, 9, "x:1")), encode(Alive(1, 1 + EPOCH_JUMP_MAX + 1, "x:1"))],
)
def test_a_forged_word_is_written_over(value: bytes) -> None:
    net, one = joined()
    put(net.image, ALIVE_KEY, value)
    net.settle(3)
    alive = alive_of(net)
    assert alive is not None and alive.endpoint == "host-alpha:1"
    assert one.membership.standing is Standing.MEMBER


def test_a_duel_over_a_word_is_slow() -> None:
    net, _ = joined()
    for _ in range(40):
        put(net.image, ALIVE_KEY, b"mine")
        net.settle(0.1)
    writes = sum(1 for _, action in net.made if any(write.key == ALIVE_KEY for write in action.then))
    assert writes <= 40 * 0.3 / (AGAIN_US / 1e6) + 3


def test_a_lost_lease_is_granted_again_at_most_once_a_second() -> None:
    net, one = joined()
    former, granted = one.membership.lease, 0
    for _ in range(20):
        net.image.revoke(one.membership.lease)
        before = one.membership.lease
        net.settle(0.2)
        granted += one.membership.lease not in (0, before)
    assert granted <= 20 * 0.4 + 1
    net.settle(5)
    assert one.membership.standing is Standing.MEMBER
    assert one.membership.lease != former
    assert alive_of(net) is not None


def test_a_lease_that_may_have_ended_is_away() -> None:
    net, one = joined()
    calls = []
    now_us = net.now_us
    for _ in range(int(LEASE_S * 10)):
        now_us += 100_000
        for action in one.membership.tick(now_us, 0.0):
            calls.append(action)
            one.membership.failed(action, Failure(Problem.UNAVAILABLE, "no member answers"), now_us)
    one.membership.tick(now_us + 1, 0.0)
    assert one.membership.standing is Standing.AWAY
    assert one.membership.problem == "no member answers"
    assert one.membership.lease
    assert len(calls) >= 4 and all(isinstance(action, KeepLease) for action in calls)
    net.settle(3)
    assert one.membership.standing is Standing.MEMBER


def test_its_lease_is_kept_four_times_in_its_life() -> None:
    net, one = joined()
    times = []
    now_us = net.now_us
    while now_us < net.now_us + 20_000_000:
        now_us += 50_000
        for action in one.membership.tick(now_us, 0.0):
            assert isinstance(action, KeepLease)
            times.append(now_us)
            one.membership.kept(action, LEASE_S, now_us)
    assert 14 <= len(times) <= 16


def test_wishes_are_written_and_stay_over_a_restart() -> None:
    net, one = joined()
    one.membership.change(draining=True)
    assert not one.membership.is_changed
    net.settle(2)
    assert one.membership.is_changed
    assert record_of(net).draining
    net.stop(one)
    again = Controller("alpha", 2)
    net.controllers.append(again)
    net.settle(3)
    assert record_of(net).draining
    again.membership.change(draining=False)
    net.settle(2)
    assert not record_of(net).draining
    assert again.membership.standing is Standing.MEMBER


def test_leaving_and_coming_back() -> None:
    net, one = joined()
    one.membership.change(left=True)
    net.settle(3)
    assert one.membership.standing is Standing.LEFT
    assert record_of(net).left
    assert alive_of(net) is None and net.image.get(SUMMARY_KEY).entry is None
    assert one.membership.is_changed and one.membership.lease == 0
    net.stop(one)
    again = Controller("alpha", 2)
    net.controllers.append(again)
    net.settle(3)
    assert again.membership.standing is Standing.LEFT, "it joins only when an administrator wishes it"
    again.membership.change(left=False)
    net.settle(3)
    assert again.membership.standing is Standing.MEMBER
    assert record_of(net).number == 1


def test_an_order_holds_over_what_the_store_says_later() -> None:
    """A former leader, a store from a backup, an editor: the administrator's word is the log's, not the store's."""
    net, one = joined()
    one.membership.change(left=True)
    net.settle(3)
    record = record_of(net)
    put(net.image, RECORD_KEY, encode(msgspec.structs.replace(record, left=False)))
    net.settle(5)
    assert one.membership.standing is Standing.LEFT and record_of(net).left and alive_of(net) is None
    remove(net.image, RECORD_KEY)
    net.settle(5)
    assert one.membership.standing is Standing.LEFT
    assert net.image.get(RECORD_KEY).entry is None, "a former member does not join again by itself"


def test_a_cell_that_leaves_while_another_site_has_its_name_has_left() -> None:
    net, _ = joined()
    other = Controller("alpha", 1, b"another site's")
    net.controllers.append(other)
    net.settle(3)
    assert other.membership.standing is Standing.REFUSED
    other.membership.change(left=True)
    net.settle(3)
    assert other.membership.standing is Standing.LEFT and not record_of(net).left


def test_the_number_of_a_cell_that_left_is_given_to_no_other() -> None:
    net, one = joined()
    one.membership.change(left=True)
    net.settle(3)
    other = Controller("beta")
    net.controllers.append(other)
    net.settle(3)
    assert (record_of(net).number, record_of(net, "beta").number) == (1, 2)


def test_a_cell_that_drains_joins_draining() -> None:
    one = Controller("alpha")
    one.membership.change(draining=True)
    net = network(one)
    net.settle(3)
    assert record_of(net).draining
    assert [action.then[1].value for _, action in net.made if RECORD_KEY in dict(action.expect)] == [
        encode(record_of(net))
    ]


def test_a_cell_that_never_joined_has_left_at_once() -> None:
    one = Controller("alpha")
    one.membership.change(left=True)
    net = network(one)
    net.settle(2)
    assert one.membership.standing is Standing.LEFT and one.membership.is_changed
    assert net.image.get(RECORD_KEY).entry is None


def test_a_newer_ring_of_the_site_is_written() -> None:
    net, one = joined()
    one.membership.own._is_own_ring = lambda sealed: sealed.startswith(b"ring of alpha")
    one.membership.identify(Identity("alpha", b"ring of alpha, newer", "2.1", 4))
    net.settle(3)
    assert record_of(net).ring == b"ring of alpha, newer"
    alive = alive_of(net)
    assert alive is not None and (alive.build, alive.protocol) == ("2.1", 4)


def test_what_others_could_not_read_is_refused_here() -> None:
    _, one = joined()
    with pytest.raises(ValueError, match="cannot show itself at"):
        one.membership.leads(Lead(1, "\x1b[2J"))
    with pytest.raises(ValueError, match="the ring of site alpha has 9000 bytes"):
        one.membership.identify(Identity("alpha", b"x" * 9_000))
    one.membership.leads(Lead(1, "host:1", tuple(f"h:{number}" for number in range(9))))


def test_stopping_revokes_the_lease() -> None:
    net, one = joined()
    one.membership.stop()
    net.settle(1)
    assert one.membership.is_stopped
    assert alive_of(net) is None and net.image.get(SUMMARY_KEY).entry is None
    assert record_of(net)


def test_stopping_ends_without_the_store() -> None:
    net, one = joined()
    one.membership.stop()
    (revoke,) = one.membership.tick(net.now_us, 0.0)
    assert isinstance(revoke, RevokeLease)
    assert not one.membership.is_stopped
    one.membership.failed(revoke, Failure(Problem.UNAVAILABLE, "no member answers"), net.now_us)
    assert one.membership.is_stopped


def test_a_word_that_does_not_come_back_makes_the_mirror_list_again() -> None:
    net, one = joined()
    # The watch is deaf: the store's signs of life come, its changes do not.
    net.watches.clear()
    one.membership.change(draining=True)
    now_us = net.now_us
    asked: list[List] = []
    while now_us < net.now_us + ECHO_US + 1_000_000 and not asked:
        now_us += 100_000
        for action in one.tick(now_us, 0.0):
            if isinstance(action, SwapKeys):
                net._make(one, action)(now_us)
            elif isinstance(action, KeepLease):
                one.membership.kept(action, LEASE_S, now_us)
            elif isinstance(action, List):
                asked.append(action)
    assert next(action.prefix for action in asked) in (KEYS.cells, KEYS.summary)
    assert now_us >= net.now_us + ECHO_US


def test_a_full_store_is_named_and_tried_again() -> None:
    net, one = joined()
    one.membership.change(draining=True)
    now_us = net.now_us
    for _ in range(200):
        now_us += 100_000
        for action in one.membership.tick(now_us, 0.9):
            if isinstance(action, SwapKeys) and action.then:
                one.membership.failed(action, Failure(Problem.FULL, "the quota is reached"), now_us)
            elif isinstance(action, SwapKeys):
                net._make(one, action)(now_us)
            elif isinstance(action, KeepLease):
                one.membership.kept(action, LEASE_S, now_us)
    assert one.membership.standing is Standing.MEMBER
    assert one.membership.problem == "the quota is reached"
    net.now_us = now_us
    net.calls.clear()
    net.settle(3)
    assert one.membership.problem == "" and record_of(net).draining


def test_answers_to_what_was_not_asked_are_ignored() -> None:
    net, one = joined()
    lease = one.membership.lease
    one.membership.granted(GrantLease(5.0), net.image.grant(5_000_000, net.now_us), net.now_us)
    one.membership.revoked(RevokeLease(lease))
    one.membership.failed(KeepLease(lease), Failure(Problem.LEASE_LOST, "gone"), net.now_us)
    one.membership.swapped(SwapKeys(()), net.image.swap([], []))
    assert one.membership.lease == lease
