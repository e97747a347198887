"""Between when and when a planned job may start, from the forecasts of those before it on its nodes."""

from __future__ import annotations

import random

from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.explain.start_interval import UNKNOWN, Interval, StartIntervals
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.messages import JobRef, SetForecasts, SuspendJobs
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.slices import exhaust
from tests.kits import core as core_world
from tests.kits.core import ROOT, World
from tests.support.seeds import Seeds

S = core_world.SECOND
LIMIT_S = 6000


class Planned:
    """A cluster under full planning, cycle by cycle."""

    def __init__(self, nodes: int = 2, **config: object) -> None:
        self.world = World(nodes, policy="planned", **config)
        self.schedule = Schedule()

    def submit(
        self, nodes: int = 1, forecast: tuple[int, int, int, int] | None = None, **spec: object
    ) -> int:
        request = Request(nodes_min=nodes, nodes_max=nodes, exclusive=True)
        spec.setdefault("time_limit_s", LIMIT_S)
        job = self.world.submit(request=request, **spec)  # type: ignore[arg-type]
        if forecast is not None:
            self.foretell(job, *forecast)
        return job

    def foretell(self, job: int, p10_s: int, p50_s: int, p90_s: int, estimate_s: int) -> None:
        self.world.send(SetForecasts(ROOT, ((job, Forecast(p10_s, p50_s, p90_s, estimate_s)),)))

    def cycle(self) -> None:
        for _ in range(3):
            plan = exhaust(plan_slices(self.world.state, self.world.now_us, self.schedule, PlanLimits()))
            message = message_of(plan)
            if message is None:
                return
            self.world.send(message)
            self.world.deliver()
            self.world.deliver()

    def start_us(self, job: int) -> int:
        return self.schedule.bookings[job][0].start_us

    def interval(self, job: int) -> Interval:
        """In seconds from now."""
        world, booking = self.world, self.schedule.bookings[job][0]
        intervals = StartIntervals(world.state, self.schedule, world.now_us)
        exhaust(intervals.follow(booking.start_us))
        nodes = [span.node for span in booking.spans]
        found = intervals.find(booking.start_us, nodes, world.job(job))
        if found is UNKNOWN:
            return UNKNOWN
        assert found.earliest_us <= booking.start_us <= found.latest_us
        return Interval(*((at_us - world.now_us) // S for at_us in found))


def test_without_forecasts_nothing_is_said() -> None:
    planned = Planned()
    planned.submit(2)
    waiting = planned.submit(2)
    planned.cycle()
    assert planned.interval(waiting) is UNKNOWN


def test_the_ends_come_from_those_who_run_on_its_nodes() -> None:
    planned = Planned()
    first = planned.submit(1, (1000, 2000, 3000, 2000))
    planned.submit(1, (100, 1800, 5000, 1800))
    both = planned.submit(2)
    planned.cycle()
    assert planned.interval(both) == (1000, 5000)
    planned.world.pass_time(500)
    planned.cycle()
    assert planned.interval(both) == (500, 4500)
    # What has lasted longer than its P10 may end at any moment.
    planned.world.pass_time(700)
    planned.cycle()
    assert planned.interval(both) == (0, 3800)
    planned.foretell(first, 2000, 2000, 2000, 2000)
    planned.cycle()
    assert planned.interval(both) == (800, 3800)


def test_a_limit_is_the_latest_end() -> None:
    planned = Planned(1)
    planned.submit(1, (1000, 2000, 9000, 2000))
    waiting = planned.submit()
    planned.cycle()
    assert planned.interval(waiting) == (1000, LIMIT_S)


def test_time_that_a_job_stood_still_does_not_count() -> None:
    planned = Planned(1)
    first = planned.submit(1, (1000, 2000, 3000, 2000))
    waiting = planned.submit()
    planned.cycle()
    planned.world.pass_time(100)
    planned.world.send(SuspendJobs(ROOT, (JobRef(first),)))
    planned.world.deliver()
    planned.world.pass_time(400)
    planned.world.send(SuspendJobs(ROOT, (JobRef(first),), resume=True))
    planned.world.deliver()
    planned.cycle()
    # Plans count in steps: the planned start is a little later than its P90.
    assert planned.interval(waiting) == (900, 2972)


def test_who_comes_behind_a_planned_job_adds_its_interval() -> None:
    planned = Planned(1)
    planned.submit(1, (1000, 2000, 3000, 2000))
    planned.submit(1, (100, 200, 400, 200))
    third = planned.submit()
    planned.cycle()
    assert planned.interval(third) == (1100, 3400)


def test_only_those_on_its_own_nodes_count() -> None:
    planned = Planned(2)
    planned.submit(1, (1000, 2000, 3000, 2000))
    planned.submit(1, (10, 50, 60, 50))
    waiting = planned.submit()
    planned.cycle()
    assert planned.interval(waiting) == (10, 60)


def test_where_something_else_decides_nothing_is_said() -> None:
    planned = Planned(1)
    first = planned.submit(1, (1000, 2000, 3000, 2000))
    now_us = planned.world.now_us
    fixed = planned.submit(1, start_at_us=now_us + 9000 * S)
    after = planned.submit(1, dependencies=core_world.depends("afterany", first))
    late = planned.submit(1, begin_us=now_us + 1500 * S)
    planned.cycle()
    assert planned.interval(fixed) is UNKNOWN
    assert planned.interval(after) is UNKNOWN
    # Nobody may start before the time that it asked for itself.
    assert planned.interval(late).earliest_us >= 1500


def test_plans_that_count_on_limits_have_no_intervals() -> None:
    planned = Planned(1, use_forecasts=False)
    planned.submit(1, (1000, 2000, 3000, 2000))
    waiting = planned.submit()
    planned.cycle()
    assert planned.interval(waiting) is UNKNOWN


def test_planned_starts_lie_within_their_intervals_whatever_is_foretold(seeds: Seeds) -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        planned = Planned(4)
        jobs: list[int] = []
        for _ in range(25):
            low = rng.randint(1, 3000)
            middle, high = low + rng.randint(0, 2000), low + rng.randint(2000, 9000)
            said = (low, middle, high, rng.randint(1, 9000)) if rng.random() < 0.7 else None
            jobs.append(planned.submit(rng.randint(1, 4), said, time_limit_s=rng.choice((600, LIMIT_S))))
            planned.cycle()
            planned.world.pass_time(rng.choice((0, 0, 100, 700)))
        planned.cycle()
        intervals = StartIntervals(planned.world.state, planned.schedule, planned.world.now_us)
        bookings = [one for some in planned.schedule.bookings.values() for one in some]
        for booking in sorted(bookings, key=lambda one: one.start_us):
            exhaust(intervals.follow(booking.start_us))
            nodes = [span.node for span in booking.spans]
            found = intervals.find(booking.start_us, nodes, planned.world.job(booking.job_id))
            if found is not UNKNOWN:
                assert planned.world.now_us <= found.earliest_us <= booking.start_us <= found.latest_us
        exhaust(intervals.follow(1 << 62))
