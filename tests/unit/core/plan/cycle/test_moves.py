"""Wishes in the plan (D-06, D-07): a pack's members to come move to earlier starts, a running job's end to a later one.

Neither delays a planned job, and what is not committed changes nothing.
"""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from eslurm.core.model.job import Span
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.moves import SOON_US
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.snapshot import Running, Snapshot
from eslurm.core.plan.cycle.wishes import WantedEnd, WantedStarts, Wishes
from eslurm.core.plan.placement.mapping import end_of
from tests.kits.plan_building import NOW, started
from tests.kits.planned_packs import PackSite, node_jobs, pack, single

ALL = ("conservative", "easy", "fcfs", "planned")
AHEAD = ("conservative", "planned")
ONE, TWO, THREE, FOUR = (node_jobs(count) for count in (1, 2, 3, 4))
S = SECOND_US


class MovingSite(PackSite):
    """A cluster whose packs and jobs have wishes; its times are whole seconds."""

    wishes: Wishes | None = None

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), wishes=self.wishes)

    def starts(self) -> dict[int, int]:
        return {job_id: at // S for job_id, at in super().starts().items()}

    def owed(self) -> tuple[tuple[int, int], ...]:
        entries = sorted(self.queue.fixed.values(), key=lambda entry: entry.job_id)
        return tuple(
            [
                (entry.job_id, entry.job.start_at_us)
                for entry in entries
                if entry.job.start_at_us > self.now_us
            ]
        )

    def ask(self, to_s: int = 0, *, is_committed: bool = True) -> Plan:
        """The plan of a cycle with a pack's wish; what it grants becomes so, if it is committed."""
        self.wishes = Wishes((WantedStarts(1, 7, self.owed(), NOW + to_s * S),))
        plan = self.plan()
        self.wishes = None
        (grant,) = plan.granted
        assert (grant.pack_id, grant.serial) == (1, 7)
        if is_committed:
            for job_id, start_us in grant.starts:
                job = self.queue.find(job_id)
                assert job is not None
                self.queue.replace(replace(job, start_at_us=start_us))
        return plan

    def more_time(self, job_id: int, time_limit_s: int) -> tuple[int, str]:
        """The limit in seconds that a running job is granted (0: none), and the text."""
        running = self.running[job_id, 1]
        has_s = (running.until_us - NOW) // S
        self.wishes = Wishes((), (WantedEnd(job_id, 1, 7, NOW, has_s, time_limit_s),))
        plan = self.plan()
        self.wishes = None
        (grant,) = plan.extended
        return grant.time_limit_s, grant.text

    def run(self, job_id: int, node: int, limit_s: int, cores: int = 4, estimate_s: int = 0) -> None:
        job = single(job_id, node_jobs(1, cores), limit_s * S, estimate_us=estimate_s * S)
        expected_us = NOW + estimate_s * S if estimate_s else 0
        self.running[job_id, 1] = Running(
            job_id,
            ((node, (cores, 0)),),
            end_of(NOW, limit_s * S),
            job=job,
            expected_us=expected_us,
            since_us=NOW if estimate_s else 0,
        )


def begun(policy: str, *members: tuple[int, object, int], nodes: int = 4) -> MovingSite:
    """A cluster in which a pack with these (delay, request, limit), in seconds, has just begun."""
    site = MovingSite(policy, nodes)
    site.submit(pack(1, *[(delay * S, request, limit * S) for delay, request, limit in members]))  # type: ignore[misc]
    assert started(site.cycle().placements) == [1]
    site.cycle(NOW + S)
    return site


@pytest.mark.parametrize("policy", ALL)
def test_all_members_to_come_move_by_the_same_time(policy: str) -> None:
    site = begun(policy, (0, ONE, 100), (50, ONE, 20), (90, TWO, 20))
    plan = site.ask(20)
    assert plan.granted[0].text == "30 s earlier"
    assert site.starts() == {2: 20, 3: 60}
    # Found again as they are once the log has it.
    nodes = {job_id: site.nodes(job_id) for job_id in (2, 3)}
    site.cycle(NOW + 2 * S)
    assert site.starts() == {2: 20, 3: 60}
    assert {job_id: site.nodes(job_id) for job_id in (2, 3)} == nodes
    assert started(site.cycle(NOW + 20 * S).placements) == [2]
    site.end(2)
    assert started(site.cycle(NOW + 60 * S).placements) == [3]


@pytest.mark.parametrize("policy", ALL)
def test_as_early_as_possible_is_not_before_it_can_be_committed(policy: str) -> None:
    site = begun(policy, (0, ONE, 100), (50, ONE, 20), (90, ONE, 20))
    site.ask()
    (first_us, second_us) = (one.start_us for one in site.schedule.bookings[2] + site.schedule.bookings[3])
    assert first_us == site.now_us + SOON_US
    assert second_us - first_us == 40 * S


@pytest.mark.parametrize("policy", AHEAD)
def test_a_move_goes_as_far_as_the_plan_of_others_allows(policy: str) -> None:
    site = begun(policy, (0, ONE, 120), (200, FOUR, 50), (300, ONE, 50))
    site.end(1)
    # Of four nodes three are in use until 100, and planned for another job from 100 to 130.
    for node in (1, 2, 3):
        site.hold(900 + node, node, 4, NOW + 100 * S)
    site.cycle()
    site.submit(single(20, THREE, 30 * S))
    site.cycle(NOW + 2 * S)
    assert site.starts()[20] == 100
    plan = site.ask(50)
    assert site.starts()[20] == 100
    assert site.starts() == {20: 100, 2: 130, 3: 230}
    assert plan.granted[0].text == "70 s earlier, of 150 s: job 2 finds no room before"
    assert plan.granted[0].starts == ((2, NOW + 130 * S), (3, NOW + 230 * S))


@pytest.mark.parametrize("policy", AHEAD)
def test_a_move_without_room_is_refused_and_changes_nothing(policy: str) -> None:
    site = begun(policy, (0, ONE, 100), (100, FOUR, 50))
    plan = site.ask(50)
    assert plan.granted[0].starts == ()
    assert plan.granted[0].text == "job 2 finds no room before"
    assert site.starts() == {2: 100}
    assert site.schedule.whys[2].planned_start_us == NOW + 100 * S
    site.cycle(NOW + 2 * S)
    assert site.starts() == {2: 100}


@pytest.mark.parametrize("policy", AHEAD)
def test_what_a_move_leaves_is_offered_to_others_when_it_is_committed(policy: str) -> None:
    site = begun(policy, (0, ONE, 100), (150, FOUR, 50))
    site.submit(single(20, FOUR, 60 * S))
    site.cycle(NOW + 2 * S)
    assert site.starts() == {2: 150, 20: 200}
    site.ask(100)
    assert site.starts() == {2: 100, 20: 200}
    site.cycle(NOW + 3 * S)
    assert site.starts() == {2: 100, 20: 150}


@pytest.mark.parametrize("policy", ALL)
def test_a_move_that_is_not_committed_is_taken_back(policy: str) -> None:
    site = begun(policy, (0, ONE, 100), (150, FOUR, 50))
    site.submit(single(20, FOUR, 60 * S))
    site.cycle(NOW + 2 * S)
    site.ask(100, is_committed=False)
    assert site.starts()[2] == 100
    site.cycle(NOW + 3 * S)
    assert site.starts()[2] == 150
    # It does not begin at a start that nothing has granted.
    assert not site.cycle(NOW + 100 * S).placements
    site.end(1)
    assert started(site.cycle(NOW + 150 * S).placements) == [2]


@pytest.mark.parametrize("policy", AHEAD)
def test_a_member_without_its_place_holds_back_none_of_the_others(policy: str) -> None:
    site = begun(policy, (0, ONE, 100), (50, THREE, 20), (80, ONE, 20))
    site.out |= {2, 3}
    site.cycle(NOW + 2 * S)
    assert site.starts() == {3: 80}
    plan = site.ask(40)
    assert plan.granted[0].starts == ((2, NOW + 40 * S), (3, NOW + 70 * S))
    site.cycle(NOW + 3 * S)
    assert site.starts() == {3: 70}


@pytest.mark.parametrize("policy", AHEAD)
def test_a_moved_start_holds_by_limits_not_by_forecasts(policy: str) -> None:
    site = MovingSite(policy, 2)
    site.run(900, 0, 100, estimate_s=40)
    site.submit(pack(1, (0, ONE, 30 * S), (150 * S, TWO, 20 * S)))
    assert started(site.cycle().placements) == [1]
    site.end(1)
    site.cycle(NOW + S)
    assert site.starts() == {2: 150}
    assert site.ask(50).granted[0].starts == ((2, NOW + 100 * S),)


def test_a_pack_without_members_to_come_is_answered() -> None:
    site = begun("easy", (0, ONE, 100), (50, ONE, 20))
    site.cycle(NOW + 50 * S)
    assert not site.owed()
    plan = site.ask(40)
    assert plan.granted[0].starts == ()
    assert plan.granted[0].text == "no job of pack 1 is to come any more"


@pytest.mark.parametrize("policy", AHEAD)
@pytest.mark.parametrize("seed", range(8))
def test_a_move_is_the_greatest_that_delays_no_other_job(policy: str, seed: int) -> None:
    """Against trying each shift, on the room that others leave."""
    rng = random.Random(seed)
    moved = refused = 0
    for _ in range(12):
        nodes = rng.randint(2, 4)
        site = MovingSite(policy, nodes)
        members = [(0, node_jobs(1, 1), 30)]
        members += [
            (at, node_jobs(rng.randint(1, nodes), rng.randint(1, 4)), rng.randint(5, 20))
            for at in (rng.randint(40, 60), rng.randint(60, 90))
        ]
        site.submit(pack(1, *[(delay * S, request, limit * S) for delay, request, limit in members]))
        site.cycle()
        for at in range(rng.randint(1, 6)):
            request = node_jobs(rng.randint(1, nodes), rng.randint(1, 3))
            site.submit(single(20 + at, request, rng.randint(5, 40) * S))
        site.cycle(NOW + S)
        before = site.starts()
        if 2 not in before:
            # Its members need the same nodes at the same time: it never begins.
            continue
        busy = _busy(site, nodes, (2, 3))
        wanted = rng.randint(2, before[2] - 1)
        site.ask(wanted)
        after = site.starts()
        assert {one: at for one, at in after.items() if one > 3} == {
            one: at for one, at in before.items() if one > 3
        }
        shift = before[2] - after[2]
        assert before[3] - after[3] == shift >= 0
        most = next(
            (
                earlier
                for earlier in range(before[2] - wanted, 0, -1)
                if all(
                    _fits(busy, site, job_id, before[job_id] - earlier, members[job_id - 1][2])
                    for job_id in (2, 3)
                )
            ),
            0,
        )
        # Both may need the same cores at the same time: seldom here, and then less is right.
        assert shift <= most
        moved += shift == most > 0
        refused += shift == most == 0
        site.schedule.book.check()
    assert moved + refused >= 7
    assert moved


def _busy(site: MovingSite, nodes: int, without: tuple[int, ...]) -> list[list[int]]:
    """Cores in use of each node in each second."""
    busy = [[0] * 700 for _ in range(nodes)]
    places: list[tuple[int, int, tuple[tuple[int, int], ...]]] = [
        (0, (one.until_us - NOW) // S, tuple([(node, amounts[0]) for node, amounts in one.spans]))
        for one in site.running.values()
    ]
    for job_id, bookings in site.schedule.bookings.items():
        if job_id in without:
            continue
        for booking in bookings:
            spans: tuple[Span, ...] = booking.spans
            taken = tuple([(span.node, span.amounts[0]) for span in spans])
            places.append(((booking.start_us - NOW) // S, (booking.stop_us - NOW) // S, taken))
    for start, stop, pairs in places:
        for node, cores in pairs:
            for at in range(start, min(stop, 700)):
                busy[node][at] += cores
    return busy


def _fits(busy: list[list[int]], site: MovingSite, job_id: int, start: int, limit: int) -> bool:
    request = site.schedule.entries[job_id].job.request
    free = [row for row in busy if max(row[start : start + limit]) + request.cpus_per_task <= 4]
    return len(free) >= request.nodes_min


# ---- longer limits ----


@pytest.mark.parametrize("policy", AHEAD)
def test_a_limit_grows_as_far_as_nothing_is_planned(policy: str) -> None:
    site = MovingSite(policy, 2)
    site.run(900, 0, 100)
    site.run(901, 1, 150)
    site.submit(single(20, TWO, 30 * S))
    site.cycle()
    assert site.starts() == {20: 150}
    assert site.more_time(900, 120) == (120, "time limit 120 s")
    granted_s, text = site.more_time(900, 300)
    assert granted_s == 150
    assert text.startswith("time limit 150 s, of 300 s: another job is planned on its nodes")
    assert site.more_time(901, 300)[0] == 0
    assert "another job is planned" in site.more_time(901, 300)[1]
    assert site.starts() == {20: 150}


def test_two_wishes_of_one_cycle_do_not_get_the_same_room() -> None:
    site = MovingSite("conservative", 1)
    site.run(900, 0, 100, 2)
    site.run(901, 0, 100, 2)
    site.submit(single(20, node_jobs(1, 1), 50 * S), single(21, node_jobs(1, 1), 50 * S))
    site.submit(single(22, node_jobs(1, 2), 50 * S))
    site.cycle()
    site.running[901, 1] = replace(site.running[901, 1], until_us=NOW + 100 * S)
    ends = tuple([WantedEnd(job_id, 1, 7, NOW, 100, 200) for job_id in (900, 901)])
    site.wishes = Wishes((), ends)
    plan = site.plan()
    assert [one.time_limit_s for one in plan.extended] == [0, 0]
    site.end(900)
    site.wishes = Wishes((), ends[1:])
    site.queue.remove(20)
    site.queue.remove(21)
    site.queue.remove(22)
    assert [one.time_limit_s for one in site.plan().extended] == [200]


@pytest.mark.parametrize("policy", AHEAD)
def test_what_is_planned_by_an_expected_end_holds_back_a_longer_limit(policy: str) -> None:
    site = MovingSite(policy, 1)
    site.run(900, 0, 100, estimate_s=40)
    site.submit(single(20, ONE, 30 * S))
    site.cycle()
    assert site.starts() == {20: 40}
    assert site.more_time(900, 200)[0] == 0
    site.queue.remove(20)
    assert site.more_time(900, 200) == (200, "time limit 200 s")


def test_an_answer_leaves_the_plan_as_it_was() -> None:
    site = MovingSite("conservative", 2)
    site.run(900, 0, 100)
    site.submit(single(20, TWO, 30 * S))
    site.cycle()
    before = dict(site.schedule.bookings)
    slots = site.schedule.book.slots
    site.more_time(900, 200)
    assert site.schedule.bookings == before
    assert site.schedule.book.slots == slots
    site.schedule.book.check()


def test_a_run_that_the_plan_does_not_know_is_not_extended() -> None:
    site = MovingSite("easy", 1)
    site.run(900, 0, 100)
    site.wishes = Wishes((), (WantedEnd(901, 1, 7, NOW, 100, 200),))
    (grant,) = plan_at_once(site.snapshot(), policy="easy", schedule=site.schedule).extended
    assert (grant.time_limit_s, grant.text) == (0, "its run has ended")
