"""Parts of one job placed together, against brute force: every way to put every part on every node, on small clusters."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_job
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.feasible_parts import feasible_together
from eslurm.core.plan.placement.mapping import choose, satisfies, spans_of
from eslurm.core.plan.placement.protocols import Closure, JointAssignment, shut
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, add, fits, subtract
from tests.kits.naive_joint import Part, is_possible
from tests.support.profiles import draws

RESOURCES = (Resource("gpu", devices=True), Resource("matlab", wide_total=3))
TOTALS = [(4, 8, 0), (4, 8, 2), (6, 16, 0), (8, 12, 4)]
SPAN = 8
MISSED_AT_MOST = 0.01


def cluster(draw: random.Random, *, disjoint: bool = False) -> Ledger:
    """2 to 4 nodes, partly held, in the partitions a and b, which share nodes unless `disjoint`."""
    nodes = []
    for number in range(draw.randint(2, 4)):
        partitions = draw.choice([("a",), ("b",)] if disjoint else [("a",), ("b",), ("a", "b"), ("a", "b")])
        features = tuple(feature for feature in ("ib", "old") if draw.random() < 0.5)
        nodes.append(NodeView(number, f"n{number}", draw.choice(TOTALS), True, partitions, features))
    ledger = Ledger(Topology(nodes, resources=RESOURCES))
    for node in nodes:
        held = tuple(draw.choice([0, 0, 0, draw.randint(0, amount // 2)]) for amount in node.total)
        if any(held):
            ledger.hold(node.number, held)
    ledger.hold_wide((draw.randint(0, 2),))
    return ledger


def request(draw: random.Random, ledger: Ledger, partition: str, *, single: bool) -> Request:
    """A part of some tasks or chunks; with `single` of one node."""
    common = {
        "exclusive": draw.random() < 0.15,
        "wide": draw.choice([(), (), (), (("matlab", 1),)]),
        "constraint": draw.choice([*[""] * 8, "ib", "!old"]),
    }
    topology = ledger.topology
    members = [
        name
        for name, at in topology.positions_by_name.items()
        if topology.partitions.get(partition, 0) >> at & 1
    ]
    include = (draw.choice(members),) if members and draw.random() < 0.1 else ()
    if draw.random() < 0.2:
        chunks = tuple(
            Chunk(1 if single else draw.randint(1, 2), draw.randint(1, 3), draw.choice([0, 3]))
            for _ in range(draw.randint(1, 2))
        )
        place = "pack" if single else draw.choice(["free", "pack", "scatter"])
        tasks = sum(chunk.count for chunk in chunks)
        return Request(tasks=tasks, chunks=chunks, place=place, include=include, **common)  # type: ignore[arg-type]
    nodes = 1 if single else draw.choice([0, 0, 1, 2, 3])
    tasks = draw.randint(max(nodes, 1), 4)
    most = nodes if single or not nodes else draw.choice([nodes, nodes, min(nodes + 1, tasks)])
    return Request(
        tasks=tasks,
        cpus_per_task=draw.randint(1, 2),
        nodes_min=nodes,
        nodes_max=most,
        memory_per_node_mib=draw.choice([0, 0, 3, 6]),
        per_node=draw.choice([(), (), (), (("gpu", 1),)]),
        include=include,
        **common,  # type: ignore[arg-type]
    )


def parts_of(draw: random.Random, ledger: Ledger, kind: str) -> list[Part]:
    """Two to four parts; `kind`: disjoint (one in each partition), single (of one node each), any."""
    names = ["a", "b"] if kind == "disjoint" else [draw.choice("ab") for _ in range(draw.randint(2, 4))]
    return [(request(draw, ledger, name, single=kind == "single"), name) for name in names]


def compiled(parts: list[Part], topology: Topology) -> CompiledRequest:
    requests, names = [one for one, _ in parts], [name for _, name in parts]
    return compile_job(requests, [PartitionView(name) for name in names], topology)


def amounts_of(ledger: Ledger) -> tuple[list[Vector], int]:
    free = [ledger.free_on(position) for position in range(ledger.topology.size)]
    return free, ledger.wide_free[0]


def check(chosen: object, need: CompiledRequest, ledger: Ledger) -> None:
    """Never more than is free, the sums of the parts, whole nodes alone, and spans in the order of the parts."""
    assert isinstance(chosen, JointAssignment)
    topology = ledger.topology
    positions = [position for position, _, _ in chosen]
    assert positions == sorted(set(positions))
    sums: dict[int, Vector] = {}
    for one, own in zip(need.members, chosen.members, strict=True):
        mask = sum(1 << position for position, _, _ in own)
        assert not mask & ~one.allowed and not one.include & ~mask
        assert sum(tasks for _, _, tasks in own) == one.tasks or len(own) > one.tasks
        for position, amounts, _ in own:
            sums[position] = add(sums[position], amounts) if position in sums else amounts
            if one.exclusive:
                assert ledger.idle >> position & 1 and amounts == topology.totals[position]
    assert {position: amounts for position, amounts, _ in chosen} == sums
    for position, amounts in sums.items():
        assert fits(amounts, ledger.free_on(position))
    spans = spans_of(topology, need, chosen)
    keys = [(span.component, topology.positions[span.node]) for span in spans]
    assert keys == sorted(keys) and {component for component, _ in keys} == set(range(len(need.members)))
    assert satisfies(topology, need, spans, need.wide)
    for filters, one in [(one.filters, one) for one in need.members]:
        room = ledger.idle if one.exclusive else -1
        for asked, count in filters:
            assert (ledger.fitting(asked) & one.allowed & room).bit_count() >= count


def outcome(seed: int, kind: str) -> tuple[bool, bool]:
    """(found, possible) of one drawn case."""
    draw = random.Random(seed)
    ledger = cluster(draw, disjoint=kind == "disjoint")
    parts = parts_of(draw, ledger, kind)
    need = compiled(parts, ledger.topology)
    chosen = choose(ledger, need)
    if chosen is not None:
        check(chosen, need, ledger)
    return chosen is not None, is_possible(parts, *amounts_of(ledger), ledger)


@settings(max_examples=draws(600), deadline=None)
@given(st.integers(0, 1 << 60))
def test_parts_on_disjoint_nodes_are_placed_whenever_they_fit(seed: int) -> None:
    found, possible = outcome(seed, "disjoint")
    assert found == possible


@settings(max_examples=draws(600), deadline=None)
@given(st.integers(0, 1 << 60))
def test_parts_of_one_node_are_placed_whenever_they_fit_together(seed: int) -> None:
    found, possible = outcome(seed, "single")
    assert found == possible


def test_parts_that_share_nodes_are_missed_in_few_cases() -> None:
    outcomes = [outcome(seed, "any") for seed in range(draws(9_000))]
    assert not any(found and not possible for found, possible in outcomes)
    possible = sum(possible for _, possible in outcomes)
    missed = sum(possible and not found for found, possible in outcomes)
    assert possible > len(outcomes) // 8
    assert missed <= MISSED_AT_MOST * possible


def booked(draw: random.Random, ledger: Ledger) -> tuple[ResourceProfile, list[tuple[list[Vector], int]]]:
    """A profile with drawn bookings, and what is free at each instant; all ends before the last."""
    topology = ledger.topology
    book = ResourceProfile(topology, topology.wide_totals, now_us=0)
    free = [(list(topology.totals), 3) for _ in range(SPAN)]
    for _ in range(draw.randint(2, 7)):
        start = draw.randint(0, SPAN - 2)
        stop = draw.randint(start + 1, SPAN - 1)
        position = draw.randrange(topology.size)
        amounts = tuple(
            draw.choice([amount, draw.randint(0, amount)]) for amount in topology.totals[position]
        )
        wide = draw.choice([0, 0, 1])
        span = range(start, stop)
        if not all(fits(amounts, free[at][0][position]) and free[at][1] >= wide for at in span):
            continue
        for at in span:
            free[at][0][position] = subtract(free[at][0][position], amounts)
            free[at] = free[at][0], free[at][1] - wide
        book.book([(topology.numbers[position], amounts)], start, stop, (wide,))
    return book, free


def least(free: list[tuple[list[Vector], int]], start: int, stop: int) -> tuple[list[Vector], int]:
    """The amounts that are free throughout."""
    rows = free[start:stop] or free[-1:]
    each = [amounts for amounts, _ in rows]
    lows = [
        tuple(min(row[position][index] for row in each) for index in range(len(each[0][position])))
        for position in range(len(each[0]))
    ]
    return lows, min(wide for _, wide in rows)


def start_of(seed: int, kind: str) -> tuple[int | None, int | None]:
    """(the start found, the first instant at which all parts fit by trying)."""
    draw = random.Random(seed)
    ledger = empty_ledger(cluster(draw, disjoint=kind == "disjoint").topology)
    parts = parts_of(draw, ledger, kind)
    need = compiled(parts, ledger.topology)
    book, free = booked(draw, ledger)
    duration = draw.randint(1, 4)
    closed = (Closure(draw.randint(0, 4), draw.randint(4, 6), draw.randint(0, 15), "closed"),)
    found = book.earliest(need, duration, 0, closed=closed)
    naive: int | None = None
    for at in range(SPAN):
        open_nodes = sum(
            1 << position
            for position in range(ledger.topology.size)
            if not shut(closed, at, at + duration) >> position & 1
        )
        lows, wide = least(free, at, at + duration)
        # A closed node gives nothing, and no whole node either.
        lows = [low if open_nodes >> position & 1 else (0,) * len(low) for position, low in enumerate(lows)]
        if is_possible(parts, lows, wide, ledger):
            naive = at
            break
    if found is not None:
        lows, wide = least(free, found[0], found[0] + duration)
        sums = {position: amounts for position, amounts, _ in found[1]}
        assert all(fits(amounts, lows[position]) for position, amounts in sums.items())
        assert need.wide[0] <= wide
        assert not any(shut(closed, found[0], found[0] + duration) >> position & 1 for position in sums)
    return None if found is None else found[0], naive


@settings(max_examples=draws(400), deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(["disjoint", "single"]))
def test_a_job_starts_when_its_latest_part_can_begin(seed: int, kind: str) -> None:
    found, naive = start_of(seed, kind)
    assert found == naive


@settings(max_examples=draws(400), deadline=None)
@given(st.integers(0, 1 << 60))
def test_parts_that_share_nodes_never_start_before_they_fit(seed: int) -> None:
    found, naive = start_of(seed, "any")
    assert found is None or (naive is not None and found >= naive)


@settings(max_examples=draws(400), deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(["disjoint", "single", "any"]))
def test_parts_are_refused_only_if_they_never_fit_together(seed: int, kind: str) -> None:
    draw = random.Random(seed)
    empty = empty_ledger(cluster(draw, disjoint=kind == "disjoint").topology)
    parts = parts_of(draw, empty, kind)
    views = [PartitionView(name) for _, name in parts]
    if any(feasible_ever(one, view, empty) for (one, _), view in zip(parts, views, strict=True)):
        return
    verdict = feasible_together([one for one, _ in parts], views, empty)
    possible = is_possible(parts, *amounts_of(empty), empty)
    if verdict is not None:
        assert not possible
        assert verdict.asked > verdict.largest and ": " in verdict.reason
    elif kind != "any":
        assert possible


@settings(max_examples=draws(200), deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(["disjoint", "single", "any"]))
def test_an_earlier_start_is_never_ruled_out_wrongly(seed: int, kind: str) -> None:
    draw = random.Random(seed)
    ledger = empty_ledger(cluster(draw, disjoint=kind == "disjoint").topology)
    topology = ledger.topology
    book = ResourceProfile(topology, topology.wide_totals, now_us=0)
    booked: list[tuple[CompiledRequest, tuple[tuple[int, Vector], ...], int, int]] = []
    for _ in range(draw.randint(2, 10)):
        need, length = compiled(parts_of(draw, ledger, kind), topology), draw.randint(1, 6)
        found = book.earliest(need, length, draw.randint(0, 6))
        if found is not None:
            pairs = tuple([(topology.numbers[position], amounts) for position, amounts, _ in found[1]])
            book.book(pairs, found[0], found[0] + length, need.wide)
            booked.append((need, pairs, found[0], length))
    gone = [one for one in booked if draw.random() < 0.4]
    for need, pairs, start, length in gone:
        book.revoke(pairs, start, start + length, need.wide)
    for need, pairs, start, length in [one for one in booked if one not in gone]:
        bound = book.sooner_us(need, length, 0, ([node for node, _ in pairs], start))
        book.revoke(pairs, start, start + length, need.wide)
        found = book.earliest(need, length, 0)
        book.book(pairs, start, start + length, need.wide)
        book.check()
        if found is not None and found[0] < start:
            assert bound is not None and bound <= found[0]


@settings(max_examples=draws(200), deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(["single", "any"]))
def test_cores_that_are_kept_for_devices_stay_free_of_parts_without_one(seed: int, kind: str) -> None:
    draw = random.Random(seed)
    before = cluster(draw).topology
    nodes = [
        NodeView(
            number,
            f"n{number}",
            total,
            True,
            tuple([name for name, mask in before.partitions.items() if mask >> number & 1]),
            cores_for_devices=2 if total[2] else 0,
        )
        for number, total in enumerate(before.totals)
    ]
    ledger = Ledger(Topology(nodes, resources=RESOURCES))
    need = compiled(parts_of(draw, ledger, kind), ledger.topology)
    chosen = choose(ledger, need)
    if not isinstance(chosen, JointAssignment):
        return
    plain = [0] * ledger.topology.size
    for own in chosen.members:
        for position, amounts, _ in own:
            plain[position] += 0 if amounts[2] else amounts[0]
    for position, amounts, _ in chosen:
        free = ledger.free_on(position)
        assert fits(amounts, free)
        assert not plain[position] or plain[position] + nodes[position].cores_for_devices <= free[0]
