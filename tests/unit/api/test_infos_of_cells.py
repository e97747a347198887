"""Jobs between cells as the API shows them."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.api.infos import job_info
from eslurm.core.model.federation import Outcome
from eslurm.core.model.messages import (
    Arrival,
    ConfirmArrival,
    NoteOutcome,
    NoteTransferred,
    OfferJob,
    SubmitJobs,
)
from tests.kits.core import World


def shown(world: World, job_id: int) -> tuple[str, str, str, str, str]:
    info = job_info(world.view, world.view.jobs[job_id], None)
    return (info.state, info.reason, info.reason_text, info.home, info.owner)


def test_a_job_that_leaves_says_where_it_is() -> None:
    world = World()
    job_id = world.submit(cells=("any",))
    world.send(OfferJob(job_id, "beta"))
    assert shown(world, job_id) == ("PENDING", "OfferedToCell", "offered to cell beta", "", "beta")
    transfer = world.job(job_id).transfer
    assert transfer is not None
    world.send(NoteTransferred(job_id, transfer.serial))
    assert shown(world, job_id) == ("TRANSFERRED", "", "in cell beta", "", "beta")
    world.cancel(job_id)
    assert shown(world, job_id)[2] == "in cell beta; cancelled by alice"
    world.send(NoteOutcome(job_id, transfer.serial, Outcome("CANCELLED")))
    assert shown(world, job_id) == ("CANCELLED", "", "", "", "beta")


def test_a_job_that_arrives_says_whose_it_is() -> None:
    world = World()
    spec = world.job(world.submit()).spec
    world.send(SubmitJobs((replace(spec),), arrival=Arrival("alpha", 500_001, 7)))
    assert shown(world, 500_001) == (
        *("PENDING", "ArrivingFromCell", "arriving from cell alpha"),
        *("alpha", ""),
    )
    world.send(ConfirmArrival(500_001, 7))
    assert shown(world, 500_001)[1:] == ("Priority", "not looked at by a plan yet", "alpha", "")
