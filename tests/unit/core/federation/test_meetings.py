"""Spanning jobs of several cells that want each other's nodes: cores with their planners, and the machines between them."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from eslurm.core.federation.actions import AskGuest, CellAnswer, TellGuest
from eslurm.core.federation.guests.gatherings import LACK_US, OWN_US, Gatherings
from eslurm.core.federation.guests.hosting import Hosting
from eslurm.core.federation.guests.requests import as_guest, look
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.view import FederationView
from eslurm.core.model.guests import GuestOf
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import KeepGuest, SubmitJobs, Submitted, TransferMessage
from eslurm.core.model.request import Request
from eslurm.core.state.pending_reason import may_gather
from eslurm.core.state.view import View
from tests.kits.core import SECOND, World
from tests.unit.core.federation.test_guests import cell, cells

NODES = 4
STEP_US = 50_000
DELAY_US = 100_000
RUN_US = 2 * SECOND
PATIENCE_US = 120 * SECOND
NAMES = ("alpha", "beta", "gamma", "delta")


def wide(cells: int) -> Request:
    """Resources that two jobs of so many cells cannot have at once: more than half of all nodes, and nodes of each cell."""
    nodes = (cells - 1) * NODES + NODES // 2
    return Request(nodes_min=nodes, nodes_max=nodes, tasks=nodes, cpus_per_task=4)


class Meeting:
    """So many cells; each call between them takes `DELAY_US`."""

    def __init__(self, seed: int, *, count: int = 2, is_ordered: bool = True) -> None:
        self.random = random.Random(seed)
        self.now_us = 1_000 * SECOND
        self.idle_us = 0
        """Node time that guests held before their job had started."""
        self.cells = {name: Cell(name, self, is_ordered=is_ordered) for name in NAMES[:count]}
        self._calls: list[tuple[int, Cell, AskGuest | TellGuest]] = []

    def view(self, own: str) -> FederationView:
        shown = [cell(one.name, one.free) for one in self.cells.values()]
        return replace(cells(*shown), cell=own)

    def submit(self, name: str, count: int) -> None:
        for _ in range(count):
            self.cells[name].world.submit(
                request=wide(len(self.cells)), cells=("any",), span=True, time_limit_s=600
            )
            self.step(self.random.choice((0, 1, 2)))

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_us += STEP_US
            for one in self.cells.values():
                self._calls += [(self.now_us + DELAY_US, one, call) for call in one.step(self.now_us)]
            due = [call for call in self._calls if call[0] <= self.now_us]
            self._calls = [call for call in self._calls if call[0] > self.now_us]
            for _, home, action in due:
                home.machine.called(action, self.cells[action.cell].answer(home, action), self.now_us)

    def until_ended(self) -> int:
        """Microseconds until all spanning jobs have ended."""
        began_us = self.now_us
        while any(one.waiting for one in self.cells.values()):
            assert self.now_us - began_us < PATIENCE_US, "they meet for ever"
            self.step()
        return self.now_us - began_us


class Cell:
    """A core, its planner, nodes that obey at once, and what the leader does about guests."""

    def __init__(self, name: str, meeting: Meeting, *, is_ordered: bool) -> None:
        self.name = name
        self._meeting = meeting
        self.world = World(nodes=NODES, restarts=False)
        self.world.now_us = meeting.now_us
        self._wished: list[TransferMessage] = []
        self._commits = Commits(self._wished.append)
        self.hosting = Hosting(self._commits)
        self._is_ordered = is_ordered
        self._seen: dict[int, Job] = {}
        self.machine = Gatherings(
            lambda _: meeting.view(name), lambda _: None, self._may_gather, self._commits, self._has_elder
        )

    @property
    def free(self) -> int:
        """Idle nodes."""
        jobs = self.world.state.jobs.values()
        return NODES - len({node for job in jobs if job.attempt is not None for node in job.attempt.nodes})

    @property
    def waiting(self) -> bool:
        """Check whether a spanning job of this cell has not ended."""
        return any(
            job.guests is not None and job.state not in FINAL for job in self.world.state.jobs.values()
        )

    def step(self, now_us: int) -> list[AskGuest | TellGuest]:
        self.world.now_us = now_us
        self.world.pass_time(0)
        self.world.start()
        for job in list(self.world.state.jobs.values()):
            attempt = job.attempt
            if attempt is None:
                continue
            if attempt.stop is not None:
                self.world.end(job.job_id, cause="killed")
            elif job.guests is not None and now_us - attempt.started_us > RUN_US:
                self.world.end(job.job_id)
            elif job.guest_of is not None and job.guest_of.until_us:
                self._meeting.idle_us += STEP_US * len(attempt.nodes)
        self._show()
        found = self.machine.tick(now_us, self._meeting.random.random())
        while self._wished:
            wished, self._wished[:] = [*self._wished], []
            for message in wished:
                self.world.send(message)
            self._show()
            found += self.machine.tick(now_us, self._meeting.random.random())
        return found

    def answer(self, home: Cell, action: AskGuest | TellGuest) -> CellAnswer:
        """Answer a call of the other cell as its leader would."""
        job = home.world.job(action.job_id)
        given = GuestOf(home.name, action.job_id, action.serial, since_us=job.submitted_us)
        if isinstance(action, AskGuest):
            spec = replace(
                as_guest(job.spec, action.job_id, home.name, action.nodes), script_hash=b"", no_script=True
            )
            answer = self.world.send(SubmitJobs((spec,), guest_of=given))
            assert isinstance(answer, Submitted), answer
            return CellAnswer(is_done=True, guest_id=answer.job_ids[0])
        if action.wish != "look":
            self.world.send(
                KeepGuest(
                    action.guest_id, home.name, action.job_id, action.serial, keep=action.wish == "keep"
                )
            )
        return look(View(self.world.state), action.guest_id, given)

    def _may_gather(self, job: Job) -> bool:
        return may_gather(self.world.state, job)

    def _has_elder(self, job: Job) -> bool:
        return self._is_ordered and self.hosting.has_elder((job.submitted_us, self.name, job.job_id))

    def _show(self) -> None:
        for job in self.world.state.jobs.values():
            if self._seen.get(job.job_id) is job:
                continue
            self._seen[job.job_id] = job
            self._commits.settle(job.job_id)
            if job.guests is not None:
                self.machine.show(job, self._meeting.now_us)
            if job.guest_of is not None:
                self.hosting.show(job, self._meeting.now_us)


JOBS = 4


def jobs_of(count: int) -> dict[str, int]:
    """Spanning jobs that each of so many cells submits."""
    return {name: JOBS // count + (number < JOBS % count) for number, name in enumerate(NAMES[:count])}


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_meet_start_one_after_another(seed: int, count: int) -> None:
    meeting = Meeting(seed, count=count)
    for name, jobs in jobs_of(count).items():
        meeting.submit(name, jobs)
    took_us = meeting.until_ended()
    # Alone each takes its run and about a second; what is above is meetings.
    assert took_us < JOBS * (RUN_US + LACK_US + OWN_US), took_us
    for one in meeting.cells.values():
        assert all(job.attempts == 1 for job in one.world.state.jobs.values() if job.guests is not None)


def spent_us(count: int, *, is_ordered: bool) -> tuple[int, int]:
    """Times until all have ended, and of nodes that were held idle, summed over some meetings."""
    took_us = idle_us = 0
    for seed in range(6):
        meeting = Meeting(seed, count=count, is_ordered=is_ordered)
        for name, jobs in jobs_of(count).items():
            meeting.submit(name, jobs)
        took_us += meeting.until_ended()
        idle_us += meeting.idle_us
    return took_us, idle_us


@pytest.mark.parametrize(("count", "slower", "times"), [(2, 0.6, 2.0), (3, 0.7, 2.0), (4, 1.1, 1.5)])
def test_the_order_by_age_saves_idle_time(count: int, slower: float, times: float) -> None:
    """Without it both of two jobs that hold each other's nodes give up; of four cells one job often gets through."""
    took_us, idle_us = spent_us(count, is_ordered=True)
    long_us, much_us = spent_us(count, is_ordered=False)
    assert took_us < slower * long_us
    assert times * idle_us < much_us
