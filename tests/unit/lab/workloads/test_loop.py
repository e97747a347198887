"""The event loop: jobs start when the policy says, and what must never happen is noticed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.forecast import exactly
from eslurm.core.model.job import Span
from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.workloads import loop
from eslurm.lab.workloads.changes import ENDED
from eslurm.lab.workloads.loop import Broken, Ran, Result, Step, replay
from eslurm.lab.workloads.machine import uniform
from eslurm.lab.workloads.metrics import measure, percentile, slowdown
from eslurm.lab.workloads.planner_driver import LIMITS, PlannerDriver
from eslurm.lab.workloads.swf import Record
from eslurm.lab.workloads.workload import Choices, Job
from tests.kits.workloads import record, run, starts, workload
from tests.support.profiles import draws

POLICIES = ("fcfs", "easy", "conservative", "planned")

# Four processors: 1 takes three for 100 s, 2 needs all, 3 and 4 are small.
CROWD = [record(1, 0, 100, 3), record(2, 1, 50, 4), record(3, 2, 90, 1), record(4, 3, 200, 1)]


def test_in_strict_order_nobody_overtakes() -> None:
    assert starts(run(CROWD, "fcfs")) == {1: 0, 2: 100, 3: 150, 4: 150}


def test_easy_fills_the_hole_before_the_promise() -> None:
    assert starts(run(CROWD, "easy")) == {1: 0, 3: 2, 2: 100, 4: 150}


def test_a_job_that_outlives_its_estimate_is_waited_for() -> None:
    late = [record(1, 0, 100, 4, asked_s=10), record(2, 1, 50, 4)]
    assert starts(run(late, "easy")) == {1: 0, 2: 100}


def test_an_early_end_is_used_at_once() -> None:
    early = [record(1, 0, 10, 4, asked_s=1000), record(2, 1, 50, 4)]
    assert starts(run(early, "easy")) == {1: 0, 2: 10}


def planned_with(
    records: list[Record], estimates: dict[int, int], policy: str, *, kill_at_limit: bool = False
) -> Result:
    machine = uniform(4, 1)
    forecasts = {number: exactly(seconds) for number, seconds in estimates.items()}
    return replay(
        workload(records, machine, Choices(estimates=forecasts, kill_at_limit=kill_at_limit)), machine, policy
    )


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_estimates_make_room_and_limits_end_jobs(policy: str) -> None:
    # By its limit job 3 would be in the way of job 2; it is expected to be gone, and is.
    records = [record(1, 0, 100, 3, 200), record(2, 1, 50, 4, 60), record(3, 2, 90, 1, 500)]
    assert starts(run(records, policy))[3] > 100
    assert starts(planned_with(records, {1: 100, 3: 90}, policy)) == {1: 0, 3: 2, 2: 100}
    # It outlives that: who was planned after it waits for its end, whatever the estimate was.
    records[2] = record(3, 2, 700, 1, 500)
    assert starts(planned_with(records, {1: 100, 3: 90}, policy)) == {1: 0, 3: 2, 2: 702}
    killed = planned_with(records, {1: 100, 3: 90}, policy, kill_at_limit=True)
    assert starts(killed) == {1: 0, 3: 2, 2: 502}


def test_a_run_is_the_same_each_time_with_estimates() -> None:
    records = [record(number, number, 7 * number % 90 + 1, number % 4 + 1, 300) for number in range(1, 60)]
    estimates = {number: 13 * number % 250 + 1 for number in range(1, 60)}
    for policy in POLICIES:
        assert planned_with(records, estimates, policy).ran == planned_with(records, estimates, policy).ran


def test_ends_come_before_arrivals_of_the_same_instant() -> None:
    result = run([record(1, 0, 10, 4), record(2, 10, 10, 4)], "fcfs")
    assert starts(result) == {1: 0, 2: 10}
    assert result.cycles == 2


def test_the_figures_of_a_run() -> None:
    found = measure(run(CROWD, "fcfs"))
    assert found.jobs == 4
    assert found.makespan_s == 350
    assert found.utilisation == pytest.approx((300 + 200 + 90 + 200) / (4 * 350))
    assert found.wait_mean_s == pytest.approx((0 + 99 + 148 + 147) / 4)
    assert (found.wait_max_s, found.wait_p95_s) == (148, 148)
    assert found.slowdown_mean == pytest.approx((1 + 149 / 50 + 238 / 90 + 347 / 200) / 4)
    assert found.wait_weighted_s == pytest.approx((200 * 99 + 90 * 148 + 200 * 147) / 790)
    # One processor stays idle from 2 s on, when job 3 would fit it, until 100 s.
    assert found.loss_of_capacity == pytest.approx(98 / (4 * 350))
    assert found.waiting_max == 3


def test_nothing_is_lost_where_nobody_waiting_would_fit() -> None:
    assert measure(run([record(1, 0, 100, 3), record(2, 1, 50, 2)], "easy")).loss_of_capacity == 0


def test_short_jobs_count_as_ten_seconds_in_the_slowdown() -> None:
    (one,) = run([record(1, 0, 1, 1)], "fcfs").ran
    assert slowdown(one) == 1.0
    late = Ran(one.job, one.start_us + 19_000_000, one.end_us + 19_000_000, one.spans)
    assert slowdown(late) == 2.0


def test_percentiles_are_values_that_occur() -> None:
    assert [percentile(range(1, 101), share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]


def test_progress_is_told_on_the_way() -> None:
    machine = uniform(4, 1)
    steps: list[Step] = []
    records = [record(job_id, job_id, 10, 1) for job_id in range(300)]
    replay(workload(records, machine), machine, "fcfs", steps.append)
    assert steps and steps[0].jobs == 300


class Wrong:
    """A planner that does what it likes, in the place of the real one."""

    def __init__(
        self, cycles: Sequence[Sequence[Placement]], promised: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._cycles = list(cycles)
        self._promised = list(promised)
        self.waiting = 1
        self.wants_cycle = True
        self.keeps_promises = True

    def advance(self, now_us: int) -> None:
        pass

    def arrive(self, job: object) -> str:
        return ""

    def leave(self, placement: Placement) -> str:
        return ENDED

    def wake_us(self, now_us: int) -> int:
        return INFINITY_US

    def plan(self, now_us: int) -> Sequence[Placement]:
        return self._cycles.pop(0) if self._cycles else ()

    def promised_us(self, job_id: int) -> int | None:
        return dict(self._promised).get(job_id)


def placed(job_id: int, *nodes: int, cores: int = 1) -> Placement:
    return Placement(job_id, tuple(Span(node, (cores, 0), cores) for node in nodes), 1 << 60)


TWO = [record(7, 0, 10, 1), record(8, 5, 10, 1)]


@pytest.mark.parametrize(
    ("cycles", "promised", "told"),
    [
        ([[placed(1, 0), placed(1, 1)]], (), "job 7 was started a second time"),
        ([[placed(2, 0)]], (), "job 8 was started a second time, or before it was submitted"),
        ([[placed(1, 0)], [placed(2, 0)]], (), "node n0 was given to job 8 at 5000000 us beyond what it has"),
        ([[placed(1)]], (), "job 7 was started on fewer processors than it asked for"),
        ([[placed(1, 0)]], (), "job 8 was never started"),
        ([[], [placed(1, 0)]], [(1, 3_000_000)], "job 7 starts 2 s later than it was first promised"),
    ],
)
def test_what_a_planner_must_never_do_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    cycles: Sequence[Sequence[Placement]],
    promised: Sequence[tuple[int, int]],
    told: str,
) -> None:
    monkeypatch.setattr(loop, "PlannerDriver", lambda machine, policy: Wrong(cycles, promised))
    with pytest.raises(Broken, match=told):
        run(TWO, "conservative", nodes=2)


def test_promises_that_move_earlier_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Wrong([[], [placed(1, 0), placed(2, 1)]], [(1, 5_000_000)])
    monkeypatch.setattr(loop, "PlannerDriver", lambda machine, policy: wrong)
    assert starts(run(TWO, "conservative", nodes=2)) == {7: 5, 8: 5}


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no planning policy 'none'"):
        run(TWO, "none")


def test_the_planner_s_books_are_the_run_s() -> None:
    machine = uniform(3, 1)
    seat = PlannerDriver(machine, "easy")
    first, second = workload([record(1, 0, 10, 2), record(2, 0, 10, 2)], machine).jobs
    seat.arrive(first)
    seat.arrive(second)
    (placement,) = seat.plan(0)
    assert placement.job_id == 1 and seat.waiting == 1
    assert (seat.promised_us(1), seat.promised_us(2)) == (None, 10_000_000)
    assert seat.wake_us(0) == 10_000_000
    seat.leave(placement)
    assert [one.job_id for one in seat.plan(5_000_000)] == [2]


def test_nobody_is_woken_for_work_that_is_late() -> None:
    machine = uniform(3, 1)
    seat = PlannerDriver(machine, "easy")
    first, second = workload([record(1, 0, 100, 2, asked_s=10), record(2, 0, 10, 2)], machine).jobs
    seat.arrive(first)
    seat.arrive(second)
    assert [one.job_id for one in seat.plan(0)] == [1]
    assert list(seat.plan(10_000_000)) == []
    assert seat.promised_us(2) == 10_000_000 + LIMITS.overdue_grace_us
    assert seat.wake_us(10_000_000) == INFINITY_US


LOGS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 6), st.integers(1, 60)),
    min_size=1,
    max_size=25,
)


def records_of(drawn: list[tuple[int, int, int, int]]) -> list[Record]:
    return [record(number, *fields) for number, fields in enumerate(drawn, start=1)]


@settings(max_examples=draws(60), deadline=None)
@given(LOGS)
def test_strict_order_agrees_with_a_naive_model(drawn: list[tuple[int, int, int, int]]) -> None:
    found = run(records_of(drawn), "fcfs", nodes=6)
    assert starts(found) == naive_fcfs(sorted(records_of(drawn), key=lambda one: one.submit_s), 6)


def naive_fcfs(records: Sequence[Record], processors: int) -> dict[int, int]:
    """Each job in turn at the first second, not before the one ahead of it, at which enough are free."""
    begun: dict[int, int] = {}
    before = 0
    for one in records:
        at_s = max(before, one.submit_s)
        while (
            sum(
                other.requested
                for other in records
                if other.job_id in begun and begun[other.job_id] <= at_s < begun[other.job_id] + other.run_s
            )
            + one.requested
            > processors
        ):
            at_s += 1
        begun[one.job_id] = before = at_s
    return begun


@settings(max_examples=draws(40), deadline=None)
@given(LOGS, st.sampled_from(POLICIES), st.sampled_from([(6, 1), (3, 2), (2, 4)]))
def test_every_run_holds_and_is_repeatable(
    drawn: list[tuple[int, int, int, int]], policy: str, shape: tuple[int, int]
) -> None:
    first, second = (run(records_of(drawn), policy, nodes=shape[0], cores=shape[1]) for _ in range(2))
    assert outline(first) == outline(second)
    assert sorted(one.job.record.job_id for one in first.ran) == list(range(1, len(drawn) + 1))


@settings(max_examples=draws(60), deadline=None)
@given(LOGS, st.sampled_from([(6, 1), (3, 2), (2, 4)]))
def test_with_perfect_estimates_conservative_keeps_every_first_promise(
    drawn: list[tuple[int, int, int, int]], shape: tuple[int, int]
) -> None:
    # The run itself asserts it.
    found = run(records_of(drawn), "conservative", nodes=shape[0], cores=shape[1], estimates="perfect")
    assert len(found.ran) == len(drawn)


def outline(result: Result) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    return [(one.job.record.job_id, one.start_us, one.spans) for one in result.ran]


def test_a_job_knows_its_name() -> None:
    (job,) = workload([record(17, 0, 10, 1)], uniform(1, 1)).jobs
    assert isinstance(job, Job) and job.name == "17"
