"""A running job gets further nodes in place: it waits like any job, its nodes join together, and nothing of it is lost."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.api.infos import job_info
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.accounts import Amount, Limit, Policy, Qos, Reservation, Validity, kind_of
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.job import Attempt, Principal, StepEnd
from eslurm.core.model.messages import (
    Changed,
    ChangePolicies,
    CreateStep,
    ExtendJob,
    JobRef,
    PlanMade,
    PolicyChange,
    Preemption,
    Resized,
    ResizeJob,
    StepCreated,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.core.model.protocol import End, HeldAttempt, LaunchStep, PhaseReported, Prepare, Preparing
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.state.segments import segments_of
from eslurm.core.state.usage import usage_now
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, depends, problem, refused
from tests.kits.planned import plan_all
from tests.kits.running import place, run, start


def running(nodes: tuple[int, ...] = (0,), of: int = 4, **others: object) -> tuple[World, int]:
    names = ("priority", "kill_grace_s", "launch_failures_max", "requeue_delay_s", "policy")
    config = {key: others.pop(key) for key in names if key in others}
    world = World(of, **config)  # type: ignore[arg-type]
    count = len(nodes)
    request = Request(tasks=count, cpus_per_task=4, nodes_min=count, nodes_max=count)
    job = world.submit(request=request, **{"time_limit_s": 100} | others)  # type: ignore[arg-type]
    place(world, job, nodes)
    start(world, job)
    return world, job


def resize(world: World, job: int, by: Principal = ALICE, **how: object) -> BatchAnswer:
    return world.send(ResizeJob(by, JobRef(job), **how))  # type: ignore[arg-type]


def ask(world: World, job: int, **how: object) -> int:
    """Ask for nodes; the id of the growth."""
    answer = resize(world, job, **how)
    assert isinstance(answer, Resized), answer
    assert answer.growth_id
    return answer.growth_id


def create(world: World, job: int, nodes: int = 0) -> BatchAnswer:
    return world.send(CreateStep(ALICE, job, 0, nodes, ("app",), b"e", "/tmp", "host:9", b"c"))


def step_nodes(world: World, job: int) -> list[str]:
    answer = create(world, job)
    assert isinstance(answer, StepCreated), answer
    return [name for name, _ in answer.layout]


def free(world: World) -> list[int]:
    return [world.state.ledger.free(node)[0] for node in sorted(world.state.nodes)]


def joins(attempt: Attempt) -> set[int]:
    return set(attempt.joining)


def test_free_nodes_join_as_soon_as_they_are_prepared() -> None:
    """Goal: held from the placement, for steps only when all of them are ready; the script hears nothing of it."""
    world, job = running()
    growth = ask(world, job, by_nodes=2)
    assert world.state_of(growth) == "PENDING" and growth in world.state.queue
    world.plan()
    assert joins(world.attempt(job)) == {1, 2} and free(world) == [0, 0, 0, 4]
    assert step_nodes(world, job) == ["cn0"]
    (launch, send) = sorted(world.sends(), key=lambda one: isinstance(one.body, Prepare))
    assert isinstance(launch.body, LaunchStep) and launch.nodes == (0,)
    assert isinstance(send.body, Prepare) and send.nodes == (1, 2) and not send.body.start
    assert send.body.launch.node_names == "cn[0-2]" and send.body.launch.attempt == 1
    world.done(send)
    assert not joins(world.attempt(job)) and world.attempt(job).held == {0, 1, 2}
    assert step_nodes(world, job) == ["cn0", "cn1", "cn2"]
    (launch,) = [send for send in world.sends() if isinstance(send.body, LaunchStep) and 1 in send.nodes]
    assert isinstance(launch.body, LaunchStep) and launch.body.launch is not None
    assert launch.body.launch.node_names == "cn[0-2]"
    assert world.state_of(growth) == "COMPLETED" and world.job(growth).exit_text == f"job {job} got cn[1-2]"
    assert not world.state.growing
    world.end(job)
    assert free(world) == [4] * 4


def test_what_a_step_leaves_open_is_what_the_job_has_now() -> None:
    """Goal: the script's environment is that of its start; -n and -N of the user stay as they are."""
    world, job = running((0, 1))

    def layout(tasks: int, nodes: int, *, tasks_open: bool = False, nodes_open: bool = False) -> list[int]:
        message = CreateStep(
            *(ALICE, job, tasks, nodes, ("app",), b"e", "/tmp", "host:9", b"c"),
            tasks_open=tasks_open,
            nodes_open=nodes_open,
        )
        answer = world.send(message)
        assert isinstance(answer, StepCreated), answer
        return [count for _, count in answer.layout]

    assert layout(2, 2, tasks_open=True, nodes_open=True) == [1, 1]
    ask(world, job, by_nodes=2)
    world.plan()
    world.deliver()
    assert layout(2, 2, tasks_open=True, nodes_open=True) == [1, 1, 1, 1]
    assert layout(2, 2, nodes_open=True) == [1, 1]
    assert layout(6, 2, nodes_open=True) == [2, 2, 1, 1]
    assert layout(3, 1) == [3]
    resize(world, job, to_nodes=1)
    assert layout(2, 2, tasks_open=True, nodes_open=True) == [1]
    assert layout(2, 2, nodes_open=True) == [2]


