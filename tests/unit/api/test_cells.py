"""Calls for another cell at the authoriser: what is within is checked as if it was for this cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.methods import Method
from eslurm.core.control.rights import Level
from eslurm.core.model.job import Principal
from eslurm.ports.api import Answered, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import run

ADA = Principal("ada", 5001, 5001, (5001,))
REQUEST_ID = b"r" * 16
SUBMISSION = pb.SubmitRequest(jobs=[pb.JobRequest(name="job")]).SerializeToString()


class Cells:
    """Passes calls on, and keeps them."""

    own = "alpha"

    def __init__(self) -> None:
        self.passed: list[tuple[str, str, bytes, Caller]] = []
        self.answer = Answered(Status.OK, "", b"there")

    async def pass_on(self, cell: str, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        self.passed.append((cell, method.name, payload, caller))
        return self.answer


class Service:
    """Answers here."""

    async def call(self, method: Any, request: Any, caller: Caller) -> bytes:
        return b"here"


def ask(
    cells: Cells | None,
    method: str = "Jobs",
    cell: str = "beta",
    who: Principal = ADA,
    request: bytes = b"",
    request_id: bytes = b"",
    level: Level = Level.USER,
) -> Answered:
    wrapped = pb.CallCellRequest(cell=cell, method=method, request=request).SerializeToString()
    authoriser = Authoriser(Service(), lambda _who: level, cells=cells)
    caller = Caller(who, request_id, False, 10_000_000, who.via)
    return run(authoriser.answer(methods.CALL_CELL, wrapped, caller))


def test_a_call_for_another_cell_is_passed_on_and_its_answer_comes_back() -> None:
    cells = Cells()
    answered = ask(cells, "Submit", request=SUBMISSION, request_id=REQUEST_ID)
    assert answered.status is Status.OK
    assert pb.CallCellReply.FromString(answered.reply).reply == b"there"
    [(cell, method, payload, caller)] = cells.passed
    assert (cell, method, payload, caller.request_id, caller.principal) == (
        "beta",
        "Submit",
        SUBMISSION,
        REQUEST_ID,
        ADA,
    )
    cells.answer = Answered(Status.UNAVAILABLE, "it is silent", b"", 600.0)
    assert ask(cells) == cells.answer


@pytest.mark.parametrize("cell", ["alpha", ""])
def test_one_for_this_cell_is_answered_here(cell: str) -> None:
    cells = Cells()
    assert pb.CallCellReply.FromString(ask(cells, cell=cell).reply).reply == b"here"
    # With the rights of here.
    assert ask(cells, "UpdateNodes", cell=cell, request_id=REQUEST_ID).status is Status.PERMISSION_DENIED
    assert not cells.passed


def test_a_plain_cluster_says_what_it_is() -> None:
    answered = ask(None)
    assert answered.status is Status.FAILED_PRECONDITION
    assert "no member of a federation" in answered.text


def test_a_call_within_a_call_is_none() -> None:
    cells = Cells()
    for method in ("CallCell", "Nonsense", ""):
        assert ask(cells, method).status is Status.UNIMPLEMENTED
    assert not cells.passed


def test_a_change_needs_its_request_id_and_a_request_its_size() -> None:
    cells = Cells()
    assert "needs a request id" in ask(cells, "Cancel").text
    assert "takes at most" in ask(cells, "Jobs", request=b"x" * (2 << 20)).text
    assert not cells.passed


@pytest.mark.parametrize(
    ("scope", "method", "passes"),
    [
        ("read", "Jobs", True),
        ("read", "Submit", False),
        ("own-jobs", "Cancel", True),
        ("own-jobs", "Submit", False),
        ("submit", "Submit", True),
        ("submit", "UpdateNodes", False),
        ("estimator", "Jobs", False),
        ("estimator", "JobFeed", False),
    ],
)
def test_a_token_passes_what_its_scope_allows(scope: str, method: str, passes: bool) -> None:
    cells = Cells()
    who = replace(ADA, via="token", scope=scope)
    answered = ask(cells, method, who=who, request_id=REQUEST_ID)
    assert (answered.status is Status.OK) == passes == bool(cells.passed)
    if not passes:
        assert answered.status is Status.PERMISSION_DENIED


@pytest.mark.parametrize(
    "request_",
    [
        pb.SubmitRequest(arrival=pb.Arrival(job_id=17, serial=5)).SerializeToString() + SUBMISSION,
        SUBMISSION + pb.SubmitRequest(arrival=pb.Arrival()).SerializeToString(),
        SUBMISSION + pb.SubmitRequest(guest_of=pb.GuestOf(job_id=17, serial=5)).SerializeToString(),
    ],
)
def test_a_user_makes_no_offer_in_the_name_of_the_cell(request_: bytes) -> None:
    """The link to the other cell vouches for this cell: what a user sends must not look like its leader's own call."""
    cells = Cells()
    answered = ask(cells, "Submit", request=request_, request_id=REQUEST_ID)
    assert answered.status is Status.PERMISSION_DENIED and "arrival" in answered.text
    garbled = ask(cells, "Submit", request=b"\x22\xff", request_id=REQUEST_ID)
    assert garbled.status is Status.INVALID_ARGUMENT
    assert not cells.passed


@pytest.mark.parametrize("method", ["TellGuest", "CreateStep", "WaitStep", "FinishStep"])
def test_what_leaders_say_about_guests_is_no_users_call(method: str) -> None:
    cells = Cells()
    answered = ask(cells, method, request=b"", request_id=REQUEST_ID)
    assert (
        answered.status is Status.PERMISSION_DENIED
        and "does not pass to other cells by itself" in answered.text
    )
    assert not cells.passed
