"""Steps of gateways on a node: started once, reported until committed, gone with their attempt."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.model.gateways import GatewayRequest, GatewayStep
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    End,
    GatewayReported,
    LaunchStep,
    NodeGone,
    PhaseReported,
    Prepare,
    Start,
    StepEnded,
)
from eslurm.core.model.step_key import GATEWAY_STEP, PROLOG_STEP, ROUTE_ERROR_STEP, ROUTE_STEP, StepKey
from eslurm.core.relay.results import OK, failed
from tests.kits.agent import ENVIRONMENT, World, is_ok, launch, step_launch

LAUNCH = launch((0, 1))
LAUNCH = msgspec.structs.replace(LAUNCH, spec=msgspec.structs.replace(LAUNCH.spec, gateway=GatewayRequest(1)))
START = Start(7, 1, LAUNCH)
END = End(7, 1, 10.0, "cancel")
ADDRESSES = ("10.0.0.1:7000",)


def step(number: int, node: int = 0) -> LaunchStep:
    asked = step_launch((node,), number)
    return msgspec.structs.replace(asked, argv=(), endpoint="", cookie=b"", gateway=GatewayStep())


def prepared(node: int = 0) -> World:
    world = World(2)
    assert is_ok(world.order(Prepare(LAUNCH), (node,))[node])
    return world


def ends(world: World) -> list[tuple[str, int, str]]:
    found = [one.body for one in world.sent(PhaseReported)]
    return [(body.phase, body.end.exit_code, body.end.text) for body in found]


def addresses(world: World) -> list[tuple[str, ...]]:
    return [one.body.addresses for one in world.sent(GatewayReported)]


def acknowledged(world: World) -> set[StepKey]:
    return {key for one in world.log if isinstance(one, act.AcknowledgeSteps) for key in one.steps}


def test_a_daemon_is_taken_on_at_once_and_its_address_is_reported_until_committed() -> None:
    world = prepared()
    command = world.command(step(GATEWAY_STEP))
    first, again = world.give(command), world.give(command)
    world.settle()
    assert world.answered(first) == {0: OK} and world.answered(again) == {0: OK}
    assert addresses(world) == []
    world.be_ready(GATEWAY_STEP, ADDRESSES)
    world.pass_time(3)
    assert addresses(world)[:2] == [ADDRESSES, ADDRESSES]
    world.ack_all()
    sent = len(addresses(world))
    world.pass_time(200)
    assert len(addresses(world)) == sent
    assert world.runner.started == {StepKey(7, 1, GATEWAY_STEP, 0): 1}


def test_a_daemon_that_ends_is_reported_and_its_outcome_kept_until_that_is_committed() -> None:
    world = prepared()
    world.order(step(GATEWAY_STEP))
    world.be_ready(GATEWAY_STEP, ADDRESSES)
    world.ack_all()
    world.finish(step=GATEWAY_STEP, exit_code=139)
    assert ends(world) == [("gateway", 139, "")]
    key = StepKey(7, 1, GATEWAY_STEP, 0)
    assert key not in acknowledged(world)
    world.ack_all()
    assert key in acknowledged(world)


def test_an_end_that_was_not_committed_is_reported_after_a_restart() -> None:
    world = prepared()
    world.order(step(GATEWAY_STEP))
    world.be_ready(GATEWAY_STEP, ADDRESSES)
    world.ack_all()
    world.finish(step=GATEWAY_STEP, exit_code=1)
    world.restart()
    world.register()
    world.settle()
    assert ends(world)[-1] == ("gateway", 1, "")
    world.ack_all()
    assert StepKey(7, 1, GATEWAY_STEP, 0) in acknowledged(world)


@pytest.mark.parametrize("was_ready", [False, True])
def test_after_a_restart_the_runner_is_asked_for_the_address(was_ready: bool) -> None:
    world = prepared()
    world.order(step(GATEWAY_STEP))
    if was_ready:
        world.be_ready(GATEWAY_STEP, ADDRESSES)
    world.restart()
    world.register()
    world.settle()
    if not was_ready:
        world.be_ready(GATEWAY_STEP, ADDRESSES)
    assert addresses(world)[-1] == ADDRESSES
    assert world.runner.started == {StepKey(7, 1, GATEWAY_STEP, 0): 1}


def test_a_daemon_that_cannot_start_is_reported_as_an_end() -> None:
    world = prepared()
    world.runner.refuses = "this host has no gateway daemon"
    assert is_ok(world.order(step(GATEWAY_STEP))[0])
    assert ends(world) == [("gateway", 1, "this host has no gateway daemon")]


def test_a_daemon_whose_environment_is_missing_is_refused_and_one_whose_agent_dies_meanwhile_has_no_answer() -> (
    None
):
    world = prepared(1)
    world.blobs.discard(ENVIRONMENT)
    ref = world.give(world.command(step(GATEWAY_STEP, 1), (1,)))
    assert world.answered(ref) == {}
    world.perform(world.agent.on_blobs_missing((ENVIRONMENT,), world.now_us))
    assert world.answered(ref) == {1: failed("the environment could not be fetched")}
    assert not world.runner.started and not ends(world)
    again = world.give(world.command(step(GATEWAY_STEP, 1), (1,)))
    world.restart()
    world.register()
    assert world.answered(again) == {}
    world.blobs.add(ENVIRONMENT)
    assert is_ok(world.order(step(GATEWAY_STEP, 1), (1,))[1])
    assert world.runner.started == {StepKey(7, 1, GATEWAY_STEP, 1): 1}


@pytest.mark.parametrize("cleanup", [False, True])
def test_routes_are_reported_once_whether_the_helper_stays_or_not(cleanup: bool) -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    if cleanup:
        world.be_ready(ROUTE_STEP, ("/tmp/routes",))
        assert ends(world) == [("routes", 0, "")]
        world.ack_all()
    world.finish(step=ROUTE_STEP)
    assert ends(world) == [("routes", 0, "")]
    world.ack_all()
    assert StepKey(7, 1, ROUTE_STEP, 0) in acknowledged(world)
    assert is_ok(world.order(START)[0])


def test_a_helper_that_fails_is_reported_with_its_words() -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    world.finish(step=ROUTE_STEP, exit_code=1, text="route plug-in 'x' failed")
    world.order(step(ROUTE_ERROR_STEP))
    world.finish(step=ROUTE_ERROR_STEP)
    assert ends(world) == [("routes", 1, "route plug-in 'x' failed"), ("route_error", 0, "")]


def test_steps_of_gateways_end_with_their_attempt_and_say_nothing_then() -> None:
    world = prepared()
    for number in (GATEWAY_STEP, ROUTE_STEP):
        world.order(step(number))
        world.be_ready(number, ADDRESSES)
    world.ack_all()
    sent = len(world.sent(PhaseReported))
    assert world.order(END) == {}
    assert {one.step.step for one in world.runner.terminated} == {GATEWAY_STEP, ROUTE_STEP}
    world.finish(step=GATEWAY_STEP, signal=15)
    world.finish(step=ROUTE_STEP)
    assert len(world.sent(PhaseReported)) == sent
    assert not world.stages()
    assert {GATEWAY_STEP, ROUTE_STEP} <= {key.step for key in acknowledged(world)}


def test_the_helper_that_stays_ends_with_the_script() -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    world.be_ready(ROUTE_STEP, ("/tmp/routes",))
    world.order(START)
    world.finish()
    assert [one.step.step for one in world.runner.terminated] == [ROUTE_STEP]
    world.finish(step=ROUTE_STEP)
    assert [body.body.gone for body in world.sent(StepEnded)] == [True]


def test_routes_that_are_committed_leave_the_end_of_their_helper_to_be_told() -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    world.be_ready(ROUTE_STEP, ("/tmp/routes",))
    world.order(START)
    world.finish()
    # The runner ends the helper while the routes are committed; what is acknowledged then, it does not tell any more.
    world.ack_all()
    assert StepKey(7, 1, ROUTE_STEP, 0) not in acknowledged(world)
    world.finish(step=ROUTE_STEP)
    assert StepKey(7, 1, ROUTE_STEP, 0) in acknowledged(world)
    assert [body.body.gone for body in world.sent(StepEnded)] == [True]


def test_an_end_reported_late_is_forgotten_by_the_runner_when_the_attempt_is_gone() -> None:
    world = prepared()
    world.order(step(GATEWAY_STEP))
    world.finish(step=GATEWAY_STEP, exit_code=1)
    world.order(END)
    assert not world.stages()
    assert StepKey(7, 1, GATEWAY_STEP, 0) in acknowledged(world)
    world.ack_all()


def test_nothing_of_gateways_starts_before_the_node_is_prepared_or_after_its_end() -> None:
    world = World(2, phases=("prolog",))
    phased = msgspec.structs.replace(LAUNCH, phases=("prolog",))
    world.order(Prepare(phased))
    assert not is_ok(world.order(step(GATEWAY_STEP))[0])
    world.finish(step=PROLOG_STEP)
    assert is_ok(world.order(step(GATEWAY_STEP))[0])
    world.order(END)
    assert not is_ok(world.order(step(ROUTE_STEP))[0])


def test_an_expired_start_of_a_job_with_live_helpers_does_not_count_as_started() -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    world.be_ready(ROUTE_STEP, ("/tmp/routes",))
    answer = world.order(START, expires_us=world.now_us - 600_000_000)
    assert not is_ok(answer[0])
    assert [one.step.step for one in world.runner.terminated] == [ROUTE_STEP]
    world.finish(step=ROUTE_STEP)
    assert not world.stages()


def test_a_script_that_cannot_be_fetched_leaves_the_helper_to_the_controller() -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    world.be_ready(ROUTE_STEP, ("/tmp/routes",))
    world.blobs.clear()
    ref = world.give(world.command(START))
    world.perform(world.agent.on_blobs_missing((LAUNCH.spec.script_hash,), world.now_us))
    assert not is_ok(world.answered(ref)[0])
    assert list(world.stages().values()) == ["PREPARED"]
    world.order(END)
    world.finish(step=ROUTE_STEP)
    assert not world.stages()


def test_an_attempt_whose_script_is_fetched_again_can_end_with_its_helper() -> None:
    world = prepared()
    world.order(step(ROUTE_STEP))
    world.be_ready(ROUTE_STEP, ("/tmp/routes",))
    world.blobs.clear()
    world.give(world.command(START))
    assert list(world.stages().values()) == ["FETCHING"]
    world.order(END)
    assert list(world.stages().values()) == ["ENDING"]
    world.finish(step=ROUTE_STEP)
    assert not world.stages()


def test_a_failed_daemon_is_no_fault_of_the_node() -> None:
    world = World(2, phases=("check",))
    world.order(Prepare(LAUNCH))
    world.order(step(GATEWAY_STEP))
    world.finish(step=GATEWAY_STEP, exit_code=1)
    world.ack_all()
    world.pass_time(120)
    assert not [one for one in world.log if isinstance(one, act.RunCheck)]


def test_a_prolog_s_report_and_a_daemon_s_are_apart() -> None:
    world = World(2, phases=("prolog", "epilog"))
    phased = msgspec.structs.replace(LAUNCH, phases=("prolog", "epilog"))
    world.order(Prepare(phased))
    world.finish(step=PROLOG_STEP)
    world.order(step(GATEWAY_STEP))
    world.finish(step=GATEWAY_STEP, exit_code=1)
    assert [phase for phase, _, _ in ends(world)] == ["prolog", "gateway"]
    world.order(END)
    assert list(world.stages().values()) == ["EPILOG"]
    world.finish(step=-3)
    world.ack_all()
    assert len(world.sent(NodeGone)) == 1 and not world.stages()


def test_an_end_of_a_step_that_no_attempt_knows_is_forgotten() -> None:
    world = World()
    key = StepKey(99, 1, GATEWAY_STEP, 0)
    world.perform(world.agent.on_step_ended(key, StepEnd(0), world.now_us))
    assert key in acknowledged(world)
