"""Thousands of jobs that wait for one, or each for the one before: looked at in bounded batches, in linear work.

What a batch leaves to the next ones survives a restart and a change of leader at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eslurm.core.control import reactor
from eslurm.core.control.jobs.dependency import reconsider
from eslurm.core.control.reactor import SETTLED_PER_BATCH, Batch, Reactor
from eslurm.core.control.timers import next_timer_us
from eslurm.core.model import facts
from eslurm.core.model.job import Dependency, JobSpec
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import CancelJobs, JobRef, Message, SubmitJobs, Submitted, Tick
from eslurm.core.model.request import Request
from eslurm.core.state.cluster import State
from tests.kits.core import ALICE, World, depends

MANY = 3_000
PER_CALL = 500


class Looks:
    """Counts how often a waiting job was looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(reactor, "reconsider", self._look)

    def _look(self, state: State, job_id: int) -> list[facts.Fact]:
        self.count += 1
        return reconsider(state, job_id)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def swift() -> World:
    """A world whose facts are not checked one by one: that alone would be quadratic."""
    world = World(restarts=False, finished_jobs_max=2 * MANY)
    world.reactor = Reactor(world.state)
    return world


def submit_all(world: World, every: list[tuple[Dependency, ...]]) -> list[int]:
    specs = [
        JobSpec("job", ALICE, "", (Request(),), b"s" * 32, b"e" * 32, "/tmp", dependencies=one)
        for one in every
    ]
    found: list[int] = []
    for start in range(0, len(specs), PER_CALL):
        answer = world.send(SubmitJobs(tuple(specs[start : start + PER_CALL])))
        assert isinstance(answer, Submitted)
        found += answer.job_ids
    return found


def fan(world: World, count: int, kind: str = "afterok") -> list[int]:
    """One job, and `count` that wait for it."""
    first = submit_all(world, [()])
    return first + submit_all(world, [depends(kind, first[0])] * count)


def chain(world: World, count: int, kind: str = "afterok") -> list[int]:
    """Jobs that each wait for the one before. Ids are given in order, so a call can name its own jobs' predecessors."""
    jobs = submit_all(world, [()])
    for _ in range(count):
        jobs += submit_all(world, [depends(kind, jobs[-1])])
    return jobs


def settle(world: World, message: Message) -> list[Batch]:
    """The batch of the message, and those that follow until nothing is owed."""
    batches = [world.batch(message)]
    while world.state.unsettled:
        assert next_timer_us(world.state) == world.state.now_us, "what is owed is a reason to tick"
        batches.append(world.batch(Tick()))
    return batches


def test_the_end_of_one_lets_all_go_in_bounded_batches(looks: Looks) -> None:
    world = swift()
    first, *rest = fan(world, MANY, "afterany")
    assert looks.count <= 1
    batches = settle(world, CancelJobs(ALICE, (JobRef(first),)))
    assert max(len(batch.facts) for batch in batches) <= SETTLED_PER_BATCH + 1
    assert len(batches) <= MANY // SETTLED_PER_BATCH + 2
    assert looks.count <= MANY + 1
    assert all(job in world.state.queue for job in rest)
    assert not world.state.dependents


def test_a_failure_cancels_all_who_wait_for_success(looks: Looks) -> None:
    world = swift()
    first, *rest = fan(world, MANY)
    settle(world, CancelJobs(ALICE, (JobRef(first),)))
    assert {world.state_of(job) for job in rest} == {"CANCELLED"}
    assert looks.count <= MANY + 1


def test_a_long_chain_falls_in_linear_work(looks: Looks) -> None:
    world = swift()
    jobs = chain(world, MANY)
    before = looks.count
    batches = settle(world, CancelJobs(ALICE, (JobRef(jobs[0]),)))
    assert {world.state_of(job) for job in jobs} == {"CANCELLED"}
    assert looks.count - before <= MANY + 1
    assert max(len(batch.facts) for batch in batches) <= SETTLED_PER_BATCH + 1


def test_a_chain_that_ends_well_is_looked_at_link_by_link(looks: Looks) -> None:
    world = swift()
    jobs = chain(world, 200, "afterany")
    for done, job in enumerate(jobs):
        assert job in world.state.queue
        world.cancel(job)
        assert not world.state.unsettled
        assert looks.count <= done + 1


def test_ends_of_jobs_that_nobody_waits_for_cost_no_look(looks: Looks) -> None:
    world = swift()
    jobs = submit_all(world, [()] * 2_000)
    for job in jobs:
        world.cancel(job)
    assert looks.count == 0


def owing(state: State) -> Iterator[int]:
    """Jobs whose dependencies would change if one looked."""
    return (job_id for job_id in state.jobs if reconsider(state, job_id))


@pytest.mark.parametrize("kind", ["afterany", "afterok", "aftercorr"])
@pytest.mark.parametrize("after", range(6))
def test_what_is_owed_survives_a_restart(kind: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor, "SETTLED_PER_BATCH", 2)
    world = World(finished_retention_s=0.5)
    if kind == "aftercorr":
        first = world.submit(tasks=((0, 1),))
        rest = [world.submit(tasks=((0, 1),), dependencies=depends(kind, first)) for _ in range(9)]
    else:
        first = world.submit()
        rest = [world.submit(dependencies=depends(kind, first)) for _ in range(9)]
    world.cancel(first)
    assert world.state.unsettled
    for _ in range(after):
        assert set(owing(world.state)) <= world.state.unsettled.keys()
        # The record that they look at is kept for them, though it has been due to be forgotten for long.
        world.pass_time(2)
    if world.state.dependents:
        assert first in world.state.jobs
    world.restart()
    while world.state.unsettled:
        world.send(Tick())
    assert not world.state.dependents
    met = kind == "afterany"
    assert [world.state_of(job) for job in rest if job in world.state.jobs and met] == ["PENDING"] * (9 * met)
    assert all(job in world.state.queue for job in rest) == met
    world.pass_time(10)
    world.pass_time(10)
    assert first not in world.state.jobs


def test_a_standby_goes_on_where_the_leader_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor, "SETTLED_PER_BATCH", 2)
    world = World()
    first, *rest = fan(world, 9, "afterany")
    world.cancel(first)
    followed = world.mirror.replayed
    assert not followed.unsettled
    successor = Reactor(followed)
    assert set(owing(followed)) <= followed.unsettled.keys()
    while followed.unsettled:
        successor.process([Tick()], world.now_us)
    assert all(job in followed.queue for job in rest)


def test_the_bound_of_finished_jobs_does_not_forget_who_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactor, "SETTLED_PER_BATCH", 2)
    world = World(finished_jobs_max=0)
    first, *rest = fan(world, 9, "afterany")
    world.cancel(first)
    world.send(Tick())
    assert world.state.jobs[first].state in FINAL
    while world.state.unsettled:
        world.send(Tick())
    world.send(Tick())
    assert first not in world.state.jobs
    assert all(job in world.state.queue for job in rest)
