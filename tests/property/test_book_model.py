"""The book of the future against a dense array: every node at every instant, no cleverness (C-18, C-26, C-31..C-36)."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_request
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment, Closure
from eslurm.core.plan.profile import slots
from eslurm.core.plan.profile.profile import ProfileError, ResourceProfile
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.timeline import INFINITY_US, Slot, Timeline
from eslurm.core.resources.vector import Vector

SPAN = 16
"""Instants; what is free at the last stays so for ever."""
LICENCES = 4
PARTITION = PartitionView("main")
GPU = Resource("gpu", devices=True)
LICENCE = Resource("matlab", wide_total=LICENCES)

Spans: TypeAlias = tuple[tuple[int, Vector], ...]
Booking: TypeAlias = tuple[Spans, int, int, Vector]


def stop_of(end: int) -> int:
    return INFINITY_US if end >= SPAN else end


def end_of(stop_us: int) -> int:
    return min(stop_us, SPAN)


class Dense:
    """Free amounts of each node at each instant."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.usable = topology.usable
        self.free = [[total] * SPAN for total in topology.totals]
        self.wide = [LICENCES] * SPAN

    def shift(self, booking: Booking, now: int, sign: int) -> bool:
        spans, start, stop, wide = booking
        free = [row.copy() for row in self.free]
        licences = self.wide.copy()
        for at in range(max(start, now), end_of(stop)):
            for node, amounts in spans:
                position = self.topology.positions[node]
                free[position][at] = tuple(
                    a + sign * b for a, b in zip(free[position][at], amounts, strict=True)
                )
            licences[at] += sign * sum(wide)
        for position, row in enumerate(free):
            for amounts in row:
                for entry, most in zip(amounts, self.topology.totals[position], strict=True):
                    if not 0 <= entry <= most:
                        return False
        if not all(0 <= items <= LICENCES for items in licences):
            return False
        self.free, self.wide = free, licences
        return True

    def room(self, start: int, stop: int, closed: tuple[Closure, ...] = ()) -> DenseRoom:
        return DenseRoom(self, start, end_of(stop), closed)

    def earliest(
        self, need: CompiledRequest, duration: int, start: int, until: int, closed: tuple[Closure, ...]
    ) -> tuple[int, Assignment] | None:
        for at in range(start, SPAN):
            stop = min(at + duration, INFINITY_US)
            if stop > until:
                return None
            chosen = choose(self.room(at, stop, closed), need)
            if chosen is not None:
                return at, chosen
        return None


class DenseRoom:
    def __init__(self, dense: Dense, start: int, end: int, closed: tuple[Closure, ...]) -> None:
        self.topology = dense.topology
        self._rows = [row[start:end] for row in dense.free]
        self.usable = dense.usable
        for closure in closed:
            if closure.start_us < end and start < closure.stop_us:
                self.usable &= ~closure.mask
        self.wide_free: Vector = (min(dense.wide[start:end]),)
        totals = dense.topology.totals
        self.idle = sum(1 << p for p, row in enumerate(self._rows) if all(free == totals[p] for free in row))

    def free_on(self, position: int) -> Vector:
        return tuple(min(entries) for entries in zip(*self._rows[position], strict=True))

    def fitting(self, amounts: Vector) -> int:
        found = 0
        for position in range(self.topology.size):
            if all(a <= b for a, b in zip(amounts, self.free_on(position), strict=True)):
                found |= 1 << position
        return found


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    kinds = [(4, 8, 0), (4, 8, 0), (4, 8, 0), (2, 16, 0), (8, 8, 2)]
    totals = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=5))
    return Topology(
        [NodeView(100 - i, f"n{i}", total, True, ("main",)) for i, total in enumerate(totals)],
        resources=(GPU, LICENCE),
    )


