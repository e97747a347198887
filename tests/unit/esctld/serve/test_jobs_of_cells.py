"""Calls about jobs of several cells: sorted by cell, passed on, and put together again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from esctld.serve.jobs_of_cells import JobsOfCells
from eslurm.api.methods import BY_NAME
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.federation import FORMAT, Alive
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.transfer import Transfer, TransferStage
from eslurm.ports.api import Answered, ApiError, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE
from tests.support.loops import run

OWN = {1: "job 1", 100_001: "job 100001"}
AWAY = {100_002: "beta", 100_003: "gamma"}
FOREIGN = 200_009
CELLS = FederationView(
    "lab",
    "alpha",
    Standing.MEMBER,
    cells=(
        CellView("alpha", CellState.ALIVE),
        CellView("beta", CellState.ALIVE, alive=Alive(FORMAT, 1, "10.0.0.2:7400")),
        CellView("gamma", CellState.SILENT),
    ),
)
LEASED = {"alpha": range(100_000, 200_000), "beta": range(200_000, 300_000), "gamma": range(300_000, 400_000)}
CALLER = Caller(ALICE, b"r" * 16, False, 1_000_000, "socket")


class Here:
    """The service of this cell."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def call(self, method: Any, request: Any, caller: Caller) -> Any:
        self.requests.append(request)
        if method.name == "Why":
            raise Refused(RefusalCode.NOT_FOUND, f"job {request.job.job_id} does not exist")
        if method.name == "Accounting":
            return pb.AccountingReply(
                attempts=[pb.AttemptInfo(job_id=ref.job_id) for ref in request.jobs if ref.job_id in OWN]
            )
        if method.name == "Jobs":
            return pb.JobsReply(
                jobs=[pb.JobInfo(job_id=ref.job_id) for ref in request.jobs], revision=5
            ).SerializeToString()
        found = [ref for ref in request.jobs if ref.job_id in OWN]
        problems = [
            pb.Problem(what=str(ref.job_id), code="not_found", text="no such job")
            for ref in request.jobs
            if ref not in found
        ]
        return pb.ChangeReply(count=len(found), problems=problems, revision=5, notes=["here"])


class There:
    """Other cells."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.next_page = 0
        self.answer = b""

    async def pass_on(self, cell: str, method: Any, payload: bytes, caller: Caller) -> Answered:
        request = method.request.FromString(payload)
        self.asked.append((cell, request))
        if cell == "gamma":
            return Answered(Status.UNAVAILABLE, "gamma does not answer", b"")
        if self.answer:
            return Answered(Status.OK, "", self.answer)
        reply: Any = (
            pb.ChangeReply(count=len(request.jobs), revision=99, notes=["there"])
            if hasattr(request, "jobs")
            else pb.WhyReply()
        )
        if method.name == "Jobs":
            reply = pb.JobsReply(jobs=[pb.JobInfo(job_id=ref.job_id) for ref in request.jobs], revision=99)
        elif method.name == "Accounting":
            attempts = [pb.AttemptInfo(job_id=ref.job_id) for ref in request.jobs]
            reply = pb.AccountingReply(attempts=attempts, next_page=self.next_page)
        return Answered(Status.OK, "", reply.SerializeToString())


def cell_of(job_id: int) -> str:
    return next((cell for cell, ids in LEASED.items() if job_id in ids), "")


def records() -> dict[int, Any]:
    """This cell's records: its own jobs, those that other cells own, and one of another cell."""
    found: dict[int, Any] = {
        job_id: SimpleNamespace(state=JobState.PENDING, transfer=None, home="") for job_id in OWN
    }
    for job_id, cell in AWAY.items():
        transfer = Transfer(TransferStage.TRANSFERRED, cell, 5)
        found[job_id] = SimpleNamespace(state=JobState.TRANSFERRED, transfer=transfer, home="")
    transfer = Transfer(TransferStage.OWNED, "beta", 5)
    found[FOREIGN] = SimpleNamespace(state=JobState.PENDING, transfer=transfer, home="beta")
    return found


def calls(*, passes: bool = True, member: bool = True) -> tuple[JobsOfCells, Here, There]:
    here, there = Here(), There()
    view: Any = SimpleNamespace(find_named=records().get, revision=5)
    cells: Any = SimpleNamespace(cell="alpha", view=lambda: CELLS, cell_of=cell_of)
    return (
        JobsOfCells(here, lambda: view, cells if member else None, there.pass_on if passes else None),
        here,
        there,
    )


def ref(job_id: int, cell: str = "") -> pb.JobRef:
    return pb.JobRef(job_id=job_id, cell=cell)


def ask(service: JobsOfCells, name: str, request: Any, caller: Caller = CALLER) -> Any:
    async def call() -> Any:
        return await service.call(BY_NAME[name], request, caller)

    reply = run(call())
    return BY_NAME[name].reply.FromString(reply) if isinstance(reply, bytes) else reply


