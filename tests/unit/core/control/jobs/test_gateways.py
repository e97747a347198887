"""A job's gateways: daemons, addresses, routes, and then the script; what fails, and what comes of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.planning import plan_slices
from eslurm.core.model import facts
from eslurm.core.model.config import Module
from eslurm.core.model.gateways import (
    LIMITS_S,
    RETRY_S,
    TRANSITIONS,
    GatewayRequest,
    GatewayStage,
    is_address,
)
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import AttemptPhase, IllegalTransition
from eslurm.core.model.messages import Reports, SubmitJobs
from eslurm.core.model.parts import ids_taken, user_parts
from eslurm.core.model.protocol import (
    End,
    GatewayReported,
    LaunchStep,
    Prepare,
    Report,
    Signal,
    Start,
    StepEnded,
)
from eslurm.core.model.request import Request
from eslurm.core.model.step_key import GATEWAY_STEP, ROUTE_ERROR_STEP, ROUTE_STEP
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.state.apply import apply
from eslurm.core.state.rows import decode_accounted
from eslurm.ports.store import AttemptRow
from eslurm.store.rows import to_store
from tests.kits.core import SECOND, World, refused
from tests.kits.gateways import (
    ALL,
    MODULES,
    address,
    addressed,
    ends,
    gateway_world,
    prepared,
    started,
    submit,
)

DIED = StepEnd(139)
FIRST, GW1, GW2 = 0, 3, 4


def stage(world: World, job_id: int) -> GatewayStage:
    gateway = world.attempt(job_id).gateway
    assert gateway is not None
    return gateway.stage


def bodies(world: World) -> list[object]:
    return [send.body for send in world.deliver()]


# ---- the way to the script ----


def test_the_script_starts_after_daemons_addresses_and_routes() -> None:
    world = gateway_world()
    job_id = submit(world, per_node=2)
    assert job_id in world.plan()
    (prepare,) = world.deliver()
    assert isinstance(prepare.body, Prepare) and not prepare.body.start and len(prepare.nodes) == 5
    (daemons,) = world.sends()
    step = daemons.body
    assert isinstance(step, LaunchStep) and step.step == GATEWAY_STEP and daemons.nodes == (GW1, GW2)
    assert (step.tasks, step.component, step.argv, step.cookie) == (4, 1, (), b"")
    assert [(group.runs, group.tasks) for group in step.groups] == [(((GW1, 2),), 2)]
    assert step.launch is not None and step.launch.spec.gateway == GatewayRequest(2, per_node=2)
    world.done(daemons)
    assert world.sends() == []
    address(world, job_id, GW1, "192.0.2.1:5000", "192.0.2.1:5001")
    assert stage(world, job_id) is GatewayStage.DAEMONS and world.sends() == []
    address(world, job_id, GW2, "192.0.2.2:5000", "[2001:db8::2]:5001")
    (routes,) = world.deliver()
    step = routes.body
    assert isinstance(step, LaunchStep) and step.step == ROUTE_STEP and routes.nodes == (FIRST,)
    assert step.gateway is not None and step.gateway.names == "cn[3-4]"
    assert step.gateway.addresses == (
        ("192.0.2.1:5000", "192.0.2.1:5001"),
        ("192.0.2.2:5000", "[2001:db8::2]:5001"),
    )
    assert step.gateway.modules == (("cluster", "cn[0-1]"), ("booster", "cn2")) and not step.gateway.direct
    assert world.sends() == []
    ends(world, job_id, FIRST, "routes", StepEnd(0))
    assert stage(world, job_id) is GatewayStage.READY
    (start,) = world.deliver()
    assert isinstance(start.body, Start) and start.nodes == (FIRST,)
    assert world.state_of(job_id) == "RUNNING"


def test_modules_that_reach_each_other_are_named_as_pairs() -> None:
    modules = (Module("cluster"), Module("booster", "booster", ("cluster",)), MODULES[2])
    world = gateway_world(modules=modules)
    job_id = prepared(world)
    addressed(world, job_id)
    (routes,) = bodies(world)
    assert isinstance(routes, LaunchStep) and routes.gateway is not None
    assert routes.gateway.direct == (("cluster", "booster"),)


def test_an_address_is_an_answer_and_counts_once() -> None:
    world = gateway_world()
    job_id = prepared(world)
    address(world, job_id, GW1)
    address(world, job_id, GW1, "192.0.2.9:1")
    (daemons,) = world.sends()
    assert daemons.nodes == (GW2,)
    address(world, job_id, FIRST, "192.0.2.9:1")
    gateway = world.attempt(job_id).gateway
    assert gateway is not None and gateway.addresses == ((GW1, ("192.0.2.3:5000",)),)


def test_a_new_leader_asks_only_gateways_that_have_not_answered() -> None:
    world = gateway_world()
    job_id = prepared(world)
    (daemons,) = world.sends()
    world.done(daemons, nodes=(GW1,))
    world.restart(epoch=False)
    (again,) = world.sends()
    assert again.nodes == (GW2,) and again.body == daemons.body
    world.done(again)
    address(world, job_id, GW1)
    world.restart(epoch=False)
    assert world.sends() == []
    address(world, job_id, GW2)
    world.restart(epoch=False)
    (routes,) = bodies(world)
    assert isinstance(routes, LaunchStep) and routes.step == ROUTE_STEP


# ---- failures before the script ----


def test_a_daemon_that_ends_early_fails_the_launch_for_ten_minutes() -> None:
    world = gateway_world()
    job_id = prepared(world)
    world.deliver()
    ends(world, job_id, GW1, "gateway", StepEnd(0, 11, text="no device"))
    assert stage(world, job_id) is GatewayStage.FAILED
    (helper,) = world.deliver()
    step = helper.body
    assert isinstance(step, LaunchStep) and step.step == ROUTE_ERROR_STEP and helper.nodes == (FIRST,)
    why = "gateway cn3: daemon ended with 139: no device"
    assert step.gateway is not None and step.gateway.failed == why
    ends(world, job_id, FIRST, "route_error", StepEnd(0))
    job = world.job(job_id)
    assert job.state.value == "COMPLETING" and job.exit_text == f"its gateways failed: {why}"
    assert job.not_before_us == world.now_us + RETRY_S * SECOND and job.launch_failures == 1
    # The daemons are ended, and nothing of the next attempt runs before every node has said so.
    (end,) = world.deliver()
    assert isinstance(end.body, End) and set(end.nodes) == {0, 1, 2, GW1, GW2}
    assert world.state_of(job_id) == "PENDING" and world.plan() == []
    world.pass_time(RETRY_S)
    assert job_id in world.plan()


def quietly(world: World) -> int:
    """A job all of whose nodes are prepared, and that wants no error file."""
    job_id = world.submit(request=ALL, gateway=GatewayRequest(2, quiet=True))
    assert job_id in world.plan()
    world.deliver()
    return job_id


@pytest.mark.parametrize(
    ("how", "avoided"),
    [
        ("ends", {GW1}),
        ("no address", {GW1}),
        ("refused", {GW1}),
        ("late", {GW1, GW2}),
        ("routes", {FIRST}),
    ],
)
def test_without_an_error_file_the_launch_fails_at_once(how: str, avoided: set[int]) -> None:
    world = gateway_world()
    job_id = quietly(world)
    match how:
        case "refused":
            (daemons,) = world.sends()
            world.done(daemons, "failed")
        case "late":
            world.deliver()
            world.pass_time(LIMITS_S[GatewayStage.DAEMONS])
        case "ends":
            world.deliver()
            ends(world, job_id, GW1, "gateway", DIED)
        case "no address":
            world.deliver()
            address(world, job_id, GW1, "nowhere")
        case _:
            addressed(world, job_id)
            world.deliver()
            ends(world, job_id, FIRST, "routes", StepEnd(1))
    job = world.job(job_id)
    assert job.state.value == "COMPLETING" and job.exit_text.startswith("its gateways failed: ")
    assert job.not_before_us == world.now_us + RETRY_S * SECOND and job.launch_failures == 1
    assert job.avoid == avoided
    (end,) = world.deliver()
    assert isinstance(end.body, End), "no helper"


@pytest.mark.parametrize(
    "addresses", [(), ("192.0.2.1",), ("192.0.2.1:1", "192.0.2.1:2"), ("a\0b:1",), ("host:1",)]
)
def test_what_is_no_address_fails_the_launch(addresses: tuple[str, ...]) -> None:
    world = gateway_world()
    job_id = prepared(world)
    number = world.attempt(job_id).number
    world.report(GatewayReported(GW1, world.state.nodes[GW1].incarnation, job_id, number, addresses))
    assert stage(world, job_id) is GatewayStage.FAILED


@pytest.mark.parametrize(
    ("addresses", "limit", "why"),
    [
        (0, GatewayStage.DAEMONS, "2 of 2 gateways told no address within 300 s: cn3, cn4"),
        (1, GatewayStage.DAEMONS, "1 of 2 gateways told no address within 300 s: cn4"),
        (2, GatewayStage.ROUTES, "routes were not written within 60 s"),
    ],
)
def test_each_stage_has_a_time_limit(addresses: int, limit: GatewayStage, why: str) -> None:
    world = gateway_world()
    job_id = prepared(world)
    world.deliver()
    for node in (GW1, GW2)[:addresses]:
        address(world, job_id, node)
    world.deliver()
    world.restart(epoch=False)
    world.pass_time(LIMITS_S[limit] - 1)
    assert stage(world, job_id) is limit
    world.pass_time(1)
    assert stage(world, job_id) is GatewayStage.FAILED
    # The error file may not be writable at all.
    world.deliver()
    world.pass_time(LIMITS_S[GatewayStage.FAILED])
    assert world.job(job_id).exit_text == f"its gateways failed: {why}"


@pytest.mark.parametrize("phase", ["routes", "gateway"])
def test_routes_that_fail_or_a_daemon_that_ends_meanwhile(phase: str) -> None:
    world = gateway_world()
    job_id = prepared(world)
    addressed(world, job_id)
    world.deliver()
    ends(world, job_id, FIRST if phase == "routes" else GW2, phase, StepEnd(1, text="plug-in map raised"))
    world.deliver()
    ends(world, job_id, FIRST, "route_error", StepEnd(0))
    what = "routes could not be written: 1" if phase == "routes" else "gateway cn4: daemon ended with 1"
    assert world.job(job_id).exit_text == f"its gateways failed: {what}: plug-in map raised"


def test_a_node_that_refuses_a_step_fails_the_launch() -> None:
    world = gateway_world()
    job_id = prepared(world)
    (daemons,) = world.sends()
    world.done(daemons, "failed")
    (helper,) = world.sends()
    world.done(helper, "failed")
    assert world.job(job_id).exit_text == "its gateways failed: gateway cn3: its daemon could not start: why"


def test_gateways_that_fail_again_and_again_hold_the_job() -> None:
    world = gateway_world(launch_failures_max=2)
    job_id = prepared(world)
    for tries in (1, 2):
        world.deliver()
        ends(world, job_id, GW1, "gateway", DIED)
        for _ in range(2):
            world.pass_time(LIMITS_S[GatewayStage.FAILED])
            world.deliver()
        assert world.job(job_id).launch_failures == tries
        world.pass_time(RETRY_S)
        assert bool(world.plan()) == (tries == 1)
        world.deliver()
    assert world.job(job_id).hold == "system"


@pytest.mark.parametrize("at", ["daemons", "routes", "failed"])
def test_a_job_is_cancelled_in_every_stage(at: str) -> None:
    world = gateway_world()
    job_id = prepared(world)
    if at == "routes":
        addressed(world, job_id)
    elif at == "failed":
        ends(world, job_id, GW1, "gateway", DIED)
    world.cancel(job_id)
    assert any(isinstance(body, End) for body in bodies(world))
    assert world.state_of(job_id) == "CANCELLED"
    world.pass_time(LIMITS_S[GatewayStage.DAEMONS])


def test_a_requeued_job_waits_until_its_daemons_are_gone() -> None:
    world = gateway_world()
    job_id = prepared(world)
    world.requeue(job_id)
    assert world.state_of(job_id) == "COMPLETING" and not world.job(job_id).residues


@pytest.mark.parametrize("node", [FIRST, 1, GW1])
def test_a_node_that_is_lost_while_the_gateways_start(node: int) -> None:
    world = gateway_world()
    job_id = prepared(world)
    world.lose(node)
    attempt = world.attempt(job_id)
    assert attempt.phase is AttemptPhase.RELEASING and node not in attempt.held
    world.deliver()
    assert world.state_of(job_id) == "PENDING"


def test_reports_that_come_late_change_nothing() -> None:
    world = gateway_world()
    job_id = prepared(world)
    ends(world, job_id, FIRST, "routes", StepEnd(0))
    ends(world, job_id, GW1, "route_error", StepEnd(0))
    ends(world, job_id, 1, "gateway", DIED)
    assert stage(world, job_id) is GatewayStage.DAEMONS
    started(world, job_id)
    before = world.state.revision
    ends(world, job_id, FIRST, "routes", StepEnd(1))
    ends(world, job_id, FIRST, "route_error", StepEnd(0))
    address(world, job_id, GW1, "192.0.2.9:1")
    assert world.state.revision == before
    world.end(job_id)
    ends(world, job_id, GW1, "gateway", DIED, attempt=1)
    assert world.state_of(job_id) == "COMPLETED"


# ---- while the script runs ----


def test_a_daemon_that_ends_in_the_run_signals_the_script_once() -> None:
    world = gateway_world()
    job_id = prepared(world)
    started(world, job_id)
    for _ in range(2):
        ends(world, job_id, GW2, "gateway", DIED)
    (send,) = world.deliver()
    assert isinstance(send.body, Signal) and (send.nodes, send.body.signal) == ((FIRST,), 12)
    gateway = world.attempt(job_id).gateway
    assert gateway is not None and gateway.ended == ((GW2, "daemon ended with 139"),)
    assert world.state_of(job_id) == "RUNNING"
    world.end(job_id)
    assert world.state_of(job_id) == "COMPLETED"


def test_a_cluster_may_send_no_signal() -> None:
    world = gateway_world(gateway_signal=0)
    job_id = prepared(world)
    started(world, job_id)
    ends(world, job_id, GW2, "gateway", DIED)
    assert world.sends() == []


def test_a_daemon_that_ends_while_the_script_starts_is_told_when_it_runs() -> None:
    world = gateway_world()
    job_id = prepared(world)
    addressed(world, job_id)
    world.deliver()
    ends(world, job_id, FIRST, "routes", StepEnd(0))
    ends(world, job_id, GW1, "gateway", DIED)
    (start,) = world.deliver()
    assert isinstance(start.body, Start)
    (signal,) = bodies(world)
    assert isinstance(signal, Signal)


def test_a_lost_gateway_ends_the_job_as_any_node_or_not_with_no_kill() -> None:
    for no_kill in (False, True):
        world = gateway_world()
        job_id = prepared(world, no_kill=no_kill)
        started(world, job_id)
        world.lose(GW1)
        assert (world.attempt(job_id).stop is None) == no_kill


# ---- the request ----


def test_users_name_one_part_and_one_id() -> None:
    world = gateway_world()
    first, second = submit(world), submit(world)
    spec = world.job(first).spec
    assert (user_parts(spec), ids_taken(spec), second) == (1, 1, first + 1)
    assert [part.role for part in spec.parts] == ["", "gateway"]


@pytest.mark.parametrize(
    ("gateway", "request_", "said"),
    [
        (GatewayRequest(3), ALL, "--gateways: 3 are more than the 2 of this cluster: ask for 1 to 2"),
        (GatewayRequest(0), ALL, "--gateways: 0 is none: ask for 1 to 2"),
        (GatewayRequest(1, per_node=65), ALL, "--gateways-per-node: 65 is not within 1..64"),
        (GatewayRequest(1, per_node=5), ALL, "gateways: "),
        (GatewayRequest(1), Request(constraint="booster"), "are in the module booster"),
    ],
)
def test_refused_requests_hold_nothing(gateway: GatewayRequest, request_: Request, said: str) -> None:
    world = gateway_world()
    assert said in refused(world.try_submit(request=request_, gateway=gateway))
    assert not world.state.jobs


def test_a_cluster_without_gateways_says_so() -> None:
    assert "this cluster has no gateways" in refused(World().try_submit(gateway=GatewayRequest(1)))


def test_gateways_are_for_no_job_by_name() -> None:
    world = gateway_world()
    said = refused(world.try_submit(request=Request(include=("cn3",))))
    assert "cn3" in said
    spec = replace(world.job(submit(world)).spec, partition="gateways", parts=(), gateway=None)
    spec = replace(spec, components=spec.components[:1])
    said = refused(world.send(SubmitJobs((spec,))))
    assert said == "--partition: 'gateways' does not exist: use one of main"


def test_two_jobs_share_no_gateway() -> None:
    world = gateway_world()
    one = Request(tasks=3, nodes_min=3, nodes_max=3)
    first, second = submit(world, 2, request=one), submit(world, 1, request=one)
    assert world.plan() == [first]
    world.deliver()
    started(world, first)
    assert world.plan() == []
    world.end(first)
    assert world.plan() == [second]


# ---- the tables ----


@pytest.mark.parametrize("to", list(GatewayStage))
@pytest.mark.parametrize("at", list(GatewayStage))
def test_every_edge(at: GatewayStage, to: GatewayStage) -> None:
    world = gateway_world()
    job_id = prepared(world)
    if at is not GatewayStage.DAEMONS:
        addressed(world, job_id)
    for step in (GatewayStage.READY, GatewayStage.FAILED):
        if at is step:
            apply(
                world.state,
                facts.GatewaysStaged(job_id, 1, step, 0 if step is GatewayStage.READY else world.now_us + 1),
                world.state.revision + 1,
                world.now_us,
            )
    assert stage(world, job_id) is at
    fact = facts.GatewaysStaged(job_id, 1, to, world.now_us + 1)
    if to in TRANSITIONS[at]:
        apply(world.state, fact, world.state.revision + 1, world.now_us)
        assert stage(world, job_id) is to
    else:
        with pytest.raises(IllegalTransition):
            apply(world.state, fact, world.state.revision + 1, world.now_us)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("192.0.2.1:5000", True),
        ("[2001:db8::1]:65535", True),
        ("2001:db8::1:5000", False),
        ("192.0.2.1:0", False),
        ("192.0.2.1:65536", False),
        ("192.0.2.1", False),
        (":5000", False),
        ("192.0.2.1:5000\n", False),
        ("192.0.2.1\0:5000", False),
        ("192.0.2.1:٣", False),
        ("1" * 60 + ":5000", False),
        ("", False),
    ],
)
def test_the_form_of_an_address(text: str, is_one: bool) -> None:
    assert is_address(text) == is_one


def test_other_jobs_have_nothing_of_it() -> None:
    world = World()
    job_id = world.submit()
    world.start()
    assert world.attempt(job_id).more is None


def test_the_reason_to_wait_names_gateways() -> None:
    world = gateway_world()
    first = submit(world, 2, request=Request(tasks=2, nodes_min=2, nodes_max=2))
    assert world.plan() == [first]
    waits = submit(world, 1, request=Request())
    plan = exhaust(plan_slices(world.state, world.now_us, None, PlanLimits()))
    assert (
        plan.waiting[waits].text
        == "its gateways: needs room for 1 task of 1 core; 0 would fit on 0 idle nodes"
    )


def test_accounting_leaves_gateways_out() -> None:
    world = gateway_world()
    job_id = prepared(world)
    started(world, job_id)
    body = StepEnded(FIRST, world.state.nodes[FIRST].incarnation, job_id, 1, StepEnd(0), gone=True)
    batch = world.batch(Reports((Report("agent", 1_000, body),)))
    (row,) = [row for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
    kept = decode_accounted(row.blob)
    assert (row.nodes, kept.node_names, kept.parts) == (3, "cn[0-2]", ())
