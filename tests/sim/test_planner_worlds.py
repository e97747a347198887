"""The simulator's checks of plans: each check finds the bug that it is for, and everything there is to plan happens."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.control import effects, planning
from eslurm.core.control.jobs import stopping
from eslurm.core.explain import inquiry
from eslurm.core.model import facts
from eslurm.core.model.accounts import Amount, FreePool
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job_states import JobState, StopCause
from eslurm.core.model.messages import PolicyChange
from eslurm.core.model.partition import CANCEL
from eslurm.core.model.protocol import NodeGroup
from eslurm.core.model.step_key import StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.victims import Claim, Preemptable
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.state import apply
from eslurm.core.state import apply_jobs as job_apply
from eslurm.core.state.cluster import State
from eslurm.lab.sim import controller, workload_generator
from eslurm.lab.sim.cluster_config import POLICIES
from eslurm.lab.sim.run import Failure, Scenario, draw_nodes, judge, make_world
from eslurm.lab.sim.script_runs import Clock, Occupancy, Run
from eslurm.lab.sim.world import START_US
from tests.kits.launches import launch_of

Plant = Callable[[pytest.MonkeyPatch], None]
NODES = (4, 10)
LOOKED = ("placed", "promises", "reasons", "preempted", "suspended")
TOLD = ("PolicySet", "PolicyRemoved", "TimeChanged", "AttemptSuspended", "StopRequested")


def no_limits(patch: pytest.MonkeyPatch) -> None:
    """The planner does not look at limits."""
    patch.setattr(Rules, "_constrain", lambda self, *rest: None)


def nothing_is_closed(patch: pytest.MonkeyPatch) -> None:
    """Reservations, maintenance and pools of nodes keep nobody out."""
    patch.setattr(Rules, "_closed", lambda self, *rest: ())


def pools_keep_nothing(patch: pytest.MonkeyPatch) -> None:
    """FreePools of an amount keep nothing free; the operator sets one wherever a limit would be drawn."""

    def draw_pool(rng: random.Random, now_us: int, config: ClusterConfig) -> PolicyChange:
        return workload_generator.setting(FreePool("quiet", "cores", Amount(rng.randint(1, 4))))

    patch.setattr(workload_generator, "_draw_limit", draw_pool)
    patch.setattr(Rules, "_keep_free", lambda self, *rest: "")


def old_rules(patch: pytest.MonkeyPatch) -> None:
    """A plan that was made under other policies is carried out; planning takes so long that there often are others."""
    patch.setattr(controller, "SLICE_US", SECOND_US)
    on_plan_made = planning.on_plan_made

    def whenever(state: State, message: Any, now_us: int) -> Any:
        was, state.policies_changed = state.policies_changed, 0
        found = on_plan_made(state, message, now_us)
        state.policies_changed = was
        return found

    patch.setattr("eslurm.core.control.decide.on_plan_made", whenever)


def one_device_for_all(patch: pytest.MonkeyPatch) -> None:
    """Jobs get the first devices, although the controller notes others."""
    devices = effects._devices

    def first(state: State, attempt: Any) -> Any:
        held, parts = devices(state, attempt)
        return tuple((node, name, tuple(range(len(numbers)))) for node, name, numbers in held), parts

    patch.setattr(effects, "_devices", first)


def newcomers_first(patch: pytest.MonkeyPatch) -> None:
    """A new job gets the best place there is, and those that have one look for another behind it."""
    plan_new = ForwardPlanner.plan_new

    def rude(self: ForwardPlanner, order: Any) -> Any:
        schedule = self.schedule
        if any(entry.job_id not in schedule.bookings for entry in order):
            for job_id in list(schedule.bookings):
                if not schedule.entries[job_id].job.start_at_us:
                    schedule.remove(job_id)
        yield from plan_new(self, list(reversed(order)))

    patch.setattr(ForwardPlanner, "plan_new", rude)


def placed_twice(patch: pytest.MonkeyPatch) -> None:
    """A job that begins is entered into the plan twice."""
    place = Cycle.place

    def again(self: Cycle, booking: Any, late_us: int = 0) -> Any:
        yield from place(self, booking, late_us)
        self.placements.append(self.placements[-1])

    patch.setattr(Cycle, "place", again)


def no_reasons(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told why a job waits when nothing is in its way that a plan looks at."""
    patch.setattr(inquiry._Case, "_completed", lambda self, found, said, start_us: [])


