"""Guests of a job that spans several cells: jobs of other cells that hold nodes for it (S-05, ADR 32).

The home cell accepted the job, runs its script, and holds a part of its nodes; a guest holds another part in its own cell,
as a job of that cell. Invariants: a guest runs nothing but the steps of its job; a guest that its home has not kept in
time ends by itself, so no node waits for a job that does not come.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec.structs import replace

from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US

GUESTS_MAX: Final = 15
"""Guests of one job."""
GATHER_US: Final = 25 * SECOND_US
"""From the request for guests until the job has to start: well below `KEEP_US`."""
SINCE_MAX_US: Final = 2**53
"""Latest time of a submission that another cell may name."""
KEEP_US: Final = 60 * SECOND_US
"""From a guest's submission until its home has to have kept it."""


class GuestStage(enum.Enum):
    """Stage of a job's guests, in the log of its home."""

    __hash__ = object.__hash__

    NONE = "none"
    """The job waits, and has no guests."""
    ASKED = "asked"
    """Other cells are asked for nodes. The job is not started meanwhile."""
    HELD = "held"
    """All guests hold their nodes: the job starts on its own part at once, or not with these guests."""
    LEAVING = "leaving"
    """The guests are not needed any more; the job is not started before they have ended."""


class Guest(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A guest in `cell`. `job_id` is its id there, 0: not known. `node_list` are its nodes, folded; empty: not known."""

    cell: str
    nodes: int
    job_id: int = 0
    node_list: str = ""


class Guests(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """All guests of a job. `serial` identifies them: the revision of the fact that asked for them.

    `attempt` is the number of the attempt that they are for, `own_nodes` the number of nodes of the home cell in it, of
    `total_nodes`. The job starts by `until_us`. `is_wide`: the home cell alone can never run the job.
    """

    stage: GuestStage = GuestStage.NONE
    is_wide: bool = False
    serial: int = 0
    attempt: int = 0
    until_us: int = 0
    own_nodes: int = 0
    total_nodes: int = 0
    guests: tuple[Guest, ...] = ()

    def without(self, cell: str) -> Guests:
        """The guests but for that of this cell."""
        return replace(self, guests=tuple([one for one in self.guests if one.cell != cell]))


class GuestOf(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The job of another cell that a guest holds nodes for: its home cell, its id there, the serial of the request.

    `until_us` is the time by which the home has to have kept it; 0: it has. `since_us` is the time of that job's
    submission by its home's clock; 0: not known.
    """

    home: str
    job_id: int
    serial: int
    until_us: int = 0
    since_us: int = 0

    @property
    def age(self) -> tuple[int, str, int]:
        """Place of its job in the order by age that all cells share; the oldest is the least."""
        return (self.since_us, self.home, self.job_id)

    def is_of(self, home: str, job_id: int, serial: int) -> bool:
        """Check whether this request of this job asked for the guest."""
        return (self.home, self.job_id, self.serial) == (home, job_id, serial)


class JointStep(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The place of one cell's part in a step over several cells: where its ranks and nodes begin, and the size of all.

    `node_list` are the nodes of the whole step, folded, `tasks_per_node` their tasks in Slurm's form. `home` names the job
    that spans the cells: `17@alpha`.
    """

    home: str
    rank_first: int
    ranks: int
    node_first: int
    nodes: int
    node_list: str
    tasks_per_node: str = ""


def nodes_of(request: Request) -> int:
    """Number of nodes that a spanning job asks for."""
    return max(request.nodes_min, 1)


def share_of(request: Request, nodes: int) -> Request:
    """The request for so many of a spanning job's nodes, with their part of the tasks."""
    tasks = request.tasks // nodes_of(request) * nodes
    return replace(request, nodes_min=nodes, nodes_max=nodes, tasks=max(tasks, nodes))


def span_problem(request: Request) -> str:
    """The reason why a job with this request cannot span cells; empty: it can."""
    nodes = nodes_of(request)
    if request.chunks:
        return "chunks (--rset) are placed in one cell"
    if nodes < 2 or request.nodes_max not in (0, nodes):
        return "it needs a fixed number of nodes, two or more (-N 4)"
    if request.tasks > nodes and request.tasks % nodes:
        return f"{request.tasks} tasks (-n) are no multiple of {nodes} nodes (-N)"
    if request.place == "pack":
        return "all tasks on one node (--place=pack) are in one cell"
    return ""
