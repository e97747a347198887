"""The simulator's judge of packs: what it says of a log and of plans that break one rule each."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from eslurm.core.model import facts
from eslurm.core.model.job import JobSpec, Principal, Span
from eslurm.core.model.job_states import JobState
from eslurm.core.model.pack import PackPlace
from eslurm.core.model.request import Request
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.pack_checks import PackChecks
from eslurm.lab.sim.violation import CheckFailed
from tests.kits.packs import member, try_pack
from tests.unit.core.control.test_promises import Led

SPEC = JobSpec("a", Principal("alice", 1000, 1000), "main", (), b"", b"", "/home")
DELAYS_S = (0, 0, 10)
FIRST, BESIDE, LATER = 7, 8, 9
NOW = 100 * SECOND_US


def submitted() -> list[facts.Fact]:
    places = [PackPlace(FIRST, at, len(DELAYS_S), delay * SECOND_US) for at, delay in enumerate(DELAYS_S)]
    return [facts.JobSubmitted(FIRST + at, SPEC, 0, pack=place) for at, place in enumerate(places)]


def placed(job_id: int, anchor_us: int = 0, attempt: int = 1) -> facts.Fact:
    return facts.JobPlaced(job_id, attempt, (Span(job_id, (1, 0)),), 0, anchor_us=anchor_us)


def requeued(job_id: int, attempt: int = 1) -> facts.Fact:
    return facts.AttemptEnded(job_id, attempt, JobState.PENDING, released=(job_id,))


def cancelled(job_id: int) -> facts.Fact:
    return facts.JobFinished(job_id, JobState.CANCELLED)


def judged(*batches: tuple[int, Iterable[facts.Fact]]) -> PackChecks:
    """The judge after these batches, each so many seconds after the pack's start."""
    checks = PackChecks(Coverage(), lambda: True)
    checks.on_batch(1, submitted(), NOW)
    checks.on_submitted((FIRST, BESIDE, LATER), DELAYS_S)
    for at_s, batch in batches:
        checks.on_batch(1, batch, NOW + at_s * SECOND_US)
    return checks


BEGUN = (0, [placed(FIRST, NOW), placed(BESIDE)])


def test_a_pack_that_keeps_its_delays_passes() -> None:
    checks = judged(BEGUN, (10, [placed(LATER)]))
    checks.on_script(StepKey(LATER, 1, BATCH_STEP, 3))
    assert checks.seen == {"begun": 1, "placed": 2, "whole": 1, "scripts": 1}


def test_a_pack_may_begin_anew_once_all_of_it_waits() -> None:
    again_us = NOW + 60 * SECOND_US
    judged(
        BEGUN,
        (5, [requeued(FIRST), requeued(BESIDE)]),
        (60, [placed(FIRST, again_us, 2), placed(BESIDE, attempt=2)]),
        (70, [placed(LATER)]),
    )
    with pytest.raises(CheckFailed, match="lets it start at"):
        judged(
            BEGUN,
            (5, [requeued(FIRST), requeued(BESIDE)]),
            (60, [placed(FIRST, again_us, 2), placed(BESIDE, attempt=2)]),
            (61, [placed(LATER)]),
        )


def test_a_member_that_gives_its_nodes_back_later_does_not_wait_yet() -> None:
    judged(
        BEGUN,
        (8, [requeued(BESIDE), facts.AttemptEnded(FIRST, 1, JobState.PENDING)]),
        (10, [placed(LATER)]),
        (11, [facts.NodesReleased(FIRST, 1, (FIRST,)), placed(FIRST, attempt=2)]),
    )


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([(0, [placed(LATER)])], "not begun is placed"),
        ([(0, [placed(FIRST, 0)])], "not begun is placed"),
        ([(0, [placed(FIRST, NOW)])], "begins without jobs \\[8\\]"),
        ([BEGUN, (9, [placed(LATER)])], "lets it start at"),
        ([BEGUN, (9, [requeued(FIRST)]), (12, [placed(FIRST, NOW, 2)])], "has begun at"),
        ([(0, [cancelled(FIRST), cancelled(BESIDE)])], "some members have ended"),
        ([BEGUN, (5, [requeued(FIRST), requeued(BESIDE)]), (10, [placed(LATER)])], "not begun is placed"),
    ],
)
def test_a_broken_rule_is_named(batches: list[tuple[int, list[facts.Fact]]], says: str) -> None:
    with pytest.raises(CheckFailed, match=says):
        judged(*batches)


def test_a_script_without_a_place_is_named() -> None:
    with pytest.raises(CheckFailed, match="was placed 0 times"):
        judged(BEGUN).on_script(StepKey(LATER, 1, BATCH_STEP, 3))


def test_an_acknowledged_pack_is_in_the_log_as_it_was_asked_for() -> None:
    with pytest.raises(CheckFailed, match="was acknowledged"):
        judged().on_submitted((FIRST, BESIDE, LATER), (0, 0, 11))


def plan_of_a_moved_pack(epochs: int) -> PackChecks:
    """The judge after a plan of a pack that waits, which a leader so many epochs later begins, moves and gives back."""
    led = Led(nodes=1)
    whole = Request(cpus_per_task=4)
    led.submit(request=whole, time_limit_s=100)
    specs = [member(f"part{at}", components=(whole,), time_limit_s=20) for at in range(2)]
    first, second = try_pack(led, *specs, delays=(0, 40)).job_ids  # type: ignore[union-attr]
    led.settle()
    plan = led.cycle()
    checks, now_us, later = PackChecks(Coverage(), lambda: True), led.now_us, led.state.epoch + epochs
    checks.on_batch(led.state.epoch, [one for one in led.log if isinstance(one, facts.JobSubmitted)], now_us)
    checks.on_batch(later, [placed(first, now_us)], now_us)
    checks.on_batch(later, [facts.PackMoved(first, 1, ((second, now_us + 30 * SECOND_US),), "")], now_us)
    checks.on_batch(later, [requeued(first)], now_us)
    checks.on_plan(led.state, plan, lambda state, job: False, gives_way=False)
    return checks


def test_an_overtaken_leader_does_not_know_of_later_moves() -> None:
    assert plan_of_a_moved_pack(1).seen["planned"] == 1


def test_a_leader_knows_of_its_own_moves() -> None:
    with pytest.raises(CheckFailed, match="its delays say"):
        plan_of_a_moved_pack(0)
