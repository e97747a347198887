"""The roster: how satellites come, fall silent, heal and are given up, and who gets which share (E-07 to E-16)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.dispatch.satellite_pool import SatellitePool, SatelliteStatus, legs_wanted, satellite_number
from eslurm.core.model import facts
from eslurm.core.model.satellite import SatelliteDown
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.state.cluster import State

SECOND = 1_000_000
RUNNING, BUSY, FAULT = SatelliteState.RUNNING, SatelliteState.BUSY, SatelliteState.FAULT
UNKNOWN, DOWN = SatelliteState.UNKNOWN, SatelliteState.DOWN


class Site:
    """A roster with a hand on the clock; satellites answer pings when told to."""

    def __init__(self, count: int = 3, **policy: object) -> None:
        self.now_us = 1_000 * SECOND
        self.state = State("ctl")
        self.state.config = replace(self.state.config, heartbeat_s=5.0, **policy)
        self.pings: list[tuple[int, int]] = []
        names = [f"sat{index}" for index in range(count)]
        self.roster = SatellitePool(self.state, names, lambda number, seq: self.pings.append((number, seq)))
        self.silent: list[str] = []

    def begin(self) -> Site:
        self.roster.begin(self.now_us)
        return self

    def link(self, *indexes: int) -> None:
        for index in indexes:
            self.roster.on_linked(f"sat{index}", self.now_us)

    def answer(self, *indexes: int) -> None:
        for index in indexes:
            self.roster.on_status(-1 - index, SatelliteStatus(1), self.now_us)

    def up(self, *indexes: int) -> Site:
        self.begin()
        self.link(*indexes)
        self.answer(*indexes)
        return self

    def pass_time(self, seconds: float, answering: Sequence[int] = ()) -> None:
        end_us = self.now_us + round(seconds * SECOND)
        while (due_us := self.roster.next_timer_us()) is not None and due_us <= end_us:
            self.now_us = max(self.now_us, due_us)
            self.silent += self.roster.on_timer(self.now_us)
            self.answer(*answering)
        self.now_us = end_us

    @property
    def states(self) -> list[SatelliteState]:
        return [one.state for one in self.roster.satellites]

    def give(self, nodes: int = 1, width: int = 16) -> list[int]:
        return [leg.to_node for leg in self.roster.legs(range(nodes), (), width, self.now_us)]


# ---- heartbeats ----


def test_a_link_alone_makes_nobody_running_an_answered_ping_does() -> None:
    site = Site().begin()
    assert site.pings == [] and site.states == [UNKNOWN] * 3
    site.link(0, 1)
    assert site.pings == [(-1, 1), (-2, 2)] and site.states == [UNKNOWN] * 3
    assert site.roster.on_status(-1, SatelliteStatus(1, rss_bytes=7), site.now_us)
    assert not site.roster.on_status(-1, SatelliteStatus(1), site.now_us)
    assert site.states == [RUNNING, UNKNOWN, UNKNOWN]


def test_one_that_was_never_linked_is_at_fault_at_the_first_missed_ping() -> None:
    site = Site().up(0)
    site.pass_time(4.9, [0])
    assert site.states == [RUNNING, UNKNOWN, UNKNOWN]
    site.pass_time(0.2, [0])
    assert site.states == [RUNNING, FAULT, FAULT] and site.roster.get(-2).reason == "no link"


def test_one_missed_ping_is_a_suspicion_and_two_are_a_failure() -> None:
    site = Site(2).up(0, 1)
    site.pass_time(5, [1])
    site.pass_time(5, [1])
    assert site.states == [RUNNING, RUNNING] and site.roster.get(-1).is_suspect
    assert site.give() == [-1], "slow is not dead: a suspect is still given work"
    site.pass_time(5, [1])
    assert site.states == [FAULT, RUNNING] and site.roster.get(-1).reason == "no answer to pings"
    site.answer(0)
    assert site.states == [RUNNING, RUNNING] and not site.roster.get(-1).is_suspect


def test_a_broken_link_is_a_failure_at_once_and_a_new_process_has_to_answer_first() -> None:
    site = Site(1).up(0)
    site.roster.on_unlinked(-1, "stream broke", site.now_us)
    assert site.states == [FAULT] and site.roster.get(-1).reason == "stream broke"
    site.answer(0)
    assert site.states == [FAULT], "an answer that comes after the end of its link is nobody's"
    site.link(0)
    assert site.states == [FAULT]
    site.answer(0)
    assert site.states == [RUNNING]
    site.link(0)
    assert site.states == [FAULT], "another process took its place: what the old one had is lost"


def test_after_twenty_minutes_of_fault_the_core_is_told_once() -> None:
    site = Site(1).up(0)
    site.roster.on_unlinked(-1, "gone", site.now_us)
    site.pass_time(19 * 60 + 59)
    assert site.silent == [] and site.states == [FAULT]
    site.pass_time(1)
    assert site.silent == ["sat0"] and site.states == [FAULT], "DOWN is a fact: it is to be committed first"
    site.link(0)
    site.answer(0)
    assert site.states == [FAULT], "too late: the core knows"
    site.roster.on_changed(facts.SatelliteChanged("sat0", DOWN, "in FAULT for 1200 s"), site.now_us)
    site.pass_time(3600, [0])
    assert site.silent == ["sat0"] and site.states == [DOWN]
    assert site.roster.get(-1).reason == "in FAULT for 1200 s"


def test_one_that_is_down_is_left_in_peace_until_it_is_resumed() -> None:
    site = Site(2).up(0, 1)
    site.roster.on_changed(facts.SatelliteChanged("sat0", DOWN, "disk"), site.now_us)
    site.pings.clear()
    site.pass_time(10, [0, 1])
    assert {number for number, _ in site.pings} == {-2} and site.states == [DOWN, RUNNING]
    assert {site.give()[0] for _ in range(4)} == {-2}
    site.roster.on_changed(facts.SatelliteChanged("sat0", UNKNOWN), site.now_us)
    assert site.states == [UNKNOWN, RUNNING] and site.pings[-1][0] == -1
    site.answer(0)
    assert site.states == [RUNNING, RUNNING]


def test_who_was_down_before_the_controller_started_is_down() -> None:
    site = Site(1)
    site.state.satellites_down["sat7"] = SatelliteDown("sat7", "disk", 77)
    known = SatellitePool(site.state, ["sat7"], lambda number, seq: None).get(-1)
    assert (known.state, known.reason, known.since_us) == (DOWN, "disk", 77)
    assert site.roster.on_linked("sat7", site.now_us).state is DOWN


def test_numbers_follow_the_configuration_and_strangers_get_the_next() -> None:
    site = Site(2).begin()
    assert [one.number for one in site.roster.satellites] == [satellite_number(at) for at in range(2)]
    stranger = site.roster.on_linked("other", site.now_us)
    assert stranger.number == -3 and site.roster.on_linked("other", site.now_us) is stranger
    assert site.roster.names == ("sat0", "sat1", "other")


def test_the_name_of_a_compute_node_is_no_satellites() -> None:
    site = Site(1)
    site.state.numbers["cn7"] = 7
    assert "'cn7' is also that of a compute node" in site.roster.refusal("cn7")
    assert site.roster.refusal("sat0") == ""


# ---- shares ----


@pytest.mark.parametrize(
    ("nodes", "satellites", "wanted"),
    [(1, 3, 1), (16, 3, 1), (17, 3, 2), (32, 3, 2), (33, 3, 3), (48, 3, 3), (4_000, 3, 3), (50, 0, 0)],
)
def test_as_many_satellites_as_the_list_is_worth(nodes: int, satellites: int, wanted: int) -> None:
    assert legs_wanted(nodes, 16, satellites) == wanted


def test_equation_1_over_all_sizes_widths_and_satellites() -> None:
    """E-07 as printed, with ceil in the middle; never more than there are, and one share is no more than is needed."""
    for width in (2, 3, 16):
        for m in range(1, 6):
            for s in range(1, 5 * width * m):
                if s <= width:
                    expected = 1
                elif s < m * width:
                    expected = -(-s // width)
                else:
                    expected = m
                assert legs_wanted(s, width, m) == expected <= m


def test_shares_keep_the_order_and_take_turns() -> None:
    site = Site().up(0, 1, 2)
    legs = site.roster.legs(list(range(40, 0, -1)), (), 16, site.now_us)
    assert [node for leg in legs for node in leg.nodes] == list(range(40, 0, -1))
    assert [len(leg.nodes) for leg in legs] == [14, 13, 13]
    assert [site.give()[0] for _ in range(6)] == [-1, -2, -3, -1, -2, -3]
    site.roster.on_unlinked(-2, "gone", site.now_us)
    assert {site.give()[0] for _ in range(4)} == {-1, -3}
    site.roster.on_unlinked(-1, "gone", site.now_us)
    site.roster.on_unlinked(-3, "gone", site.now_us)
    assert site.give() == [] and not site.roster.has_running and not site.roster.has_prospects


def test_predicted_nodes_are_spread_over_the_shares() -> None:
    site = Site(2).up(0, 1)
    legs = site.roster.legs(list(range(40)), set(range(10)), 20, site.now_us)
    assert [len(leg.nodes) for leg in legs] == [20, 20]
    assert [sum(node < 10 for node in leg.nodes) for leg in legs] == [5, 5]
    assert sorted(node for leg in legs for node in leg.nodes) == list(range(40))


def test_tasks_are_even_over_many_broadcasts_of_any_size() -> None:
    site = Site(5, satellite_max_inflight=1_000_000).up(*range(5))
    rng = random.Random(9)
    for _ in range(1_000):
        site.give(rng.randint(1, 200))
        given = [one.tasks_given for one in site.roster.satellites]
        assert max(given) - min(given) <= 1


def test_one_at_a_time_as_in_the_paper() -> None:
    site = Site(2, satellite_max_inflight=1).up(0, 1)
    assert [site.give(), site.give(), site.give()] == [[-1], [-2], []]
    assert site.states == [BUSY, BUSY] and site.roster.has_prospects
    site.answer(0)
    assert site.states == [BUSY, BUSY], "a heartbeat finishes no task"
    site.roster.on_leg_done(-2, site.now_us)
    assert site.states == [BUSY, RUNNING] and site.give() == [-2]


def test_a_satellite_that_heals_with_its_hands_full_is_busy() -> None:
    site = Site(1, satellite_max_inflight=2).up(0)
    site.give()
    site.give()
    site.roster.on_unlinked(-1, "gone", site.now_us)
    site.link(0)
    site.answer(0)
    assert site.states == [BUSY]
    site.roster.on_leg_failed(-1, 9, "link lost", site.now_us)
    assert site.states == [FAULT]
    site.answer(0)
    assert site.states == [RUNNING]


# ---- reallocation ----


def test_a_failed_share_goes_to_the_next_and_after_two_times_to_the_controller() -> None:
    site = Site(4).up(*range(4))
    (first,) = site.give()
    failed, handed_on = first, []
    for tries in range(2):
        following = site.roster.on_leg_failed(failed, tries, "no progress", site.now_us)
        assert following is not None
        handed_on.append(following)
        failed = following
    assert (first, handed_on) == (-1, [-2, -3])
    assert site.roster.on_leg_failed(failed, 2, "no progress", site.now_us) is None
    assert site.states == [FAULT, FAULT, FAULT, RUNNING]
    assert [one.failures for one in site.roster.satellites] == [1, 1, 1, 0]
    assert [one.running for one in site.roster.satellites] == [0, 0, 0, 0]
    site.roster.on_reallocated(-2, 12)
    assert site.roster.get(-2).nodes_given == 12


def test_without_another_one_the_controller_takes_over_at_once() -> None:
    site = Site(2).up(0)
    (first,) = site.give()
    assert site.roster.on_leg_failed(first, 0, "link lost", site.now_us) is None


def test_any_history_keeps_count_of_what_is_under_way() -> None:
    """Tasks given and not yet taken back are `running`; BUSY means exactly that there are too many of them."""
    for seed in range(60):
        rng = random.Random(seed)
        limit = rng.choice((1, 2, 5))
        site = Site(3, satellite_max_inflight=limit, satellite_down_after_s=40.0).begin()
        out: list[tuple[int, int]] = []
        for _ in range(150):
            index = rng.randrange(3)
            act = rng.random()
            if act < 0.35:
                out += [(number, 0) for number in site.give(rng.randint(1, 60))]
            elif act < 0.55 and out:
                number, _ = out.pop(rng.randrange(len(out)))
                site.roster.on_leg_done(number, site.now_us)
            elif act < 0.65 and out:
                number, tries = out.pop(rng.randrange(len(out)))
                following = site.roster.on_leg_failed(number, tries, "lost", site.now_us)
                if following is not None:
                    assert tries < 2
                    out.append((following, tries + 1))
            elif act < 0.75:
                site.link(index)
            elif act < 0.8:
                site.roster.on_unlinked(-1 - index, "lost", site.now_us)
            elif act < 0.95:
                site.answer(index)
            else:
                site.pass_time(rng.choice((0.1, 5, 60)))
                for name in site.silent:
                    site.roster.on_changed(
                        facts.SatelliteChanged(name, rng.choice((DOWN, UNKNOWN))), site.now_us
                    )
                site.silent.clear()
            for one in site.roster.satellites:
                assert one.running == sum(number == one.number for number, _ in out), seed
                assert (one.state is BUSY) <= (one.running >= limit), seed
                assert (one.state is RUNNING) <= (one.running < limit), seed