@st.composite
def bookings(draw: st.DrawFn, topology: Topology, now: int = 0) -> Booking:
    positions = draw(st.sets(st.integers(0, topology.size - 1), min_size=1))
    same = draw(st.sampled_from([(1, 1, 0), (1, 2, 0), (2, 3, 0), (4, 0, 0), (1, 4, 1)]))
    whole = draw(st.booleans())
    spans = tuple(
        (topology.numbers[position], topology.totals[position] if whole else same) for position in positions
    )
    start = draw(st.integers(now, SPAN - 1))
    end = draw(st.integers(start + 1, SPAN))
    return spans, start, stop_of(end), draw(st.sampled_from([(), (), (1,), (2,)]))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    wide = draw(st.sampled_from([(), (), (("matlab", 1),), (("matlab", 3),)]))
    exclusive = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        chunks = tuple(
            Chunk(
                count=draw(st.integers(1, 2)),
                cores=draw(st.integers(1, 3)),
                memory_mib=draw(st.integers(0, 3)),
            )
            for _ in range(draw(st.integers(1, 2)))
        )
        return Request(chunks=chunks, wide=wide, exclusive=exclusive)
    nodes_min = draw(st.integers(0, 3))
    return Request(
        tasks=draw(st.integers(1, 6)),
        cpus_per_task=draw(st.integers(1, 3)),
        nodes_min=nodes_min,
        nodes_max=draw(st.integers(nodes_min, 4)) if nodes_min else 0,
        memory_per_node_mib=draw(st.integers(0, 6)),
        per_node=draw(st.sampled_from([(), (), (("gpu", 1),)])),
        exclusive=exclusive,
        wide=wide,
    )


@st.composite
def closures(draw: st.DrawFn, topology: Topology) -> tuple[Closure, ...]:
    found = []
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, SPAN - 1))
        stop = draw(st.integers(start + 1, SPAN))
        found.append(Closure(start, stop_of(stop), draw(st.integers(1, topology.everything)), "test"))
    return tuple(sorted(found, key=lambda closure: closure.start_us))


def assert_same(book: ResourceProfile, dense: Dense, now: int) -> None:
    book.check()
    topology = dense.topology
    for at in range(now, SPAN):
        assert [book.free_on(node, at, at + 1) for node in topology.numbers] == [
            row[at] for row in dense.free
        ]
    for resource in range(3):
        used = book.used(resource)
        used.check()
        for at in range(now, SPAN):
            have = sum(total[resource] for total in topology.totals)
            assert used.used_at(at) == have - sum(row[at][resource] for row in dense.free)
    assert [book.wide_used(0).free_at(at) for at in range(now, SPAN)] == dense.wide[now:]


def assert_asks_the_same(data: st.DataObject, book: ResourceProfile, dense: Dense, now: int) -> None:
    """Questions in between, so that rows exist before bookings change them."""
    topology = dense.topology
    need = compile_request(data.draw(requests()), PARTITION, topology)
    note(f"{need}")
    start = data.draw(st.integers(now, SPAN - 1))
    duration = data.draw(st.sampled_from([1, 2, 3, 5, 8, INFINITY_US]))
    until = data.draw(st.sampled_from([INFINITY_US, INFINITY_US, SPAN - 3]))
    closed = data.draw(closures(topology))
    expected = dense.earliest(need, duration, start, until, closed)
    assert book.earliest(need, duration, start, until, closed) == expected
    stop = min(start + duration, INFINITY_US)
    seen, naive = book.room(start, stop, closed), dense.room(start, stop, closed)
    assert book.fits_at(need, start, duration, closed) == choose(naive, need)
    assert (seen.usable, seen.idle, seen.wide_free) == (
        naive.usable,
        naive.idle & naive.usable,
        naive.wide_free,
    )
    amounts = data.draw(st.sampled_from([(0, 0, 0), (1, 0, 0), (1, 3, 0), (2, 7, 0), (3, 5, 1), (4, 8, 0)]))
    assert seen.fitting(amounts) == naive.fitting(amounts) & naive.usable
    for position in range(topology.size):
        assert seen.free_on(position) == naive.free_on(position)


@given(st.data(), st.booleans())
def test_any_history_agrees_with_the_model(data: st.DataObject, few_rows: bool) -> None:
    """With rows for every amount that is asked about, and with so few that answers lie between two of them."""
    with pytest.MonkeyPatch.context() as patch:
        if few_rows:
            patch.setattr(slots, "ROWS_MAX", 2)
            patch.setattr(slots, "ROW_IDLE_ASKS", 3)
            patch.setattr(slots, "MISSES_MAX", 1)
            patch.setattr(slots, "CROSSED_MAX", 2)
        follow_a_history(data)