def lost_pauses(patch: pytest.MonkeyPatch) -> None:
    """The time that a job stood still counts against its limit."""
    apply_suspended = job_apply.apply_suspended

    def forget(state: State, fact: Any) -> None:
        apply_suspended(state, fact)
        job = state.jobs[fact.job_id]
        if job.attempt is not None and not fact.suspended:
            state.put_job(replace(job, attempt=replace(job.attempt, paused_us=0)))

    table: dict[Any, Any] = apply._APPLY
    patch.setitem(table, facts.AttemptSuspended, forget)


def anybody_pushes_out_anybody(patch: pytest.MonkeyPatch) -> None:
    """A job that may preempt one job may preempt all."""

    def mode(self: Claim, victim: Preemptable) -> str:
        return CANCEL

    patch.setattr(Claim, "mode", mode)


def the_cancelled_wait_again(patch: pytest.MonkeyPatch) -> None:
    """A victim that was to be cancelled is requeued."""
    stopped_outcome = stopping.stopped_outcome

    def requeued(job: Any, cause: StopCause, exit_code: int = 0) -> JobState:
        return JobState.PENDING if cause is StopCause.EVICT else stopped_outcome(job, cause, exit_code)

    patch.setattr(stopping, "stopped_outcome", requeued)


def first_failure(first: int, seeds_max: int) -> Failure | None:
    for seed in range(first, first + seeds_max):
        verdict = judge(Scenario(seed, draw_nodes(seed, *NODES)))
        if isinstance(verdict, Failure):
            return verdict
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "first", "seeds_max", "says"),
    [
        (no_limits, 1, 10, "exceeds limit|lets"),
        (nothing_is_closed, 1, 10, "runs into reservation|nodes of pool"),
        (pools_keep_nothing, 1, 20, "leaves less than pool"),
        (old_rules, 21, 20, "limit|reservation|pool|its pack owes it"),
        (one_device_for_all, 17, 10, "is given to"),
        (newcomers_first, 36, 20, "was promised"),
        (placed_twice, 1, 2, "times in one plan"),
        (no_reasons, 1, 5, "without any reason"),
        (lost_pauses, 31, 10, "stood still"),
        (anybody_pushes_out_anybody, 11, 10, "no rule lets"),
        (the_cancelled_wait_again, 14, 30, "waits again"),
    ],
)
def test_a_planted_bug_of_the_planner_is_found_within_so_many_seeds(
    plant: Plant, first: int, seeds_max: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        failure = first_failure(first, seeds_max)
    assert failure is not None, f"not found within {seeds_max} seeds"
    assert any(word in failure.what for word in says.split("|")), failure.text


def test_who_stands_still_lends_its_cores_and_nothing_else() -> None:
    world = make_world(Scenario(1, 1))
    totals = ((4, 100),)
    launch = launch_of(job_id=1, groups=(NodeGroup(((0, 1),), (4, 60)),))
    first, second, third = (
        Run(world.hosts[0], StepKey(job, 1, -1, 0), replace(launch, groups=groups), Clock(0, 0))
        for job, groups in (
            (1, launch.groups),
            (2, (NodeGroup(((0, 1),), (3, 40)),)),
            (3, (NodeGroup(((0, 1),), (1, 1)),)),
        )
    )
    node = Occupancy()
    assert not node.take(first, totals)
    node.lend(first)
    assert not node.take(second, totals)
    assert "resource 1" in node.take(third, totals), "memory is not lent"
    assert "goes on" in node.go_on(first, totals)


@pytest.mark.slow
def test_everything_that_can_be_planned_is() -> None:
    looked: Counter[str] = Counter()
    told: Counter[str] = Counter()
    policies: set[str] = set()

    def is_all() -> bool:
        return (
            policies == set(POLICIES)
            and min(looked[what] for what in LOOKED) >= 5
            and all(told[kind] for kind in TOLD)
        )

    for seed in range(1, 31):
        if is_all():
            break
        world = make_world(Scenario(seed, draw_nodes(seed, *NODES)))
        world.trace = lambda _at_us, text: told.update(
            [text.split()[2].partition("(")[0]] if text.startswith("fact ") else []
        )
        world.start()
        world.scheduler.run(START_US + world.faults.plan.calm_us)
        looked.update(world.checks.plans.seen)
        policies.add(world.config.policy)
    assert is_all(), (policies, looked, told)