def test_it_has_the_shape_of_the_nodes_before() -> None:
    world = World(4, cores=8)
    job = world.submit(
        request=Request(tasks=6, cpus_per_task=2, nodes_min=2, nodes_max=2, memory_per_node_mib=100),
        time_limit_s=3600,
    )
    assert job in world.start()
    world.pass_time(1200)
    growth = world.job(ask(world, job, by_nodes=2))
    request = growth.spec.components[0]
    assert (request.tasks, request.tasks_per_node, request.nodes_min, request.nodes_max) == (6, 3, 2, 2)
    assert (request.cpus_per_task, request.memory_per_node_mib) == (2, 100)
    assert growth.spec.time_limit_s == 2400 and growth.spec.name == f"grow-{job}"
    assert growth.grows is not None and growth.grows.apart == {0, 1}


def test_it_waits_for_its_turn_with_a_promise_and_delays_no_promised_job() -> None:
    """Goal: a promised job keeps its start, and the growth gets one of its own behind it."""
    world, job = running(time_limit_s=1000, policy="planned")
    schedule = Schedule()
    run(world, (1, 2, 3), time_limit_s=100)
    wide = world.submit(request=Request(tasks=3, nodes_min=3, nodes_max=3, cpus_per_task=4), time_limit_s=50)
    plan_all(world, schedule)
    (booking,) = schedule.bookings[wide]
    assert booking.start_us == world.now_us + 100 * SECOND
    growth = ask(world, job, by_nodes=1)
    plan_all(world, schedule)
    (later,) = schedule.bookings[growth]
    assert schedule.bookings[wide][0].start_us == booking.start_us
    assert later.start_us == booking.start_us + 50 * SECOND
    assert world.state_of(growth) == "PENDING" and step_nodes(world, job) == ["cn0"]


def test_the_plan_holds_the_nodes_for_the_job_from_its_growth_on() -> None:
    """Goal: what joins is booked until the end of the job, and no plan takes it in between."""
    world, job = running(policy="planned", time_limit_s=1000)
    schedule = Schedule()
    plan_all(world, schedule)
    growth = ask(world, job, by_nodes=3)
    plan_all(world, schedule)
    assert world.state_of(growth) == "COMPLETED"
    (held,) = schedule.held.values()
    assert {span.node for span in held.booking.spans} == {0, 1, 2, 3}
    other = world.submit(request=Request(cpus_per_task=4), time_limit_s=10)
    plan_all(world, schedule)
    (booking,) = schedule.bookings[other]
    assert booking.start_us == world.attempt(job).until_us
    resize(world, job, to_nodes=1)
    world.deliver()
    plan_all(world, schedule)
    assert world.job(other).attempt is not None
    schedule.book.check()


