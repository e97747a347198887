"""Calls between leaders about guests, and calls about steps on them: which come in, which go out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from esctld.serve import guests as serve_guests
from esctld.serve.arrivals import guest_of_call
from esctld.serve.guests import GuestDoor
from esctld.serve.jobs_of_cells import JobsOfCells
from esctld.serve.request_ids import kind_of
from esctld.serve.step_endpoints import StepEndpoints
from eslurm.api.methods import BY_NAME
from eslurm.core.model.guests import SINCE_MAX_US, Guest, GuestOf, Guests, GuestStage, JointStep
from eslurm.core.model.messages import (
    CreateStep,
    Message,
    RefusalCode,
    Refused,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.request import Request
from eslurm.core.state.view import View
from eslurm.ports.api import Answered, ApiError, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE, BOB, World
from tests.support.loops import run

ALPHA = Caller(ALICE, b"r" * 16, False, 1_000_000, "cell", peer="cell alpha", cell="alpha")
GIVEN = GuestOf("alpha", 17, 9)


class Lender:
    """A cell with a guest for job 17 of alpha. Nothing is committed while a call waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serve_guests, "WAIT_S", 0.01)
        self.world = World(nodes=2, restarts=False)
        self.world.submit()
        spec = next(job.spec for job in self.world.state.jobs.values())
        spec = replace(spec, components=(Request(nodes_min=2, tasks=2),))
        answer = self.world.send(SubmitJobs((spec,), guest_of=GIVEN))
        assert isinstance(answer, Submitted)
        (self.guest,) = answer.job_ids
        self.heard: list[int] = []
        self.moves = 0

    async def decide(self, message: Message, caller: Caller) -> Any:
        return self.world.send(message)

    async def moved_by(self, deadline: float) -> bool:
        self.moves += 1
        return False

    def heard_guest(self, job_id: int) -> None:
        self.heard.append(job_id)

    def tell(self, wish: str, caller: Caller = ALPHA, **changes: Any) -> pb.TellGuestReply:
        request = pb.TellGuestRequest(
            **{"job_id": self.guest, "home_job_id": 17, "serial": 9, "wish": wish, **changes}
        )
        return run(GuestDoor(self, self.world.view).tell(request, caller))


@pytest.mark.parametrize("via", ["socket", "agent", "login", "token"])
def test_only_the_leader_of_a_cell_speaks_of_guests(monkeypatch: pytest.MonkeyPatch, via: str) -> None:
    lender = Lender(monkeypatch)
    for caller in (ALPHA._replace(via=via), ALPHA._replace(cell="")):
        with pytest.raises(Refused, match="only the controller of another cell") as refused:
            lender.tell("end", caller)
        assert refused.value.code is RefusalCode.DENIED
        with pytest.raises(Refused, match="only the controller of another cell"):
            guest_of_call(pb.GuestOf(job_id=17, serial=9), caller)
    assert guest_of_call(pb.GuestOf(job_id=17, serial=9), ALPHA) == GIVEN
    late = pb.GuestOf(job_id=17, serial=9, since_us=2**64 - 1)
    assert guest_of_call(late, ALPHA).since_us == SINCE_MAX_US
    assert not lender.heard


def test_a_guest_is_looked_at_kept_and_ended_by_its_own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    lender = Lender(monkeypatch)
    waits = lender.tell("look")
    assert not waits.is_held and not waits.is_ended and lender.moves == 1
    lender.world.start()
    assert lender.tell("look").node_list == "cn[0-1]"
    for others in (
        {"caller": ALPHA._replace(cell="gamma")},
        {"home_job_id": 18},
        {"serial": 8},
        {"job_id": 10**6},
    ):
        told = lender.tell("end", **others)
        assert told.is_ended and not told.is_held
    assert lender.world.attempt(lender.guest).stop is None
    assert lender.tell("keep").is_held
    assert lender.world.job(lender.guest).guest_of == GIVEN
    assert not lender.tell("end").is_held
    assert lender.world.attempt(lender.guest).stop is not None
    assert lender.heard == [lender.guest] * 4


def test_a_user_speaks_of_the_own_guests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lender = Lender(monkeypatch)
    with pytest.raises(Refused, match="is not one of bob"):
        lender.tell("end", ALPHA._replace(principal=BOB))
    with pytest.raises(Refused, match="wish: 'kill'"):
        lender.tell("kill")


def test_a_users_own_call_is_no_earlier_try_of_a_request_for_a_guest() -> None:
    spec: Any = None
    kinds = {
        kind_of(SubmitJobs((spec,))),
        kind_of(SubmitJobs((spec,), guest_of=GIVEN)),
        kind_of(SubmitJobs((spec,), guest_of=replace(GIVEN, home="gamma"))),
    }
    assert len(kinds) == 3


# ---- steps, on their way out ----


