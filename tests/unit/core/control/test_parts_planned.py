"""Jobs of several parts between planner, log and controller: planned as one, promised part by part, placed whole."""

from __future__ import annotations

import pytest

from eslurm.core.control.promises import EVERY_US
from eslurm.core.model.facts import JobPlaced
from eslurm.core.model.job import ArraySpec
from eslurm.core.model.request import Request
from tests.kits.core import SECOND
from tests.kits.mirror import picture
from tests.kits.parts import parted, submit
from tests.unit.core.control.test_promises import Led, starts

WHOLE = Request(cpus_per_task=4)
HALF = Request(cpus_per_task=2)


def parts_of(led: Led, job_id: int) -> list[tuple[int, int]]:
    """(part, node) of the job's attempt."""
    attempt = led.job(job_id).attempt
    assert attempt is not None
    return [(span.component, span.node) for span in attempt.spans]


@pytest.mark.parametrize("policy", ["planned", "easy"])
def test_a_new_leader_keeps_the_promised_nodes_of_each_part(policy: str) -> None:
    led = Led(policy, nodes=3)
    first = led.submit(request=WHOLE, time_limit_s=100)
    led.submit(request=WHOLE, time_limit_s=60)
    led.settle()
    job_id = submit(led, parted(WHOLE, HALF, HALF, time_limit_s=50))
    plan = led.cycle()
    (booking,) = plan.bookings[job_id]
    assert booking.start_us == led.now_us + 60 * SECOND
    led.now_us += EVERY_US
    led.cycle()
    promise = led.state.promises[job_id]
    assert promise.starts[0].parts == (1, 1, 1)
    assert picture(led.mirror.restored()) == picture(led.state)
    led.pass_time(10)
    led.fail_over()
    plan = led.settle()
    assert plan.bookings[job_id][0].spans == booking.spans
    assert not plan.broken
    led.end(2)
    led.settle()
    assert parts_of(led, job_id) == [(span.component, span.node) for span in booking.spans]
    assert led.job(first).attempt is not None


def test_parts_that_run_on_one_node_count_together_for_the_next_leader() -> None:
    led = Led(nodes=1)
    job_id = submit(led, parted(HALF, Request(), time_limit_s=100))
    led.settle()
    assert parts_of(led, job_id) == [(0, 0), (1, 0)]
    led.fail_over()
    small, behind = led.submit(request=Request(), time_limit_s=10), led.submit(request=HALF, time_limit_s=10)
    plan = led.settle()
    assert led.job(small).attempt is not None
    assert starts(plan) == {behind: led.job(job_id).attempt.until_us}  # type: ignore[union-attr]
    (held,) = [held for (number, _), held in led.schedule.held.items() if number == job_id]
    assert [(span.component, span.amounts[0]) for span in held.booking.spans] == [(0, 2), (1, 1)]
    led.schedule.book.check()


def test_every_task_of_an_array_of_such_jobs_is_placed_whole() -> None:
    led = Led(nodes=2)
    array = submit(led, parted(WHOLE, WHOLE, time_limit_s=10, array=ArraySpec(((0, 2),))))
    plan = led.settle()
    placed = [fact for fact in led.log if isinstance(fact, JobPlaced)]
    assert [[span.component for span in fact.spans] for fact in placed] == [[0, 1]]
    assert [one.start_us - led.now_us for one in plan.bookings[array]] == [10 * SECOND, 20 * SECOND]
    assert all([span.component for span in one.spans] == [0, 1] for one in plan.bookings[array])
    led.fail_over()
    kept = led.settle()
    assert [(one.start_us, one.spans) for one in kept.bookings[array]] == [
        (one.start_us, one.spans) for one in plan.bookings[array]
    ]
    led.end(placed[0].job_id)
    led.settle()
    placed = [fact for fact in led.log if isinstance(fact, JobPlaced)]
    assert [[span.component for span in fact.spans] for fact in placed] == [[0, 1], [0, 1]]
