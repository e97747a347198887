"""Jobs that change their cell: each message once, late, again, and out of turn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model import facts
from eslurm.core.model.federation import Outcome
from eslurm.core.model.job import ArraySpec, Principal, Span
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import (
    Arrival,
    CancelJobs,
    Changed,
    ConfirmArrival,
    DropArrival,
    EndOffer,
    IdsTaken,
    JobRef,
    NoteOutcome,
    NoteTold,
    NoteTransferred,
    OfferJob,
    PlanMade,
    RefusalCode,
    Refused,
    RequeueJobs,
    SubmitJobs,
    Submitted,
    TransferMessage,
    UpdateJob,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.model.transfer import TransferStage
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.pending_reason import pending_reason
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, depends

DONE = Outcome("COMPLETED", 0, 0, 100, 100 + 30 * SECOND, "")
FOREIGN = 500_001


def home(**wanted: object) -> tuple[World, int]:
    """A world with a job that may go to any cell."""
    world = World()
    return world, world.submit(cells=("any",), **wanted)


def offered(world: World, job_id: int, cell: str = "beta") -> int:
    """The serial of an offer that is made."""
    world.send(OfferJob(job_id, cell))
    transfer = world.job(job_id).transfer
    assert transfer is not None and (transfer.stage, transfer.cell) == (TransferStage.OFFERED, cell)
    return transfer.serial


def arrives(world: World, job_id: int = FOREIGN, serial: int = 7, **changes: object) -> BatchAnswer:
    world.submit()
    spec = next(job.spec for job in world.state.jobs.values())
    return world.send(SubmitJobs((replace(spec, **changes),), arrival=Arrival("alpha", job_id, serial)))


def text_of(answer: BatchAnswer) -> str:
    """The text of a refusal, or of the one problem of a change."""
    if isinstance(answer, Refused):
        return answer.text
    assert isinstance(answer, Changed) and len(answer.problems) == 1, answer
    return answer.problems[0].text


def kinds(world: World, message: TransferMessage) -> list[str]:
    return [type(fact).__name__ for fact in world.batch(message).facts]


def test_an_offered_job_waits_outside_the_queue_and_is_back_at_its_place() -> None:
    world, job_id = home()
    later = world.submit()
    serial = offered(world, job_id)
    assert serial == world.state.revision
    assert pending_reason(world.state, world.job(job_id)) == "OfferedToCell"
    assert world.plan() == [later] and world.view.transfers.keys() == {job_id}
    assert kinds(world, EndOffer(job_id, serial)) == ["OfferEnded"]
    assert world.state.queue_ids() == [job_id] and world.job(job_id).transfer is None
    assert world.plan() == [job_id]


def test_a_job_is_offered_only_while_it_waits_for_resources_alone() -> None:
    world = World(nodes=1)
    here, named, held = (
        world.submit(),
        world.submit(cells=("gamma",)),
        world.submit(cells=("any",), held=True),
    )
    after = world.submit(cells=("any",), dependencies=depends("afterok", here))
    for job_id in (here, named, held, after, 99):
        assert kinds(world, OfferJob(job_id, "beta")) == []
    assert kinds(world, OfferJob(named, "gamma")) == ["JobOffered"]
    assert kinds(world, OfferJob(named, "gamma")) == []
    # Its nodes may still run something of a job that was placed.
    placed = world.submit(cells=("any",), priority=0)
    assert placed in world.start()
    world.send(RequeueJobs(ALICE, (JobRef(placed),)))
    world.end(placed, 15)
    world.pass_time(60)
    assert world.job(placed).state is JobState.PENDING
    assert kinds(world, OfferJob(placed, "beta")) == []


def test_a_plan_made_before_the_offer_places_nothing() -> None:
    world, job_id = home()
    placement = Placement(job_id, (Span(0, (1, 250)),), INFINITY_US)
    generation = world.state.generation
    offered(world, job_id)
    world.send(PlanMade((placement,), generation))
    assert world.job(job_id).attempt is None


def test_the_outcome_ends_the_job_and_decides_its_dependents() -> None:
    world, job_id = home()
    good = world.submit(dependencies=depends("afterok", job_id))
    bad = world.submit(dependencies=depends("afternotok", job_id))
    serial = offered(world, job_id)
    assert kinds(world, NoteTransferred(job_id, serial)) == ["JobTransferred"]
    job = world.job(job_id)
    assert (
        job.state is JobState.TRANSFERRED and world.state.pending_count == 2 and not world.state.active_count
    )
    assert job_id not in world.state.queue_ids()
    world.now_us += 90 * SECOND
    found = kinds(world, NoteOutcome(job_id, serial, DONE))
    assert found[0] == "TransferEnded"
    job = world.job(job_id)
    assert (job.state, job.outcome) == (JobState.COMPLETED, JobState.COMPLETED)
    assert (job.started_us, job.ended_us) == (world.now_us - 30 * SECOND, world.now_us)
    assert world.state.queue_ids() == [good] and world.job(bad).state is JobState.CANCELLED
    assert kinds(world, NoteOutcome(job_id, serial, DONE)) == []


def test_an_outcome_that_comes_before_the_news_of_its_owner_counts() -> None:
    world, job_id = home()
    serial = offered(world, job_id)
    assert kinds(world, NoteOutcome(job_id, serial, replace(DONE, state="TIMEOUT"))) == [
        "JobTransferred",
        "TransferEnded",
    ]
    assert world.job(job_id).state is JobState.TIMEOUT
    assert world.job(job_id).started_us >= world.job(job_id).submitted_us


def test_messages_about_other_offers_change_nothing() -> None:
    world, job_id = home()
    first = offered(world, job_id)
    world.send(EndOffer(job_id, first))
    second = offered(world, job_id)
    assert second > first
    for serial in (first, second + 1):
        for message in (
            EndOffer(job_id, serial),
            NoteTransferred(job_id, serial),
            NoteOutcome(job_id, serial, DONE),
            ConfirmArrival(job_id, second),
            DropArrival(job_id, second),
            NoteTold(job_id, second),
        ):
            assert kinds(world, message) == []


def test_a_demand_to_cancel_an_offered_job_waits_for_the_answer() -> None:
    world, job_id = home()
    serial = offered(world, job_id)
    world.cancel(job_id)
    transfer = world.job(job_id).transfer
    assert transfer is not None and transfer.cancel_by == "alice"
    assert kinds(world, EndOffer(job_id, serial)) == ["OfferEnded", "JobFinished"]
    assert world.job(job_id).state is JobState.CANCELLED


def test_a_demand_to_cancel_a_transferred_job_stays_until_its_outcome() -> None:
    world, job_id = home()
    world.send(NoteTransferred(job_id, offered(world, job_id)))
    assert world.send(CancelJobs(ALICE, user="alice")) == Changed(1)
    transfer = world.job(job_id).transfer
    assert transfer is not None and transfer.cancel_by == "alice"
    assert world.job(job_id).state is JobState.TRANSFERRED


def test_nothing_else_changes_a_job_between_two_cells() -> None:
    world, job_id = home()
    serial = offered(world, job_id)
    for _ in range(2):
        state = world.job(job_id).state
        texts = {
            text_of(world.hold(job_id)),
            text_of(world.hold(job_id, release=True)),
            text_of(world.send(UpdateJob(ALICE, JobRef(job_id), name="other"))),
            text_of(world.send(RequeueJobs(ALICE, (JobRef(job_id),)))),
        }
        assert texts == {
            f"job {job_id}: it is being offered to cell beta: try again in a moment"
            if state is JobState.PENDING
            else f"job {job_id}: it is in cell beta: name it {job_id}@beta"
        }
        world.send(NoteTransferred(job_id, serial))


def test_a_job_is_given_up_with_its_cell() -> None:
    world, job_id = home()
    other = world.submit(cells=("beta",))
    lost = [CancelJobs(ALICE, (JobRef(one),), lost=True) for one in (job_id, other)]
    assert "is in no other cell" in text_of(world.send(lost[0]))
    offered(world, other)
    world.send(NoteTransferred(job_id, offered(world, job_id)))
    assert "may still answer" in text_of(world.send(lost[1]))
    assert text_of(world.send(replace(lost[0], by=BOB))).startswith(f"job {job_id}")
    assert world.send(lost[0]) == Changed(1)
    assert (world.job(job_id).state, world.job(job_id).exit_text) == (
        JobState.NODE_FAIL,
        "given up with cell beta by alice",
    )
    world.pass_time(61)
    assert world.send(lost[1]) == Changed(1)
    assert world.job(other).state is JobState.NODE_FAIL
    assert "is in no other cell" in text_of(world.send(lost[1]))


def test_an_arrival_waits_until_this_cell_owns_it() -> None:
    world = World()
    world.send(IdsTaken(100_000, 100_000, 7))
    next_id = world.state.next_id
    assert arrives(world) == Submitted((FOREIGN,))
    # The other job is this cell's.
    assert world.state.next_id == max(next_id, 100_000) + 1
    assert pending_reason(world.state, world.job(FOREIGN)) == "ArrivingFromCell"
    assert FOREIGN not in world.plan() and world.view.transfers.keys() == {FOREIGN}
    assert "try again in a moment" in text_of(world.cancel(FOREIGN))
    assert kinds(world, ConfirmArrival(FOREIGN, 6)) == []
    assert kinds(world, ConfirmArrival(FOREIGN, 7)) == ["ArrivalConfirmed"]
    assert world.start() == [FOREIGN]
    assert kinds(world, NoteTold(FOREIGN, 7)) == []
    world.end(FOREIGN)
    world.pass_time(10 * 86_400)
    assert world.job(FOREIGN).state is JobState.COMPLETED
    world.restart()
    transfer = world.job(FOREIGN).transfer
    assert transfer is not None and transfer.stage is TransferStage.OWNED
    assert kinds(world, NoteTold(FOREIGN, 7)) == ["OutcomeTold"]
    world.pass_time(1)
    assert world.state.find_job(FOREIGN) is None


def test_nothing_is_left_of_a_dropped_arrival() -> None:
    world = World()
    arrives(world, name="twin")
    twin = world.submit(name="twin", dependencies=depends("singleton", 0))
    assert "is arriving" in text_of(submitted(world, dependencies=depends("afterok", FOREIGN)))
    assert kinds(world, DropArrival(FOREIGN, 8)) == []
    assert kinds(world, DropArrival(FOREIGN, 7))[0] == "ArrivalDropped"
    assert world.state.find_job(FOREIGN) is None and not world.view.transfers
    assert not world.job(twin).open
    rows = [row for row in world.mirror.image.load_unfinished("main") if getattr(row, "job_id", 0) == FOREIGN]
    assert not rows
    # It may come again, and is forgotten at its own time.
    assert arrives(world, serial=9) == Submitted((FOREIGN,))


def submitted(world: World, **changes: object) -> BatchAnswer:
    spec = next(job.spec for job in world.state.jobs.values())
    return world.send(SubmitJobs((replace(spec, **changes),)))


def test_a_repeated_delivery_has_the_same_answer_and_another_offer_has_none() -> None:
    world = World()
    arrives(world)
    revision = world.state.revision
    assert arrives(world) == Submitted((FOREIGN,))
    assert world.state.revision == revision + 1, "only the other job is new"
    later = arrives(world, serial=8)
    assert isinstance(later, Refused) and later.code is RefusalCode.EXHAUSTED
    assert "is over" in text_of(arrives(world, serial=6))
    # The same offer of another user's job is no repetition.
    assert "is alice's here" in text_of(arrives(world, user=BOB))
    world.send(ConfirmArrival(FOREIGN, 7))
    assert arrives(world) == Submitted((FOREIGN,))
    later = arrives(world, serial=8)
    assert isinstance(later, Refused) and later.code is RefusalCode.CONFLICT


@pytest.mark.parametrize(
    ("job_id", "serial"),
    [(0, 7), (-1, 7), (2**31 - 1, 7), (2**40, 7), (FOREIGN, 0), (FOREIGN, -3), (FOREIGN, 2**53 + 1)],
)
def test_ids_and_serials_that_no_cell_has_are_refused(job_id: int, serial: int) -> None:
    assert "no cell offers that" in text_of(arrives(World(), job_id, serial))


def test_an_id_of_this_cell_does_not_arrive() -> None:
    world = World()
    assert "another job's here" in text_of(arrives(world, 1))
    world.send(IdsTaken(500_000, 100_000, 7))
    assert "this cell's own" in text_of(arrives(world))
    # Its own job that is in the other cell is not the other cell's.
    world, job_id = home()
    offered(world, job_id, "alpha")
    assert "another job's here" in text_of(arrives(world, job_id, cells=()))


HOSTILE: Sequence[tuple[dict[str, object], str]] = (
    ({"array": ArraySpec(((0, 3),))}, "array"),
    ({"components": (Request(), Request())}, "parts"),
    ({"reservation": "maintenance"}, "reservation"),
    ({"start_at_us": 10**18}, "fixed start"),
    ({"components": (Request(include=("cn1",)),)}, "--nodelist"),
    ({"components": (Request(exclude=("cn1",)),)}, "--exclude"),
    ({"components": (Request(wide=(("matlab", 1),)),)}, "licences"),
    ({"user": ROOT}, "root's jobs"),
)


@pytest.mark.parametrize(("changes", "text"), HOSTILE, ids=[text for _, text in HOSTILE])
def test_what_stays_in_one_cell_is_refused_by_name(changes: dict[str, object], text: str) -> None:
    world = World()
    assert text in text_of(arrives(world, **changes))
    assert isinstance(submitted(world, cells=("any",), **changes), Refused)


def test_choices_of_the_home_cell_do_not_arrive() -> None:
    world = World()
    for changes in ({"cells": ("any",)}, {"held": True}, {"dependencies": depends("singleton", 0)}):
        assert "stay in the home cell" in text_of(arrives(world, **changes))


def test_an_arrival_passes_the_checks_of_its_user() -> None:
    world = World(pending_jobs_user_max=1)
    world.submit()
    spec = next(job.spec for job in world.state.jobs.values())
    answer = world.send(SubmitJobs((spec,), arrival=Arrival("alpha", FOREIGN, 7)))
    assert isinstance(answer, Refused) and answer.code is RefusalCode.EXHAUSTED
    wide = replace(spec, user=Principal("carol", 1007, 1007), components=(Request(tasks=10**4),))
    answer = world.send(SubmitJobs((wide,), arrival=Arrival("alpha", FOREIGN, 7)))
    assert isinstance(answer, Refused) and answer.code is RefusalCode.INFEASIBLE


def test_the_facts_of_a_transfer_name_the_offer() -> None:
    world, job_id = home()
    serial = offered(world, job_id)
    world.send(NoteTransferred(job_id, serial))
    world.send(NoteOutcome(job_id, serial, DONE))
    assert world.log[-1] == facts.TransferEnded(job_id, serial, DONE)
