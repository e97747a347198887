"""Packs in the plan (D-04): all members have places at their delays, or none has, under every policy."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import Amount, Limit, Policy, Validity
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle import pack_starts, packs
from eslurm.core.plan.cycle.beginnings import Beginnings
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingPart
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.restored_bookings import kept_of
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.profile.search import Move, PlacementQuery, Start
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.nodes import NodeView
from tests.kits.plan_building import NOW, started
from tests.kits.planned_packs import PackSite, node_jobs, pack, single

ALL = ("conservative", "easy", "fcfs", "planned")
PROMISING = ("conservative", "easy", "planned")
AHEAD = ("conservative", "planned")
ONE, TWO, THREE = node_jobs(1), node_jobs(2), node_jobs(3)


@pytest.mark.parametrize("policy", ALL)
def test_the_first_member_begins_and_the_others_keep_their_places_at_their_delays(policy: str) -> None:
    site = PackSite(policy)
    site.submit(pack(1, (0, TWO, 100), (0, ONE, 50), (50, TWO, 100), (200, THREE, 100)))
    plan = site.cycle()
    assert started(plan.placements) == [1, 2]
    assert [one.anchor_us for one in plan.placements] == [NOW, 0]
    assert site.starts() == {3: 50, 4: 200}
    before = {job_id: site.nodes(job_id) for job_id in (3, 4)}
    site.cycle(NOW + 10)
    assert site.starts() == {3: 50, 4: 200}
    assert {job_id: site.nodes(job_id) for job_id in (3, 4)} == before
    site.end(2)
    assert started(site.cycle(NOW + 50).placements) == [3]
    site.end(1, 3)
    assert started(site.cycle(NOW + 200).placements) == [4]


@pytest.mark.parametrize("policy", ALL)
def test_no_member_begins_before_all_have_places(policy: str) -> None:
    site = PackSite(policy)
    for node in (0, 1):
        site.hold(900 + node, node, 4, NOW + 80)
    # The second needs three nodes 40 after the start: two of four are held until 80.
    site.submit(pack(1, (0, ONE, 100), (40, THREE, 100)))
    plan = site.cycle()
    assert not plan.placements
    if policy in PROMISING:
        assert site.starts() == {1: 40, 2: 80}
    why = plan.why(1)
    assert (why.kind, why.member) == (WhyKind.RESOURCES, 1)
    assert why.text.startswith("part 1: ")
    assert started(site.cycle(NOW + 40).placements) == [1]
    assert site.starts() == {2: 80}


@pytest.mark.parametrize("policy", PROMISING)
def test_a_later_job_delays_no_member_of_a_promised_pack(policy: str) -> None:
    site = PackSite(policy)
    site.hold(900, 0, 4, NOW + 50)
    # The pack begins at 50 with four nodes, its second member at 150 with two.
    site.submit(pack(1, (0, node_jobs(4), 100), (100, TWO, 100)))
    site.submit(single(10, THREE, 50), single(11, THREE, 51))
    assert started(site.cycle().placements) == [10]
    assert site.starts()[1] == 50
    assert site.starts()[2] == 150
    site.submit(single(12, THREE, 1000))
    site.cycle(NOW + 1)
    assert site.starts()[1] == 50
    if policy in AHEAD:
        assert site.starts()[12] >= 150


@pytest.mark.parametrize("policy", ALL)
def test_the_room_of_the_others_is_kept_from_the_start_of_the_pack_on(policy: str) -> None:
    site = PackSite(policy, 2)
    site.submit(pack(1, (0, ONE, 200), (100, ONE, 100)))
    assert started(site.cycle().placements) == [1]
    site.submit(single(10, ONE, 101), single(11, ONE, 99))
    # The longer one would be in the way of the second member; the shorter one is not.
    placed = started(site.cycle(NOW + 1).placements)
    assert placed == ([] if policy == "fcfs" else [11])
    assert site.starts()[2] == 100
    if placed:
        site.end(11)
    assert started(site.cycle(NOW + 100).placements) == [2]


@pytest.mark.parametrize("policy", ALL)
def test_members_that_need_the_same_nodes_at_the_same_time_are_counted_together(policy: str) -> None:
    site = PackSite(policy, 2)
    site.hold(900, 0, 2, NOW + 60)
    # Each alone would fit at once, both together only when the node is free.
    site.submit(pack(1, (0, node_jobs(2, 2), 100), (10, node_jobs(2, 2), 100)))
    assert not site.cycle().placements
    if policy in PROMISING:
        assert site.starts() == {1: 50, 2: 60}


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize(
    "members",
    [
        ((0, node_jobs(3, 1), 10), (5, node_jobs(2, 2), 30), (0, node_jobs(3, 2), 10)),
        ((0, node_jobs(2, 2), 30), (20, node_jobs(3, 1), 30), (5, node_jobs(3, 2), 100)),
    ],
)
def test_members_leave_each_other_a_node_where_no_order_gives_all_of_them_a_place(
    policy: str, members: tuple[tuple[int, Request, int], ...]
) -> None:
    """Goal: a pack that has places on empty nodes begins, and is not in the way of others for ever."""
    site = PackSite(policy)
    site.submit(pack(1, *members))
    assert 1 in started(site.cycle().placements)


FITS_IN_ONE_WAY = (
    NodeView(0, "n0", (4, 0, 1), True, ("main",), ("fast",), 10),
    NodeView(1, "n1", (4, 0, 0), True, ("main",)),
    NodeView(2, "n2", (4, 0, 0), True, ("main",), ("fast",)),
    NodeView(3, "n3", (4, 0, 1), True, ("main",), ("fast",)),
)
"""Nodes that the next pack fills to the last core."""


def pack_that_fits_in_one_way(**more: object) -> Pending:
    """Whole nodes without GPUs for the third member; the first two share those with GPUs, the first one last."""
    parts = (
        PendingPart(Request(tasks=3, constraint="fast"), "main"),
        PendingPart(Request(tasks=2, per_task=(("gpu", 1),)), "main"),
        PendingPart(Request(nodes_min=1, nodes_max=1), "main"),
    )
    job = pack(
        1,
        (0, replace(node_jobs(2, 1), tasks_per_node=1), 20),
        (0, parts[0].request, 20),
        (0, replace(node_jobs(2, 1), exclusive=True), 20),
        **more,
    )
    first, second = job.followers
    return replace(job, followers=(replace(first, job=replace(first.job, parts=parts)), second))


@pytest.mark.parametrize("policy", ALL)
def test_members_that_fit_in_one_way_are_mapped_together(policy: str) -> None:
    """Goal: what is accepted, because the same mapping finds places on empty nodes, begins."""
    site = PackSite(policy, views=FITS_IN_ONE_WAY)
    site.submit(pack_that_fits_in_one_way())
    placements = site.cycle().placements
    assert started(placements) == [1, 2, 3]
    assert {span.node for one in placements if one.job_id == 3 for span in one.spans} == {1, 2}


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize("cores", [16, 15])
def test_members_that_are_mapped_together_keep_the_rules(policy: str, cores: int) -> None:
    site = PackSite(policy, views=FITS_IN_ONE_WAY)
    site.policies, site.policies_changed = cores_of_alice(cores), 1
    site.submit(pack_that_fits_in_one_way(user="alice"))
    assert started(site.cycle().placements) == ([1, 2, 3] if cores == 16 else [])


@pytest.mark.parametrize("policy", ALL)
def test_members_that_are_mapped_together_wait_for_what_is_held(policy: str) -> None:
    site = PackSite(policy, views=FITS_IN_ONE_WAY)
    site.hold(900, 0, 1, NOW + 30)
    site.submit(pack_that_fits_in_one_way())
    assert not site.cycle().placements
    site.end(900)
    assert started(site.cycle(NOW + 30).placements) == [1, 2, 3]


@pytest.mark.parametrize("policy", ALL)
def test_a_member_with_few_nodes_to_choose_from_is_booked_first(policy: str) -> None:
    site = PackSite(policy, 2)
    named = replace(ONE, include=("n0",))
    site.submit(pack(1, (0, ONE, 100), (10, named, 100)))
    assert started(site.cycle().placements) == [1]
    assert site.nodes(2) == [0]


@pytest.mark.parametrize("policy", AHEAD)
def test_a_pack_moves_up_as_a_whole(policy: str) -> None:
    site = PackSite(policy)
    for node in range(4):
        site.hold(900 + node, node, 4, NOW + 100)
    site.submit(pack(1, (0, TWO, 100), (30, TWO, 100)))
    site.cycle()
    assert site.starts() == {1: 100, 2: 130}
    site.end(900, 901)
    site.cycle(NOW + 10)
    assert site.starts() == {1: 70, 2: 100}
    site.end(902, 903)
    assert started(site.cycle(NOW + 20).placements) == [1]
    assert site.starts() == {2: 50}


@pytest.mark.parametrize("policy", PROMISING)
def test_a_lost_node_of_one_member_moves_the_whole_pack_before_it_begins(policy: str) -> None:
    site = PackSite(policy, 3)
    for node in range(3):
        site.hold(900 + node, node, 3, NOW + 100)
    site.submit(pack(1, (0, ONE, 50), (50, THREE, 100)))
    site.cycle()
    assert site.starts() == {1: 100, 2: 150}
    site.out = {2}
    plan = site.cycle(NOW + 1)
    assert site.starts() == {}
    assert plan.why(1).member == 1
    site.out = set()
    site.cycle(NOW + 2)
    assert site.starts() == {1: 100, 2: 150}


@pytest.mark.parametrize("policy", ALL)
def test_a_member_that_loses_a_node_starts_at_the_same_time_elsewhere(policy: str) -> None:
    site = PackSite(policy, 3)
    site.submit(pack(1, (0, ONE, 300), (100, ONE, 100)))
    site.cycle()
    (node,) = site.nodes(2)
    site.out = {node}
    site.cycle(NOW + 50)
    assert site.starts() == {2: 100}
    assert site.nodes(2) != [node]


@pytest.mark.parametrize("policy", ALL)
def test_a_member_that_loses_its_place_starts_as_early_as_possible_and_never_before_its_time(
    policy: str,
) -> None:
    site = PackSite(policy, 2)
    site.submit(pack(1, (0, ONE, 300), (100, ONE, 100)))
    site.cycle()
    (node,) = site.nodes(2)
    site.out = {node}
    plan = site.cycle(NOW + 50)
    # The only node left is the first member's.
    assert site.starts() == {2: 300}
    assert plan.why(2).planned_start_us == NOW + 300
    site.out = set()
    site.cycle(NOW + 60)
    assert site.starts() == {2: 100}
    site.end(1)
    assert not site.cycle(NOW + 70).placements
    assert site.starts() == {2: 100}
    assert started(site.cycle(NOW + 100).placements) == [2]


@pytest.mark.parametrize("policy", ALL)
def test_a_member_without_any_place_is_not_stuck_for_good(policy: str) -> None:
    site = PackSite(policy, 3)
    site.submit(pack(1, (0, ONE, 300), (100, TWO, 100)))
    site.cycle()
    site.out = {1, 2}
    site.cycle(NOW + 90)
    assert site.starts() == {}
    # A minute and more after its time it still waits for nodes, and begins when they are back.
    site.end(1)
    site.cycle(NOW + 100_000_000)
    site.out = {2}
    assert started(site.cycle(NOW + 100_000_001).placements) == [2]


@pytest.mark.parametrize("policy", ALL)
def test_places_of_a_pack_that_was_not_placed_after_all_are_given_back(policy: str) -> None:
    site = PackSite(policy, 2)
    site.submit(pack(1, (0, ONE, 50), (50, TWO, 100)))
    assert started(site.plan().placements) == [1]
    assert site.starts() == {2: 50}
    # The placement came to nothing: the pack waits as a whole, and begins again.
    plan = site.cycle(NOW + 5)
    assert started(plan.placements) == [1]
    assert site.starts() == {2: 55}
    site = PackSite(policy, 2)
    site.submit(pack(1, (0, ONE, 50), (50, TWO, 100)))
    site.plan()
    site.queue.remove(1)
    site.plan(NOW + 5)
    assert site.starts() == {}
    assert site.schedule.book.slots == 1


@pytest.mark.parametrize("policy", PROMISING)
def test_a_pack_that_begins_a_little_late_keeps_the_starts_of_the_others(policy: str) -> None:
    site = PackSite(policy, 2)
    for node in range(2):
        site.hold(900 + node, node, 3, NOW + 100)
    site.submit(pack(1, (0, ONE, 100), (50, ONE, 100)))
    site.cycle()
    site.end(900, 901)
    plan = site.cycle(NOW + 103)
    assert [(one.anchor_us, one.late_us) for one in plan.placements] == [(NOW + 100, 3)]
    assert site.starts() == {2: 150}
    assert started(site.cycle(NOW + 150).placements) == [2]


def test_a_late_beginning_may_move_a_member_of_the_same_pack_that_follows_on_its_nodes() -> None:
    site = PackSite("planned", 1)
    site.hold(900, 0, 4, NOW + 100)
    site.submit(pack(1, (0, ONE, 50), (50, ONE, 50)))
    site.cycle()
    assert site.starts() == {1: 100, 2: 150}
    del site.running[900, 1]
    # Nothing was freed early: what ran has ended as planned, and the cycle comes 7 late.
    plan = site.cycle(NOW + 107)
    assert [(one.anchor_us, one.late_us) for one in plan.placements] == [(NOW + 100, 7)]
    assert site.starts() == {2: 157}
    site.end(1)
    assert started(site.cycle(NOW + 157).placements) == [2]


@pytest.mark.parametrize("policy", PROMISING)
def test_promises_of_a_pack_are_taken_over_as_they_are(policy: str) -> None:
    site = PackSite(policy)
    for node in range(4):
        site.hold(900 + node, node, 3, NOW + 100)
    site.submit(pack(1, (0, TWO, 100), (0, ONE, 10), (30, TWO, 100)))
    site.cycle()
    bookings = site.schedule.bookings[1]
    promise = kept_of(1, bookings)
    assert [one.start_us for one in promise.starts] == [one.start_us for one in bookings]
    site.schedule = Schedule()
    view = replace(site.snapshot(), known={1: site.queue.entry(1)}, promises={1: promise})
    plan_at_once(view, policy=policy, limits=site.limits, schedule=site.schedule)
    site.check()
    found = site.schedule.bookings[1]
    assert [(one.job_id, one.start_us, one.spans) for one in found] == [
        (one.job_id, one.start_us, one.spans) for one in bookings
    ]


@pytest.mark.parametrize("policy", ALL)
def test_the_least_of_a_priority_keeps_its_place_in_a_changed_entry(policy: str) -> None:
    site = PackSite(policy)
    for node in range(4):
        site.hold(900 + node, node, 4, NOW + 100)
    job = pack(1, (0, TWO, 100), (30, TWO, 100))
    site.submit(job)
    site.cycle()
    before = site.starts()
    site.queue.replace(replace(job, priority=5))
    site.cycle(NOW + 1)
    assert site.starts() == before
    longer = replace(job, time_limit_us=200)
    site.queue.replace(longer)
    site.cycle(NOW + 2)
    assert site.starts() == before
    assert all(one.stop_us >= NOW + 230 for one in site.schedule.bookings.get(1, ())[1:])


@pytest.mark.parametrize("policy", AHEAD)
def test_a_pack_that_waits_for_another_job_is_planned_behind_it(policy: str) -> None:
    site = PackSite(policy)
    site.hold(900, 0, 4, NOW + 70)
    site.submit(replace(pack(1, (0, TWO, 100), (30, TWO, 100)), after=(900,)))
    plan = site.cycle()
    assert not plan.placements
    assert site.starts() == {1: 70, 2: 100}


def test_a_pack_whose_members_never_agree_is_given_up() -> None:
    """Rules with intervals may let one member begin in the even minutes, the other in the odd ones, for ever."""
    site = PackSite("planned")
    site.submit(pack(1, (0, ONE, 100), (0, ONE, 100)))
    site.cycle()
    job = pack(11, (0, ONE, 100), (0, ONE, 100))
    need = compile_request(ONE, PartitionView("main"), site.topology)
    even, odd = PlacementQuery(need, 100, 0), PlacementQuery(need, 101, 0)
    query = packs.query_of_pack(job, [even, odd])
    assert isinstance(query, packs.PackQuery)
    asked = 0

    def first(query: PlacementQuery, from_us: int) -> Start:
        nonlocal asked
        asked += 1
        late = (from_us + query.duration_us) % 2
        return Start(from_us + late, [], (Move("limit", from_us + late),) if late else ())

    found = exhaust(packs.find(site.schedule, job, query, 0, first=first))
    assert isinstance(found, packs.NoPlaces)
    assert asked <= 2 * packs.MOVES_MAX + 2


@pytest.mark.parametrize("policy", ALL)
def test_everything_runs_in_the_end(policy: str) -> None:
    site = PackSite(policy)
    for at in range(6):
        first = 10 * at + 1
        site.submit(pack(first, (0, TWO, 60), (at * 7, ONE, 40), (at * 11, ONE, 30)))
        site.submit(single(first + 5, node_jobs(1 + at % 4), 20 + at))
    site.run_until_idle()
    assert len(site.begun) == 24
    for first_id, anchor_us in site.anchors.items():
        at = first_id // 10
        assert site.begun[first_id + 1] - anchor_us == at * 7
        assert site.begun[first_id + 2] - anchor_us == at * 11


@pytest.mark.parametrize("policy", PROMISING)
def test_a_delay_holds_whatever_others_make_of_their_limits(policy: str) -> None:
    """A job that is expected to end soon may run on: a member that begins later is planned where that does no harm."""
    site = PackSite(policy, 2)
    # It is expected to end at 50, and may run until 400.
    site.hold(900, 0, 4, NOW + 400, expected_us=NOW + 50)
    there, here = replace(ONE, include=("n0",)), replace(ONE, include=("n1",))
    site.submit(pack(1, (0, here, 300), (100, there, 100)))
    plan = site.cycle()
    assert site.starts() == {1: 300, 2: 400}
    assert plan.why(1).text == "part 1: too little is free for it 0:00:00 after the start of the pack"
    # It ends when it was expected to: the pack begins at once.
    site.end(900)
    assert started(site.cycle(NOW + 50).placements) == [1]
    assert site.starts() == {2: 150}


@pytest.mark.parametrize("policy", ALL)
def test_nothing_that_could_by_its_limit_reach_the_place_of_a_member_begins_before_it(policy: str) -> None:
    site = PackSite(policy, 2)
    site.submit(pack(1, (0, ONE, 200), (100, ONE, 100)))
    assert started(site.cycle().placements) == [1]
    # Both are expected to take 20; by its limit the first may be in the way.
    site.submit(replace(single(10, ONE, 150), estimate_us=20), replace(single(11, ONE, 90), estimate_us=20))
    placed = started(site.cycle(NOW + 1).placements)
    assert placed == ([] if policy == "fcfs" else [11])
    # It runs on, and the member begins at its time.
    if placed:
        site.cycle(NOW + 91)
        site.end(11)
    assert started(site.cycle(NOW + 100).placements) == [2]


@pytest.mark.parametrize("policy", AHEAD)
def test_a_pack_of_many_members_is_planned_behind_all_plans_at_last(policy: str) -> None:
    """Its members fit nowhere before the last of many ends, which the search reaches in a bounded number of tries."""
    site = PackSite(policy, 2)
    for at in range(300):
        # Each leaves one node of two for a moment.
        site.submit(single(1000 + at, TWO, 10), single(2000 + at, ONE, 3))
    site.cycle()
    last_us = max(site.starts().values())
    site.submit(pack(1, *[(0, node_jobs(1, 1), 50) for _ in range(8)]))
    plan = site.cycle()
    starts = site.starts()
    assert {starts[job_id] for job_id in range(1, 9)} == {starts[1]}
    assert starts[1] <= last_us + 10
    assert plan.why(1).planned_start_us == NOW + starts[1]


@pytest.mark.parametrize("count", [1, 3, 16, 128])
def test_the_tries_of_a_pack_are_bounded_by_its_members(count: int) -> None:
    tries = packs._tries(count)
    assert len(tries) * count <= 2 * packs.BOOKED_MAX + 6 * count
    assert tries[-1] > 60_000
    assert tries == sorted(tries)


def cores_of_alice(most: int) -> dict[str, dict[str, Policy]]:
    return {"limit": {"alice": Limit("alice", "user", "alice", "cores", Amount(most))}}


@pytest.mark.parametrize("policy", ALL)
def test_members_count_together_against_a_limit(policy: str) -> None:
    site = PackSite(policy)
    site.policies, site.policies_changed = cores_of_alice(8), 1
    # Two nodes at most: the second member has to wait until the first has ended.
    site.submit(
        pack(1, (0, TWO, 50), (49, ONE, 50), user="alice"),
        pack(11, (0, ONE, 50), (50, TWO, 50), user="alice"),
    )
    plan = site.cycle()
    assert plan.why(1).kind is WhyKind.LIMIT
    assert plan.why(1).text.startswith("part ")
    assert started(plan.placements) == [11]
    assert site.starts() == {12: 50}
    # Nothing of hers may be in the way of the second one, which counts from its start on.
    site.submit(single(21, ONE, 60, user="alice"), single(22, ONE, 40, user="alice"))
    placed = started(site.cycle(NOW + 1).placements)
    assert placed in ([22], [] if policy == "fcfs" else [22])
    for job_id in placed:
        site.end(job_id)
    site.end(11)
    assert started(site.cycle(NOW + 50).placements) == [12]


@pytest.mark.parametrize("policy", ALL)
def test_a_pack_begins_in_the_order_in_which_an_area_let_it_be_planned(policy: str) -> None:
    site = PackSite(policy)
    # Of the two members only the second meets the window of the limit. Booked after the first it is beyond it, before the
    # first it is not.
    validity = Validity(from_us=NOW + 30 * SECOND_US)
    area = Limit("area", "user", "alice", "nodes", Amount(), area_s=60, validity=validity)
    site.policies, site.policies_changed = {"limit": {"area": area}}, 1
    site.submit(pack(1, (0, ONE, 20 * SECOND_US), (3 * SECOND_US, ONE, 60 * SECOND_US), user="alice"))
    assert started(site.cycle().placements) == [1]
    assert site.starts() == {2: 3 * SECOND_US}
    assert started(site.cycle(NOW + 3 * SECOND_US).placements) == [2]


@pytest.mark.parametrize(
    "jobs", [[single(1)], [pack(1, (0, ONE, 100), (100, ONE, 100))]], ids=["job", "pack"]
)
@pytest.mark.parametrize("policy", AHEAD)
def test_a_move_to_now_that_cannot_begin_costs_no_promised_start(
    policy: str, jobs: list[Pending], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = PackSite(policy, 1)
    site.hold(900, 0, 4, NOW + 10)
    site.submit(*jobs)
    site.cycle()
    assert site.starts()[1] == 10
    promised = site.starts()
    # The node is free before it was expected to be. What begins now is refused, and the grace of 25 ends after the promise.
    site.end(900)
    monkeypatch.setattr(Beginnings, "_fits", lambda *_: False)
    monkeypatch.setattr(pack_starts, "_fit_now", lambda *_: False)
    assert not site.cycle(NOW + 1).placements
    assert site.starts() == promised


@pytest.mark.parametrize("policy", AHEAD)
def test_a_rule_against_one_member_costs_the_pack_its_places(policy: str) -> None:
    site = PackSite(policy, 6)
    site.policies, site.policies_changed = cores_of_alice(24), 1
    for node in range(6):
        site.hold(900 + node, node, 4, NOW + 100)
    site.submit(pack(1, (0, TWO, 50), (30, TWO, 50), user="alice"), single(11, ONE, 50, user="alice"))
    site.cycle()
    assert site.starts() == {1: 100, 2: 130, 11: 100}
    # Five nodes at 130 are too many now; by the order of their starts the pack loses, and finds the first time after it.
    site.policies, site.policies_changed = cores_of_alice(16), 2
    site.cycle(NOW + 1)
    assert site.starts() == {1: 120, 2: 150, 11: 100}
    site.policies, site.policies_changed = cores_of_alice(4), 3
    plan = site.cycle(NOW + 2)
    assert site.starts() == {11: 100}
    assert plan.why(1).kind is WhyKind.LIMIT
    site.policies, site.policies_changed = {}, 4
    site.cycle(NOW + 3)
    assert site.starts() == {1: 100, 2: 130, 11: 100}
    site.end(*[900 + node for node in range(6)])
    assert started(site.cycle(NOW + 100).placements) == [1, 11]
    assert site.starts() == {2: 130}


@pytest.mark.parametrize("policy", ALL)
def test_members_that_begin_together_wait_for_a_plan_that_has_room_for_their_starts(policy: str) -> None:
    site = PackSite(policy, limits=PlanLimits(placements_max=2, overdue_grace_us=25))
    site.submit(single(1), pack(11, (0, ONE, 100), (0, ONE, 100)), single(21))
    plan = site.cycle()
    assert 11 not in started(plan.placements)
    assert plan.is_unfinished or policy in AHEAD
    assert started(site.cycle().placements)[:2] == [11, 12]


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (node_jobs(4), "part 1: needs nodes that are not in service; 1 of the 4 nodes it may use is out"),
        (TWO, "parts 0 and 1 run at the same time, and the nodes in service are too few for them together"),
    ],
)
def test_a_pack_for_which_too_few_nodes_are_in_service_blocks_nothing(second: Request, text: str) -> None:
    site = PackSite("fcfs")
    site.hold(900, 0, 4, NOW + 80)
    site.hold(901, 1, 4, NOW + 80)
    site.out.add(3)
    # The first of it has no place now for another reason: what it needs is held.
    site.submit(pack(1, (0, TWO, 100), (40, second, 100)), single(10, ONE, 500))
    plan = site.cycle()
    assert started(plan.placements) == [10]
    assert (plan.why(1).kind, plan.why(1).text) == (WhyKind.NODES_UNAVAILABLE, text)
    site.out.clear()
    site.submit(single(20, ONE, 500))
    plan = site.cycle(NOW + 1)
    assert not plan.placements, "it is before them in the queue"
    assert plan.why(1).kind is WhyKind.RESOURCES


def test_a_pack_whose_members_do_not_meet_has_enough_nodes() -> None:
    site = PackSite("fcfs")
    site.hold(900, 0, 4, NOW + 80)
    site.out.add(3)
    site.submit(pack(1, (0, THREE, 100), (100, THREE, 100)), single(10, ONE, 500))
    plan = site.cycle()
    assert not plan.placements and plan.why(1).kind is WhyKind.RESOURCES
