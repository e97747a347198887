"""Retried jobs between planner, log and controller: promised a start for their next limits, kept by a new leader."""

from __future__ import annotations

import pytest

from eslurm.core.control.promises import EVERY_US
from eslurm.core.model.request import Request
from eslurm.core.model.retry import RetryRequest
from tests.kits.core import SECOND
from tests.unit.core.control.test_promises import Led

NODE = Request(cpus_per_task=4)


@pytest.mark.parametrize("policy", ["planned", "conservative"])
def test_the_next_attempt_is_promised_a_start_for_its_longer_limit(policy: str) -> None:
    led = Led(policy, nodes=1)
    job = led.submit(request=NODE, time_limit_s=100, retry=RetryRequest(("timeout",), 1, 200))
    led.settle()
    # It takes the node before the next attempt can.
    other = led.submit(request=NODE, time_limit_s=300)
    led.now_us += 100 * SECOND
    led.end(job, 15, cause="time_limit")
    plan = led.settle()
    assert led.state_of(other) == "RUNNING" and led.state_of(job) == "PENDING"
    (booking,) = plan.bookings[job]
    assert booking.start_us == led.now_us + 300 * SECOND
    assert booking.stop_us - booking.start_us == 200 * SECOND
    led.pass_time(2)
    led.now_us += EVERY_US
    led.cycle()
    promise = led.state.promises[job]
    assert promise.start_us == booking.start_us
    led.fail_over()
    plan = led.settle()
    assert plan.bookings[job][0].start_us == booking.start_us and not plan.broken


def test_jobs_behind_it_are_planned_behind_the_longer_limit() -> None:
    led = Led("planned", nodes=1)
    job = led.submit(request=NODE, time_limit_s=100, retry=RetryRequest(("timeout",), 1, 300))
    led.settle()
    led.now_us += 100 * SECOND
    led.end(job, 15, cause="time_limit")
    led.pass_time(2)
    led.settle()
    assert led.state_of(job) == "RUNNING"
    behind = led.submit(request=NODE, time_limit_s=50)
    plan = led.settle()
    assert plan.bookings[behind][0].start_us == led.now_us + 300 * SECOND
