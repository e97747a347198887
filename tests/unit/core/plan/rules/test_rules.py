"""Limits, FreePools and reservations as rules for jobs: the paper's examples (C-12, C-15), and what follows from them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eslurm.calendar import SiteCalendar
from eslurm.compat.access import parse_access
from eslurm.compat.amounts import parse_amount
from eslurm.compat.lengths import parse_length
from eslurm.compat.validity import parse_validity
from eslurm.core.model.accounts import Access, Account, Amount, FreePool, Limit, Policy, Reservation, Validity
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_ruling import DAY_US, HOUR_US, Stay, World, earliest, job, used_by

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(*fields: int) -> int:
    return int((datetime(*fields, tzinfo=UTC) - EPOCH).total_seconds()) * 1_000_000  # type: ignore[arg-type]


def limit(
    name: str, resource: str, items: str, duration: str = "none", area: str = "none", **more: str
) -> Limit:
    return Limit(
        name,
        more.get("kind", "user"),
        more.get("consumer", "*"),
        resource,
        parse_amount(items),
        parse_length(duration, "duration"),
        parse_length(area, "area"),
        parse_validity(more.get("validity", "always")),
    )


EXAMPLE_1 = (
    limit("all", "*", "unlimited", "7d"),
    limit("august", "cores", "640", "4d3h", validity="2017-08-01..2017-08-31"),
    limit("tesla", "gpu", "unlimited", area="500h"),
    limit("arrays", "arrayjobs", "1000"),
    limit("jobs", "jobs", "5000"),
)
JULY, AUGUST, SEPTEMBER = us(2017, 7, 20), us(2017, 8, 1), us(2017, 9, 1)


def example_1(now_us: int = JULY) -> World:
    return World(*EXAMPLE_1, now_us=now_us)


def test_example_1_all_resources_seven_days() -> None:
    world = example_1()
    assert earliest(world.of(job(hours=168)), 7 * DAY_US, SEPTEMBER) == SEPTEMBER
    longer = world.of(job(hours=169))
    # Neither outside August nor in it, where less is allowed.
    assert "limit all" in longer.never
    assert "use --time of at most 7 d" in longer.never
    assert earliest(longer, 169 * HOUR_US, JULY) is None


def test_example_1_640_cores_in_august() -> None:
    world = example_1()
    # Before August nothing but the seven days binds cores.
    assert earliest(world.of(job(), cores=1000), HOUR_US, JULY) == JULY
    assert earliest(world.of(job(), cores=641), HOUR_US, AUGUST) == SEPTEMBER
    assert earliest(world.of(job(), cores=640), HOUR_US, AUGUST) == AUGUST
    world.book(job(), AUGUST, AUGUST + DAY_US, (600, 0, 0))
    assert earliest(world.of(job(), cores=40), HOUR_US, AUGUST) == AUGUST
    assert earliest(world.of(job(), cores=41), HOUR_US, AUGUST) == AUGUST + DAY_US
    # A stay that reaches into August is bound there; another user is not.
    assert earliest(world.of(job(hours=2), cores=41), 2 * HOUR_US, AUGUST - HOUR_US) == AUGUST + DAY_US
    assert earliest(world.of(job("bob"), cores=640), HOUR_US, AUGUST) == AUGUST


def test_example_1_four_days_three_hours_in_august() -> None:
    world = example_1()
    just, longer = 99 * HOUR_US, 100 * HOUR_US
    assert earliest(world.of(job(hours=99)), just, AUGUST) == AUGUST
    assert earliest(world.of(job(hours=100)), longer, AUGUST) == SEPTEMBER
    assert earliest(world.of(job(hours=100)), longer, AUGUST - longer) == AUGUST - longer
    assert earliest(world.of(job(hours=100)), longer, AUGUST - longer + 1) == SEPTEMBER
    assert not world.of(job(hours=100)).never


def test_example_1_an_area_of_500_hours_of_gpus() -> None:
    world = example_1()
    rules = world.of(job(hours=100), cores=1, gpus=4)
    assert earliest(rules, 100 * HOUR_US, SEPTEMBER) == SEPTEMBER
    # 4 GPUs for 100 hours are there already: the next 400 begin when only 100 of them are left, after 75 hours.
    world.book(job(), SEPTEMBER, SEPTEMBER + 100 * HOUR_US, (1, 0, 4))
    assert earliest(rules, 100 * HOUR_US, SEPTEMBER) == SEPTEMBER + 75 * HOUR_US
    assert "limit tesla: user ada may plan 20 d 20 h of gpu" in world.of(job(hours=126), gpus=4).never
    assert not world.of(job(hours=126)).never


def test_the_tesla_limit_overrides_that_for_all_resources() -> None:
    found = [rule for rule in example_1().of(job(hours=1), gpus=1).constraints if rule.kind == "limit"]
    bound = {(type(rule).__name__, rule.limit.name, rule.ask.resource) for rule in found}  # type: ignore[attr-defined]
    assert ("Area", "tesla", "gpu") in bound
    assert ("Duration", "all", "gpu") not in bound
    assert ("Duration", "all", "cores") in bound


def test_no_limits_mean_everything_for_ever() -> None:
    """C-13."""
    rules = World().of(job(hours=0), cores=1600)
    assert rules.constraints == () and rules.closed == () and rules.never == ""
    assert rules.within == -1 and rules.until_us == INFINITY_US


SMALL_JOBS = FreePool(
    "small", "cores", parse_amount("10/20%"), parse_access("cores<4 and time<1h"), validity=Validity()
)


def test_pool_1_a_fifth_of_the_cores_for_small_short_jobs() -> None:
    """C-15: 20 % of the cores but at least 10, for jobs of less than 4 cores and less than an hour."""
    world = World(SMALL_JOBS)  # 1,600 cores, so 320 are kept
    world.book(job("bob"), 0, HOUR_US, (1276, 0, 0))
    assert earliest(world.of(job(hours=1), cores=4), HOUR_US) == 0
    assert earliest(world.of(job(hours=1), cores=5), HOUR_US) == HOUR_US
    assert earliest(world.of(job(hours=0.9), cores=5), HOUR_US) == HOUR_US
    assert earliest(world.of(job(hours=1), cores=3), HOUR_US) == 0
    world.book(job("bob"), 0, HOUR_US, (300, 0, 0))
    assert earliest(world.of(job(hours=1), cores=3), HOUR_US) == HOUR_US
    assert earliest(world.of(job(hours=0.9), cores=3), HOUR_US) == 0
    assert earliest(world.of(job(hours=0.9), cores=4), HOUR_US) == HOUR_US, "4 are not fewer than 4"
    assert "ask for at most 1280" in world.of(job(), cores=1281).never


def test_pool_1_keeps_at_least_ten_cores() -> None:
    world = World(SMALL_JOBS, nodes=2)  # 32 cores: a fifth would be 7
    assert earliest(world.of(job(), cores=22), HOUR_US) == 0
    assert "ask for at most 22" in world.of(job(), cores=23).never


ALL_GPUS = FreePool(
    "gpus", "gpu", parse_amount("all"), parse_access("group=1001 or group=1002 or user=alice or time<=2h")
)


def test_pool_2_all_gpus_for_two_groups_and_alice_others_two_hours() -> None:
    world = World(ALL_GPUS)
    assert earliest(world.of(job(hours=2), gpus=1), 2 * HOUR_US) == 0
    assert "pool gpus" in world.of(job(hours=2.1), gpus=1).never
    assert world.of(job("alice", hours=48), gpus=4).constraints == ()
    assert world.of(job(hours=48, groups=("7", "1002")), gpus=4).constraints == ()
    assert world.of(job(hours=48), cores=16).constraints == ()


def test_pool_3_gpu_nodes_for_maintenance_every_two_months() -> None:
    calendar = SiteCalendar("UTC")
    now_us = us(2026, 2, 20)
    pool = FreePool("upkeep", feature="gpunode", validity=parse_validity("cron(0 8 * */2 mon#1)+10h"))
    world = World(pool, nodes=10, gpu_nodes=2, now_us=now_us, calendar=calendar)
    closed = world.of(job()).closed
    assert [(one.start_us, one.stop_us) for one in closed[:3]] == [
        (us(2026, 3, 2, 8), us(2026, 3, 2, 18)),
        (us(2026, 5, 4, 8), us(2026, 5, 4, 18)),
        (us(2026, 7, 6, 8), us(2026, 7, 6, 18)),
    ]
    assert {one.mask for one in closed} == {0b11 << 8}
    assert closed[0].why == "pool upkeep"


def test_an_endless_use_under_a_limit_that_recurs_is_told_apart_from_a_long_one() -> None:
    night = limit("night", "cores", "64", validity="cron(* 0-5 * * *)")
    noon = us(2026, 2, 20, 12)
    world = World(night, now_us=noon, calendar=SiteCalendar("UTC"))
    world.book(job(hours=0), noon, noon + 3 * DAY_US, (60, 0, 0))
    assert earliest(world.of(job(hours=0), cores=5), INFINITY_US, noon) == us(2026, 2, 23, 6)
    assert earliest(world.of(job(hours=0), cores=5), 12 * HOUR_US, noon) == noon
    world.book(job(hours=0), noon, INFINITY_US, (60, 0, 0))
    assert earliest(world.of(job(hours=0), cores=5), INFINITY_US, noon) is None
    assert earliest(world.of(job(hours=13), cores=5), 13 * HOUR_US, noon) == us(2026, 2, 21, 6)
    assert earliest(world.of(job(hours=19), cores=5), 19 * HOUR_US, noon) is None


def test_a_job_without_end_keeps_out_of_what_recurs() -> None:
    night = limit("night", "cores", "unlimited", "2h", validity="cron(* 0-5 * * *)")
    world = World(night, now_us=us(2026, 2, 20), calendar=SiteCalendar("UTC"))
    assert earliest(world.of(job(hours=0)), INFINITY_US, us(2026, 2, 20)) is None
    assert earliest(world.of(job(hours=3)), 3 * HOUR_US, us(2026, 2, 20, 4)) == us(2026, 2, 20, 6)
    assert earliest(world.of(job(hours=18)), 18 * HOUR_US, us(2026, 2, 20, 7)) == us(2026, 2, 21, 6)
    assert earliest(world.of(job(hours=19)), 19 * HOUR_US, us(2026, 2, 20, 7), us(2026, 3, 20)) is None


@pytest.mark.parametrize(
    ("who", "bound"),
    [
        (job("ada", groups=("1", "3")), ["a-user"]),
        (job("bob", groups=("1", "2")), ["any-user", "group-2"]),
        (job("bob", groups=("2",), qos="fast"), ["any-user", "group-2", "fast"]),
        (job("ada", account="lab"), ["a-user", "faculty", "any-account"]),
        (job("ada", account="faculty"), ["a-user", "faculty"]),
    ],
)
def test_who_is_bound_by_what(who: object, bound: list[str]) -> None:
    policies: tuple[Policy, ...] = (
        limit("a-user", "cores", "64", consumer="ada"),
        limit("any-user", "cores", "32"),
        limit("group-2", "cores", "99", kind="group", consumer="2"),
        limit("any-group", "gpu", "99", kind="group"),
        limit("fast", "cores", "99", kind="qos", consumer="fast"),
        limit("faculty", "cores", "500", kind="account", consumer="faculty"),
        limit("any-account", "cores", "100", kind="account"),
        Account("lab", "faculty"),
        Account("faculty"),
    )
    rules = World(*policies).of(who)  # type: ignore[arg-type]
    names = {rule.limit.name for rule in rules.constraints}  # type: ignore[attr-defined]
    assert names == set(bound)


def test_what_an_account_below_uses_counts_above() -> None:
    faculty = limit("faculty", "cores", "100", kind="account", consumer="faculty")
    world = World(faculty, Account("lab", "faculty"), Account("chem", "faculty"), Account("faculty"))
    world.book(job(account="lab"), 0, HOUR_US, (90, 0, 0))
    assert earliest(world.of(job("bob", account="chem"), cores=11), HOUR_US) == HOUR_US
    used = used_by(world.of(job("bob", account="chem")), ("account", "faculty"))
    assert used is not None and used.items_now == 90


def test_percentages_count_what_is_in_service() -> None:
    world = World(limit("share", "cores", "30/45%"), nodes=10)
    assert not world.of(job(), cores=72).never
    assert "ask for at most 72" in world.of(job(), cores=73).never
    rules = world.of(job(), cores=40)
    assert earliest(rules, HOUR_US) == 0
    world.rules.set_usable(0b11111)
    assert earliest(rules, HOUR_US) is None
    world.rules.set_usable(0b1)
    assert earliest(world.of(job(), cores=30), HOUR_US) == 0


def test_what_runs_on_nodes_that_are_out_is_not_missing_from_a_pool() -> None:
    world = World(FreePool("kept", "cores", Amount(4)), nodes=2, gpu_nodes=0)
    world.book(job("bob"), 0, INFINITY_US, (16, 0, 0))
    world.rules.set_usable(0b10, (16, 0, 0))
    assert earliest(world.of(job(), cores=12), HOUR_US) == 0
    assert earliest(world.of(job(), cores=13), HOUR_US) is None


def test_licences_and_nodes_are_resources_too() -> None:
    world = World(
        limit("few", "matlab", "4"), limit("narrow", "nodes", "3"), limit("all", "*", "unlimited", "2h")
    )
    world.book(job("bob"), 0, HOUR_US, (1, 0, 0), (8,))
    assert earliest(world.of(job(), licences=2), HOUR_US) == 0
    assert earliest(world.of(job(), licences=3), HOUR_US) == HOUR_US
    assert "limit few" in world.of(job(), licences=5).never
    assert "limit narrow" in world.rules.of(job(), world.need(4, nodes_min=4)).never


COURSE = Reservation(
    "course",
    Validity(10 * HOUR_US, 20 * HOUR_US),
    ("n002", "n003"),
    users=("ada",),
    groups=("500",),
)


def test_a_reservation_is_a_system_of_its_own() -> None:
    """C-41."""
    world = World(COURSE, SMALL_JOBS)
    inside = world.of(job(hours=2, reservation="course"), cores=1500)
    assert inside.within == 0b1100
    assert (inside.from_us, inside.until_us) == (10 * HOUR_US, 20 * HOUR_US)
    assert inside.closed == ()
    assert [rule.kind for rule in inside.constraints] == ["reservation"]
    assert earliest(inside, 2 * HOUR_US) == 10 * HOUR_US
    assert earliest(inside, 2 * HOUR_US, 19 * HOUR_US) is None
    outside = world.of(job(hours=2))
    assert [(one.start_us, one.stop_us, one.mask) for one in outside.closed] == [
        (10 * HOUR_US, 20 * HOUR_US, 0b1100)
    ]
    assert world.of(job("eve", groups=("500",), reservation="course")).never == ""


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (job("eve", reservation="course"), "not open to user eve"),
        (job(reservation="curse"), "curse does not exist"),
        (job(reservation="upkeep"), "maintenance"),
    ],
)
def test_who_may_not_enter_a_reservation_is_told(who: object, why: str) -> None:
    upkeep = Reservation("upkeep", Validity(HOUR_US, 2 * HOUR_US), ("n001",), maintenance=True)
    assert why in World(COURSE, upkeep).of(who).never  # type: ignore[arg-type]


def test_a_reservation_that_is_over_is_told_and_closes_nothing() -> None:
    world = World(COURSE, now_us=20 * HOUR_US)
    assert "has ended" in world.of(job(reservation="course")).never
    assert world.of(job()).closed == ()


def test_maintenance_closes_nodes_for_jobs_inside_reservations_too() -> None:
    upkeep = Reservation("upkeep", Validity(HOUR_US, 12 * HOUR_US), ("n003",), maintenance=True)
    closed = World(COURSE, upkeep).of(job(reservation="course")).closed
    assert [(one.mask, one.why) for one in closed] == [(0b1000, "reservation upkeep (maintenance)")]


def test_a_reservation_that_recurs_is_used_one_occurrence_at_a_time() -> None:
    weekly = Reservation("weekly", parse_validity("cron(0 8 * * mon)+4h"), ("n001",))
    now_us = us(2026, 5, 5)
    world = World(weekly, now_us=now_us, calendar=SiteCalendar("UTC"))
    rules = world.of(job(hours=3, reservation="weekly"))
    assert earliest(rules, 3 * HOUR_US, now_us) == us(2026, 5, 11, 8)
    assert earliest(rules, 3 * HOUR_US, us(2026, 5, 11, 9, 30)) == us(2026, 5, 18, 8)
    assert earliest(rules, 5 * HOUR_US, now_us, us(2026, 6, 1)) is None


def test_nobody_is_planned_into_an_occurrence_that_is_not_told_yet() -> None:
    """A reservation that recurs more often than a plan can tell apart."""
    busy = Reservation("busy", parse_validity("cron(*/15 * * * *)+5m"), ("n001",))
    world = World(busy, calendar=SiteCalendar())
    for hour in range(0, 60, 3):
        world.rules.advance(hour * HOUR_US)
        closed = world.of(job()).closed
        assert [closure.start_us for closure in closed] == sorted(closure.start_us for closure in closed)
        for at_us in range(hour * HOUR_US, (hour + 60) * HOUR_US, HOUR_US // 4):
            assert any(closure.start_us <= at_us < closure.stop_us for closure in closed)
        gap_us = hour * HOUR_US + HOUR_US // 8
        assert not any(closure.start_us <= gap_us < closure.stop_us for closure in closed)


def test_a_pool_of_nodes_lets_its_users_in() -> None:
    pool = FreePool("lab", nodes="n[001-002],n005", access=(Access(accounts=("lab",)),))
    world = World(pool)
    assert [one.mask for one in world.of(job()).closed] == [0b100110]
    assert world.of(job(account="lab")).closed == ()


def test_reasons_carry_numbers() -> None:
    world = World(limit("aug", "cores", "640", consumer="ada"), SMALL_JOBS)
    for _ in range(12):
        world.book(job(), 0, 2 * HOUR_US, (50, 0, 0))
    texts = [rule.why() for rule in world.of(job(), cores=128).constraints]
    assert texts == [
        "limit aug: user ada may use 640 cores at a time; 600 cores are used by 12 jobs "
        "(2 h until the first gives some back), 128 cores are asked for",
        "pool small keeps 320 cores of 1600 free for others; the rest is in use or too little for the "
        "128 cores asked for",
    ]


def test_revoking_is_the_inverse_of_booking_even_after_time_has_passed() -> None:
    world = World(limit("aug", "cores", "640"))
    first = world.book(job(), 0, 2 * HOUR_US, (50, 0, 0))
    second = world.book(job(), HOUR_US, 3 * HOUR_US, (70, 0, 0))
    world.rules.advance(HOUR_US + 5)
    world.rules.revoke(job(), first)
    used = used_by(world.of(job()), ("user", "ada"))
    assert used is not None
    assert (used.items_now, used.jobs_now) == (70, 1)
    world.rules.revoke(job(), second)
    assert (used.items_now, used.jobs_now) == (0, 0)
    with pytest.raises(KeyError):
        world.rules.revoke(job(), second)


def test_a_copy_goes_its_own_way() -> None:
    world = World(limit("aug", "cores", "640"))
    world.book(job(), 0, 2 * HOUR_US, (600, 0, 0))
    copy = world.rules.copy(world.future)
    stay = world.book(job(), 0, HOUR_US, (40, 0, 0))
    assert earliest(copy.of(job(), world.need(40)), HOUR_US) == 0
    assert earliest(world.of(job(), cores=40), HOUR_US) == HOUR_US
    world.rules.revoke(job(), stay)
    assert earliest(world.of(job(), cores=40), HOUR_US) == 0


def test_the_rules_read_the_book_as_it_is() -> None:
    topology = World().topology
    book = ResourceProfile(topology, topology.wide_totals, now_us=0)
    rules = Rules({"pool": {SMALL_JOBS.name: SMALL_JOBS}}, topology, book, now_us=0)
    need = compile_request(Request(tasks=16, wide=(("matlab", 4),)), PartitionView("main"), topology)
    assert earliest(rules.of(job(), need), HOUR_US) == 0
    spans = tuple((number, (16, 0, 0)) for number in range(80))
    book.book(spans, 0, HOUR_US)
    rules.book(job(), Stay(0, HOUR_US, spans))
    assert earliest(rules.of(job(), need), HOUR_US) == HOUR_US
    one = ((90, (1, 0, 0)),)
    book.book(one, HOUR_US, 3 * HOUR_US, (7,))
    rules.book(job(), Stay(HOUR_US, 3 * HOUR_US, one, (7,)))
    assert earliest(rules.of(job(), need), HOUR_US) == 3 * HOUR_US


def test_equal_jobs_share_their_rules() -> None:
    world = World(*EXAMPLE_1)
    assert world.of(job(), cores=4) is world.of(job(), cores=4)
    assert world.of(job(), cores=4) is not world.of(job("bob"), cores=4)


def test_what_recurs_goes_on_as_time_passes() -> None:
    now_us = us(2026, 2, 20)
    weekly = Reservation("weekly", parse_validity("cron(0 8 * * mon)+4h"), ("n001",))
    world = World(weekly, now_us=now_us, calendar=SiteCalendar("UTC"))
    assert world.of(job()).closed[-1].stop_us < us(2027, 6, 1)
    world.rules.advance(us(2028, 2, 20))
    closed = world.of(job()).closed
    assert closed[0].start_us == us(2028, 2, 21, 8)
    assert closed[-1].stop_us > us(2029, 3, 1)
