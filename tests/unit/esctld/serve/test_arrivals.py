"""Jobs between cells at the API: which cell may offer which job, and which cells a job may name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from esctld.serve.arrivals import arrival_of, check_cells
from esctld.serve.request_ids import bound_id, kind_of
from eslurm.api.cell_requests import read_cells
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.messages import Arrival, RefusalCode, Refused, SubmitJobs
from eslurm.core.model.transfer import CELLS_MAX
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE

VIEW = FederationView(
    "lab",
    "beta",
    Standing.MEMBER,
    cells=(
        CellView("alpha", CellState.ALIVE),
        CellView("beta", CellState.ALIVE),
        CellView("old", CellState.LEFT),
    ),
    age_us=1,
)
LEASED = {17: "alpha", 18: "beta", 19: "gamma"}
CELLS: Any = SimpleNamespace(cell="beta", view=lambda: VIEW, cell_of=lambda job_id: LEASED.get(job_id, ""))
ALPHA = Caller(ALICE, b"r" * 16, False, 1_000_000, "cell", peer="cell alpha", cell="alpha")


def test_a_cell_offers_its_own_jobs() -> None:
    assert arrival_of(pb.Arrival(job_id=17, serial=5), ALPHA, CELLS) == Arrival("alpha", 17, 5)


@pytest.mark.parametrize("job_id", [0, 18, 19, 20, 2**32 - 1])
def test_an_id_that_the_caller_has_not_leased_is_refused(job_id: int) -> None:
    with pytest.raises(Refused, match=f"job id {job_id} is not one of cell alpha") as refused:
        arrival_of(pb.Arrival(job_id=job_id, serial=5), ALPHA, CELLS)
    assert refused.value.code is RefusalCode.DENIED


@pytest.mark.parametrize(
    "caller",
    [
        # The text for logs says nothing: a link of a cell does.
        ALPHA._replace(via="socket"),
        ALPHA._replace(via="agent"),
        ALPHA._replace(via="token"),
        ALPHA._replace(cell=""),
    ],
)
def test_no_other_caller_brings_a_job_of_a_cell(caller: Caller) -> None:
    with pytest.raises(Refused, match="only the controller of another cell"):
        arrival_of(pb.Arrival(job_id=17, serial=5), caller, CELLS)


def test_a_cell_that_offers_this_cells_own_jobs_is_refused() -> None:
    with pytest.raises(Refused):
        arrival_of(pb.Arrival(job_id=18, serial=5), ALPHA._replace(cell="beta"), CELLS)
    with pytest.raises(Refused, match="only the controller"):
        arrival_of(pb.Arrival(job_id=17, serial=5), ALPHA, None)


def test_a_users_own_call_is_no_earlier_try_of_a_delivery() -> None:
    own, theirs = SubmitJobs(()), SubmitJobs((), arrival=Arrival("alpha", 17, 5))
    other = SubmitJobs((), arrival=Arrival("gamma", 17, 5))
    assert len({bound_id(ALPHA, kind_of(one)) for one in (own, theirs, other)}) == 3


def test_cells_are_read_once_each_without_this_one() -> None:
    assert read_cells((), "") == ()
    assert read_cells(("alpha", "beta", "alpha"), "beta") == ("alpha",)
    assert read_cells(("beta",), "beta") == ()
    assert read_cells(("alpha", "any"), "beta") == ("any",)


@pytest.mark.parametrize(
    ("given", "own", "text"),
    [
        (("any",), "", "no member of a federation"),
        (("a",) * (CELLS_MAX + 1), "beta", f"more than {CELLS_MAX}"),
        (("",), "beta", "no name of a cell"),
        (("a/b",), "beta", "no name of a cell"),
        (("alpha\n",), "beta", "no name of a cell"),
        (("x" * 64,), "beta", "no name of a cell"),
    ],
)
def test_what_names_no_cells_is_refused(given: tuple[str, ...], own: str, text: str) -> None:
    with pytest.raises(Refused, match=text):
        read_cells(given, own)


def test_a_cell_that_is_no_member_is_refused_once_the_members_are_known() -> None:
    check_cells(("any",), VIEW)
    check_cells(("alpha",), VIEW)
    for name in ("gamma", "old"):
        with pytest.raises(
            Refused, match=f"there is no cell {name} in the federation: cells are alpha, beta"
        ):
            check_cells((name,), VIEW)
    check_cells(("gamma",), FederationView("lab", "beta", Standing.MEMBER))
