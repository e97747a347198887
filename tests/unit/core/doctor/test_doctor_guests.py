"""Spanning jobs and guests as the doctor sees them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.doctor.guests import check_guests
from eslurm.core.federation.view import FederationView
from eslurm.core.model.guests import Guest, GuestOf, Guests, GuestStage
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import JobState
from tests.kits.core import SECOND, World
from tests.unit.core.doctor.test_doctor_transfers import NOW, VIEW


def home(stage: GuestStage, *cells: str, ago_s: int = 90, runs: bool = False, ended: bool = False) -> Job:
    """A spanning job that was to start, or has ended, so long ago."""
    world = World()
    job_id = world.submit()
    if runs:
        world.start()
    since_us = NOW - ago_s * SECOND
    guests = Guests(
        stage, True, 7, 1, since_us, 1, 1 + len(cells), tuple(Guest(cell, 1, 9, "cn1") for cell in cells)
    )
    state = JobState.COMPLETED if ended else world.job(job_id).state
    return replace(
        world.job(job_id), guests=guests, ended_us=since_us if ended else 0, state=state, attempts=int(runs)
    )


def guest(cell: str, ago_s: int, *, is_kept: bool = False, state: JobState = JobState.RUNNING) -> Job:
    """A guest that its home was to claim so long ago."""
    world = World(register=False)
    until_us = 0 if is_kept else NOW - ago_s * SECOND
    return replace(world.job(world.submit()), guest_of=GuestOf(cell, 17, 3, until_us), state=state)


def told(one: Job, view: FederationView = VIEW) -> list[tuple[str, str]]:
    found = (finding for finding in check_guests({one.job_id: one}, view, NOW) if finding is not None)
    return [(finding.text, finding.advice) for finding in found]


@pytest.mark.parametrize(
    ("one", "text", "advice"),
    [
        (
            home(GuestStage.HELD, "gamma", runs=True),
            "runs on nodes of cell gamma, which is silent",
            "escancel",
        ),
        (home(GuestStage.HELD, "beta", "delta", runs=True), "runs on nodes of cell delta", "escancel"),
        (home(GuestStage.ASKED, "beta"), "was to start 90 s ago, and cell beta still holds", "--federation"),
        (home(GuestStage.LEAVING, "beta", "gamma"), "cell beta, gamma still holds", "--federation"),
        (home(GuestStage.LEAVING, "beta", ended=True), "ended 90 s ago, and cell beta still", "--federation"),
        (guest("gamma", 0, is_kept=True), "job 17 of cell gamma, which is silent", "ten minutes"),
        (guest("delta", 0), "job 17 of cell delta, which is silent", "ten minutes"),
        (guest("beta", 90), "which was to claim them 90 s ago", "escancel"),
    ],
)
def test_nodes_that_are_held_for_too_long_are_named(one: Job, text: str, advice: str) -> None:
    ((found, way_out),) = told(one)
    assert text in found
    assert advice in way_out and "{job}" not in way_out


@pytest.mark.parametrize(
    "one",
    [
        home(GuestStage.ASKED, "beta", ago_s=-20),
        home(GuestStage.ASKED, "beta", ago_s=60),
        home(GuestStage.HELD, "beta", runs=True, ago_s=5_000),
        home(GuestStage.LEAVING, "beta", ended=True, ago_s=30),
        home(GuestStage.NONE),
        guest("beta", 5_000, is_kept=True),
        guest("beta", 60),
        guest("gamma", 90, state=JobState.COMPLETED),
    ],
)
def test_what_is_in_order_is_not(one: Job) -> None:
    assert told(one) == []


def test_a_cell_that_is_not_known_yet_is_not_taken_for_a_silent_one() -> None:
    assert told(guest("delta", 0, is_kept=True), replace(VIEW, cells=(), age_us=None)) == []
