"""An agent's door: what it refuses by itself, and what it says while it is no part of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.api.methods import PING, SUBMIT, UPDATE_NODES, Method
from eslurm.core.agent.actions import Refusal
from eslurm.core.agent.node import LocalNode, NodeOffer
from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import Registration
from eslurm.ports.api import Answered, Caller, Status
from esnoded.api_sockets import AgentSocket, LoginSocket
from tests.kits.agent import World
from tests.support.loops import run

ALICE = Principal("alice", 1000, 1000)
ROOT = Principal("root", 0, 0)
PASSED = Answered(Status.OK, "", b"passed on")


class Onward:
    """Answers everything."""

    async def answer(self, _method: Method[Any, Any], _payload: bytes, _caller: Caller) -> Answered:
        return PASSED


def ask(door: AgentSocket | LoginSocket, method: Method[Any, Any] = PING, who: Principal = ALICE) -> Answered:
    caller = Caller(who, b"", False, 1_000_000, "socket")

    async def main() -> Answered:
        return await door.answer(method, b"", caller)

    return run(main())


def test_users_pass_and_others_are_sent_to_a_controller() -> None:
    door = LoginSocket(Onward(), ["ctl1:7400", "ctl2:7400", "[::1]:7400"])
    assert ask(door, SUBMIT) == PASSED
    root = ask(door, PING, ROOT)
    assert root.status is Status.PERMISSION_DENIED
    assert root.text.endswith(
        "not taken on a login host: give them on a host of a controller (ctl1, ctl2, ::1)"
    )
    operator = ask(door, UPDATE_NODES)
    assert operator.text.startswith(
        "UpdateNodes is for operators, whose commands are not taken on a login host"
    )
    assert ask(LoginSocket(Onward(), []), PING, ROOT).text.endswith("give them on a host of a controller")


def test_without_a_number_it_vouches_for_nobody() -> None:
    node = LocalNode(NodeOffer("login1", "u", (0, 0), login=True))
    door = AgentSocket(Onward(), lambda: [node])
    assert ask(door) == Answered(
        Status.UNAVAILABLE, "login1 is not registered with a controller yet: try again in a moment", b""
    )
    node.refused = "node login1 is not in the configuration of test"
    refused = ask(door)
    assert refused.status is Status.FAILED_PRECONDITION and refused.text.endswith(node.refused)
    node.number = 3
    assert ask(door) == PASSED


@pytest.mark.parametrize(("knows", "accepted"), [(True, True), (False, False)])
def test_a_controller_that_knows_no_login_hosts_is_told_of(knows: bool, accepted: bool) -> None:
    world = World(register=False)
    node = world.agent.registry.by_name["cn0"]
    node.offer = NodeOffer("cn0", "uid-cn0", (0, 0), login=True)
    world.agent.registry.offer([node])
    world.perform(world.agent.on_timer(world.now_us))
    while not (node.registered or node.refused):
        for report in [report for report in world.reports.values() if isinstance(report.body, Registration)]:
            world.reply(report, **({"login": True} if knows else {}))
    assert node.registered is accepted
    refusals = [action.why for action in world.log if isinstance(action, Refusal)]
    assert refusals == ([] if knows else [node.refused])
    assert knows or "its controller is of an older release, which knows no login hosts" in node.refused
