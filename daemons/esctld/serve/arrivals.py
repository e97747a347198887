"""Jobs between cells at the API: which cells may take one, and which one another cell may offer.

Invariant: a cell offers only jobs whose ids it has leased, by this cell's own table, and over its own link.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from eslurm.core.model.guests import SINCE_MAX_US, GuestOf
from eslurm.core.model.messages import Arrival, RefusalCode, Refused
from eslurm.core.model.transfer import ANY_CELL
from eslurm.ports.api import Caller
from eslurm.ports.link import CELL
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from eslurm.core.federation.view import FederationView

NAMED_MAX: Final = 8
"""Cells that a text names."""


class Cells(Protocol):
    """The controller's view of the federation, as `lead.federation.Federation` provides it."""

    @property
    def cell(self) -> str:
        """Name of this cell."""
        ...

    def view(self) -> FederationView:
        """All cells."""
        ...

    def cell_of(self, job_id: int) -> str:
        """The cell that has leased this id; empty: none has."""
        ...

    def host_of(self, cell: str) -> str:
        """The host of the cell's leading controller, as its record says; empty: not known."""
        ...

    def heard_guest(self, job_id: int) -> None:
        """Another cell has named the job that holds nodes here for one of its own."""
        ...

    def bids_of(self, job_id: int) -> Mapping[str, str]:
        """By cell why it does not get this waiting job."""
        ...


def arrival_of(given: pb.Arrival, caller: Caller, cells: Cells | None) -> Arrival:
    """The job that the calling cell offers. Raises `Refused` for any other caller, and for the id of another cell."""
    if cells is None or caller.via != CELL or not caller.cell:
        raise Refused(
            RefusalCode.DENIED,
            "arrival: only the controller of another cell offers its jobs: submit the job without it",
        )
    owner = cells.cell_of(given.job_id)
    if owner != caller.cell or owner == cells.cell:
        whose = f"cell {owner} has leased it" if owner else "no cell has leased it"
        raise Refused(
            RefusalCode.DENIED,
            f"arrival: job id {given.job_id} is not one of cell {caller.cell}, as far as this cell knows: {whose}",
        )
    return Arrival(caller.cell, given.job_id, given.serial)


def check_cells(names: tuple[str, ...], view: FederationView) -> None:
    """Raise `Refused` when a job names a cell that is no member, once the members are known."""
    members = {one.name for one in view.cells if one.state.value != "left"}
    unknown = [name for name in names if name != ANY_CELL and name not in members]
    if unknown and view.age_us is not None:
        known = ", ".join(sorted(members)[:NAMED_MAX])
        raise Refused(
            RefusalCode.INVALID, f"--cell: there is no cell {unknown[0]} in the federation: cells are {known}"
        )


def guest_of_call(given: pb.GuestOf, caller: Caller) -> GuestOf:
    """The job of the calling cell that a guest is for. Raises `Refused` for any other caller."""
    check_cell(caller, "guest_of")
    return GuestOf(caller.cell, given.job_id, given.serial, since_us=min(given.since_us, SINCE_MAX_US))


def check_cell(caller: Caller, what: str) -> None:
    """Raise `Refused` for a caller that is no leader of another cell."""
    if caller.via != CELL or not caller.cell:
        raise Refused(
            RefusalCode.DENIED,
            f"{what}: only the controller of another cell asks for nodes for its jobs: submit the job without it",
        )