def test_own_jobs_stay_here() -> None:
    service, here, there = calls()
    reply = ask(service, "Cancel", pb.CancelRequest(jobs=[ref(1), ref(100_001), ref(1, "alpha")]))
    assert reply.count == 3 and not there.asked
    assert [one.cell for one in here.requests[0].jobs] == ["", "", ""]
    ask(service, "Cancel", pb.CancelRequest(user="ada"))
    assert not there.asked and here.requests[-1].user == "ada"


def test_jobs_of_another_cell_are_changed_there() -> None:
    service, here, there = calls()
    reply = ask(service, "Cancel", pb.CancelRequest(jobs=[ref(1), ref(200_001), ref(7, "beta")], signal=9))
    assert reply.count == 3 and reply.revision == 5 and list(reply.notes) == ["here", "there"]
    assert [one.job_id for one in here.requests[0].jobs] == [1]
    ((cell, asked),) = there.asked
    assert cell == "beta" and asked.signal == 9
    assert [(one.job_id, one.cell) for one in asked.jobs] == [(200_001, "beta"), (7, "beta")]


def test_nothing_is_selected_here_when_all_jobs_are_elsewhere() -> None:
    service, here, there = calls()
    reply = ask(service, "Cancel", pb.CancelRequest(jobs=[ref(200_001)]))
    assert reply.count == 1 and not here.requests and there.asked


def test_a_cell_that_does_not_answer_is_the_problem_of_its_jobs() -> None:
    service, _, _ = calls()
    reply = ask(service, "Hold", pb.HoldRequest(jobs=[ref(1), ref(300_001), ref(9, "gamma")]))
    assert reply.count == 1
    assert [(one.what, one.text) for one in reply.problems] == [
        ("300001@gamma", "cell gamma: gamma does not answer"),
        ("9@gamma", "cell gamma: gamma does not answer"),
    ]


def test_answers_about_jobs_of_several_cells_are_one() -> None:
    service, _, there = calls()
    reply = ask(service, "Jobs", pb.JobsRequest(jobs=[ref(200_001), ref(1)], after_revision=77))
    assert sorted(one.job_id for one in reply.jobs) == [1, 200_001] and reply.revision == 5
    assert there.asked[0][1].after_revision == 0, "that is a revision of this cell"
    reply = ask(service, "Jobs", pb.JobsRequest(jobs=[ref(200_001)]))
    assert [one.job_id for one in reply.jobs] == [200_001] and reply.revision == 5
    with pytest.raises(ApiError, match="gamma does not answer"):
        ask(service, "Jobs", pb.JobsRequest(jobs=[ref(1), ref(300_001)]))


def test_a_cell_speaks_for_its_own_jobs() -> None:
    service, _, there = calls()
    there.answer = pb.JobsReply(
        jobs=[pb.JobInfo(job_id=job_id) for job_id in (100_001, 200_001, 300_001)]
    ).SerializeToString()
    reply = ask(service, "Jobs", pb.JobsRequest(jobs=[ref(200_001)]))
    assert [one.job_id for one in reply.jobs] == [200_001]


def test_an_answer_that_cannot_be_read_is_that_cell_s_problem() -> None:
    service, _, there = calls()
    there.answer = b"\xff\xff"
    for name, request in (
        ("Jobs", pb.JobsRequest(jobs=[ref(200_001)])),
        ("Why", pb.WhyRequest(job=ref(200_001))),
    ):
        with pytest.raises(ApiError, match=f"cell beta: its answer to {name} cannot be read"):
            ask(service, name, request)
    reply = ask(service, "Cancel", pb.CancelRequest(jobs=[ref(1), ref(200_001)]))
    assert reply.count == 1 and [one.what for one in reply.problems] == ["200001@beta"]


def test_a_cell_that_counts_too_much_spoils_no_answer() -> None:
    service, _, there = calls()
    there.answer = pb.ChangeReply(count=2**32 - 1).SerializeToString()
    assert ask(service, "Cancel", pb.CancelRequest(jobs=[ref(1), ref(200_001)])).count == 2**32 - 1


def test_accounting_asks_here_first_and_pages_of_one_cell_go_on() -> None:
    service, here, there = calls()
    there.next_page = 7
    reply = ask(service, "Accounting", pb.AccountingRequest(jobs=[ref(200_001)]))
    assert [one.job_id for one in reply.attempts] == [200_001] and reply.next_page == 7
    assert [one.job_id for one in here.requests[0].jobs] == [200_001], "it may be older than the federation"
    with pytest.raises(Refused, match="one cell at a time"):
        ask(service, "Accounting", pb.AccountingRequest(jobs=[ref(1), ref(200_001)]))
    there.next_page = 0
    reply = ask(service, "Accounting", pb.AccountingRequest(jobs=[ref(1), ref(200_001)]))
    assert sorted(one.job_id for one in reply.attempts) == [1, 200_001]


@pytest.mark.parametrize("caller", [CALLER, CALLER._replace(via="cell")])
def test_without_a_way_there_the_place_is_named(caller: Caller) -> None:
    service, _, there = calls(passes=caller.via == "cell")
    with pytest.raises(
        Refused, match=r"job 200001 belongs to cell beta: ask there \(its controller is at 10\.0\.0\.2:7400\)"
    ):
        ask(service, "Why", pb.WhyRequest(job=ref(200_001)), caller)
    reply = ask(service, "Cancel", pb.CancelRequest(jobs=[ref(300_001), ref(1)]), caller)
    assert reply.count == 1 and "belongs to cell gamma" in reply.problems[0].text
    assert not there.asked


