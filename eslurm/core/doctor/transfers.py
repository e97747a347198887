"""Jobs between cells of a federation that wait for longer than the store takes: no answer, no outcome, no owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from eslurm.core.doctor.finding import WARNING, Finding, Sliced
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.transfer import Transfer, TransferStage
from eslurm.core.model.units import SECOND_US

if TYPE_CHECKING:
    from eslurm.core.federation.view import FederationView

TRANSFERS: Final = "transfers"
LATE_US: Final = 60 * SECOND_US
"""An offer is withdrawn after ten seconds; an outcome is told at once."""


class Gone:
    """The names of cells that do not answer: silent, left, or no member. A view that knows no cell yet has none."""

    def __init__(self, view: FederationView) -> None:
        self._states = {cell.name: cell.state.value for cell in view.cells}
        self._is_known = view.age_us is not None

    def __contains__(self, cell: str) -> bool:
        state = self._states.get(cell)
        return state in ("silent", "left") or (state is None and self._is_known)


def check_transfers(jobs: Mapping[int, Job], view: FederationView, now_us: int) -> Sliced:
    """Check offers without an answer, outcomes that are not told, and owners that are silent."""
    gone = Gone(view)
    for job in list(jobs.values()):
        yield None
        transfer = job.transfer
        if transfer is None:
            continue
        if transfer.stage is TransferStage.TRANSFERRED:
            if job.state is JobState.TRANSFERRED and transfer.cell in gone:
                text = f"is in cell {transfer.cell}, which is silent: its outcome is not known"
                yield _finding(job, text, _LOST_ADVICE)
        else:
            yield from _late(job, transfer, now_us)


def _late(job: Job, transfer: Transfer, now_us: int) -> Iterator[Finding]:
    if transfer.stage is TransferStage.OWNED and job.state in FINAL:
        late_s = (now_us - job.ended_us) // SECOND_US
        if late_s * SECOND_US > LATE_US:
            text = f"ended {late_s} s ago, and its home cell {transfer.cell} has not been told"
            yield _finding(job, text, _STORE_ADVICE)
        return
    late_s = (now_us - transfer.since_us) // SECOND_US
    if late_s * SECOND_US <= LATE_US:
        return
    if transfer.stage is TransferStage.OFFERED:
        text = f"was offered to cell {transfer.cell} {late_s} s ago, and nothing says what has become of the offer"
        yield _finding(job, text, _LOST_ADVICE)
    elif transfer.stage is TransferStage.ARRIVING:
        text = f"arrived from cell {transfer.cell} {late_s} s ago, and nothing says which cell owns it"
        yield _finding(job, text, _STORE_ADVICE)


def _finding(job: Job, text: str, advice: str) -> Finding:
    return Finding(TRANSFERS, WARNING, f"job {job.job_id}", text, advice.format(job=job.job_id))


_STORE_ADVICE = "see the findings on etcd, and whether this cell is a member: the store has to answer"
_LOST_ADVICE = (
    "it goes on by itself when etcd and that cell answer; if the cell never comes back: escancel --lost {job}"
)