def test_a_growth_that_waits_is_shown_and_withdrawn() -> None:
    world, job = running()
    run(world, (1, 2, 3))
    growth = ask(world, job, to_nodes=3)
    shown = job_info(world.view, world.job(job), None)
    assert shown.reason_text == f"waits for 2 nodes more: eswhy {growth}"
    answer = resize(world, job, to_nodes=1)
    assert isinstance(answer, Resized) and (answer.withdrawn, answer.growth_id) == (growth, 0)
    assert (world.state_of(growth), world.job(growth).exit_text) == ("CANCELLED", "withdrawn by alice")
    assert world.attempt(job).growth is None and not world.state.growing
    again = ask(world, job, to_nodes=2)
    assert "give the number of nodes in all" in refused(resize(world, job, by_nodes=1))
    other = ask(world, job, to_nodes=3)
    assert world.state_of(again) == "CANCELLED" and world.state.growing == {job: other}
    world.cancel(other)
    assert world.attempt(job).growth is None and world.state_of(job) == "RUNNING"


def test_nodes_that_fail_are_given_back_and_others_are_tried() -> None:
    """Goal: the job goes on, the growth waits with the reason, and never gets the same nodes again."""
    world, job = running(requeue_delay_s=1.0)
    growth = ask(world, job, by_nodes=1)
    world.plan()
    (send,) = world.sends()
    world.done(send, "failed")
    record = world.job(growth)
    assert record.state.value == "PENDING" and record.exit_text == f"could not join job {job}: cn1: why"
    assert record.not_before_us > world.now_us and world.attempt(job).leaving == {1}
    assert step_nodes(world, job) == ["cn0"] and free(world)[1] == 0
    (end,) = [one for one in world.sends() if isinstance(one.body, End)]
    assert end.nodes == (1,)
    world.done(end, payload=world.answer_of(end))
    assert free(world)[1] == 4
    world.pass_time(5)
    world.plan()
    assert joins(world.attempt(job)) == {2}
    world.deliver()
    assert step_nodes(world, job) == ["cn0", "cn2"] and world.state_of(growth) == "COMPLETED"
    assert world.state.nodes[1].failed_launches[0][0] == job


def test_after_too_many_failures_it_ends_and_says_why() -> None:
    world, job = running(launch_failures_max=2, requeue_delay_s=1.0)
    growth = ask(world, job, by_nodes=1)
    for _ in range(2):
        assert world.state_of(growth) == "PENDING"
        world.pass_time(30)
        world.plan()
        (send,) = world.sends()
        assert isinstance(send.body, Prepare)
        world.done(send, "failed")
        world.deliver()
    assert world.state_of(growth) == "CANCELLED"
    assert world.job(growth).exit_text == f"could not join job {job}: cn2: why"
    assert world.state_of(job) == "RUNNING" and free(world) == [0, 4, 4, 4]


def test_a_node_that_did_not_answer_is_given_back_with_the_others() -> None:
    world, job = running()
    ask(world, job, by_nodes=3)
    world.plan()
    (send,) = world.sends()
    world.done(send, nodes=(1, 3))
    assert world.attempt(job).leaving == {1, 2, 3} and free(world) == [0, 0, 0, 0]
    world.gone(1, job, 1)
    world.lose(2)
    assert free(world) == [0, 4, 4, 0] and world.state_of(job) == "RUNNING"


@pytest.mark.parametrize("how", ["lost", "tombstone", "gone"])
def test_a_joining_node_that_goes_does_not_end_the_job(how: str) -> None:
    world, job = running()
    growth = ask(world, job, by_nodes=2)
    world.plan()
    if how == "lost":
        world.lose(1)
    elif how == "tombstone":
        world.register(1, HeldAttempt(job, 1, "tombstone"), session="s2")
    else:
        world.gone(1, job, 1)
    assert (world.state_of(job), world.attempt(job).stop) == ("RUNNING", None)
    assert world.attempt(job).leaving == {2} and free(world)[1] == 4
    assert world.state_of(growth) == "PENDING" and world.job(growth).grows.apart == {0, 1, 2}  # type: ignore[union-attr]


def test_a_restarted_agent_is_asked_again() -> None:
    world, job = running()
    world.register(1, session="s2", phases=("prolog",))
    ask(world, job, by_nodes=1)
    world.plan()
    (send,) = world.sends()
    world.done(send, payload=msgspec.msgpack.encode(Preparing(30)))
    world.register(1, session="s3", phases=("prolog",))
    assert joins(world.attempt(job)) == {1} and not world.attempt(job).growth.preparing  # type: ignore[union-attr]
    (send,) = world.sends()
    assert isinstance(send.body, Prepare) and send.nodes == (1,)
    world.done(send)
    assert step_nodes(world, job) == ["cn0", "cn1"]


