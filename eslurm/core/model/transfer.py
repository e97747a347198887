"""A job's transfer to another cell of its federation: the stage that this cell's log knows.

The home cell is the one that accepted the job, and its id is of that cell. The owner may start it. An offer is bound to its
serial; a later offer of the same job has a higher one. The key `jobs/HOME/ID` in the shared store, changed by comparison of
versions alone, decides between the two cells (ADR 31).
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

ANY_CELL: Final = "any"
"""In a request: any cell of the federation."""
CELLS_MAX: Final = 16
"""Cells that a request names, at most."""


class TransferStage(enum.Enum):
    """Stage of a transfer, in the log of one of the two cells."""

    __hash__ = object.__hash__

    OFFERED = "offered"
    """At home: another cell may take it. It is not started here."""
    TRANSFERRED = "transferred"
    """At home: the other cell owns it (state TRANSFERRED) until it tells the outcome."""
    ARRIVING = "arriving"
    """At the taker: accepted, not owned yet. It is not started here."""
    OWNED = "owned"
    """At the taker: it owns the job and owes its home the outcome."""
    TOLD = "told"
    """At the taker: the store has the outcome; nothing is owed any more."""


AWAY: Final = frozenset({TransferStage.OFFERED, TransferStage.TRANSFERRED, TransferStage.ARRIVING})
"""Stages at which this cell may not start the job."""
OWING: Final = frozenset({TransferStage.ARRIVING, TransferStage.OWNED})
"""Stages at which another cell has to learn of the job's end: the record is kept until then."""


FOREIGN: Final = frozenset({TransferStage.ARRIVING, TransferStage.OWNED, TransferStage.TOLD})
"""Stages of another cell's job."""


class Transfer(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A transfer in progress. `cell` is the other cell: the taker at home, the home cell at the taker.

    `serial` identifies the offer: the revision of the home cell's log at which it was made. `cancel_by` is the author of a
    demand to cancel the job that came while it was offered; empty: none.
    """

    stage: TransferStage
    cell: str
    serial: int
    since_us: int = 0
    cancel_by: str = ""