def test_what_nobody_has_leased_may_be_older_than_the_federation() -> None:
    service, _, _ = calls()
    with pytest.raises(Refused, match=r"does not exist; .* as 17@beta \(cells are beta, gamma\)"):
        ask(service, "Why", pb.WhyRequest(job=ref(17)))
    reply = ask(service, "Cancel", pb.CancelRequest(jobs=[ref(17), ref(100_500)]))
    assert "17@beta" in reply.problems[0].text and reply.problems[1].text == "no such job"


def test_a_cell_that_is_not_there() -> None:
    service, _, _ = calls(passes=False)
    with pytest.raises(Refused, match=r"17@omega: there is no such cell: cells are alpha, beta, gamma"):
        ask(service, "Why", pb.WhyRequest(job=ref(17, "omega")))


@pytest.mark.parametrize("name", ["Cancel", "Jobs", "Accounting", "Why", "UpdateJob"])
def test_a_plain_cluster_refuses_cells(name: str) -> None:
    service, here, _ = calls(member=False)
    request: Any = BY_NAME[name].request()
    if "jobs" in request.DESCRIPTOR.fields_by_name:
        request.jobs.append(ref(17, "beta"))
    else:
        request.job.CopyFrom(ref(17, "beta"))
    with pytest.raises(Refused, match="no member of a federation"):
        ask(service, name, request)
    assert not here.requests


def test_every_call_about_jobs_is_sorted() -> None:
    named = {
        name
        for name, method in BY_NAME.items()
        for field in method.request.DESCRIPTOR.fields
        if field.message_type is not None and field.message_type.name == "JobRef"
    }
    from esctld.serve.jobs_of_cells import ABOUT_ONE, CHANGES, READS

    assert named == CHANGES | READS.keys() | ABOUT_ONE


def test_calls_about_a_job_that_another_cell_owns_go_there() -> None:
    service, here, there = calls()
    ask(service, "Hold", pb.HoldRequest(jobs=[ref(100_002), ref(1)]))
    ask(service, "Cancel", pb.CancelRequest(jobs=[ref(100_002)], signal=10))
    ask(service, "UpdateJob", pb.UpdateJobRequest(job=ref(100_002, "alpha")))
    ask(service, "Why", pb.WhyRequest(job=ref(100_002)))
    reply = ask(service, "Jobs", pb.JobsRequest(jobs=[ref(100_002)]))
    assert [cell for cell, _ in there.asked] == ["beta"] * 5
    assert [(one.job_id, one.owner) for one in reply.jobs] == [(100_002, "beta")], (
        "it speaks for a job that it owns, and the job says so"
    )
    assert [[one.job_id for one in request.jobs] for request in here.requests] == [[1]]


def test_demands_to_cancel_and_waits_stay_with_the_record() -> None:
    service, here, there = calls()
    ask(service, "Cancel", pb.CancelRequest(jobs=[ref(100_002), ref(100_003)]))
    ask(service, "Cancel", pb.CancelRequest(jobs=[ref(100_003)], lost=True))
    ask(service, "Jobs", pb.JobsRequest(jobs=[ref(1)]))
    ask(service, "Accounting", pb.AccountingRequest(jobs=[ref(100_002)]))
    assert len(here.requests) == 4 and not there.asked


def test_the_record_answers_reads_while_the_owner_is_silent() -> None:
    service, here, _ = calls()
    reply = ask(service, "Jobs", pb.JobsRequest(jobs=[ref(100_003)]))
    assert [one.job_id for one in reply.jobs] == [100_003]
    with pytest.raises(Refused, match="does not exist"):
        ask(service, "Why", pb.WhyRequest(job=ref(100_003)))
    assert [one.cell for one in (here.requests[0].jobs[0], here.requests[1].job)] == ["", ""]
    with pytest.raises(ApiError, match="gamma does not answer"):
        ask(service, "UpdateJob", pb.UpdateJobRequest(job=ref(100_003)))


def test_a_call_of_another_cell_about_such_a_job_is_not_passed_on() -> None:
    service, here, there = calls()
    caller = CALLER._replace(via="cell", cell="gamma")
    ask(service, "Jobs", pb.JobsRequest(jobs=[ref(100_002, "alpha")]), caller)
    ask(service, "Hold", pb.HoldRequest(jobs=[ref(100_002)]), caller)
    assert len(here.requests) == 2 and not there.asked


def test_a_job_that_is_here_may_be_named_with_its_home() -> None:
    service, here, there = calls()
    ask(service, "Hold", pb.HoldRequest(jobs=[ref(FOREIGN, "beta"), ref(FOREIGN)]))
    assert [(one.job_id, one.cell) for one in here.requests[0].jobs] == [(FOREIGN, "")] * 2
    assert not there.asked