def follow_a_history(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    book, dense, now = ResourceProfile(topology, (LICENCES,), now_us=0), Dense(topology), 0
    live: list[Booking] = []
    for _ in range(data.draw(st.integers(1, 10))):
        act = data.draw(
            st.sampled_from(["book", "book", "book", "revoke", "usable", "advance", "ask", "copy"])
        )
        if act == "book":
            booking = data.draw(bookings(topology, now))
            if dense.shift(booking, now, -1):
                book.book(*booking)
                live.append(booking)
            else:
                with pytest.raises(ProfileError):
                    book.book(*booking)
        elif act == "revoke" and live:
            booking = live.pop(data.draw(st.integers(0, len(live) - 1)))
            assert dense.shift(booking, now, 1)
            book.revoke(*booking)
        elif act == "usable":
            position = data.draw(st.integers(0, topology.size - 1))
            on = data.draw(st.booleans())
            book.set_usable(topology.numbers[position], on)
            dense.usable = dense.usable | 1 << position if on else dense.usable & ~(1 << position)
        elif act == "advance":
            now = data.draw(st.integers(now, SPAN - 1))
            book.advance(now)
            assert book.now_us == now
        elif act == "copy":
            left, book = book, book.copy()
            for booking in live:
                left.revoke(*booking)
            left.check()
            assert left.slots == 1
        assert_asks_the_same(data, book, dense, now)
        assert_same(book, dense, now)
    for booking in live:
        book.revoke(*booking)
    book.check()
    assert book.slots == 1


@given(st.data())
def test_a_coarse_book_never_promises_what_is_not_free_and_gives_everything_back(data: st.DataObject) -> None:
    """With hardly any slots: bookings last longer than asked, by less than the grain, and never clash."""
    topology = data.draw(topologies())
    book, dense, now = ResourceProfile(topology, (LICENCES,), now_us=0, slots_max=2), Dense(topology), 0
    live: list[Booking] = []
    for _ in range(data.draw(st.integers(1, 12))):
        if live and data.draw(st.integers(0, 3)) == 0:
            booking = live.pop(data.draw(st.integers(0, len(live) - 1)))
            assert dense.shift(booking, now, 1)
            book.revoke(*booking)
        elif data.draw(st.integers(0, 5)) == 0:
            now = data.draw(st.integers(now, SPAN - 1))
            book.advance(now)
        else:
            need = compile_request(data.draw(requests()), PARTITION, topology)
            duration = data.draw(st.integers(1, 5))
            found = book.earliest(need, duration, data.draw(st.integers(now, SPAN - 1)))
            if found is not None and found[0] + duration < SPAN:
                start, chosen = found
                spans = tuple(
                    (topology.numbers[p], topology.totals[p] if need.exclusive else amounts)
                    for p, amounts, _ in chosen
                )
                booking = (spans, start, start + duration, need.wide)
                assert dense.shift(booking, now, -1)
                book.book(*booking)
                live.append(booking)
        book.check()
        for at in range(now, SPAN):
            for node, row in zip(topology.numbers, dense.free, strict=True):
                free = book.free_on(node, at, at + 1)
                assert all(a <= b for a, b in zip(free, row[at], strict=True))
    for booking in live:
        book.revoke(*booking)
    book.check()
    assert book.slots == 1
    assert book.used(0) == Timeline(sum(total[0] for total in topology.totals))


@given(st.data())
def test_booking_and_revoking_is_identity(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    book, dense = ResourceProfile(topology, (LICENCES,), now_us=0), Dense(topology)
    for _ in range(data.draw(st.integers(0, 4))):
        booking = data.draw(bookings(topology))
        if dense.shift(booking, 0, -1):
            book.book(*booking)
    extra = data.draw(bookings(topology))
    before = [book.used(resource) for resource in range(3)], book.wide_used(0), book.slots
    if dense.shift(extra, 0, -1):
        book.book(*extra)
        assert book.slots >= before[2]
        book.revoke(*extra)
        assert dense.shift(extra, 0, 1)
    assert ([book.used(resource) for resource in range(3)], book.wide_used(0), book.slots) == before
    assert_same(book, dense, 0)


@given(st.data())
def test_what_was_never_booked_is_not_revoked(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    book, dense = ResourceProfile(topology, (LICENCES,), now_us=0), Dense(topology)
    with pytest.raises(ProfileError):
        book.revoke(*data.draw(bookings(topology)))
    assert_same(book, dense, 0)


def test_the_sum_of_a_system_is_a_timeline_in_canonical_form() -> None:
    topology = Topology([NodeView(i, f"n{i}", (4, 8), True, ("main",)) for i in range(3)])
    book = ResourceProfile(topology, now_us=0)
    book.book([(0, (2, 1)), (1, (1, 1))], 5, 10)
    book.book([(2, (3, 0))], 10, INFINITY_US)
    assert book.used(0).slots() == (Slot(5, INFINITY_US, 3),)
    assert book.used(1).slots() == (Slot(5, 10, 2),)
