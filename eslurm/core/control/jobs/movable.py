"""Limits of jobs that other cells may take: all that they ask for is the same there, and between two cells nothing changes.

Invariant: a refusal names the option and the way out.
"""

from __future__ import annotations

from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.transfer import TransferStage

_REQUESTS = (
    ("include", "--nodelist names nodes of one cell"),
    ("exclude", "--exclude names nodes of one cell"),
    ("wide", "licences are counted in one cell"),
)


def check_movable(spec: JobSpec, *, in_pack: bool = False) -> None:
    """Raise `Refused` when a job that names several cells asks for what only one of them has."""
    problem = _problem(spec, in_pack=in_pack)
    if problem:
        raise Refused(
            RefusalCode.INVALID, f"--cell: {','.join(spec.cells)}: {problem}: leave it out, or name one cell"
        )


def _problem(spec: JobSpec, *, in_pack: bool) -> str:
    if spec.user.uid == 0:
        return "root's jobs stay in their cell"
    if in_pack:
        return "the jobs of a pack run in one cell"
    if spec.array is not None:
        return "the tasks of an array (--array) run in one cell"
    if len(spec.components) > 1 or spec.parts:
        return "the parts of a job run in one cell"
    if spec.gateway is not None:
        return "gateways (--gw-num) are between modules of one cell"
    if spec.reservation:
        return "a reservation (--reservation) is of one cell"
    if spec.start_at_us:
        return "a fixed start (--start-at) is planned in one cell"
    return next((text for name, text in _REQUESTS if getattr(spec.components[0], name)), "")


def check_alone(job: Job, what: str) -> None:
    """Raise `Refused` while other cells hold nodes for the job: a change here would not reach them."""
    guests = job.guests
    if guests is not None and guests.guests and job.state not in FINAL:
        cells = ", ".join(guest.cell for guest in guests.guests)
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {job.job_id}: {what} does not reach its nodes in {cells}: submit it again with what it needs",
        )


def check_here(job: Job) -> None:
    """Raise `Refused` while the job is between two cells, each of which would miss a change in the other."""
    transfer = job.transfer
    if transfer is None or not job.is_away or job.state in FINAL:
        return
    if transfer.stage is TransferStage.OFFERED:
        text = f"it is being offered to cell {transfer.cell}: try again in a moment"
    elif transfer.stage is TransferStage.ARRIVING:
        text = f"it is arriving from cell {transfer.cell}: try again in a moment"
    else:
        text = f"it is in cell {transfer.cell}: name it {job.job_id}@{transfer.cell}"
    raise Refused(RefusalCode.CONFLICT, f"job {job.job_id}: {text}")
