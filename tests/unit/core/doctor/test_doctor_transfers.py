"""Jobs between cells as the doctor sees them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.doctor.transfers import check_transfers
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import JobState
from eslurm.core.model.transfer import Transfer, TransferStage
from tests.kits.core import SECOND, World

VIEW = FederationView(
    "lab",
    "alpha",
    Standing.MEMBER,
    cells=(
        CellView("alpha", CellState.ALIVE),
        CellView("beta", CellState.ALIVE),
        CellView("gamma", CellState.SILENT),
    ),
    age_us=1,
)
NOW = 5_000 * SECOND


def job(state: JobState, stage: TransferStage, cell: str = "beta", ago_s: int = 90) -> Job:
    world = World(register=False)
    since_us = NOW - ago_s * SECOND
    return replace(
        world.job(world.submit()), state=state, ended_us=since_us, transfer=Transfer(stage, cell, 5, since_us)
    )


def told(one: Job, view: FederationView = VIEW) -> list[str]:
    return [found.text for found in check_transfers({one.job_id: one}, view, NOW) if found is not None]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (job(JobState.PENDING, TransferStage.OFFERED), "was offered to cell beta 90 s ago"),
        (job(JobState.PENDING, TransferStage.ARRIVING), "arrived from cell beta 90 s ago"),
        (job(JobState.FAILED, TransferStage.OWNED), "its home cell beta has not been told"),
        (job(JobState.TRANSFERRED, TransferStage.TRANSFERRED, "gamma"), "is in cell gamma, which is silent"),
        (
            job(JobState.TRANSFERRED, TransferStage.TRANSFERRED, "delta", 0),
            "is in cell delta, which is silent",
        ),
    ],
)
def test_what_waits_for_too_long_is_told(one: Job, text: str) -> None:
    (found,) = told(one)
    assert text in found


@pytest.mark.parametrize(
    "one",
    [
        job(JobState.PENDING, TransferStage.OFFERED, ago_s=30),
        job(JobState.PENDING, TransferStage.ARRIVING, ago_s=60),
        job(JobState.RUNNING, TransferStage.OWNED),
        job(JobState.FAILED, TransferStage.OWNED, ago_s=1),
        job(JobState.FAILED, TransferStage.TOLD),
        job(JobState.TRANSFERRED, TransferStage.TRANSFERRED),
        job(JobState.COMPLETED, TransferStage.TRANSFERRED, "gamma"),
        replace(job(JobState.PENDING, TransferStage.OFFERED), transfer=None),
    ],
)
def test_what_is_in_order_is_not(one: Job) -> None:
    assert told(one) == []


def test_a_cell_that_is_not_known_yet_is_not_taken_for_a_silent_one() -> None:
    one = job(JobState.TRANSFERRED, TransferStage.TRANSFERRED, "delta")
    assert told(one, replace(VIEW, cells=(), age_us=None)) == []