def test_crashes_after_each_fact_add_no_node_twice_and_leak_none() -> None:
    """Goal: exactly once, wherever the controller dies; each fact's rows give the same state again (kit)."""
    world, job = running()
    growth = ask(world, job, by_nodes=2)
    world.restart()
    assert world.state.growing == {job: growth} and growth in world.state.queue
    world.plan()
    world.restart()
    assert joins(world.attempt(job)) == {1, 2} and free(world) == [0, 0, 0, 4]
    assert not world.plan() and free(world) == [0, 0, 0, 4]
    (send,) = world.sends()
    assert isinstance(send.body, Prepare) and send.nodes == (1, 2)
    world.done(send)
    world.done(send)
    assert world.attempt(job).held == {0, 1, 2}
    world.restart()
    assert not world.sends() and not world.state.growing
    assert step_nodes(world, job) == ["cn0", "cn1", "cn2"]
    resize(world, job, to_nodes=1)
    world.restart()
    world.deliver()
    world.restart()
    assert free(world) == [0, 4, 4, 4]
    world.end(job)
    assert free(world) == [4] * 4


def test_a_prolog_on_the_new_nodes_comes_first() -> None:
    world, job = running()
    for number in (1, 2, 3):
        world.register(number, session="s2", phases=("prolog", "epilog"))
    ask(world, job, by_nodes=2)
    world.plan()
    (send,) = world.sends()
    assert isinstance(send.body, Prepare) and send.body.launch.phases == ("prolog", "epilog")
    world.done(send, payload=msgspec.msgpack.encode(Preparing(30)))
    assert world.attempt(job).growth.preparing == {1, 2}  # type: ignore[union-attr]
    assert not world.sends()
    world.report(PhaseReported(1, world.state.nodes[1].incarnation, job, 1, "prolog", StepEnd(0)))
    assert joins(world.attempt(job)) == {1, 2}
    world.report(PhaseReported(2, world.state.nodes[2].incarnation, job, 1, "prolog", StepEnd(0)))
    assert step_nodes(world, job) == ["cn0", "cn1", "cn2"]


def test_a_prolog_that_fails_is_a_fault_of_the_node_and_tried_elsewhere() -> None:
    world, job = running()
    for number in (1, 2, 3):
        world.register(number, session="s2", phases=("prolog", "epilog"))
    growth = ask(world, job, by_nodes=1)
    world.plan()
    (send,) = world.sends()
    world.done(send, payload=msgspec.msgpack.encode(Preparing(30)))
    world.report(PhaseReported(1, world.state.nodes[1].incarnation, job, 1, "prolog", StepEnd(1)))
    assert world.state.nodes[1].faults and world.attempt(job).leaving == {1}
    assert "its prolog failed" in world.job(growth).exit_text


def test_a_prolog_that_never_reports_is_given_up() -> None:
    world, job = running(time_limit_s=0)
    world.register(1, session="s2", phases=("prolog",))
    growth = ask(world, job, nodes=("cn0", "cn1"))
    world.plan()
    (send,) = world.sends()
    world.done(send, payload=msgspec.msgpack.encode(Preparing(30)))
    world.pass_time(121)
    assert world.attempt(job).leaving == {1} and "no report" in world.job(growth).exit_text


@pytest.mark.parametrize("joining", [False, True], ids=["waiting", "joining"])
@pytest.mark.parametrize("how", ["end", "cancel", "requeue", "lost"])
def test_a_growth_ends_with_its_job(how: str, joining: bool) -> None:
    world, job = running()
    growth = ask(world, job, by_nodes=2)
    after = world.submit(request=Request(cpus_per_task=4), dependencies=depends("afterany", growth))
    if joining:
        world.plan()
        assert joins(world.attempt(job)) == {1, 2}
    if how == "end":
        world.end(job)
    elif how == "cancel":
        world.cancel(job)
    elif how == "requeue":
        world.requeue(job)
    else:
        world.lose(0)
    assert world.state_of(growth) == "CANCELLED" and not world.state.growing
    assert f"job {job} has ended, or is being ended" in world.job(growth).exit_text
    assert not world.job(after).open
    world.deliver()
    if world.job(job).attempt is not None:
        world.end(job)
        world.deliver()
    assert free(world)[1:] == [4] * 3 and not world.state.owed


