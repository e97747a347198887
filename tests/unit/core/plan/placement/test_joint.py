"""Parts of one job on chosen clusters: disjoint and shared nodes, whole nodes, licences, spans, search by part."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.model.config import Resource, Switch
from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.avoided import compile_job_avoiding
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_job, compile_request
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.placement.feasible_parts import feasible_together
from eslurm.core.plan.placement.mapping import choose, place, satisfies
from eslurm.core.plan.placement.protocols import Availability
from eslurm.core.plan.profile import profile
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.plan.profile.search import PlacementQuery, Start, first_start, narrowed
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology

LICENCE = Resource("matlab", wide_total=2)
CLUSTER = [NodeView(number, f"n{number}", (4, 0), True, ("cluster", "all")) for number in range(3)]
BOOSTER = [NodeView(number, f"n{number}", (8, 0), True, ("booster", "all")) for number in range(3, 6)]
TOPOLOGY = Topology([*CLUSTER, *BOOSTER], resources=(LICENCE,))


def need(*parts: tuple[str, Request], topology: Topology = TOPOLOGY) -> CompiledRequest:
    return compile_job([one for _, one in parts], [PartitionView(name) for name, _ in parts], topology)


def spans(room: Ledger, *parts: tuple[str, Request]) -> list[tuple[int, int, int]] | None:
    """(part, node, cores) of each span."""
    found = place(room, need(*parts, topology=room.topology))
    return None if found is None else [(span.component, span.node, span.amounts[0]) for span in found]


def test_a_job_of_one_part_is_compiled_as_before() -> None:
    request, view = Request(tasks=3), PartitionView("cluster")
    assert compile_job([request], [view], TOPOLOGY) == compile_request(request, view, TOPOLOGY)


def test_each_part_goes_to_its_own_partition() -> None:
    room = Ledger(TOPOLOGY)
    parts = (("booster", Request(nodes_min=2, nodes_max=2)), ("cluster", Request(cpus_per_task=4)))
    assert spans(room, *parts) == [(0, 3, 1), (0, 4, 1), (1, 0, 4)]
    for node in (0, 1, 2):
        room.hold(node, (1, 0))
    assert spans(room, *parts) is None


def test_parts_share_a_node_as_far_as_it_goes() -> None:
    room = Ledger(TOPOLOGY)
    half = ("cluster", Request(cpus_per_task=2))
    assert spans(room, half, half) == [(0, 0, 2), (1, 0, 2)]
    assert spans(room, half, half, half) == [(0, 0, 2), (1, 0, 2), (2, 1, 2)]
    assert spans(room, *[half] * 6) is not None
    assert spans(room, *[half] * 7) is None


def test_a_part_with_whole_nodes_shares_them_with_no_other_part() -> None:
    room = Ledger(TOPOLOGY)
    whole = ("cluster", Request(nodes_min=2, nodes_max=2, exclusive=True))
    small = ("cluster", Request())
    assert spans(room, small, whole) == [(0, 2, 1), (1, 0, 4), (1, 1, 4)]
    assert spans(room, whole, whole) is None
    room.hold(2, (4, 0))
    assert spans(room, small, whole) is None


def test_the_part_that_found_too_little_goes_first() -> None:
    room = Ledger(TOPOLOGY)
    room.hold(0, (3, 0))
    room.hold(1, (3, 0))
    wide = ("cluster", Request(nodes_min=3, nodes_max=3))
    large = ("cluster", Request(cpus_per_task=3))
    assert spans(room, wide, large) == [(0, 0, 1), (0, 1, 1), (0, 2, 1), (1, 2, 3)]


def test_a_range_of_nodes_gives_way_to_other_parts() -> None:
    room = Ledger(TOPOLOGY)
    ranged = ("cluster", Request(tasks=8, nodes_min=2, nodes_max=3, include=("n0",)))
    alone = ("cluster", Request(exclusive=True))
    assert spans(room, ranged, alone) == [(0, 0, 4), (0, 1, 4), (1, 2, 4)]


def test_parts_on_one_node_each_are_packed_by_search() -> None:
    room = Ledger(Topology([NodeView(number, f"n{number}", (10, 0), True, ("p",)) for number in range(3)]))
    sizes = (6, 5, 5, 4, 4, 3, 3)
    found = spans(room, *[("p", Request(cpus_per_task=cores)) for cores in sizes])
    assert found is not None
    for node in range(3):
        assert sum(cores for _, at, cores in found if at == node) == 10


def test_licences_of_all_parts_count_together() -> None:
    room = Ledger(TOPOLOGY)
    licensed = ("cluster", Request(wide=(("matlab", 1),)))
    assert need(licensed, licensed).wide == (2,)
    assert spans(room, licensed, licensed) is not None
    assert spans(room, licensed, licensed, licensed) is None


@pytest.mark.parametrize(
    ("change", "is_met"),
    [
        (lambda found: found, True),
        (lambda found: found[:1], False),
        (lambda found: (*found, Span(4, (1, 0), 1, 2)), False),
        (lambda found: (msgspec.structs.replace(found[0], node=1), found[1]), False),
        (lambda found: (found[0], msgspec.structs.replace(found[1], component=0)), False),
    ],
)
def test_an_assignment_is_checked_part_by_part(change: object, is_met: bool) -> None:
    wanted = need(("booster", Request(cpus_per_task=2)), ("cluster", Request(cpus_per_task=3)))
    found = place(Ledger(TOPOLOGY), wanted)
    assert found is not None and callable(change)
    assert satisfies(TOPOLOGY, wanted, change(found), ()) == is_met


def test_a_part_with_whole_nodes_that_shares_one_is_not_satisfied() -> None:
    wanted = need(("cluster", Request(exclusive=True)), ("cluster", Request()))
    together = (Span(0, (4, 0), 1, 0), Span(0, (1, 0), 1, 1))
    assert not satisfies(TOPOLOGY, wanted, together, ())
    assert satisfies(TOPOLOGY, wanted, (together[0], Span(1, (1, 0), 1, 1)), ())


def test_a_reservation_narrows_every_part() -> None:
    wanted = need(("booster", Request()), ("cluster", Request()))
    inside = narrowed(wanted, 0b011110)
    assert [one.allowed for one in inside.members] == [0b011000, 0b000110]
    found = choose(Ledger(TOPOLOGY), inside)
    assert found is not None and [position for position, _, _ in found] == [1, 3]


def test_avoided_nodes_are_left_out_unless_a_part_needs_them() -> None:
    views = [PartitionView("cluster"), PartitionView("booster")]

    def compiled(nodes: int) -> CompiledRequest:
        requests = [Request(), Request(nodes_min=nodes, nodes_max=nodes)]
        return compile_job_avoiding(requests, views, TOPOLOGY, {0, 3}, 0, lambda: empty_ledger(TOPOLOGY))

    assert compiled(2).avoided == 0b001001
    assert [one.allowed for one in compiled(2).members] == [0b000110, 0b110000]
    assert compiled(3).avoided == 0


def test_the_first_start_is_that_of_the_latest_part() -> None:
    book = ResourceProfile(TOPOLOGY, now_us=0)
    book.book([(0, (4, 0)), (1, (4, 0)), (2, (4, 0))], 0, 50)
    book.book([(3, (8, 0)), (4, (8, 0))], 0, 30)
    book.book([(4, (8, 0))], 60, 80)
    parts = (("booster", Request(nodes_min=2, nodes_max=2, exclusive=True)), ("cluster", Request()))
    found = first_start(book, PlacementQuery(need(*parts), 20, 0), 0)
    assert isinstance(found, Start)
    assert found.at_us == 50
    assert [position for position, _, _ in found.chosen] == [0, 3, 5]


def test_equal_parts_of_more_than_half_a_node_are_counted_before_they_are_mapped() -> None:
    book = ResourceProfile(TOPOLOGY, now_us=0)
    book.book([(0, (2, 0))], 0, 40)
    wanted = need(*[("cluster", Request(cpus_per_task=3))] * 3)
    before = book.work
    found = book.earliest(wanted, 10, 0)
    assert found is not None and found[0] == 40
    assert book.work - before < 10


def test_chunks_may_be_a_part() -> None:
    chunks = Request(tasks=2, chunks=(Chunk(1, 3), Chunk(1, 2)), place="pack")
    assert spans(Ledger(TOPOLOGY), ("all", chunks), ("all", Request(cpus_per_task=4))) is not None


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([("cluster", Request(nodes_min=3, nodes_max=3)), ("booster", Request(exclusive=True))], None),
        ([("cluster", Request(cpus_per_task=4))] * 3, None),
        (
            [("cluster", Request(wide=(("matlab", 1),)))] * 2 + [("booster", Request(wide=(("matlab", 1),)))],
            "--licenses: all parts together ask for 3 matlab; there are 2: ask for at most 2",
        ),
        (
            [
                ("cluster", Request(nodes_min=2, nodes_max=2, exclusive=True)),
                ("booster", Request()),
                ("cluster", Request(nodes_min=2, nodes_max=2)),
            ],
            "parts 0 and 2: --exclusive: they need 4 nodes beside each other; partition cluster has 3: ask for fewer,"
            " or leave it out",
        ),
        (
            [("cluster", Request(cpus_per_task=4, tasks=3)), ("all", Request(tasks=25))],
            "parts 0 and 1: they need 37 cores together; the nodes of partitions cluster and all have 36: ask for less,"
            " or submit jobs of their own",
        ),
        (
            [
                ("cluster", Request(nodes_min=2, nodes_max=2, exclusive=True)),
                ("cluster", Request(tasks=3)),
                ("cluster", Request(tasks=2)),
            ],
            "parts 0, 1 and 2: they need 5 cores together beside 2 whole nodes; the nodes of partition cluster have 4"
            " left: ask for less, or submit jobs of their own",
        ),
        (
            [
                ("cluster", Request(nodes_min=2, nodes_max=2, exclusive=True, exclude=("n0",))),
                ("cluster", Request(exclude=("n0",))),
                ("all", Request()),
            ],
            "parts 0 and 1: --exclusive: they need 3 nodes beside each other; partition cluster has 2 for them:"
            " ask for fewer, or leave it out",
        ),
        (
            [("cluster", Request(cpus_per_task=3))] * 4,
            "parts 0, 1, 2 and 3: they do not fit the nodes of partition cluster together: ask for less, or submit jobs"
            " of their own",
        ),
    ],
)
def test_parts_that_never_fit_together_are_refused_by_name(
    parts: list[tuple[str, Request]], reason: str | None
) -> None:
    views = [PartitionView(name) for name, _ in parts]
    verdict = feasible_together([one for _, one in parts], views, empty_ledger(TOPOLOGY))
    assert (verdict.reason if verdict is not None else None) == reason


def test_each_part_stays_under_one_switch() -> None:
    views = [NodeView(number, f"n{number}", (4, 0), True, ("p",)) for number in range(6)]
    switches = [Switch(f"s{first}", nodes=(f"n{first}", f"n{first + 1}")) for first in (0, 2, 4)]
    room = Ledger(Topology(views, switches=switches))
    room.hold(0, (4, 0))
    pair = ("p", Request(nodes_min=2, nodes_max=2, tasks=2, cpus_per_task=4))
    found = spans(room, pair, pair)
    assert found is not None
    assert [node for _, node, _ in found] == [2, 3, 4, 5]


def test_a_brief_mapping_tries_one_order() -> None:
    room = Ledger(Topology([NodeView(number, f"n{number}", (10, 0), True, ("p",)) for number in range(2)]))
    parts = [("p", Request(cpus_per_task=cores)) for cores in (5, 4, 4, 3, 2, 2)]
    wanted = need(*parts, topology=room.topology)
    assert choose(room, wanted) is not None
    assert choose(room, wanted, is_brief=True) is None
    assert choose(room, need(*parts[:4], topology=room.topology), is_brief=True) is not None


def test_a_search_maps_parts_in_every_way_at_a_few_instants_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: parts that hardly fit cannot hold up the planner at each instant of a long plan."""
    asked: list[bool] = []

    def counted(room: Availability, need: CompiledRequest, *, is_brief: bool = False) -> None:
        asked.append(is_brief)

    monkeypatch.setattr(profile, "choose", counted)
    book = ResourceProfile(TOPOLOGY, now_us=0)
    for end in range(1, 31):
        book.book([(0, (1, 0))], end - 1, end)
    before = book.work
    assert book.earliest(need(("all", Request()), ("all", Request())), 5, 0) is None
    assert asked == [False] * profile.MISSES_MAX + [True] * (31 - profile.MISSES_MAX)
    assert book.work - before >= profile.WORK_PER_PART * 2 * 31
