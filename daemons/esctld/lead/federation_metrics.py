"""Metrics of a cell's part in its federation. Labels are states, never names of cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eslurm.telemetry.exposition import Described, MetricFamily

if TYPE_CHECKING:
    from esctld.lead.cell_links import CellLinks
    from esctld.lead.federation import Federation
    from esctld.lead.others_usage import OthersUsage

STANDINGS = ("away", "joining", "member", "refused", "superseded", "left")
STATES = ("alive", "silent", "left", "unknown")

STANDING = Described(
    "eslurm_federation_standing", "gauge", "1 for where this cell stands in its federation.", ("standing",)
)
CELLS = Described("eslurm_federation_cells", "gauge", "Cells of the federation, by state.", ("state",))
AGE = Described(
    "eslurm_federation_age_seconds", "gauge", "Time since the shared store last said anything; -1: never."
)
SKIPPED = Described(
    "eslurm_federation_values_skipped", "gauge", "Values in the shared store that cannot be used."
)
RESTARTS = Described(
    "eslurm_federation_restarts_total",
    "counter",
    "How often an error made the part in the federation begin anew.",
)
CALLS = Described(
    "eslurm_federation_calls_total",
    "counter",
    "Calls that passed between this cell and others: out for its own users, in for those of others.",
    ("way",),
)
CALLS_REFUSED = Described(
    "eslurm_federation_calls_refused_total",
    "counter",
    "Calls of other cells that were refused before they were looked at as a user's.",
)
USAGE_CELLS = Described(
    "eslurm_federation_usage_cells", "gauge", "Other cells whose usage fair share counts here."
)
USAGE_AGE = Described(
    "eslurm_federation_usage_age_seconds",
    "gauge",
    "Age of the oldest usage of another cell that fair share counts; -1: none is counted.",
)
TRANSFERS = Described(
    "eslurm_federation_transfers_total",
    "counter",
    "Events of jobs that change their cell. At home: offered, transferred, withdrawn, refused; in the cell that takes them: "
    "taken, dropped, told.",
    ("event",),
)
BIDS = Described(
    "eslurm_federation_bids_total", "counter", "Answers of other cells to requests for a bid.", ("answer",)
)
JOBS = Described(
    "eslurm_federation_jobs",
    "gauge",
    "Jobs between cells: offered by this one, owned elsewhere, of other cells here with an end that is not told yet.",
    ("place",),
)
GATHERINGS = Described(
    "eslurm_federation_gatherings_total",
    "counter",
    "Requests for nodes of other cells for jobs that span several: asked, held (all of them came), given_up.",
    ("event",),
)
GUESTS = Described(
    "eslurm_federation_guests",
    "gauge",
    "Jobs that hold nodes of one cell for a job of another: there for jobs of this cell, here for those of others.",
    ("place",),
)
FEDERATION = (
    STANDING,
    CELLS,
    AGE,
    SKIPPED,
    RESTARTS,
    CALLS,
    CALLS_REFUSED,
    USAGE_CELLS,
    USAGE_AGE,
    TRANSFERS,
    BIDS,
    JOBS,
    GATHERINGS,
    GUESTS,
)
EVENTS = ("offered", "transferred", "withdrawn", "refused", "taken", "dropped", "told")
ANSWERS = ("bid", "no bid", "refused", "no answer")


def families(
    federation: Federation | None, cells: CellLinks | None, others_usage: OthersUsage | None = None
) -> Iterator[MetricFamily]:
    """The metrics of a member; of a cluster that is none, they are there and say nothing."""
    view = federation.view() if federation is not None else None
    counts = Counter(cell.state.value for cell in view.cells) if view is not None else Counter()
    yield STANDING.by(
        {standing: view is not None and standing == view.standing.value for standing in STANDINGS}
    )
    yield CELLS.by({state: counts[state] for state in STATES})
    yield AGE.is_(-1 if view is None or view.age_us is None else view.age_us / 1e6)
    words = others_usage.words() if others_usage is not None else []
    unusable = sum(not one.is_readable for one in words)
    yield SKIPPED.is_(0 if view is None else len(view.unreadable) + view.skipped + unusable)
    yield RESTARTS.is_(federation.restarts if federation is not None else 0)
    yield CALLS.by({way: cells.calls[way] if cells is not None else 0 for way in ("out", "in")})
    yield CALLS_REFUSED.is_(cells.refused if cells is not None else 0)
    ages_us = [one.age_us for one in words if not one.problem]
    yield USAGE_CELLS.is_(len(ages_us))
    yield USAGE_AGE.is_(max(ages_us) / 1e6 if ages_us else -1)
    transfers = federation.transfers if federation is not None else None
    events = transfers.counts if transfers is not None else Counter()
    yield TRANSFERS.by({event: events[event] for event in EVENTS})
    yield BIDS.by({answer.replace(" ", "_"): events[f"bids {answer}"] for answer in ANSWERS})
    yield JOBS.by(
        {
            "offered": len(transfers.owners.open) if transfers is not None else 0,
            "elsewhere": transfers.owners.owned_elsewhere if transfers is not None else 0,
            "here": transfers.arrivals.size if transfers is not None else 0,
        }
    )
    gathered = transfers.gatherings if transfers is not None else None
    yield GATHERINGS.by(
        {event.replace(" ", "_"): events[f"gatherings {event}"] for event in ("asked", "held", "given up")}
    )
    yield GUESTS.by(
        {
            "there": gathered.held if gathered is not None else 0,
            "here": transfers.hosting.size if transfers is not None else 0,
        }
    )