def test_a_suspended_job_gets_no_nodes_until_it_goes_on() -> None:
    world, job = running(time_limit_s=1000)
    growth = ask(world, job, by_nodes=1)
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.pass_time(500)
    assert world.plan() == [] and not joins(world.attempt(job))
    info = job_info(world.view, world.job(growth), None)
    assert info.reason == "JobSuspended"
    assert "is suspended" in refused(resize(world, job, by_nodes=1))
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    assert world.job(growth).spec.time_limit_s == 1000
    world.restart()
    world.plan()
    assert joins(world.attempt(job)) == {1}


def test_a_longer_limit_of_its_job_is_one_of_the_growth() -> None:
    world, job = running(time_limit_s=100)
    run(world, (1, 2, 3))
    growth = ask(world, job, by_nodes=1)
    world.send(UpdateJob(ROOT, JobRef(job), time_limit_s=500))
    assert world.job(growth).spec.time_limit_s == 500


def test_a_growth_that_waits_asks_for_what_is_left_until_the_end_of_its_job() -> None:
    """Goal: it fits into shorter and shorter gaps, with few facts."""
    world, job = running(time_limit_s=1000)
    other = run(world, (1, 2, 3), time_limit_s=2000)
    growth = ask(world, job, by_nodes=1)
    since = len(world.log)
    asked = []
    for _ in range(19):
        world.pass_time(50)
        asked.append(world.job(growth).spec.time_limit_s)
        left_s = (world.attempt(job).until_us - world.now_us) // SECOND
        assert left_s <= asked[-1] <= max(left_s / 0.8 + 1, 60)
    assert world.kinds(since).count("JobChanged") < 14
    world.end(other)
    world.plan()
    assert joins(world.attempt(job)) == {1}


def test_core_seconds_are_the_sum_over_the_segments() -> None:
    """Goal: each node counts from when the job got it until it was free, wherever the usage is asked for."""
    world, job = running(
        time_limit_s=3600, priority=PriorityWeights(half_life_s=0, billing=(("cores", 1.0),))
    )
    world.pass_time(10)
    ask(world, job, by_nodes=2)
    world.plan()
    world.pass_time(1)
    world.deliver()
    world.pass_time(19)
    resize(world, job, without=("cn1",))
    world.deliver()
    world.pass_time(30)

    def used() -> float:
        usage = usage_now(world.state, [world.job(job)], world.now_us)
        with pytest.raises(StopIteration) as found:
            while True:
                next(usage)
        return float(found.value.value["", "alice"])

    expected = 4 * (60 + 20 + 50)
    assert used() == pytest.approx(expected)
    found = segments_of(world.attempt(job), world.now_us)
    begin_us = world.attempt(job).started_us
    ends = [(one.from_us - begin_us, one.until_us - begin_us, one.nodes) for one in found]
    assert ends == [
        (0, 10 * SECOND, (0,)),
        (10 * SECOND, 30 * SECOND, (0, 1, 2)),
        (30 * SECOND, 60 * SECOND, (0, 2)),
    ]
    assert sum(one.cores * (one.until_us - one.from_us) for one in found) == expected * SECOND
    world.end(job)
    assert world.state.usage["", "alice"].raw == pytest.approx(expected)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(tasks=2, chunks=(Chunk(2),)), "resource sets (--rset)"),
        (Request(tasks=2, place="pack"), "place=pack"),
    ],
)
def test_a_further_node_of_what_it_is_none_is_refused(request_: Request, text: str) -> None:
    world = World(4)
    job = world.submit(request=request_)
    assert job in world.start()
    assert text in refused(resize(world, job, by_nodes=1))


def test_more_than_there_ever_are_is_refused() -> None:
    world, job = running((0, 1))
    assert "cannot get 3 more" in refused(resize(world, job, by_nodes=3))
    assert "does not exist" in refused(resize(world, job, nodes=("cn0", "cn1", "cn9")))
    assert "make it two changes" in refused(resize(world, job, nodes=("cn0", "cn2")))
    assert "belongs to alice" in refused(resize(world, job, BOB, by_nodes=1))