class Home:
    """Job 17 of alice has a guest 71 in beta."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, str, Any]] = []
        self.checked: list[int] = []
        guests = Guests(GuestStage.HELD, guests=(Guest("beta", 2, 71, "b[1-2]"),))
        job = SimpleNamespace(guests=guests, spec=SimpleNamespace(user=ALICE))
        plain = SimpleNamespace(guests=None, spec=SimpleNamespace(user=ALICE))
        view: Any = SimpleNamespace(jobs={17: job, 18: plain})
        cells: Any = SimpleNamespace(cell="alpha")
        self.service = JobsOfCells(self, lambda: view, cells, self.pass_on, self.check)

    async def call(self, method: Any, request: Any, caller: Caller) -> Any:
        return pb.StepReply(state="here")

    async def pass_on(self, cell: str, method: Any, payload: bytes, caller: Caller) -> Answered:
        self.passed.append((cell, method.name, method.request.FromString(payload)))
        if cell == "beta" and len(self.passed) > 1:
            return Answered(Status.UNAVAILABLE, "no link", b"", 0.5)
        return Answered(Status.OK, "", method.reply().SerializeToString())

    async def check(self, request: pb.CreateStepRequest, job_id: int, caller: Caller) -> None:
        self.checked.append(job_id)
        if request.endpoint == "elsewhere":
            raise Refused(RefusalCode.INVALID, "endpoint")

    def ask(self, name: str, request: Any, caller: Caller | None = None) -> Any:
        caller = caller or Caller(ALICE, b"r" * 16, False, 1_000_000, "agent")
        return run(self.service.call(BY_NAME[name], request, caller))


def step(**changes: Any) -> pb.CreateStepRequest:
    joint = pb.JointStep(home_job_id=changes.pop("home", 17), ranks=4, nodes=4)
    return pb.CreateStepRequest(**{"job_id": 71, "cell": "beta", "joint": joint, **changes})


def test_a_step_goes_to_the_cell_of_the_guest_after_a_look_at_its_endpoint() -> None:
    home = Home()
    home.ask("CreateStep", step())
    assert home.checked == [17]
    ((cell, name, request),) = home.passed
    assert (cell, name, request.cell, request.job_id) == ("beta", "CreateStep", "", 71)
    with pytest.raises(ApiError, match="cell beta: no link"):
        home.ask("WaitStep", pb.WaitStepRequest(job_id=71, cell="beta", home_job_id=17))
    with pytest.raises(Refused, match="endpoint"):
        home.ask("CreateStep", step(endpoint="elsewhere"))
    assert home.ask("WaitStep", pb.WaitStepRequest(job_id=17, cell="alpha")).state == "here"
    assert home.ask("WaitStep", pb.WaitStepRequest(job_id=17)).state == "here"


@pytest.mark.parametrize(
    ("name", "request_", "caller"),
    [
        ("CreateStep", step(job_id=72), None),
        ("CreateStep", step(cell="gamma"), None),
        ("CreateStep", step(home=18), None),
        ("CreateStep", step(home=19), None),
        ("CreateStep", step(), Caller(BOB, b"r" * 16, False, 1, "agent")),
        ("CreateStep", step(), ALPHA._replace(cell="gamma")),
        ("FinishStep", pb.FinishStepRequest(job_id=72, cell="beta", home_job_id=17), None),
        ("WaitStep", pb.WaitStepRequest(job_id=71, cell="beta"), None),
    ],
)
def test_no_step_goes_to_another_job(name: str, request_: Any, caller: Caller | None) -> None:
    home = Home()
    with pytest.raises(Refused, match="holds no nodes for a job of"):
        home.ask(name, request_, caller)
    assert not home.passed


# ---- steps, on their way in ----


def endpoint_problem(
    lender: Lender, address: str, caller: Caller = ALPHA, *, host: str = "10.0.0.9", joint: bool = True
) -> str:
    checks = StepEndpoints(View(lender.world.state))
    checks.attach(lambda cell: host if cell == "alpha" else "")
    of = JointStep("17@alpha", 0, 4, 0, 4, "a") if joint else None
    message = CreateStep(
        ALICE, lender.guest, 2, 2, ("app",), b"", "/", f"{address}:4711", bytes(32), joint=of
    )
    try:
        run(checks.check(message, caller))
    except Refused as refused:
        return refused.text
    return ""


def test_a_step_comes_only_from_the_home_of_a_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    lender = Lender(monkeypatch)
    lender.world.start()
    assert not endpoint_problem(lender, "10.0.0.7")
    assert "holds no nodes for a job of cell gamma" in endpoint_problem(
        lender, "10.0.0.7", ALPHA._replace(cell="gamma")
    )
    assert "holds no nodes" in endpoint_problem(lender, "10.0.0.7", joint=False)


def test_a_loopback_address_of_another_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lender = Lender(monkeypatch)
    lender.world.start()
    assert "loopback" in endpoint_problem(lender, "127.0.0.1")
    for number, node in list(lender.world.state.nodes.items()):
        lender.world.state.nodes[number] = replace(node, endpoint="127.0.0.1:6820")
    assert "loopback" in endpoint_problem(lender, "127.0.0.1")
    assert not endpoint_problem(lender, "127.0.0.1", host="127.0.0.1")
    assert "loopback" in endpoint_problem(lender, "127.0.0.1", host="")
