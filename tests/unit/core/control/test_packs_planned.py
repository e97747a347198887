"""Packs between planner, log and controller: begun as one, each other member at its delay, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from eslurm.core.control.promises import EVERY_US
from eslurm.core.model.facts import JobPlaced
from eslurm.core.model.job_states import JobState
from eslurm.core.model.request import Request
from tests.kits.core import SECOND
from tests.kits.mirror import picture
from tests.kits.packs import member, try_pack
from tests.unit.core.control.test_promises import Led

WHOLE = Request(cpus_per_task=4)
ALL = ("conservative", "easy", "fcfs", "planned")


def submit(led: Led, *delays: int, limit_s: int = 100) -> tuple[int, ...]:
    """A pack of jobs of one whole node each."""
    specs = [member(f"part{at}", components=(WHOLE,), time_limit_s=limit_s) for at in range(len(delays))]
    return try_pack(led, *specs, delays=delays).job_ids  # type: ignore[union-attr]


def placed(led: Led) -> dict[int, int]:
    """The time of each job's last placement, in seconds after the first instant."""
    found = [led.state.find_job(fact.job_id) for fact in led.facts(JobPlaced)]  # type: ignore[union-attr]
    return {
        job.job_id: round(job.attempt.placed_us / SECOND)
        for job in found
        if job is not None and job.attempt is not None
    }


@pytest.mark.parametrize("policy", ALL)
def test_members_begin_at_their_delays(policy: str) -> None:
    led = Led(policy, nodes=3)
    first, second, third, last = submit(led, 0, 0, 30, 110)
    began_us = led.now_us
    led.settle()
    assert {first, second} == placed(led).keys()
    assert led.job(third).pack.anchor_us == began_us  # type: ignore[union-attr]
    plan = led.cycle()
    assert {job_id: one[0].start_us - began_us for job_id, one in plan.bookings.items()} == {
        third: 30 * SECOND,
        last: 110 * SECOND,
    }
    led.pass_time(30)
    led.settle()
    assert led.job(third).attempt is not None
    assert led.job(last).attempt is None
    led.end(first)
    led.end(second)
    led.pass_time(60)
    led.settle()
    assert led.job(last).attempt is None
    led.pass_time(20)
    led.settle()
    attempt = led.job(last).attempt
    assert attempt is not None
    assert attempt.placed_us - began_us == 110 * SECOND


@pytest.mark.parametrize("policy", ALL)
def test_a_new_leader_begins_the_others_at_their_times(policy: str) -> None:
    led = Led(policy, nodes=2)
    first, second = submit(led, 0, 40)
    began_us = led.now_us
    led.settle()
    led.now_us += EVERY_US
    led.cycle()
    led.pass_time(10)
    led.fail_over()
    # It would hold the other node for too long.
    led.submit(request=WHOLE, time_limit_s=200)
    plan = led.settle()
    assert [one.start_us - began_us for one in plan.bookings[second]] == [40 * SECOND]
    led.now_us = began_us + 40 * SECOND
    led.settle()
    attempt = led.job(second).attempt
    assert attempt is not None
    assert attempt.placed_us - began_us == 40 * SECOND
    assert led.job(first).attempt is not None


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_a_promised_pack_outlives_its_planner_as_a_whole(policy: str) -> None:
    led = Led(policy, nodes=2)
    for _ in range(2):
        led.submit(request=WHOLE, time_limit_s=100)
    led.settle()
    first, second = submit(led, 0, 40)
    plan = led.cycle()
    before = plan.bookings[first]
    assert [one.job_id for one in before] == [first, second]
    led.now_us += EVERY_US
    led.cycle()
    assert [one.start_us for one in led.state.promises[first].starts] == [one.start_us for one in before]
    assert second not in led.state.promises
    assert picture(led.mirror.restored()) == picture(led.state)
    led.pass_time(10)
    led.fail_over()
    led.submit(request=WHOLE, time_limit_s=10)
    plan = led.settle()
    assert not plan.broken
    assert [(one.start_us, one.spans) for one in plan.bookings[first]] == [
        (one.start_us, one.spans) for one in before
    ]
    led.now_us = before[0].start_us
    for job_id in (1, 2):
        led.end(job_id)
    led.settle()
    assert led.job(first).attempt is not None
    led.now_us += EVERY_US
    led.cycle()
    assert led.state.promises[second].start_us == before[1].start_us


@pytest.mark.parametrize("policy", ALL)
def test_a_first_member_that_is_lost_early_begins_the_pack_anew(policy: str) -> None:
    led = Led(policy, nodes=3)
    first, second = submit(led, 0, 40)
    led.settle()
    (node,) = {span.node for span in led.job(first).attempt.spans}  # type: ignore[union-attr]
    led.pass_time(10)
    led.lose(node)
    assert not led.job(first).pack.anchor_us  # type: ignore[union-attr]
    assert led.job(second).job_id not in led.settle().bookings
    # It waits a little before it is launched again.
    led.now_us = max(led.now_us, led.job(first).not_before_us)
    led.pass_time(1)
    led.settle()
    attempt = led.job(first).attempt
    assert attempt is not None
    anchor_us = led.job(first).pack.anchor_us  # type: ignore[union-attr]
    assert 0 <= attempt.placed_us - anchor_us <= SECOND
    assert led.job(second).state is JobState.PENDING
    led.now_us = anchor_us + 40 * SECOND
    led.settle()
    assert led.job(second).attempt.placed_us == anchor_us + 40 * SECOND  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ALL)
def test_what_a_member_was_promised_ends_with_the_beginning_of_its_pack(policy: str) -> None:
    """A new leader would take it over, and plan the member before its time."""
    led = Led(policy, nodes=3)
    first, second = submit(led, 0, 40)
    led.settle()
    led.now_us += EVERY_US
    led.settle()
    assert second in led.state.promises
    (node,) = {span.node for span in led.job(first).attempt.spans}  # type: ignore[union-attr]
    led.lose(node)
    assert not led.job(first).pack.anchor_us  # type: ignore[union-attr]
    assert second not in led.state.promises
