"""Nodes of other cells for spanning jobs: division among cells, gatherings, and guests whose home is silent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.federation.actions import AskGuest, CellAnswer, TellGuest
from eslurm.core.federation.guests.gatherings import (
    AGAIN_MAX_US,
    AVOID_US,
    BUSY_US,
    FORSAKE_US,
    GATHERINGS_MAX,
    LACK_US,
    OWN_US,
    REST_MAX_US,
    YIELDS_MAX,
    Gatherings,
)
from eslurm.core.federation.guests.hosting import SILENCE_US, Hosting
from eslurm.core.federation.guests.requests import MARGIN_S, as_guest, look
from eslurm.core.federation.guests.split import split
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.federation import FORMAT, Alive, CellRecord, NodeClass, Summary
from eslurm.core.model.guests import GuestOf, Guests, GuestStage
from eslurm.core.model.job import Job
from eslurm.core.model.messages import KeepGuest, SubmitJobs, Submitted, TransferMessage
from eslurm.core.model.request import Request
from eslurm.core.state.pending_reason import may_gather
from eslurm.core.state.view import View
from tests.kits.core import SECOND, World

ALL = Request(nodes_min=5, nodes_max=5, tasks=5)


def cell(name: str, free: int, *, protocol: int = 2, draining: bool = False, **changes: Any) -> CellView:
    """A cell of ten nodes, so many of them free."""
    classes = (NodeClass(4, 1000, total=10, free=free, cores_free=4 * free, partitions=("main",)),)
    record = CellRecord(FORMAT, 1, name, name, b"", 0, draining=draining)
    alive = Alive(FORMAT, 1, "127.0.0.1:1", protocol=protocol)
    return replace(
        CellView(name, CellState.ALIVE, record, alive, Summary(FORMAT, 1, 1, 1, classes)), **changes
    )


def cells(*found: CellView) -> FederationView:
    return FederationView("lab", "alpha", Standing.MEMBER, cells=found)


def waiting(request: Request = ALL, **wanted: object) -> tuple[World, int]:
    world = World(nodes=3, restarts=False)
    wanted = {"cells": ("any",), "span": True, **wanted}
    return world, world.submit(request=request, **wanted)


# ---- division ----


def parts(view: FederationView, request: Request = ALL, taken: dict[str, int] | None = None) -> Any:
    world, job_id = waiting(request)
    found = split(world.job(job_id).spec, view, taken or {})
    return (found.own_nodes, {one.cell: one.nodes for one in found.guests}) if found.guests else found.text


def test_own_nodes_come_first_then_those_of_few_cells() -> None:
    assert parts(cells(cell("alpha", 2), cell("beta", 1), cell("gamma", 9))) == (2, {"gamma": 3})
    assert parts(cells(cell("alpha", 1), cell("beta", 2), cell("gamma", 2))) == (1, {"beta": 2, "gamma": 2})
    # A cell that has them all is its home alone: at least one is asked for elsewhere.
    assert parts(cells(cell("alpha", 9), cell("beta", 9))) == (4, {"beta": 1})


def test_what_is_missing_is_said() -> None:
    assert "no node is free here" in parts(cells(cell("alpha", 0), cell("beta", 9)))
    assert parts(cells(cell("alpha", 1), cell("beta", 2))) == (
        "too few nodes are free at once: here 1, beta 2 of 5"
    )


def test_nodes_meant_for_other_jobs_and_unfit_ones_do_not_count() -> None:
    view = cells(cell("alpha", 2), cell("beta", 4), cell("gamma", 3))
    assert parts(view, taken={"beta": 4}) == (2, {"gamma": 3})
    large = Request(nodes_min=5, nodes_max=5, tasks=5, cpus_per_task=5)
    world, job_id = waiting()
    spec = replace(world.job(job_id).spec, components=(large,))
    assert "no node is free" in split(spec, view, {}).text
    elsewhere = replace(world.job(job_id).spec, partition="gpu")
    assert "no node is free" in split(elsewhere, view, {}).text


def test_only_cells_that_take_guests_are_asked() -> None:
    for other in (
        cell("beta", 9, protocol=1),
        cell("beta", 9, draining=True),
        cell("beta", 9, state=CellState.SILENT),
        cell("beta", 9, alive=None),
        cell("beta", 9, summary=None),
    ):
        assert "too few" in parts(cells(cell("alpha", 2), other))
    world, job_id = waiting(cells=("gamma",))
    spec = world.job(job_id).spec
    view = cells(cell("alpha", 2), cell("beta", 9), cell("gamma", 9))
    assert [one.cell for one in split(spec, view, {}).guests] == ["gamma"]
    assert not split(spec, view, {}, ["gamma"]).guests


# ---- gatherings ----


class Home:
    """A cell whose core commits what the machine wishes, and a machine that may be replaced."""

    has_elder = False

    def __init__(self, **wanted: object) -> None:
        self.world, self.job_id = waiting(**wanted)  # type: ignore[arg-type]
        self.view = cells(cell("alpha", 2), cell("beta", 2), cell("gamma", 2))
        self.now_us = 0
        self.draw = 0.0
        self.wished: list[TransferMessage] = []
        self.lead()

    def lead(self) -> None:
        commits = self.commits = Commits(self.wished.append)
        self.machine = Gatherings(
            lambda _: self.view, lambda _: None, self._may_gather, commits, lambda _: self.has_elder
        )
        self.show()

    def _may_gather(self, job: Job) -> bool:
        return may_gather(self.world.state, job)

    def show(self) -> None:
        for job in self.world.state.jobs.values():
            if job.guests is not None:
                self.commits.settle(job.job_id)
                self.machine.show(job, self.now_us)

    def step(self, seconds: float = 0.0) -> list[AskGuest | TellGuest]:
        """Let time pass, commit what is wished, and return what is asked."""
        self.now_us += int(seconds * SECOND)
        found = self.machine.tick(self.now_us, self.draw)
        for _ in range(9):
            if not self.wished:
                return found
            wished, self.wished[:] = [*self.wished], []
            for message in wished:
                self.world.send(message)
            self.show()
            found += self.machine.tick(self.now_us, self.draw)
        raise AssertionError(f"wished again and again: {self.wished} {self.guests}")

    def says(self, action: AskGuest | TellGuest, **answer: Any) -> None:
        self.machine.called(action, CellAnswer(**{"is_done": True, **answer}), self.now_us)

    @property
    def job(self) -> Job:
        return self.world.job(self.job_id)

    @property
    def guests(self) -> Guests:
        assert self.job.guests is not None
        return self.job.guests

    def gather(self) -> None:
        """All guests hold their nodes."""
        for ask in self.step():
            self.says(ask, guest_id=70)
        for tell in self.step():
            self.says(tell, is_held=True, node_list=f"{tell.cell}[1-2]")
        self.step()
        assert self.guests.stage is GuestStage.HELD, self.guests

    def start(self) -> None:
        self.gather()
        assert self.world.start() == [self.job_id]
        self.show()


def test_a_wide_job_gathers_at_once_and_asks_all_cells_in_one_go() -> None:
    home = Home()
    asked = home.step()
    assert asked == [
        AskGuest(home.job_id, "beta", home.guests.serial, 2),
        AskGuest(home.job_id, "gamma", home.guests.serial, 1),
    ]
    assert not home.step(1)
    home.says(asked[0], guest_id=70)
    assert home.step() == [TellGuest(home.job_id, "beta", home.guests.serial, 70, "look")]


def test_a_job_starts_when_all_hold_and_its_guests_are_kept_then_looked_at() -> None:
    home = Home()
    home.start()
    kept = home.step()
    assert [(one.cell, one.wish) for one in kept] == [("beta", "keep"), ("gamma", "keep")]  # type: ignore[union-attr]
    for tell in kept:
        home.says(tell, is_held=True, node_list="b[1-2]")
    assert not home.step(1)
    assert [one.wish for one in home.step(6)] == ["look", "look"]  # type: ignore[union-attr]


def test_the_first_refusal_ends_a_gathering_and_that_cell_is_avoided() -> None:
    home = Home()
    for ask in home.step():
        if ask.cell == "beta":
            home.says(ask, is_done=False, is_refused=True, text="no such\x1buser")
        else:
            home.says(ask, guest_id=71)
    (tell,) = home.step()
    assert home.guests.stage is GuestStage.LEAVING
    assert (tell.cell, tell.wish) == ("gamma", "end")  # type: ignore[union-attr]
    home.says(tell, is_ended=True)
    home.step()
    assert home.guests == Guests(is_wide=True)
    assert "no such?user" in home.machine.reasons(home.job_id)[""]
    # It rests, by a drawn time, and does not come back to that cell before long.
    home.view = cells(cell("alpha", 2), cell("beta", 9))
    assert not home.step(0.5) and not home.step(5)
    assert home.step(AVOID_US / SECOND + REST_MAX_US / SECOND)


HELD: dict[str, Any] = {"is_held": True, "node_list": "beta[1-2]"}
WAITS: dict[str, Any] = {"is_waiting": True, "text": "Resources"}


def looks(home: Home, seconds: float, **answers: dict[str, Any]) -> None:
    """For so long each cell answers looks like this, or until the gathering is given up."""
    until_us = home.now_us + int(seconds * SECOND)
    while home.now_us < until_us and home.guests.stage is GuestStage.ASKED:
        for tell in home.step(0.05):
            if isinstance(tell, TellGuest):
                home.says(tell, **(answers[tell.cell] if tell.wish == "look" else {"is_ended": True}))


def test_nodes_are_not_held_for_long_while_a_guest_waits() -> None:
    home = Home()
    for ask in home.step():
        home.says(ask, guest_id=70)
    looks(home, 10, beta=HELD, gamma=WAITS)
    assert home.guests.stage is GuestStage.LEAVING
    assert 0 <= home.now_us - LACK_US <= 200_000
    assert home.machine.reasons(home.job_id)[""] == "cell gamma: Resources"
    given_up_us = home.now_us
    # Others had the nodes of that cell: for a while it asks others.
    home.view = cells(cell("alpha", 2), cell("gamma", 9))
    asked: list[AskGuest | TellGuest] = []
    while not asked:
        assert home.now_us - given_up_us <= BUSY_US + REST_MAX_US
        found = home.step(0.05)
        for tell in found:
            if isinstance(tell, TellGuest):
                home.says(tell, is_ended=True)
        asked = [one for one in found if isinstance(one, AskGuest)]
    assert home.now_us - given_up_us >= BUSY_US


def test_a_gathering_waits_as_long_as_it_holds_no_nodes() -> None:
    home = Home()
    for ask in home.step():
        home.says(ask, guest_id=70)
    looks(home, 8, beta=WAITS, gamma=WAITS)
    # The time counts from the first nodes that are held.
    looks(home, 2, beta=HELD, gamma=WAITS)
    assert home.guests.stage is GuestStage.ASKED
    looks(home, 1, beta=HELD, gamma={"is_held": True, "node_list": "gamma1"})
    assert home.guests.stage is GuestStage.HELD


def test_a_release_that_does_not_say_whether_a_guest_waits_is_given_all_the_time() -> None:
    home = Home()
    for ask in home.step():
        home.says(ask, guest_id=70)
    looks(home, 20, beta=HELD, gamma={"text": "Resources"})
    assert home.guests.stage is GuestStage.ASKED


def test_guests_are_given_up_when_the_own_part_is_not_free() -> None:
    home = Home()
    home.gather()
    serial = home.guests.serial
    assert not home.step(OWN_US / SECOND - 0.1)
    assert home.guests.stage is GuestStage.HELD
    told = home.step(0.2)
    assert (home.guests.stage, home.guests.serial) == (GuestStage.LEAVING, serial)
    assert [one.wish for one in told] == ["end", "end"]  # type: ignore[union-attr]
    assert "not free" in home.machine.reasons(home.job_id)[""]


@pytest.mark.parametrize("late_s", [1, 2])
def test_a_cell_that_claims_the_oldest_job_keeps_no_other_from_its_nodes(late_s: float) -> None:
    home = Home()
    home.has_elder = True
    asked_us: dict[int, int] = {}
    while home.guests.stage is not GuestStage.HELD:
        assert home.now_us < 60 * SECOND, "it gives way for ever"
        for call in home.step(0.05):
            since_us = asked_us.setdefault(call.serial, home.now_us)
            is_late = call.cell == "gamma" and home.now_us - since_us < late_s * SECOND
            if isinstance(call, AskGuest):
                home.says(call, guest_id=70)
            elif call.wish == "end":
                home.says(call, is_ended=True)
            else:
                home.says(call, **(WAITS if is_late else {"is_held": True, "node_list": f"{call.cell}[1-2]"}))
    assert 1 < len(asked_us) <= YIELDS_MAX + 1


@pytest.mark.parametrize(("answers_s", "patience_s"), [(0.05, 0.5), (0.4, 1.6), (3.0, 5.0)])
def test_a_job_gives_way_later_where_cells_answer_slowly(answers_s: float, patience_s: float) -> None:
    home = Home()
    home.has_elder = True
    (beta, gamma) = home.step()
    home.step(answers_s)
    home.says(beta, guest_id=70)
    home.says(gamma, guest_id=71)
    for tell in home.step():
        home.says(tell, **(HELD if tell.cell == "beta" else WAITS))
    held_us = home.now_us
    looks(home, 20, beta=HELD, gamma=WAITS)
    assert home.guests.stage is GuestStage.LEAVING
    assert 0 <= home.now_us - held_us - patience_s * SECOND <= 200_000


def test_guests_of_a_job_that_starts_in_time_stay() -> None:
    home = Home()
    home.start()
    for tell in home.step(OWN_US / SECOND + 1):
        home.says(tell, is_held=True, node_list="b[1-2]")
    assert home.guests.stage is GuestStage.HELD


def test_a_guest_that_ends_by_itself_before_it_holds_ends_the_gathering() -> None:
    home = Home()
    for ask in home.step():
        home.says(ask, guest_id=70)
    tells = home.step()
    home.says(tells[0], is_ended=True, text="CANCELLED")
    home.step()
    assert home.guests.stage is GuestStage.LEAVING


def test_a_leader_that_follows_asks_again_for_the_same_guests() -> None:
    home = Home()
    home.step()
    home.lead()
    asked = home.step()
    assert [one.is_repeated for one in asked] == [True, True]  # type: ignore[union-attr]
    for ask in asked:
        home.says(ask, guest_id=70)
    for tell in home.step():
        home.says(tell, is_held=True, node_list="b[1-2]")
    home.step()
    home.world.start()
    home.lead()
    assert [one.wish for one in home.step()] == ["keep", "keep"]  # type: ignore[union-attr]


def test_calls_without_an_answer_are_repeated_at_growing_intervals() -> None:
    home = Home()
    pauses = []
    (ask, _) = home.step()
    for _ in range(8):
        home.says(ask, is_done=False, text="no link")
        paused = 0.0
        while not (found := [one for one in home.step(0.25) if one.cell == "beta"]):
            paused += 0.25
            if home.guests.stage is not GuestStage.ASKED:
                break
        if not found:
            break
        (ask,) = found
        pauses.append(paused)
    assert pauses == sorted(pauses) and pauses[-1] <= AGAIN_MAX_US / SECOND
    assert ask.is_repeated  # type: ignore[union-attr]


def test_a_lost_guest_is_told_to_the_core() -> None:
    home = Home()
    home.start()
    for tell in home.step():
        home.says(tell, is_held=True, node_list="b[1-2]")
    looks = home.step(6)
    home.says(looks[0], is_ended=True, text="node failed")
    for look_at in (looks[1], *home.step()):
        home.says(look_at, is_held=True, node_list="gamma[1-2]")
    stop = home.world.attempt(home.job_id).stop
    assert stop is not None and "node failed" in stop.by
    home.world.end(home.job_id, cause="killed")
    home.show()
    # The other guest goes too, and then it may gather again.
    (tell,) = [one for one in home.step(6) if getattr(one, "wish", "") == "end"]
    home.says(tell, is_ended=True)
    home.step()
    assert home.guests == Guests(is_wide=True)


def test_a_refusal_to_tell_is_no_end_of_a_guest() -> None:
    home = Home()
    home.start()
    home.lead()
    for tell in home.step():
        home.says(tell, is_done=False, is_refused=True, text="its record has not come yet")
    assert not home.step() and home.world.attempt(home.job_id).stop is None
    assert [one.wish for one in home.step(2)] == ["keep", "keep"]  # type: ignore[union-attr]


def test_guests_of_a_job_that_has_ended_are_ended_however_long_it_takes() -> None:
    home = Home()
    home.start()
    for tell in home.step():
        home.says(tell, is_held=True, node_list="b[1-2]")
    home.world.end(home.job_id)
    home.show()
    one, other = home.step(6)
    home.says(one, is_ended=False, text="COMPLETING")
    home.says(other, is_done=False, text="no link")
    assert home.machine.held == 2
    for _ in range(400):
        for tell in home.step(1):
            home.says(tell, is_done=False, text="no link")
        if not home.guests.guests:
            break
    # Its cell ends it by itself, see `Hosting`.
    assert home.now_us >= FORSAKE_US and not home.guests.guests


def test_a_gathering_that_is_cancelled_ends_guests_whose_id_is_known() -> None:
    home = Home()
    beta, gamma = home.step()
    home.says(beta, guest_id=70)
    home.world.cancel(home.job_id)
    home.show()
    (tell,) = home.step()
    assert tell == TellGuest(home.job_id, "beta", home.guests.serial, 70, "end")
    # The other call is under way: its answer may bring an id.
    assert [one.cell for one in home.guests.guests] == ["beta", "gamma"]
    home.says(gamma, guest_id=71)
    assert home.step() == [TellGuest(home.job_id, "gamma", home.guests.serial, 71, "end")]


def test_a_job_that_its_cell_does_not_start_asks_the_others_for_more() -> None:
    home = Home()
    home.view = cells(cell("alpha", 2), cell("beta", 9))
    home.lead()
    home.gather()
    assert home.guests.own_nodes == 2
    home.world.pass_time(30)
    home.show()
    for tell in home.step(30):
        home.says(tell, is_ended=True)
    home.step()
    # It rests before that.
    assert home.guests.stage is GuestStage.NONE
    (ask,) = home.step(5)
    assert (home.guests.own_nodes, ask.nodes) == (1, 4)  # type: ignore[union-attr]


def test_a_job_tries_again_as_soon_as_a_cell_has_become_freer() -> None:
    home = Home()
    home.view = cells(cell("alpha", 2), cell("beta", 1))
    home.lead()
    assert not home.step() and not home.step(0.3)
    assert "too few" in home.machine.reasons(home.job_id)[""]
    home.view = cells(cell("alpha", 2), cell("beta", 3))
    due_us = home.machine.due_us(home.now_us)
    assert due_us is not None and due_us <= home.now_us + 200_000
    assert [one.cell for one in home.step(0.25)] == ["beta"]


def test_jobs_of_one_cell_do_not_count_on_the_same_nodes() -> None:
    home = Home()
    others = [home.world.submit(request=ALL, cells=("any",), span=True) for _ in range(GATHERINGS_MAX + 2)]
    home.view = cells(cell("alpha", 100), cell("beta", 3))
    home.lead()
    asked = home.step()
    assert len(asked) == 3, asked
    home.view = cells(cell("alpha", 100), cell("beta", 100))
    assert len(home.step(2)) == GATHERINGS_MAX - 3
    assert len(others) > GATHERINGS_MAX


# ---- guests of other cells ----


def test_a_guest_whose_home_is_silent_for_long_is_ended() -> None:
    world = World(nodes=2, restarts=False)
    world.submit()
    spec = next(job.spec for job in world.state.jobs.values())
    answer = world.send(SubmitJobs((spec,), guest_of=GuestOf("alpha", 17, 9)))
    assert isinstance(answer, Submitted)
    (guest,) = answer.job_ids
    wished: list[TransferMessage] = []
    hosting = Hosting(Commits(wished.append))
    hosting.show(world.job(guest), 0)
    hosting.tick(SILENCE_US - 1)
    hosting.heard(guest, SILENCE_US - 1)
    hosting.tick(2 * SILENCE_US - 2)
    assert not wished and hosting.due_us == 2 * SILENCE_US - 1
    hosting.tick(2 * SILENCE_US)
    assert wished == [KeepGuest(guest, "alpha", 17, 9, keep=False)]
    world.send(wished[0])
    hosting.show(world.job(guest), 2 * SILENCE_US)
    assert not hosting.size and hosting.due_us is None
    hosting.heard(guest, 0)
    assert hosting.due_us is None


@pytest.mark.parametrize(
    ("since_us", "until_us", "age", "is_elder"),
    [
        (5, 99, (6, "alpha", 1), True),
        (7, 99, (6, "alpha", 1), False),
        (6, 99, (6, "alpha", 1), False),
        (6, 99, (6, "zeta", 1), True),
        (6, 99, (6, "beta", 18), True),
        (5, 0, (6, "alpha", 1), False),
        (0, 99, (6, "alpha", 1), False),
    ],
    ids=["older", "younger", "by cell", "by cell, other way", "by id", "it has started", "an older release"],
)
def test_the_elder_of_two_jobs_is_known(
    since_us: int, until_us: int, age: tuple[int, str, int], is_elder: bool
) -> None:
    world, job_id = waiting()
    hosting = Hosting(Commits(lambda _: None))
    given = GuestOf("beta", 17, 9, until_us, since_us)
    hosting.show(replace(world.job(job_id), guests=None, guest_of=given), 0)
    assert hosting.has_elder(age) is is_elder


def test_a_look_tells_the_state_of_a_guest() -> None:
    world = World(nodes=2, restarts=False)
    world.submit()
    spec = next(job.spec for job in world.state.jobs.values())
    given = GuestOf("alpha", 17, 9)
    answer = world.send(
        SubmitJobs((replace(spec, components=(Request(nodes_min=2, tasks=2),)),), guest_of=given)
    )
    assert isinstance(answer, Submitted)
    (guest,) = answer.job_ids

    def state(number: int = guest, of: GuestOf = given) -> CellAnswer:
        return look(View(world.state), number, of)

    assert not state().is_held and not state().is_ended and state().text and state().is_waiting
    for wrong in (state(10**6), state(of=replace(given, serial=8)), state(of=replace(given, home="beta"))):
        assert wrong.is_ended and not wrong.is_held
    world.start()
    assert state().is_held and state().node_list == "cn[0-1]" and not state().is_waiting
    world.cancel(guest)
    assert not state().is_held and not state().is_ended
    world.end(guest, cause="killed")
    assert state().is_ended and "cancel" in state().text


@pytest.mark.parametrize("limit_s", [0, 600])
def test_a_guest_asks_for_its_share_and_nothing_of_the_script(limit_s: int) -> None:
    world, job_id = waiting(
        Request(nodes_min=5, nodes_max=5, tasks=10, cpus_per_task=2),
        time_limit_s=limit_s,
        arguments=("secret",),
        output="out",
        warn_script="/warn",
    )
    spec = as_guest(world.job(job_id).spec, job_id, "alpha", 2)
    (request,) = spec.components
    assert (request.nodes_min, request.nodes_max, request.tasks, request.cpus_per_task) == (2, 2, 4, 2)
    assert spec.name == f"job-of-{job_id}@alpha" and spec.time_limit_s == (
        limit_s + MARGIN_S if limit_s else 0
    )
    assert (spec.arguments, spec.output, spec.warn_script, spec.cells, spec.span) == (
        (),
        "/dev/null",
        "",
        (),
        False,
    )
    assert not spec.requeue