def test_named_nodes_are_the_ones_that_join() -> None:
    world, job = running()
    ask(world, job, nodes=("cn0", "cn3"))
    world.plan()
    assert joins(world.attempt(job)) == {3}


def test_a_growth_is_no_job_to_change_or_to_count() -> None:
    world, job = running()
    growth = ask(world, job, by_nodes=1)
    assert f"is the growth of job {job}" in problem(world.send(UpdateJob(ALICE, JobRef(growth), name="x")))
    assert world.state.job_counts.counts["user", "alice"] == 1
    world.send(ExtendJob(ALICE, JobRef(job), by_s=10))


def rule(world: World, policy: Policy) -> None:
    change = PolicyChange("add", kind_of(policy), policy.name, policy)
    assert world.send(ChangePolicies(ROOT, (change,))) == Changed(1)


@pytest.mark.parametrize("policy", ["easy", "planned"])
def test_beyond_a_limit_it_waits_with_the_reason(policy: str) -> None:
    """Goal: what the job holds and what it asks for count together; room under the limit lets it in."""
    world, job = running((0, 1), policy=policy)
    rule(world, Limit("few", "user", "alice", "nodes", Amount(3)))
    schedule = Schedule()
    growth = ask(world, job, by_nodes=2)
    plan = plan_all(world, schedule)
    assert plan.waiting[growth].kind is WhyKind.LIMIT and "few" in plan.waiting[growth].text
    resize(world, job, to_nodes=3)
    plan_all(world, schedule)
    assert len(world.attempt(job).held) == 3


def test_it_does_not_run_into_maintenance() -> None:
    """Goal: the nodes would be held until the job's end, which lies within it."""
    world, job = running((0,), policy="planned", time_limit_s=1000)
    begin_us = world.now_us + 300 * SECOND
    times = Validity(from_us=begin_us, until_us=begin_us + 3600 * SECOND)
    rule(world, Reservation("service", times, ("cn1", "cn2"), maintenance=True))
    schedule = Schedule()
    growth = ask(world, job, by_nodes=2)
    plan_all(world, schedule)
    assert world.attempt(job).held == {0} and world.state_of(growth) == "PENDING"
    resize(world, job, to_nodes=2)
    plan_all(world, schedule)
    assert world.attempt(job).held == {0, 3}, "the node that stays open"


def test_where_no_other_node_is_left_it_waits_with_the_reason() -> None:
    """Goal: the nodes that it has, gave back or failed on are no last resort, as avoided nodes are."""
    world, job = running((0,), of=2, policy="planned")
    growth = ask(world, job, by_nodes=1)
    world.plan()
    (send,) = world.sends()
    world.done(send, "failed")
    world.deliver()
    world.pass_time(60)
    schedule = Schedule()
    plan = plan_all(world, schedule)
    assert world.attempt(job).held == {0} and growth not in schedule.bookings
    assert plan.waiting[growth].text
    assert world.kinds().count("GrowthPlaced") == 1


def test_a_growth_whose_job_is_preempted_by_the_same_plan_has_no_promise() -> None:
    """Goal: the plan promises the growth a start, and ends its job to make room for another one."""
    world = World(4)
    rule(world, Qos("low", preempt_mode="cancel"))
    rule(world, Qos("high", preempts=("low",)))
    job = run(world, (0,), qos="low")
    growth = ask(world, job, by_nodes=1)
    urgent = world.submit(request=Request(cpus_per_task=4), qos="high")
    start = PromisedStart(world.now_us + SECOND, (Run(1, 1, 1, (4, 0)),))
    promises = (Promise(growth, (start,)), Promise(urgent, (start,)))
    victim = Preemption(job, 1, "cancel", urgent)
    world.send(PlanMade((), world.state.generation, (victim,), promises))
    assert world.attempt(job).stop is not None and world.state_of(growth) == "CANCELLED"
    assert set(world.state.promises) == {urgent}


def test_a_dry_run_asks_for_nothing() -> None:
    world, job = running()
    answer = resize(world, job, by_nodes=2, dry_run=True)
    assert isinstance(answer, Resized) and (answer.more, answer.growth_id) == (2, 0)
    assert not world.state.growing
