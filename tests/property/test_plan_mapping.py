"""Mapping against brute force: every subset of nodes is tried, on small clusters."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.mapping import place
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector

PARTITION = PartitionView("main")
NAMES = [f"n{i}" for i in range(5)]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    nodes_min = draw(st.integers(0, 4))
    by_node = draw(st.booleans())
    memory = draw(st.integers(0, 6))
    return Request(
        tasks=draw(st.integers(1, 12)),
        cpus_per_task=draw(st.integers(1, 3)),
        nodes_min=nodes_min,
        nodes_max=draw(st.integers(nodes_min, 5)) if nodes_min else draw(st.sampled_from([0, 0, 1, 2])),
        tasks_per_node=draw(st.sampled_from([0, 0, 1, 2, 3])),
        memory_per_node_mib=memory if by_node else 0,
        memory_per_cpu_mib=0 if by_node else memory,
        exclusive=draw(st.booleans()),
        include=tuple(draw(st.sets(st.sampled_from(NAMES[:3]), max_size=1))),
        exclude=tuple(draw(st.sets(st.sampled_from(NAMES[3:]), max_size=1))),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Ledger:
    count = draw(st.integers(3, 5))
    totals: list[Vector] = [
        draw(st.sampled_from([(4, 8), (4, 8), (8, 8), (8, 24), (2, 4)])) for _ in range(count)
    ]
    member = [draw(st.sampled_from([True, True, True, False])) for _ in range(count)]
    usable = [draw(st.sampled_from([True, True, True, False])) for _ in range(count)]
    nodes = [
        NodeView(100 - i, NAMES[i], totals[i], usable[i], ("main",) if member[i] else ("other",))
        for i in range(count)
    ]
    ledger = Ledger(Topology(nodes))
    for i in range(count):
        cores = draw(st.integers(0, totals[i][0]))
        if cores:
            ledger.hold(100 - i, (cores, draw(st.integers(0, totals[i][1]))))
    return ledger


def capacity(request: Request, free: Vector) -> int:
    """Counts tasks up one by one."""
    count = 0
    while True:
        cores = (count + 1) * request.cpus_per_task
        memory = request.memory_per_node_mib or cores * request.memory_per_cpu_mib
        if cores > free[0] or memory > free[1]:
            return count
        if request.tasks_per_node and count == request.tasks_per_node:
            return count
        count += 1


def candidates(request: Request, ledger: Ledger, *, ever: bool = False) -> dict[int, int]:
    """Position -> capacity of the nodes the request may use and that take at least one task."""
    topology = ledger.topology
    found = {}
    for position, name in enumerate(topology.names):
        total = topology.totals[position]
        free = total if ever else ledger.free_on(position)
        in_service = ever or bool((ledger.usable >> position) & 1)
        inside = bool((topology.partitions.get("main", 0) >> position) & 1)
        if not in_service or not inside or name in request.exclude:
            continue
        if request.exclusive and free != total:
            continue
        room = capacity(request, free)
        if room:
            found[position] = room
    return found


def smallest_width(request: Request, room: dict[int, int], topology: Topology) -> int | None:
    """The fewest nodes that take all tasks and include the required ones; None: no subset does."""
    required = {topology.names.index(name) for name in request.include if name in topology.names}
    if len(required) < len(request.include):
        return None
    most = request.nodes_max or len(room)
    for width in range(max(1, request.nodes_min), most + 1):
        for chosen in combinations(room, width):
            if required <= set(chosen) and sum(room[p] for p in chosen) >= request.tasks:
                return width
    return None


def widest(request: Request, room: dict[int, int]) -> int:
    if request.tasks == 1:
        return min(len(room), request.nodes_max)
    return min(len(room), request.nodes_max, max(request.nodes_min, request.tasks))


@given(requests(), clusters())
def test_a_request_is_placed_exactly_when_some_subset_of_nodes_takes_it(
    request: Request, ledger: Ledger
) -> None:
    topology = ledger.topology
    room = candidates(request, ledger)
    expected = smallest_width(request, room, topology)
    spans = place(ledger, compile_request(request, PARTITION, topology))
    if expected is None:
        assert spans is None
        return
    assert spans is not None

    positions = [topology.positions[span.node] for span in spans]
    assert positions == sorted(set(positions))
    assert set(positions) <= set(room)
    names = {topology.names[position] for position in positions}
    assert set(request.include) <= names
    assert not set(request.exclude) & names

    assert sum(span.tasks for span in spans) == request.tasks
    for position, span in zip(positions, spans, strict=True):
        assert 0 <= span.tasks <= room[position]
        count = max(1, span.tasks)
        cores = count * request.cpus_per_task
        memory = request.memory_per_node_mib or cores * request.memory_per_cpu_mib
        total = topology.totals[position]
        assert span.amounts == (total if request.exclusive else (cores, memory))
        assert ledger.fits_on(span.node, span.amounts)

    if request.nodes_min == 0:
        assert len(spans) == expected
    else:
        assert len(spans) == widest(request, room)
        share, more = divmod(request.tasks, len(spans))
        if all(value >= share + (1 if more else 0) for value in room.values()):
            assert [span.tasks for span in spans] == [share + (i < more) for i in range(len(spans))]


@given(requests(), clusters())
def test_more_free_never_makes_a_fitting_request_unfit(request: Request, ledger: Ledger) -> None:
    need = compile_request(request, PARTITION, ledger.topology)
    if place(ledger, need) is None:
        return
    number = ledger.topology.numbers[0]
    for until_us, amounts in ledger.holds_on(0):
        ledger.give_back(number, amounts, until_us)
    ledger.set_usable(number, True)
    assert place(ledger, need) is not None


@given(requests(), clusters())
def test_feasible_ever_agrees_with_brute_force_and_names_a_bound(request: Request, ledger: Ledger) -> None:
    topology = ledger.topology
    room = candidates(request, ledger, ever=True)
    verdict = feasible_ever(request, PARTITION, empty_ledger(topology))
    if smallest_width(request, room, topology) is not None:
        assert verdict is None
        return
    assert verdict is not None
    assert verdict.reason
    assert verdict.asked > verdict.largest
    assert verdict.resource in {"cores", "memory_mib", "nodes", "tasks"}


@given(requests(), clusters(), st.sets(st.integers(96, 100), max_size=2))
def test_avoided_nodes_are_never_given(request: Request, ledger: Ledger, avoid: set[int]) -> None:
    spans = place(ledger, compile_request(request, PARTITION, ledger.topology, avoid))
    assert spans is None or not avoid & {span.node for span in spans}
