"""Mapping of chunks and devices against brute force: every way to put every chunk on every node, on small clusters."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_request
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.mapping import choose, place
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, add, fits, subtract
from tests.support.profiles import draws

PARTITION = PartitionView("main")
RESOURCES = (Resource("gpu", devices=True), Resource("matlab", wide_total=3))
TOTALS = [(4, 8, 0), (4, 8, 2), (8, 16, 0), (8, 8, 4)]

chunks = st.builds(
    lambda count, cores, memory, gpus, feature: Chunk(
        count, cores, memory, (("gpu", gpus),) if gpus else (), feature
    ),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from([0, 0, 1, 2]),
    st.sampled_from(["", "", "ib", "!ib", "ib|old"]),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    parts = draw(
        st.lists(chunks, min_size=1, max_size=3).filter(lambda found: sum(c.count for c in found) <= 5)
    )
    tasks = sum(chunk.count for chunk in parts)
    named = draw(st.sampled_from([(), (), (), ("n0",), ("n1",), ("n0", "n1")]))
    return Request(
        tasks=tasks,
        chunks=tuple(parts),
        place=draw(st.sampled_from(["free", "pack", "scatter"])),
        exclusive=draw(st.sampled_from([False, False, True])),
        wide=draw(st.sampled_from([(), (("matlab", 2),)])),
        # One chunk with several nodes takes the room of one on each.
        include=named[:tasks],
    )


@st.composite
def clusters(draw: st.DrawFn) -> Ledger:
    count = draw(st.integers(2, 4))
    kept = draw(st.sampled_from([0, 0, 2]))
    nodes = []
    for number in range(count):
        total = draw(st.sampled_from(TOTALS))
        features = tuple(draw(st.sets(st.sampled_from(["ib", "old"]))))
        spare = kept if total[2] else 0
        nodes.append(
            NodeView(number, f"n{number}", total, True, ("main",), features, cores_for_devices=spare)
        )
    ledger = Ledger(Topology(nodes, resources=RESOURCES))
    for node in nodes:
        held = tuple(draw(st.integers(0, amount // 2)) for amount in node.total)
        if any(held):
            ledger.hold(node.number, held)
    ledger.hold_wide((draw(st.integers(0, 3)),))
    return ledger


class Brute:
    """The amounts that a node may give to a chunk, and every whole assignment, by trying."""

    def __init__(self, request: Request, ledger: Ledger) -> None:
        self.request = request
        self.ledger = ledger
        self.topology = ledger.topology
        self.units = [self._unit(chunk) for chunk in request.chunks]
        self.kinds = [kind for kind, chunk in enumerate(request.chunks) for _ in range(chunk.count)]
        self.named = {ledger.topology.positions_by_name[name] for name in request.include}
        self.positions = [p for p in range(self.topology.size) if self._is_open(p)]

    def _unit(self, chunk: Chunk) -> Vector:
        return (chunk.cores, chunk.memory_mib, dict(chunk.resources).get("gpu", 0))

    def _kept(self, position: int) -> int:
        return sum(cores for cores, mask in self.topology.kept if (mask >> position) & 1)

    def _is_open(self, position: int) -> bool:
        return not self.request.exclusive or bool((self.ledger.idle >> position) & 1)

    def _may_use(self, kind: int, position: int) -> bool:
        features = self.topology.features_on(position)
        wanted = {
            "": True,
            "ib": "ib" in features,
            "!ib": "ib" not in features,
            "ib|old": "ib" in features or "old" in features,
        }
        if not wanted[self.request.chunks[kind].constraint]:
            return False
        plain = not self.units[kind][2]
        return not (plain and self.request.exclusive and self._kept(position))

    def takes(self, position: int, kinds: list[int]) -> bool:
        """Check that the node takes all of these: chunks without a device leave the kept cores to those with one."""
        together: Vector = (0, 0, 0)
        plain_cores = 0
        for kind in kinds:
            if not self._may_use(kind, position):
                return False
            together = add(together, self.units[kind])
            plain_cores += 0 if self.units[kind][2] else self.units[kind][0]
        free = self.ledger.free_on(position)
        if not fits(together, free):
            return False
        if self.request.place == "pack" and together[2]:
            return True
        return not plain_cores or plain_cores + self._kept(position) <= free[0]

    def assignments(self) -> list[tuple[int, ...]]:
        """Each whole assignment: the position of each chunk."""
        if self.request.wide and self.ledger.wide_free[0] < 2:
            return []
        found = []
        for places in product(self.positions, repeat=len(self.kinds)):
            if self.request.place == "scatter" and len(set(places)) < len(places):
                continue
            if self.request.place == "pack" and len(set(places)) > 1:
                continue
            if not self.named <= set(places):
                continue
            if all(
                self.takes(p, [kind for kind, at in zip(self.kinds, places, strict=True) if at == p])
                for p in set(places)
            ):
                found.append(places)
        return found

    def is_whole(self, chosen: Assignment) -> bool:
        """Check that the choice is some assignment of whole chunks."""
        wanted = {position: (amounts, tasks) for position, amounts, tasks in chosen}
        for places in product(sorted(wanted), repeat=len(self.kinds)):
            given: dict[int, tuple[Vector, int]] = dict.fromkeys(wanted, ((0, 0, 0), 0))
            for kind, position in zip(self.kinds, places, strict=True):
                amounts, tasks = given[position]
                given[position] = (add(amounts, self.units[kind]), tasks + 1)
            if given == wanted:
                return True
        return False


def compiled(request: Request, ledger: Ledger) -> CompiledRequest:
    return compile_request(request, PARTITION, ledger.topology)


@settings(max_examples=draws(300), deadline=None)
@given(requests(), clusters())
def test_chunks_are_placed_whole_and_found_whenever_there_is_a_place(
    request: Request, ledger: Ledger
) -> None:
    brute = Brute(request, ledger)
    possible = brute.assignments()
    chosen = choose(ledger, compiled(request, ledger))
    if chosen is None:
        assert not possible
        return
    assert possible
    positions = [position for position, _, _ in chosen]
    assert positions == sorted(set(positions))
    assert brute.is_whole(chosen)
    if request.place == "scatter":
        assert all(tasks == 1 for _, _, tasks in chosen)
    for position, amounts, _ in chosen:
        assert fits(amounts, ledger.free_on(position))


@settings(max_examples=draws(200), deadline=None)
@given(requests(), clusters())
def test_what_a_need_calls_necessary_is(request: Request, ledger: Ledger) -> None:
    need = compiled(request, ledger)
    chosen = choose(ledger, need)
    if chosen is None:
        return
    together: Vector = (0, 0, 0)
    for _, amounts, _ in chosen:
        together = add(together, amounts)
    assert fits(need.floor, together)
    for amounts, nodes in need.filters:
        assert (ledger.fitting(amounts) & need.allowed).bit_count() >= nodes


@settings(max_examples=draws(200), deadline=None)
@given(requests(), clusters())
def test_more_free_never_makes_chunks_unfit(request: Request, ledger: Ledger) -> None:
    need = compiled(request, ledger)
    if choose(ledger, need) is None:
        return
    for until_us, amounts in ledger.holds_on(0):
        ledger.give_back(ledger.topology.numbers[0], amounts, until_us)
    assert choose(ledger, need) is not None


@settings(max_examples=draws(200), deadline=None)
@given(requests(), clusters())
def test_what_never_fits_is_told_with_a_bound(request: Request, ledger: Ledger) -> None:
    empty = empty_ledger(ledger.topology)
    verdict = feasible_ever(request, PARTITION, empty)
    possible = Brute(request, empty).assignments()
    if verdict is None:
        assert possible
    else:
        assert verdict.asked > verdict.largest
        assert ": " in verdict.reason
        assert not possible


@st.composite
def gpu_tasks(draw: st.DrawFn) -> Request:
    nodes_min = draw(st.integers(0, 3))
    by_task = draw(st.booleans())
    gpus = draw(st.integers(0, 2))
    return Request(
        tasks=draw(st.integers(1, 6)),
        cpus_per_task=draw(st.integers(1, 3)),
        nodes_min=nodes_min,
        nodes_max=nodes_min,
        per_task=(("gpu", gpus),) if gpus and by_task else (),
        per_node=(("gpu", gpus),) if gpus and not by_task else (),
    )


def room_for(request: Request, ledger: Ledger, position: int) -> int:
    free = ledger.free_on(position)
    asks = bool(request.per_task or request.per_node)
    kept = sum(cores for cores, mask in ledger.topology.kept if (mask >> position) & 1) if not asks else 0
    count = 0
    while True:
        tasks = count + 1
        gpus = sum(items for _, items in request.per_node) + tasks * sum(
            items for _, items in request.per_task
        )
        if tasks * request.cpus_per_task > free[0] - kept or gpus > free[2] or count > 10:
            return count
        count = tasks


@settings(max_examples=draws(200), deadline=None)
@given(gpu_tasks(), clusters())
def test_tasks_with_devices_fit_exactly_when_the_widest_nodes_take_them(
    request: Request, ledger: Ledger
) -> None:
    rooms = sorted((room_for(request, ledger, p) for p in range(ledger.topology.size)), reverse=True)
    rooms = [room for room in rooms if room]
    width = request.nodes_min or len(rooms)
    tasks = max(request.tasks, request.nodes_min) if request.tasks > 1 else request.tasks
    expected = len(rooms) >= max(width, 1) and sum(rooms[:width]) >= tasks
    spans = place(ledger, compiled(request, ledger))
    if request.tasks > 1 and request.tasks < request.nodes_min:
        return
    assert (spans is not None) == expected
    for span in spans or ():
        before = ledger.free(span.node)
        assert min(subtract(before, span.amounts)) >= 0
