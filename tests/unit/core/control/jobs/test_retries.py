"""Retries by the server (`--retry-on`): which ends are answered by another attempt, with which limits, how often."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.api.infos import job_info
from eslurm.core.model.accounts import Limit, Qos, Reservation, Validity
from eslurm.core.model.config import NodeConfig, Partition
from eslurm.core.model.controller_phases import ControllerPrograms, PhaseKey
from eslurm.core.model.facts import AttemptEnded
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import Dependency, StepEnd
from eslurm.core.model.messages import (
    Changed,
    ChangePolicies,
    ConfigLoaded,
    ControllerPhaseDone,
    JobRef,
    PolicyChange,
    Refused,
    Reports,
    SetForecasts,
    SubmitJobs,
    UpdateJob,
)
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.protocol import Report, StepEnded
from eslurm.core.model.request import Chunk, Request
from eslurm.core.model.retry import RetryRequest
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.rows import decode_accounted
from eslurm.ports.store import AttemptRow
from eslurm.store.rows import to_store
from tests.kits.core import ALICE, ROOT, SECOND, World
from tests.kits.gateways import gateway_world, prepared, started
from tests.kits.parts import parted
from tests.kits.parts import submit as submit_parts
from tests.kits.running import place, preempt, run, start

TWICE = RetryRequest(("timeout",), 2)
LOST = RetryRequest(("node-fail",), 1)


def time_out(world: World, job: int, cause: str = "time_limit", ran_s: int = 100) -> None:
    """Its script ends by its limit after so long, and its first node is free."""
    attempt = world.attempt(job)
    world.now_us += ran_s * SECOND
    report = StepEnd(1, 15, cause, started_us=attempt.started_us, ended_us=world.now_us)
    world.report(StepEnded(attempt.first, 1, job, attempt.number, report, True))


def again(world: World, job: int, nodes: tuple[int, ...] = (0,)) -> None:
    """Its pause passes and it runs again."""
    world.pass_time(2)
    place(world, job, nodes)
    start(world, job)


def limit_of(world: World, job: int) -> int:
    return world.job(job).spec.time_limit_s


def set_policies(world: World, *policies: object) -> None:
    changes = [PolicyChange("set", type(one).__name__.lower(), one.name, one) for one in policies]  # type: ignore[attr-defined]
    answer = world.send(ChangePolicies(ROOT, tuple(changes)))
    assert isinstance(answer, Changed) and not answer.problems, answer


# ---- timeouts ----


def test_a_timeout_is_retried_with_a_longer_limit_until_its_retries_are_used() -> None:
    world = World()
    job = run(world, retry=TWICE)
    time_out(world, job)
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 150)
    again(world, job)
    time_out(world, job, ran_s=150)
    assert limit_of(world, job) == 225
    again(world, job)
    assert world.attempt(job).until_us == world.now_us + 225 * SECOND
    time_out(world, job, ran_s=225)
    assert world.state_of(job) == "TIMEOUT"
    assert world.job(job).exit_text == "timeout: not retried again: 2 of 2 retries are used"
    assert world.job(job).attempts == 3


def test_a_retried_job_may_end_well() -> None:
    world = World()
    job = run(world, retry=TWICE)
    time_out(world, job)
    again(world, job)
    world.end(job)
    assert world.state_of(job) == "COMPLETED"


def test_other_ends_are_final() -> None:
    for cause, exit_code in (("exited", 1), ("spawn_failed", 1)):
        world = World()
        job = run(world, retry=TWICE)
        world.end(job, exit_code, cause=cause)
        assert world.state_of(job) == "FAILED" and world.job(job).retry is None


def test_the_limits_change_when_the_nodes_are_free() -> None:
    """Goal: while the old attempt gives its nodes back it has its own limit, on all of them."""
    world = World()
    job = run(world, (0, 1), retry=TWICE)
    time_out(world, job)
    assert (world.state_of(job), limit_of(world, job)) == ("COMPLETING", 100)
    world.gone(1, job, 1)
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 150)


def test_it_is_planned_like_any_other() -> None:
    world = World()
    job = run(world, retry=TWICE)
    time_out(world, job)
    world.pass_time(2)
    assert world.plan() == [job]
    assert world.attempt(job).until_us == world.now_us + 150 * SECOND


def test_a_factor_of_one_keeps_the_limit_whatever_is_expected() -> None:
    world = World()
    job = run(world, retry=RetryRequest(("timeout",), 1, 100))
    world.send(SetForecasts(ROOT, ((job, Forecast(200, 300, 400, 300)),)))
    time_out(world, job)
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 100)


@pytest.mark.parametrize(
    ("max_time_s", "retries", "expected_s"), [(1000, 1, 400), (380, 1, 380), (0, 1, 150), (0, 3, 338)]
)
def test_a_trusted_estimate_says_more_within_the_bounds(
    max_time_s: int, retries: int, expected_s: int
) -> None:
    """Goal: the larger of factor and estimate with its margin; without --max-time what the factor reaches at most."""
    world = World()
    job = run(world, retry=RetryRequest(("timeout",), retries, max_time_s=max_time_s))
    world.send(SetForecasts(ROOT, ((job, Forecast(200, 300, 400, 300)),)))
    time_out(world, job)
    assert limit_of(world, job) == expected_s
    assert ("by its estimate" in world.job(job).exit_text) == (expected_s > 150)


def test_an_estimate_that_plans_do_not_use_says_nothing() -> None:
    world = World(use_forecasts=False)
    job = run(world, retry=RetryRequest(("timeout",), 1, max_time_s=1000))
    world.send(SetForecasts(ROOT, ((job, Forecast(200, 300, 400, 300)),)))
    time_out(world, job)
    assert limit_of(world, job) == 150


def test_the_extended_limit_of_a_running_job_grows() -> None:
    world = World(operators=(0,))
    job = run(world, retry=TWICE)
    world.send(UpdateJob(ROOT, JobRef(job), time_limit_s=300))
    time_out(world, job, ran_s=300)
    assert limit_of(world, job) == 450


def test_a_changed_limit_of_a_waiting_job_counts_for_the_next_attempt() -> None:
    world = World()
    job = run(world, retry=TWICE)
    time_out(world, job)
    answer = world.send(UpdateJob(ALICE, JobRef(job), time_limit_s=120))
    assert isinstance(answer, Changed) and answer.count == 1
    again(world, job)
    time_out(world, job, ran_s=120)
    assert (limit_of(world, job), world.job(job).retry.count) == (180, 2)  # type: ignore[union-attr]


# ---- bounds ----


def test_partitions_and_classes_bound_the_limit() -> None:
    names = ("cn0", "cn1")
    world = World(2, partitions=(Partition("main", names, default=True, time_limit_max_s=120),))
    job = run(world, retry=TWICE)
    time_out(world, job)
    assert limit_of(world, job) == 120
    again(world, job)
    time_out(world, job, ran_s=120)
    assert world.state_of(job) == "TIMEOUT"
    assert "its time limit of 120 s cannot grow: partition main allows 120 s" in world.job(job).exit_text


def test_a_class_of_service_bounds_the_limit() -> None:
    world = World()
    set_policies(world, Qos("short", time_limit_max_s=110))
    job = run(world, retry=TWICE, qos="short")
    time_out(world, job)
    assert limit_of(world, job) == 110
    again(world, job)
    time_out(world, job, ran_s=110)
    assert "QOS short allows 110 s" in world.job(job).exit_text


def test_a_limit_of_an_account_ends_the_retries() -> None:
    """Goal: a next attempt that could not be submitted is not made, and the job says by which limit."""
    world = World()
    job = run(world, retry=TWICE)
    set_policies(world, Limit("brief", "user", "alice", "cores", duration_s=120))
    time_out(world, job)
    assert world.state_of(job) == "TIMEOUT"
    text = world.job(job).exit_text
    assert text.startswith("timeout: not retried: its next attempt would be refused: ") and "brief" in text


def test_a_deadline_that_cannot_be_met_any_more_ends_the_retries() -> None:
    world = World()
    job = run(world, retry=TWICE, deadline_us=world.now_us + 220 * SECOND)
    time_out(world, job)
    assert world.state_of(job) == "TIMEOUT" and "--deadline" in world.job(job).exit_text


def test_a_reservation_that_ends_too_early_ends_the_retries() -> None:
    world = World()
    until_us = world.now_us + 230 * SECOND
    set_policies(world, Reservation("course", Validity(world.now_us, until_us), ("cn0",), users=("alice",)))
    job = run(world, retry=TWICE, reservation="course")
    time_out(world, job)
    assert world.state_of(job) == "TIMEOUT", world.job(job)
    assert "course" in world.job(job).exit_text


def test_a_lower_bound_of_the_site_counts_at_once() -> None:
    world = World()
    job = run(world, retry=TWICE)
    world.send(ConfigLoaded(replace(world.state.config, retries_max=0)))
    time_out(world, job)
    assert world.state_of(job) == "TIMEOUT"
    assert world.job(job).exit_text == "timeout: not retried again: 0 of 0 retries are used"


# ---- node failures ----


def test_a_lost_node_is_retried_as_often_as_asked_with_the_same_limits() -> None:
    world = World()
    job = run(world, retry=LOST)
    world.lose(0)
    assert (world.state_of(job), limit_of(world, job), world.job(job).retry.count) == ("PENDING", 100, 1)  # type: ignore[union-attr]
    assert "node-fail: retried (1 of 1)" in world.job(job).exit_text
    again(world, job, (1,))
    world.lose(1)
    assert world.state_of(job) == "NODE_FAIL"
    assert "node-fail: not retried again: 1 of 1 retries are used" in world.job(job).exit_text


def test_without_the_cause_a_lost_node_requeues_as_ever_and_counts_as_no_retry() -> None:
    world = World(6)
    job = run(world, retry=RetryRequest(("timeout",), 1))
    for node in range(3):
        world.lose(node)
        assert world.state_of(job) == "PENDING"
        again(world, job, (node + 1,))
    time_out(world, job)
    assert (world.state_of(job), world.job(job).retry.count) == ("PENDING", 1)  # type: ignore[union-attr]


def test_the_loss_of_another_node_counts_once_its_script_has_ended() -> None:
    world = World()
    job = run(world, (0, 1), retry=LOST)
    world.lose(1)
    assert world.attempt(job).stop is not None and world.job(job).retry is None
    world.end(job, 143)
    assert (world.state_of(job), world.job(job).retry.count) == ("PENDING", 1)  # type: ignore[union-attr]


def test_both_causes_share_the_number() -> None:
    world = World()
    job = run(world, retry=RetryRequest(("timeout", "node-fail"), 2))
    time_out(world, job)
    again(world, job, (1,))
    world.lose(1)
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 150)
    again(world, job, (2,))
    time_out(world, job, ran_s=150)
    assert world.state_of(job) == "TIMEOUT"


def test_a_launch_that_fails_is_no_retry() -> None:
    world = World()
    job = world.submit(time_limit_s=100, retry=TWICE)
    world.plan()
    world.lose(world.attempt(job).first)
    assert world.state_of(job) == "PENDING"
    record = world.job(job).retry
    assert record is None or (record.count, record.wasted_us) == (0, 0)


# ---- stops ----


def test_a_cancelled_job_that_runs_into_its_limit_is_not_retried() -> None:
    world = World()
    job = run(world, retry=TWICE)
    world.cancel(job)
    time_out(world, job)
    assert world.state_of(job) == "TIMEOUT" and world.job(job).retry is None


def test_a_cancel_while_nodes_are_given_back_or_in_the_pause_is_final() -> None:
    world = World()
    job = run(world, (0, 1), retry=TWICE)
    time_out(world, job)
    world.cancel(job)
    world.gone(1, job, 1)
    assert (world.state_of(job), limit_of(world, job)) == ("CANCELLED", 100)
    assert world.job(job).retry.grown is None  # type: ignore[union-attr]
    world = World()
    job = run(world, retry=TWICE)
    time_out(world, job)
    world.cancel(job)
    world.pass_time(5)
    assert world.state_of(job) == "CANCELLED" and not world.plan()


def test_a_hold_in_the_pause_keeps_it() -> None:
    world = World()
    job = run(world, retry=TWICE)
    time_out(world, job)
    world.hold(job)
    world.pass_time(5)
    assert not world.plan()
    world.hold(job, release=True)
    assert world.plan() == [job]


def test_requeue_and_preemption_are_no_retries_and_keep_the_grown_limit() -> None:
    world = World()
    set_policies(world, Qos("low", preempt_mode="requeue"), Qos("high", preempts=("low",)))
    job = run(world, retry=TWICE, qos="low")
    time_out(world, job)
    again(world, job)
    world.requeue(job)
    world.end(job, 143)
    again(world, job)
    assert (limit_of(world, job), world.job(job).retry.count) == (150, 1)  # type: ignore[union-attr]
    other = world.submit(qos="high", time_limit_s=100)
    preempt(world, job, "requeue", other)
    world.end(job, 143)
    assert (world.state_of(job), limit_of(world, job), world.job(job).attempts) == ("PENDING", 150, 3)
    assert world.job(job).retry.count == 1  # type: ignore[union-attr]


# ---- dependencies, arrays, parts ----


def test_dependent_jobs_see_its_final_end_only() -> None:
    world = World()
    job = run(world, retry=RetryRequest(("timeout",), 1))
    well = world.submit(dependencies=(Dependency("afterok", job),))
    badly = world.submit(dependencies=(Dependency("afternotok", job),))
    time_out(world, job)
    assert (world.state_of(well), world.job(well).open, len(world.job(badly).open)) == (
        "PENDING",
        (Dependency("afterok", job),),
        1,
    )
    again(world, job)
    time_out(world, job, ran_s=150)
    assert world.state_of(job) == "TIMEOUT"
    assert world.state_of(well) == "CANCELLED" and not world.job(badly).open


def test_each_task_of_an_array_has_its_own_retries() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),), time_limit_s=100, retry=RetryRequest(("timeout",), 1))
    world.start()
    first, second = sorted(world.state.tasks_of[array])
    time_out(world, first)
    assert (limit_of(world, first), limit_of(world, second), limit_of(world, array)) == (150, 100, 100)
    world.end(second)
    world.pass_time(2)
    world.start()
    assert world.state_of(first) == "RUNNING"
    world.end(first)
    assert world.state_of(array) == "COMPLETED"


def test_a_job_of_several_parts_is_retried_as_a_whole() -> None:
    world = World()
    job = submit_parts(world, parted(Request(), Request(), time_limit_s=100, retry=TWICE))
    world.start()
    time_out(world, job)
    for node in sorted(world.attempt(job).held) if world.job(job).attempt else ():
        world.gone(node, job, 1)
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 150)
    world.pass_time(2)
    assert world.start() == [job] and world.state_of(job) == "RUNNING"


def test_a_job_with_gateways_gets_new_ones() -> None:
    world = gateway_world()
    job = prepared(world, time_limit_s=100, retry=TWICE)
    started(world, job)
    time_out(world, job)
    for node in sorted(world.attempt(job).held):
        world.gone(node, job, 1)
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 150)
    world.pass_time(2)
    assert world.plan() == [job]
    world.deliver()
    started(world, job)


def test_an_epilog_on_the_controllers_host_ends_before_the_next_attempt() -> None:
    world = World(phases=ControllerPrograms("", "/site/epilog"))
    job = run(world, retry=TWICE)
    time_out(world, job)
    assert (world.state_of(job), limit_of(world, job)) == ("COMPLETING", 100)
    world.send(ControllerPhaseDone(PhaseKey(job, 1, "epilog", 1), StepEnd(0)))
    assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 150)


# ---- refusals ----


def refusal(world: World, **spec: object) -> str:
    answer = world.try_submit(**{"time_limit_s": 100} | spec)  # type: ignore[arg-type]
    assert isinstance(answer, Refused), answer
    return answer.text


def test_what_cannot_be_promised_is_refused_by_name() -> None:
    world = World()
    assert "a job without a time limit" in refusal(world, retry=TWICE, time_limit_s=0)
    assert "--no-requeue forbids" in refusal(world, retry=LOST, requeue=False)
    assert "--start-at" in refusal(world, retry=LOST, start_at_us=world.now_us + SECOND)
    assert "6 retries are more than 5 (policy.retries_max)" in refusal(
        world, retry=RetryRequest(("timeout",), 6)
    )
    assert "--max-time: 99 s is less" in refusal(world, retry=RetryRequest(("timeout",), 1, max_time_s=99))
    assert not world.state.jobs


def test_timeouts_of_jobs_that_are_never_requeued_are_retried() -> None:
    """Goal: the node vouches for such an end, nothing of it can still run."""
    world = World()
    job = run(world, retry=TWICE, requeue=False)
    time_out(world, job)
    assert world.state_of(job) == "PENDING"


def test_jobs_of_packs_are_refused() -> None:
    world = World()
    kept = world.job(world.submit(time_limit_s=100)).spec
    specs = (replace(kept, name="a"), replace(kept, name="b", retry=TWICE))
    answer = world.send(SubmitJobs(specs, packs=(PackDraft(0, (0, 1)),)))
    assert isinstance(answer, Refused) and "--retry-on: timeout:2: the jobs of a pack" in answer.text


# ---- memory ----


def test_memory_grows_where_a_node_can_tell() -> None:
    world = World(nodes_with=tuple(NodeConfig(f"cn{number}", (4, 1000)) for number in range(4)))
    job = run(world, retry=RetryRequest(("oom",), 3, max_memory_mib=500))
    asked = [Request(memory_per_node_mib=200), Request(tasks=2, chunks=(Chunk(2, 1, 150),))]
    for request in asked:
        job = world.submit(
            request=request, time_limit_s=100, retry=RetryRequest(("oom",), 3, max_memory_mib=500)
        )
        world.start()
        time_out(world, job, "oom")
        assert (world.state_of(job), limit_of(world, job)) == ("PENDING", 100)
        (grown,) = world.job(job).spec.components
        assert (grown.memory_per_node_mib, [one.memory_mib for one in grown.chunks]) == (
            request.memory_per_node_mib * 2,
            [one.memory_mib * 2 for one in request.chunks],
        )
        world.pass_time(2)
        world.start()
        world.end(job)


def test_memory_that_cannot_grow_ends_the_retries() -> None:
    world = World()
    job = world.submit(request=Request(memory_per_node_mib=600), time_limit_s=9, retry=RetryRequest(("oom",)))
    world.start()
    time_out(world, job, "oom")
    assert world.state_of(job) == "OUT_OF_MEMORY"
    assert "its next attempt would be refused" in world.job(job).exit_text
    job = world.submit(
        request=Request(memory_per_node_mib=600),
        time_limit_s=9,
        retry=RetryRequest(("oom",), max_memory_mib=600),
    )
    world.start()
    time_out(world, job, "oom")
    assert "its memory cannot grow: --max-mem allows 600 MiB" in world.job(job).exit_text


# ---- crashes, accounting, words ----


def test_the_decision_is_one_fact() -> None:
    """Goal: a controller that dies after the end has decided the retry, or nothing: it is made exactly once."""
    world = World()
    job = run(world, (0, 1), retry=TWICE)
    time_out(world, job)
    ends = [fact for fact in world.log if isinstance(fact, AttemptEnded)]
    assert len(ends) == 1 and ends[0].retry is not None
    world.restart()
    for node in (0, 1):
        if world.job(job).attempt is not None and node in world.attempt(job).held:
            world.gone(node, job, 1)
    assert (world.state_of(job), limit_of(world, job), world.job(job).retry.count) == ("PENDING", 150, 1)  # type: ignore[union-attr]
    world.restart()
    world.pass_time(2)
    assert world.plan() == [job]
    assert (world.attempt(job).number, world.job(job).retry.count) == (2, 1)  # type: ignore[union-attr]


def test_a_second_report_of_the_same_end_changes_nothing() -> None:
    world = World()
    job = run(world, retry=TWICE)
    attempt = world.attempt(job)
    time_out(world, job)
    end = StepEnd(1, 15, "time_limit", started_us=attempt.started_us, ended_us=world.now_us)
    world.report(StepEnded(attempt.first, 1, job, 1, end, True))
    assert (limit_of(world, job), world.job(job).retry.count) == (150, 1)  # type: ignore[union-attr]


def test_waste_is_counted_and_told() -> None:
    world = World()
    job = run(world, (0, 1), retry=TWICE)
    usage = world.state.usage.copy()
    time_out(world, job)
    world.gone(1, job, 1)
    info = job_info(world.view, world.job(job), None)
    assert (info.retry_on, info.retries, info.wasted_s, info.wasted_cpu_s) == ("timeout:2", 1, 100, 800)
    assert info.retry_text == (
        "attempt 1 ended by timeout, retry 1 of 2: a time limit of 150 s instead of 100 s; "
        "100 s of run time and 800 core seconds were wasted"
    )
    assert info.exit_text == "timeout: retried (1 of 2), with a time limit of 150 s"
    assert info.reason_text == info.exit_text, "the reason of its pause"
    charged = sum(one.raw for one in world.state.usage.values()) - sum(one.raw for one in usage.values())
    assert charged == pytest.approx(800, rel=0.01), "fair share counts what was wasted"


def test_the_row_of_a_retried_attempt_has_its_own_limit() -> None:
    world = World()
    job = run(world, retry=TWICE)
    attempt = world.attempt(job)
    world.now_us += 100 * SECOND
    end = StepEnd(1, 15, "time_limit", started_us=attempt.started_us, ended_us=world.now_us)
    batch = world.batch(Reports((Report("agent", 999_999, StepEnded(0, 1, job, 1, end, True)),)))
    rows = [row for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
    assert [(row.state, decode_accounted(row.blob).time_limit_s) for row in rows] == [("REQUEUED", 100)]


def test_nodes_get_nothing_of_it() -> None:
    world = World()
    job = world.submit(time_limit_s=100, retry=TWICE)
    world.plan()
    (send,) = world.sends()
    assert send.body.launch.spec.retry is None and world.attempt(job).until_us < INFINITY_US  # type: ignore[union-attr]
