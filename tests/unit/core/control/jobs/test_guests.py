"""Jobs that span cells: each message once, late, again, and out of turn, at home and in the cell that lends nodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.effects import job_launch
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model import facts
from eslurm.core.model.guests import GATHER_US, KEEP_US, Guest, GuestOf, Guests, GuestStage, JointStep
from eslurm.core.model.job import ArraySpec
from eslurm.core.model.messages import (
    AskGuests,
    Changed,
    CreateStep,
    ExtendJob,
    GiveUpGuests,
    HoldGuests,
    JobRef,
    KeepGuest,
    LoseGuest,
    NoteGuestGone,
    OfferJob,
    Refused,
    StepCreated,
    SubmitJobs,
    Submitted,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.model.request import Request
from eslurm.core.state.pending_reason import pending_reason
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, problem

ALL = Request(nodes_min=5, nodes_max=5, tasks=10)
"""More nodes than the cell has."""
HOME = GuestOf("alpha", 17, 9)
WAITS = 600


def home(request: Request = ALL, **wanted: object) -> tuple[World, int]:
    """A cell of three nodes with a job that may span cells."""
    world = World(nodes=3)
    wanted = {"cells": ("any",), "span": True, "time_limit_s": WAITS, **wanted}
    return world, world.submit(request=request, **wanted)


def guests_of(world: World, job_id: int) -> Guests:
    found = world.job(job_id).guests
    assert found is not None
    return found


def asked(world: World, job_id: int, own: int = 2, **cells: int) -> int:
    """The serial of guests that are asked for."""
    parts = tuple([Guest(cell, nodes) for cell, nodes in (cells or {"beta": 3}).items()])
    world.send(AskGuests(job_id, own, parts))
    found = guests_of(world, job_id)
    assert found.stage is GuestStage.ASKED, found
    return found.serial


def held(world: World, job_id: int) -> int:
    serial = asked(world, job_id)
    world.send(HoldGuests(job_id, serial, (Guest("beta", 3, 71, "b[1-3]"),)))
    assert guests_of(world, job_id).stage is GuestStage.HELD
    return serial


def lending(**changes: object) -> tuple[World, int]:
    """A cell with a guest for job 17 of alpha."""
    world = World(nodes=3)
    world.submit()
    spec = next(job.spec for job in world.state.jobs.values())
    spec = replace(spec, components=(Request(nodes_min=2, nodes_max=2, tasks=4),), **changes)
    answer = world.send(SubmitJobs((spec,), guest_of=HOME))
    assert isinstance(answer, Submitted), answer
    return world, answer.job_ids[0]


def test_a_job_that_no_cell_has_alone_waits_outside_the_queue() -> None:
    world, job_id = home()
    assert guests_of(world, job_id) == Guests(is_wide=True)
    assert pending_reason(world.state, world.job(job_id)) == "NodesInOtherCells"
    later = world.submit(request=Request(nodes_min=3, nodes_max=3, tasks=3))
    assert world.plan() == [later]
    assert world.view.transfers.keys() == {job_id}


def test_a_job_that_its_cell_can_run_is_planned_there_until_others_are_asked() -> None:
    world, job_id = home(Request(nodes_min=3, nodes_max=3, tasks=3))
    assert not guests_of(world, job_id).is_wide and world.state.queue_ids() == [job_id]
    serial = asked(world, job_id, 1, beta=2)
    assert serial == world.state.revision and not world.plan()
    world.send(GiveUpGuests(job_id, serial, "beta: full"))
    # Not before its guests are gone: it could run with them and without.
    assert guests_of(world, job_id).stage is GuestStage.LEAVING and not world.plan()
    world.send(NoteGuestGone(job_id, serial, "beta"))
    assert world.plan() == [job_id]


def test_it_starts_on_its_own_part_while_all_guests_hold_theirs() -> None:
    world, job_id = home()
    serial = held(world, job_id)
    (request,) = world.job(job_id).spec.components
    assert (request.nodes_min, request.nodes_max, request.tasks) == (2, 2, 4)
    assert world.start() == [job_id]
    attempt = world.attempt(job_id)
    assert len(attempt.nodes) == 2
    launch = job_launch(world.state, world.job(job_id), attempt)
    assert launch.guests == (Guest("beta", 3, 71, "b[1-3]"),)
    world.restart()
    world.end(job_id)
    job = world.job(job_id)
    assert job.state.value == "COMPLETED" and job.frees_guests
    # The record stays until the guest has ended.
    world.pass_time(10**6)
    assert world.state.find_job(job_id) is not None
    world.send(NoteGuestGone(job_id, serial, "beta"))
    world.pass_time(10**6)
    assert world.state.find_job(job_id) is None


def test_messages_about_other_guests_change_nothing() -> None:
    world, job_id = home()
    serial = asked(world, job_id)
    here = (Guest("beta", 3, 71, "b[1-3]"),)
    for message in (
        AskGuests(job_id, 2, (Guest("beta", 3),)),
        HoldGuests(job_id, serial - 1, here),
        HoldGuests(job_id, serial, (Guest("beta", 2, 71, "b[1-2]"),)),
        GiveUpGuests(job_id, serial - 1),
        LoseGuest(job_id, serial, "beta"),
        NoteGuestGone(job_id, serial, "beta"),
        NoteGuestGone(10**6, serial, "beta"),
        OfferJob(job_id, "beta"),
    ):
        assert not world.batch(message).facts, message
    world.send(HoldGuests(job_id, serial, here))
    assert not world.batch(HoldGuests(job_id, serial, here)).facts
    world.start()
    assert not world.batch(GiveUpGuests(job_id, serial)).facts
    assert not world.batch(NoteGuestGone(job_id, serial, "beta")).facts


@pytest.mark.parametrize(
    ("own", "parts"),
    [
        (0, (Guest("beta", 5),)),
        (2, (Guest("beta", 2),)),
        (2, (Guest("beta", 1), Guest("beta", 2))),
        (2, (Guest("beta", 3), Guest("gamma", 0))),
        (5, ()),
    ],
)
def test_a_split_has_to_be_of_all_nodes_and_of_different_cells(own: int, parts: tuple[Guest, ...]) -> None:
    world, job_id = home()
    assert not world.batch(AskGuests(job_id, own, parts)).facts


def test_only_named_cells_are_asked_and_only_for_a_job_that_lacks_nothing_else() -> None:
    world, job_id = home(cells=("beta",))
    assert not world.batch(AskGuests(job_id, 2, (Guest("gamma", 3),))).facts
    world.hold(job_id)
    assert not world.batch(AskGuests(job_id, 2, (Guest("beta", 3),))).facts
    world.hold(job_id, release=True)
    asked(world, job_id)


def test_guests_that_do_not_come_in_time_are_given_up() -> None:
    world, job_id = home()
    asked(world, job_id)
    world.pass_time(GATHER_US / SECOND - 1)
    assert guests_of(world, job_id).stage is GuestStage.ASKED
    world.pass_time(2)
    assert guests_of(world, job_id).stage is GuestStage.LEAVING
    assert world.job(job_id).spec.components[0].nodes_min == 5


def test_a_job_that_does_not_start_in_time_gives_its_guests_up() -> None:
    world, job_id = home()
    blocker = world.submit(request=Request(nodes_min=3, nodes_max=3, tasks=12, exclusive=True))
    world.start()
    serial = held(world, job_id)
    assert world.plan() == []
    world.pass_time(GATHER_US / SECOND + 1)
    found = guests_of(world, job_id)
    assert found.stage is GuestStage.LEAVING and world.job(job_id).spec.components[0].nodes_min == 5
    # A leader that comes late cannot hold them again.
    assert not world.batch(HoldGuests(job_id, serial, found.guests)).facts
    world.end(blocker)
    assert world.plan() == []


def test_a_job_that_lost_a_guest_runs_again_with_others() -> None:
    world, job_id = home()
    serial = held(world, job_id)
    world.start()
    world.send(LoseGuest(job_id, serial, "beta", "cancelled by ROOT"))
    world.end(job_id, cause="killed")
    job = world.job(job_id)
    assert job.state.value == "PENDING" and job.gathers and "beta" in job.exit_text
    # The guests of an attempt that is over are no reason to start another one.
    assert not world.batch(AskGuests(job_id, 2, (Guest("beta", 3),))).facts
    world.send(GiveUpGuests(job_id, serial))
    assert guests_of(world, job_id) == Guests(is_wide=True)
    world.pass_time(120)
    assert asked(world, job_id) > serial


def test_a_job_with_no_kill_goes_on_without_a_guest() -> None:
    world, job_id = home(no_kill=True)
    serial = held(world, job_id)
    world.start()
    world.send(LoseGuest(job_id, serial, "beta", "gone"))
    assert world.attempt(job_id).stop is None and guests_of(world, job_id).guests == ()
    world.end(job_id)
    assert world.job(job_id).state.value == "COMPLETED"


def test_a_guest_that_ends_just_before_its_job_does_not_end_it() -> None:
    world, job_id = home()
    serial = held(world, job_id)
    world.start()
    world.pass_time(WAITS - 20)
    world.send(LoseGuest(job_id, serial, "beta", "TIMEOUT"))
    assert world.attempt(job_id).stop is None


def test_a_cancelled_job_frees_its_guests_at_each_stage() -> None:
    for stage in ("asked", "held", "running"):
        world, job_id = home()
        serial = asked(world, job_id) if stage == "asked" else held(world, job_id)
        if stage == "running":
            world.start()
        world.cancel(job_id)
        if stage == "running":
            world.end(job_id, cause="killed")
        assert world.job(job_id).frees_guests, stage
        world.send(NoteGuestGone(job_id, serial, "beta"))
        assert not guests_of(world, job_id).guests
        assert world.job(job_id).state.value == "CANCELLED"


def test_what_its_guests_would_not_hear_of_is_refused() -> None:
    world, job_id = home()
    held(world, job_id)
    world.start()
    for message in (
        UpdateJob(ALICE, JobRef(job_id), time_limit_s=10),
        SuspendJobs(ROOT, (JobRef(job_id),)),
    ):
        assert "does not reach its nodes in beta" in problem(world.send(message))
    answer = world.send(ExtendJob(ALICE, JobRef(job_id), by_s=60))
    assert isinstance(answer, Refused) and "beta" in answer.text
    waiting, other = home()
    assert "cannot be changed" in problem(
        waiting.send(UpdateJob(ALICE, JobRef(other), nodes_min=2, nodes_max=2))
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cells": ()}, "--cell"),
        ({"request": Request(nodes_min=1, tasks=1)}, "two or more"),
        ({"request": Request(nodes_min=2, nodes_max=4, tasks=2)}, "fixed number"),
        ({"request": Request(nodes_min=2, tasks=3)}, "no multiple"),
        ({"request": Request(nodes_min=2, tasks=2, place="pack")}, "one cell"),
        ({"request": Request(nodes_min=2, tasks=2, cpus_per_task=99)}, "never"),
        ({"tasks": ((0, 3),)}, "array"),
    ],
)
def test_a_job_that_cannot_span_cells_is_refused(changes: dict[str, object], text: str) -> None:
    world = World(nodes=3)
    wanted = {"cells": ("any",), "span": True, "request": ALL, **changes}
    answer = world.try_submit(**wanted)
    assert isinstance(answer, Refused), answer
    assert text in answer.text or text == "never", answer.text


# ---- in the cell that lends nodes ----


def test_a_guest_is_a_job_of_its_cell_that_ends_when_it_is_not_kept() -> None:
    world, guest = lending()
    assert world.job(guest).guest_of == replace(HOME, until_us=world.now_us + KEEP_US)
    assert guest in world.start()
    world.pass_time(KEEP_US / SECOND - 1)
    assert world.attempt(guest).stop is None
    world.pass_time(2)
    stop = world.attempt(guest).stop
    assert stop is not None and "17@alpha" in stop.by
    world.end(guest, cause="killed")
    assert world.job(guest).state.value == "CANCELLED"


def test_a_guest_that_waits_for_nodes_is_not_kept_for_ever_either() -> None:
    world, guest = lending()
    world.pass_time(KEEP_US / SECOND + 1)
    assert world.job(guest).state.value == "CANCELLED"


def test_a_kept_guest_stays_until_its_home_ends_it() -> None:
    world, guest = lending()
    world.start()
    keep = KeepGuest(guest, "alpha", 17, 9, keep=True)
    for other in (
        replace(keep, home="gamma"),
        replace(keep, home_job_id=18),
        replace(keep, serial=8),
        replace(keep, job_id=10**6),
    ):
        assert not world.batch(other).facts and not world.batch(replace(other, keep=False)).facts
    assert world.send(keep) == Changed(1)
    assert world.send(keep) == Changed(0)
    world.restart()
    world.pass_time(KEEP_US / SECOND + 10)
    assert world.attempt(guest).stop is None
    world.send(replace(keep, keep=False))
    assert world.attempt(guest).stop is not None
    world.end(guest, cause="killed")
    assert not world.batch(replace(keep, keep=False)).facts


def test_a_guest_is_not_kept_after_its_time() -> None:
    world, guest = lending()
    world.start()
    world.pass_time(KEEP_US / SECOND + 1)
    assert not world.batch(KeepGuest(guest, "alpha", 17, 9, keep=True)).facts


def test_what_waits_for_something_is_no_guest() -> None:
    world = World(nodes=3)
    world.submit()
    spec = next(job.spec for job in world.state.jobs.values())
    for wrong in ({"cells": ("any",)}, {"held": True}, {"begin_us": 5}, {"array": ArraySpec(((0, 1),))}):
        answer = world.send(SubmitJobs((replace(spec, **wrong),), guest_of=HOME))
        assert isinstance(answer, Refused), wrong
    assert isinstance(world.send(SubmitJobs((spec, spec), guest_of=HOME)), Refused)
    assert isinstance(world.send(SubmitJobs((spec,), guest_of=replace(HOME, serial=0))), Refused)


# ---- steps over several cells ----


def step(world: World, job_id: int, joint: JointStep, tasks: int = 4, by: object = ALICE) -> BatchAnswer:
    return world.send(
        CreateStep(by, job_id, tasks, 2, ("true",), b"", "/", "10.0.0.1:7", b"c" * 32, joint=joint)  # type: ignore[arg-type]
    )


def test_ranks_of_a_part_follow_those_of_the_cells_before() -> None:
    world, guest = lending()
    world.start()
    answer = step(world, guest, JointStep("17@alpha", 6, 10, 3, 5, "a[1-3],cn[0-1]", "2(x5)"))
    assert isinstance(answer, StepCreated), answer
    made = next(fact for fact in reversed(world.log) if isinstance(fact, facts.StepCreated))
    assert (made.rank_first, made.tasks_total, made.first) == (6, 10, -1)
    answer = step(world, guest, JointStep("17@alpha", 7, 10, 3, 5, "a"))
    assert isinstance(answer, Refused) and "more than its 10 ranks" in answer.text
    assert isinstance(step(world, guest, JointStep("17@alpha", 6, 10, 3, 5, "a"), by=BOB), Refused)
