"""Plans count on estimates where they make room beside others, and on limits where nothing may be overrun (ADR 14)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import Limit, Policy, Reservation, Validity
from eslurm.core.model.forecast import Forecast, exactly
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.expected import (
    AGED_US,
    HALVED_US,
    end_us,
    running_us,
    shortest_first,
    shortest_for_its_wait_first,
    waiting_us,
)
from eslurm.core.plan.cycle.late_places import SHIELDED_MAX
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingQueue, QueueEntry, differs_in_estimate
from eslurm.core.plan.cycle.snapshot import Running, Snapshot
from eslurm.core.plan.cycle.start_slack import PATIENCE_US, SLIP_MAX_US, SLIP_MIN_US, StartSlack, slack_us
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_building import NOW, started
from tests.unit.core.plan.cycle.test_planning_under_rules import NODE, job, starts
from tests.unit.core.plan.cycle.test_planning_under_rules import Site as RuledSite

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Site(RuledSite):
    """Three nodes of four cores; every job takes one node. What waits keeps its place in one queue."""

    def __init__(self, policy: str, *policies: Policy) -> None:
        super().__init__(policy, *policies)
        self.queue = PendingQueue()

    def plan(self, *jobs: Pending, at_us: int = NOW) -> Plan:
        for job_id in set(self.queue.ids()) - {one.job_id for one in jobs}:
            self.queue.remove(job_id)
        for one in jobs:
            (self.queue.replace if one.job_id in self.queue else self.queue.add)(one)
        snapshot = Snapshot.take(
            self.ledger,
            {"main": PartitionView("main")},
            self.queue,
            generation=0,
            now_us=at_us,
            running=self.live,
            known=self.queue.ids(),
            policies=self.policies,
            policies_changed=self.changes,
        )
        plan = plan_at_once(snapshot, policy=self.policy, limits=PlanLimits(), schedule=self.schedule)
        for placement in plan.placements:
            waiting = self.queue.remove(placement.job_id)
            pairs = tuple((span.node, span.amounts) for span in placement.spans)
            for node, amounts in pairs:
                self.ledger.hold(node, amounts, placement.until_us)
            self.live[placement.job_id, 1] = Running(
                placement.job_id,
                pairs,
                placement.until_us,
                (),
                waiting,
                expected_us=at_us + waiting.stay_us if waiting.estimate_us else 0,
                since_us=at_us,
            )
        return plan

    def forecast(self, job_id: int, estimate_us: int) -> None:
        one = self.live[job_id, 1]
        self.live[job_id, 1] = replace(one, expected_us=min(one.since_us + estimate_us, one.until_us))


def expected(job_id: int, estimate_us: int, *, limit_us: int = 100, user: str = "ada") -> Pending:
    return replace(job(job_id, user, limit_us=limit_us), estimate_us=estimate_us)


@pytest.mark.parametrize(
    ("estimate_s", "limit_s", "planned_s"),
    [
        (1, 100, 1),
        (31, 100, 31),
        (33, 100, 34),
        (70, 100, 72),
        (99, 100, 0),
        (100, 100, 0),
        (500, 100, 0),
        (3600, 0, 3712),
        (3601, 86_400, 3712),
        (100_000, 86_400, 0),
    ],
)
def test_estimates_are_planned_with_in_steps_and_never_beyond_the_limit(
    estimate_s: int, limit_s: int, planned_s: int
) -> None:
    found = running_us(exactly(estimate_s), limit_s * SECOND)
    assert found == waiting_us(exactly(estimate_s), limit_s * SECOND) == planned_s * SECOND
    assert not found or estimate_s * SECOND <= found <= estimate_s * SECOND * 17 // 16


def test_room_is_looked_for_between_p50_and_p90_and_what_runs_is_expected_until_p90() -> None:
    unsure = Forecast(10, 30, 480, 300)
    assert (waiting_us(unsure, 0), running_us(unsure, 0)) == (120 * SECOND, 480 * SECOND)
    assert (waiting_us(unsure, 250 * SECOND), running_us(unsure, 250 * SECOND)) == (120 * SECOND, 0)
    # An estimate may be beyond the interval.
    careful = Forecast(10, 30, 40, 120)
    assert (waiting_us(careful, 0), running_us(careful, 0)) == (60 * SECOND, 120 * SECOND)
    assert (waiting_us(None, 0), running_us(None, 0)) == (0, 0)


@pytest.mark.parametrize("policy", ["conservative", "planned", "easy"])
def test_what_has_begun_stays_as_long_as_estimated_where_nobody_is_planned(policy: str) -> None:
    minute = 60 * SECOND
    site = Site(policy)
    first = expected(1, 10 * minute, limit_us=100 * minute)
    waiting = replace(job(9, limit_us=5 * minute), request=replace(first.request, nodes_min=3))
    site.plan(first)
    site.forecast(1, 40 * minute)
    plan = site.plan(waiting, at_us=NOW + 1)
    assert starts(plan) == [(9, 40 * minute)]
    # Let in front by less than it may well take, it is in nobody's way: the promise of EASY alone is made again.
    other = expected(2, 20 * minute, limit_us=100 * minute)
    assert started(site.plan(waiting, other, at_us=NOW + 2).placements) == [2]
    site.forecast(2, 60 * minute)
    plan = site.plan(waiting, at_us=NOW + 2 * SECOND)
    when = 60 * minute + 2 if policy == "easy" else 40 * minute
    assert starts(plan) == [(9, when)]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
@pytest.mark.parametrize("is_over", [False, True])
def test_an_earlier_end_that_is_behind_the_booked_one_moves_no_planned_job(
    policy: str, is_over: bool
) -> None:
    minute = 60 * SECOND
    site = Site(policy)
    waiting = replace(job(9, limit_us=5 * minute), request=replace(NODE, nodes_min=3))
    site.plan(expected(1, 40 * minute, limit_us=100 * minute))
    assert starts(site.plan(waiting, at_us=NOW + 1)) == [(9, 40 * minute)]
    beside = expected(2, 20 * minute, limit_us=60 * minute)
    beside = replace(beside, request=replace(NODE, nodes_min=2))
    assert started(site.plan(waiting, beside, at_us=NOW + 2).placements) == [2]
    # Begun, it is to prepare its nodes and to run until its limit, on which the job behind it does not count.
    known = site.live[2, 1]
    site.live[2, 1] = replace(known, expected_us=known.until_us + 2 * SECOND)
    assert starts(site.plan(waiting, at_us=NOW + 3)) == [(9, 40 * minute)]
    # It has prepared them; or its script has ended, too, and one of its nodes is not given back.
    left = replace(known, expected_us=0)
    if is_over:
        node, amounts = known.spans[0]
        site.ledger.give_back(node, amounts, known.until_us)
        left = replace(left, spans=known.spans[1:])
    site.live[2, 1] = left
    assert starts(site.plan(waiting, at_us=NOW + SECOND)) == [(9, 40 * minute)]
    held = site.schedule.held[2, 1].booking
    assert (held.pairs, held.stop_us, held.until_us) == (left.spans, NOW + 40 * minute, known.until_us)
    # What it holds beyond the booked end is in the way of all.
    assert starts(site.plan(waiting, at_us=NOW + 41 * minute)) == [(9, 100 * minute)]


@pytest.mark.parametrize(
    ("now", "until", "expected_end", "found"),
    [
        # Expected, outlived that, outlived its limit by less and by more than the grace.
        (10, 100, 40, 40),
        (40, 100, 40, 100),
        (100, 100, 40, 107),
        (150, 100, 40, 200),
        # Nobody said anything, and no limit.
        (10, 100, 0, 100),
        (10, INFINITY_US, 0, INFINITY_US),
        (42, INFINITY_US, 40, 84),
        (3, INFINITY_US, 2, 10),
    ],
)
def test_when_running_work_is_expected_to_end(now: int, until: int, expected_end: int, found: int) -> None:
    one = Running(1, (), until, expected_us=expected_end)
    assert end_us(one, now, 7) == found


def test_a_stay_is_the_estimate_up_to_the_limit() -> None:
    assert (expected(1, 40).stay_us, expected(1, 40).beyond_us) == (40, 60)
    assert (expected(1, 400).stay_us, expected(1, 400).beyond_us) == (100, 0)
    assert (expected(1, 0).stay_us, expected(1, 0).beyond_us) == (100, 0)
    assert expected(1, 40, limit_us=0).stay_us == 40
    assert expected(1, 0, limit_us=0).stay_us == INFINITY_US


def test_only_jobs_expected_to_take_as_long_share_what_is_known() -> None:
    queue = PendingQueue([expected(1, 40), expected(2, 40), expected(3, 50)])
    shapes = [entry.shape for entry in queue.first(3)]
    assert shapes[0] == shapes[1] != shapes[2]
    assert differs_in_estimate(expected(1, 40), expected(1, 50))
    assert not differs_in_estimate(expected(1, 40), expected(1, 40))
    assert not differs_in_estimate(expected(1, 40), expected(1, 50, limit_us=90))
    assert queue.shapes.estimated == 3
    queue.replace(expected(1, 0))
    queue.remove(3)
    assert queue.shapes.estimated == 1


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_room_beside_others_is_made_for_as_long_as_is_expected(policy: str) -> None:
    site = Site(policy)
    plan = site.plan(expected(1, 30), expected(2, 50), expected(3, 60), expected(4, 10))
    assert started(plan.placements) == [1, 2, 3]
    assert {placement.until_us for placement in plan.placements} == {NOW + 100}, "the limit is what ends them"
    assert starts(site.plan(expected(4, 10), at_us=NOW + 1)) == [(4, 30)]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_who_outlives_what_was_expected_moves_others_and_is_named(policy: str) -> None:
    site = Site(policy)
    waiting = expected(4, 10)
    site.plan(expected(1, 30), expected(2, 50), expected(3, 60), waiting)
    plan = site.plan(waiting, at_us=NOW + 30)
    assert starts(plan) == [(4, 50)], "the others are expected to end before job 1's limit"
    assert "job 1 runs longer than expected" in plan.why(4).text
    plan = site.plan(waiting, at_us=NOW + 61)
    assert starts(plan) == [(4, 100)]
    site.end(2)
    assert started(site.plan(waiting, at_us=NOW + 62).placements) == [4]


def test_another_forecast_of_running_work_moves_plans_both_ways() -> None:
    site = Site("planned")
    waiting = [expected(4, 10), expected(5, 10), expected(6, 10)]
    site.plan(expected(1, 30), expected(2, 30), expected(3, 30), *waiting)
    assert starts(site.plan(*waiting, at_us=NOW + 1)) == [(4, 30), (5, 30), (6, 30)]
    minute = 60 * SECOND
    site = Site("planned")
    longer = [expected(number, 30 * minute, limit_us=100 * minute) for number in (1, 2, 3)]
    waiting = [expected(number, 10 * minute, limit_us=100 * minute) for number in (4, 5)]
    site.plan(*longer, *waiting)
    assert starts(site.plan(*waiting, at_us=NOW + 1)) == [(4, 30 * minute), (5, 30 * minute)]
    site.forecast(1, 20 * minute)
    assert starts(site.plan(*waiting, at_us=NOW + 2)) == [(4, 20 * minute), (5, 30 * minute)]
    for number in (1, 2, 3):
        site.forecast(number, 50 * minute)
    assert starts(site.plan(*waiting, at_us=NOW + 3)) == [(4, 50 * minute), (5, 50 * minute)]
    # Less than the time that a start takes moves nobody.
    site.forecast(1, 50 * minute + 10 * SECOND)
    held = dict(site.schedule.held)
    site.plan(*waiting, at_us=NOW + 4)
    assert [one.booking for one in site.schedule.held.values()] == [one.booking for one in held.values()]


def test_another_forecast_of_a_waiting_job_keeps_its_place_if_that_is_long_enough() -> None:
    site = Site("planned")
    fill = [expected(number, 30) for number in (1, 2, 3)]
    site.plan(*fill, expected(4, 10), expected(5, 10), expected(6, 10), expected(7, 20), expected(8, 20))
    waiting = [expected(4, 10), expected(5, 10), expected(6, 10), expected(7, 20), expected(8, 20)]
    assert starts(site.plan(*waiting, at_us=NOW + 1)) == [(4, 30), (5, 30), (6, 30), (7, 40), (8, 40)]
    # Shorter: who comes behind gets what is left. Longer: job 6 has nobody behind it.
    waiting[0], waiting[2] = expected(4, 5), expected(6, 90)
    assert starts(site.plan(*waiting, at_us=NOW + 2)) == [(4, 30), (5, 30), (6, 30), (7, 35), (8, 40)]
    # Longer than there is room: it is planned anew, and those behind it are the better for it.
    waiting[1] = expected(5, 50)
    assert starts(site.plan(*waiting, at_us=NOW + 3)) == [(4, 30), (6, 30), (8, 30), (7, 35), (5, 50)]


def test_what_must_not_be_overrun_looks_at_the_limit() -> None:
    window = Validity(from_us=NOW + 50, until_us=NOW + 250)
    site = Site("planned", Reservation("others", window, ("n0", "n1", "n2"), users=("bob",)))
    plan = site.plan(expected(1, 10), expected(2, 10, limit_us=50))
    assert started(plan.placements) == [2]
    assert starts(plan) == [(1, 250)]
    due = replace(expected(3, 10), deadline_us=NOW + 99)
    assert starts(Site("planned").plan(due)) == []
    assert started(Site("planned").plan(replace(due, deadline_us=NOW + 100)).placements) == [3]


def test_limits_on_time_look_at_the_limit_and_those_on_items_at_what_is_expected() -> None:
    short = Limit("short", "user", "ada", "cores", duration_s=1)
    assert started(Site("planned", short).plan(expected(1, SECOND // 2, limit_us=SECOND)).placements) == [1]
    assert (
        started(Site("planned", short).plan(expected(1, SECOND // 2, limit_us=2 * SECOND)).placements) == []
    )
    # Four cores for a second each: what may still be used by the first leaves nothing for the second.
    site = Site("planned", Limit("area", "user", "ada", "cores", area_s=4))
    lengthy = [expected(number, SECOND // 4, limit_us=SECOND) for number in (1, 2)]
    assert started(site.plan(*lengthy).placements) == [1]
    assert starts(site.plan(lengthy[1], at_us=NOW + 1)) == [(2, SECOND)]


def test_a_start_is_late_when_it_has_slipped_by_as_much_as_it_was_foretold() -> None:
    queue = PendingQueue([job(1), job(2), job(3, startable=2)])
    near, far, array = queue.first(3)
    slack = StartSlack()
    assert [slack_us(ahead_us) for ahead_us in (0, 2 * HOUR, 100 * HOUR)] == [
        SLIP_MIN_US,
        2 * HOUR,
        SLIP_MAX_US,
    ]
    slack.note(near, 10 * SECOND, HOUR)
    slack.note(near, 10 * SECOND + HOUR, 5 * HOUR)
    assert not slack.late
    slack.note(near, 11 * SECOND + HOUR, HOUR)
    slack.note(far, 100 * HOUR, 12 * HOUR)
    slack.note(far, 112 * HOUR + 1, 12 * HOUR)
    slack.note(array, HOUR, HOUR)
    slack.note(array, 100 * HOUR, HOUR)
    assert sorted(slack.late) == [1, 2]
    version = slack.version
    slack.note(near, 5 * SECOND, HOUR)
    slack.forget(2)
    assert not slack.late
    assert slack.version == version + 2
    assert slack.jobs() == [1]


@pytest.mark.parametrize("policy", ["easy", "planned"])
def test_nobody_is_let_in_front_of_the_late_for_longer_than_it_may_run(policy: str) -> None:
    site = Site(policy)
    wide = replace(job(9, limit_us=HOUR), request=replace(job(9).request, nodes_min=3))
    first = expected(1, HOUR, limit_us=20 * HOUR)
    site.plan(first, wide)
    assert starts(site.plan(wide, at_us=NOW + 1)) == [(9, HOUR)]
    # Expected to be gone in time, it is let in front of the wide job as long as that is not late.
    assert started(site.plan(wide, expected(10, HOUR // 2, limit_us=9 * HOUR), at_us=NOW + 2).placements) == [
        10
    ]
    # Job 1 goes on, and the wide job's start slips by hours.
    plan = site.plan(wide, at_us=NOW + HOUR)
    assert starts(plan) == [(9, 20 * HOUR)]
    assert list(site.schedule.slack.late) == [9]
    site.forecast(1, 3 * HOUR)
    site.end(10)
    plan = site.plan(
        wide,
        expected(11, HOUR // 2, limit_us=9 * HOUR),
        expected(12, HOUR // 2, limit_us=HOUR),
        at_us=NOW + HOUR + 2 * SECOND,
    )
    assert dict(starts(plan))[9] == 3 * HOUR
    assert started(plan.placements) == [12]
    assert "job 9" in plan.why(11).text or policy == "planned"


def test_only_so_many_of_the_late_are_shielded() -> None:
    site = Site("planned")
    many = [job(number, limit_us=HOUR) for number in range(10, 10 + SHIELDED_MAX + 5)]
    site.plan(*many)
    for entry in PendingQueue(many[3:]).first(len(many)):
        site.schedule.slack.note(entry, 100 * HOUR, HOUR)
    plan = site.plan(*many[3:], expected(99, 10, limit_us=HOUR), at_us=NOW + 1)
    assert 99 in plan.bookings


@pytest.mark.parametrize(("waited_us", "let_in"), [(PATIENCE_US, [11]), (PATIENCE_US - 1, [10])])
def test_nobody_is_let_in_front_of_the_patient_for_longer_than_it_may_run(
    waited_us: int, let_in: list[int]
) -> None:
    now_us = 2 * PATIENCE_US
    site = Site("easy")
    site.plan(expected(1, HOUR, limit_us=HOUR), expected(2, HOUR, limit_us=HOUR), at_us=now_us)
    wide = replace(
        job(9, limit_us=HOUR),
        request=replace(job(9).request, nodes_min=3),
        submitted_us=now_us + 1 - waited_us,
    )
    whole = Request(cpus_per_task=4)
    few = [
        replace(expected(10, HOUR // 4, limit_us=2 * HOUR), request=whole, submitted_us=now_us),
        replace(expected(11, HOUR // 2, limit_us=HOUR // 2), request=whole, submitted_us=now_us),
    ]
    plan = site.plan(wide, *few, at_us=now_us + 1)
    assert started(plan.placements) == let_in
    assert list(site.schedule.slack.late) == [9][: waited_us // PATIENCE_US]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, [11, 12]),
        # By priority, then by length.
        ({10: {"priority": 1}}, [10, 11]),
        # Who has waited twice three hours counts as a quarter as long.
        ({10: {"submitted_us": NOW - SECOND - 2 * HALVED_US}}, [10, 11]),
        ({10: {"submitted_us": NOW + SECOND - 2 * HALVED_US}}, [11, 10]),
        ({10: {"submitted_us": NOW - 2 * HALVED_US, "eligible_us": NOW}}, [11, 12]),
        # Nothing is known of anybody: by age.
        ({10: {"estimate_us": 0}, 11: {"estimate_us": 0}, 12: {"estimate_us": 0}}, [10, 11]),
    ],
)
def test_a_hole_is_offered_to_the_shortest_first(
    changes: dict[int, dict[str, int]], first: list[int]
) -> None:
    minute = 60 * SECOND
    site = Site("easy")
    wide = replace(job(9, limit_us=HOUR), request=replace(job(9).request, nodes_min=3), submitted_us=NOW)
    # No forecast is known of this one, so that nothing is known of anybody in the last case.
    site.plan(job(1, limit_us=HOUR))
    few = {
        number: replace(expected(number, length * minute, limit_us=50 * minute), submitted_us=NOW)
        for number, length in ((10, 40), (11, 10), (12, 20))
    }
    jobs = [replace(one, **changes.get(number, {})) for number, one in few.items()]
    assert started(site.plan(replace(wide, priority=2), *jobs, at_us=NOW + 1).placements) == first


@pytest.mark.parametrize("order", [shortest_first, shortest_for_its_wait_first])
def test_who_has_waited_for_a_day_is_not_overtaken_any_more(
    order: Callable[[Sequence[QueueEntry], int], Generator[None, None, list[QueueEntry]]],
) -> None:
    month_us, now_us = 30 * AGED_US, 2 * AGED_US
    few = [
        replace(expected(1, month_us, limit_us=2 * month_us), submitted_us=AGED_US),
        replace(expected(2, 2 * month_us, limit_us=2 * month_us), submitted_us=AGED_US),
        replace(expected(3, month_us, limit_us=2 * month_us), submitted_us=AGED_US + 1),
        replace(expected(4, 0, limit_us=0), submitted_us=now_us),
        replace(expected(5, SECOND, limit_us=HOUR), submitted_us=now_us),
        # Its begin time is told from its submission, and may still be to come.
        replace(expected(6, 2 * SECOND, limit_us=HOUR), submitted_us=0, eligible_us=now_us + HOUR),
    ]
    entries = PendingQueue(few).first(len(few))
    assert [entry.job_id for entry in exhaust(order(entries, now_us))] == [1, 2, 5, 6, 3, 4]


def test_what_comes_free_is_offered_to_the_shortest_first() -> None:
    minute = 60 * SECOND
    site = Site("planned")
    site.plan(*[expected(number, 30 * minute, limit_us=HOUR) for number in (1, 2, 3)])
    waiting = [
        replace(expected(number, length * minute, limit_us=HOUR), submitted_us=NOW)
        for number, length in ((4, 50), (5, 50), (6, 50), (7, 40), (8, 20))
    ]
    plan = site.plan(*waiting, at_us=NOW + 1)
    assert starts(plan)[3:] == [(7, 80 * minute), (8, 80 * minute)]
    site.end(1)
    assert started(site.plan(*waiting, at_us=NOW + 2).placements) == [8]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_what_gives_a_part_back_keeps_the_rest_as_long_as_was_thought(policy: str) -> None:
    minute = 60 * SECOND
    site = Site(policy)
    two = replace(expected(1, 20 * minute, limit_us=HOUR), request=replace(job(1).request, nodes_min=2))
    site.plan(two, expected(2, 20 * minute, limit_us=HOUR))
    site.forecast(1, 40 * minute)
    wide = replace(expected(3, 5 * minute), request=replace(job(3).request, nodes_min=3))
    site.plan(wide, at_us=NOW + 1)
    before = site.schedule.held[1, 1].booking
    one = site.live[1, 1]
    (node, amounts), kept = one.spans
    site.ledger.give_back(node, amounts, one.until_us)
    site.live[1, 1] = replace(one, spans=(kept,))
    plan = site.plan(wide, expected(4, 15 * minute, limit_us=HOUR), at_us=NOW + 2)
    after = site.schedule.held[1, 1].booking
    assert (after.stop_us, [span.node for span in after.spans]) == (before.stop_us, [kept[0]])
    # What it gave back is free for others.
    assert started(plan.placements) == [4]
    assert [one for one in starts(plan) if one[0] == 3] == [(3, 40 * minute)]


def test_of_two_that_began_on_one_node_each_stays_as_long_as_it_is_expected_to() -> None:
    minute = 60 * SECOND
    site = Site("planned")
    half, whole = Request(cpus_per_task=2), Request(cpus_per_task=4)
    for number in (1, 2):
        site.plan(replace(expected(number, 90 * minute, limit_us=2 * HOUR), request=whole))
    long, short, after, arrival = [
        replace(expected(number, length * minute, limit_us=2 * HOUR), request=half, submitted_us=NOW)
        for number, length in ((3, 60), (4, 10), (5, 40), (6, 30))
    ]
    plan = site.plan(long, short, after)
    assert started(plan.placements) == [3, 4]
    # They hold alike, and only how long they are expected to take tells them apart.
    plan = site.plan(after, arrival, at_us=NOW + 1)
    assert starts(plan) == [(5, 10 * minute), (6, 50 * minute)]
    ends = [site.schedule.held[number, 1].booking.stop_us - NOW for number in (3, 4)]
    assert ends == [60 * minute, 10 * minute]


@pytest.mark.parametrize("policy", ["conservative", "planned", "easy"])
def test_a_launch_that_takes_long_makes_nobody_later_before_it_shows(policy: str) -> None:
    minute = 60 * SECOND
    site = Site(policy)
    first = expected(1, 10 * minute, limit_us=100 * minute)
    waiting = replace(job(9, limit_us=5 * minute), request=replace(first.request, nodes_min=3))
    site.plan(first, waiting)
    site.forecast(1, 40 * minute)
    before = starts(site.plan(waiting, at_us=NOW + 1))
    one = site.live[1, 1]
    late = 5 * minute
    site.live[1, 1] = replace(one, since_us=one.since_us + late, expected_us=one.expected_us + late)
    after = starts(site.plan(waiting, at_us=NOW + late))
    if policy == "easy":
        # Its one promise is made again by what is known now.
        assert (before, after) == ([(9, 40 * minute)], [(9, 45 * minute)])
    else:
        assert before == after == [(9, 10 * minute)]
    plan = site.plan(waiting, at_us=NOW + 11 * minute)
    assert starts(plan) == [(9, 45 * minute)]
