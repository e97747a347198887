"""Random histories of jobs between cells: none runs here while another cell may own it, after each fact and restart."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from eslurm.core.model.federation import Outcome
from eslurm.core.model.job import JobSpec
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    Arrival,
    ConfirmArrival,
    DropArrival,
    EndOffer,
    Message,
    NoteOutcome,
    NoteTold,
    NoteTransferred,
    OfferJob,
    SubmitJobs,
)
from eslurm.core.model.request import Request
from eslurm.core.model.transfer import TransferStage
from tests.kits.core import World, depends
from tests.support.profiles import draws
from tests.support.seeds import Seeds

FOREIGN = 500_000
OUTCOMES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


class Walk:
    """One cell, and the words of a store and of other cells that come early, late, twice or about other offers.

    `stages` is what a naive reading of the messages makes of each job: its offer, and who may start it.
    """

    def __init__(self, seed: int, *, checked: bool) -> None:
        self.random = Random(seed)
        self.world = World(nodes=2, cores=2, restarts=checked, finished_retention_s=30.0)
        self.stages: dict[int, tuple[int, TransferStage]] = {}
        self.serials: dict[int, int] = {}
        self.world.submit()
        self.spec: JobSpec = self.world.job(self.world.submit(request=Request(tasks=2))).spec

    def act(self) -> None:
        acts: tuple[Callable[[], None], ...] = (
            *(self.submit, self.offer, self.offer, self.home_word, self.home_word, self.arrive),
            *(self.taker_word, self.taker_word, self.plan, self.end, self.cancel, self.pass_time),
        )
        self.random.choice(acts)()
        self.compare()

    def compare(self) -> None:
        """The records are in the stages that the messages allow, and what is away runs nowhere."""
        jobs = self.world.state.jobs
        for job_id, (serial, stage) in self.stages.items():
            job = jobs.get(job_id)
            if job is None:
                assert stage in (TransferStage.TRANSFERRED, TransferStage.TOLD), (job_id, stage)
                continue
            assert job.transfer is not None
            assert (job.transfer.serial, job.transfer.stage) == (serial, stage)
        held = {job_id for job_id, job in jobs.items() if job.transfer is not None}
        assert held <= self.stages.keys()
        for job_id in held:
            assert not jobs[job_id].is_away or jobs[job_id].attempt is None
        assert self.world.view.transfers == {
            job_id: job for job_id, job in jobs.items() if job.transfer is not None or job.spec.cells
        }

    # ---- at home ----

    def submit(self) -> None:
        dependencies = ()
        if self.stages and self.random.random() < 0.3:
            target = self.random.choice(sorted(self.stages))
            if target in self.world.state.jobs and self.stages[target][1] is not TransferStage.ARRIVING:
                dependencies = depends("afterany", target)
        spec = replace(
            self.spec, cells=self.random.choice((("any",), ("beta",), ())), dependencies=dependencies
        )
        self.world.send(SubmitJobs((spec,)))

    def offer(self) -> None:
        if not self.world.state.jobs:
            return
        job_id = self.random.choice(sorted(self.world.state.jobs))
        before = self.world.job(job_id)
        is_free = job_id in self.world.state.queue and not before.attempts and before.transfer is None
        self.world.send(OfferJob(job_id, "beta"))
        transfer = self.world.job(job_id).transfer
        assert (transfer is not before.transfer) == (is_free and bool(before.spec.cells))
        if transfer is not None and transfer is not before.transfer:
            assert transfer.serial > self.serials.get(job_id, 0)
            self.serials[job_id] = transfer.serial
            self.stages[job_id] = (transfer.serial, TransferStage.OFFERED)

    def home_word(self) -> None:
        job_id, serial, stage = self.one()
        kind = self.random.choice((EndOffer, NoteTransferred, NoteOutcome))
        message: Message
        if kind is NoteOutcome:
            message = NoteOutcome(job_id, serial, Outcome(self.random.choice(OUTCOMES), 0, 0, 5, 9))
        else:
            message = kind(job_id, serial)
        self.world.send(message)
        if self.stages.get(job_id) != (serial, stage):
            return
        if stage is TransferStage.OFFERED and kind is EndOffer:
            del self.stages[job_id]
        elif stage is TransferStage.OFFERED:
            self.stages[job_id] = (serial, TransferStage.TRANSFERRED)
        if stage in (TransferStage.OFFERED, TransferStage.TRANSFERRED) and kind is NoteOutcome:
            job = self.world.state.find_job(job_id)
            assert job is None or job.state in FINAL

    # ---- at the taker ----

    def arrive(self) -> None:
        job_id, serial = FOREIGN + self.random.randrange(4), self.random.randrange(1, 4)
        known = self.stages.get(job_id)
        gone = known is not None and job_id not in self.world.state.jobs
        answer = self.world.send(SubmitJobs((self.spec,), arrival=Arrival("alpha", job_id, serial)))
        if isinstance(answer, Exception):
            assert known is not None and known[0] != serial
        elif known is None or gone:
            self.stages[job_id] = (serial, TransferStage.ARRIVING)

    def taker_word(self) -> None:
        job_id, serial, stage = self.one()
        kind = self.random.choice((ConfirmArrival, DropArrival, NoteTold))
        self.world.send(kind(job_id, serial))
        if self.stages.get(job_id) != (serial, stage):
            return
        if stage is TransferStage.ARRIVING and kind is ConfirmArrival:
            self.stages[job_id] = (serial, TransferStage.OWNED)
        elif stage is TransferStage.ARRIVING and kind is DropArrival:
            del self.stages[job_id]
            assert job_id not in self.world.state.jobs
        elif stage is TransferStage.OWNED and kind is NoteTold and self.world.job(job_id).state in FINAL:
            self.stages[job_id] = (serial, TransferStage.TOLD)

    def one(self) -> tuple[int, int, TransferStage]:
        """A job between cells with its stage, and sometimes another offer's serial."""
        if not self.stages:
            return 1, 1, TransferStage.OFFERED
        job_id = self.random.choice(sorted(self.stages))
        serial, stage = self.stages[job_id]
        return job_id, serial + (self.random.random() < 0.2), stage

    # ---- both ----

    def plan(self) -> None:
        for job_id in self.world.start():
            assert not self.world.job(job_id).is_away

    def end(self) -> None:
        running = [job_id for job_id, job in self.world.state.jobs.items() if job.state is JobState.RUNNING]
        if running:
            self.world.end(self.random.choice(running), self.random.choice((0, 3)))

    def cancel(self) -> None:
        if self.world.state.jobs:
            self.world.cancel(self.random.choice(sorted(self.world.state.jobs)))
            self.world.deliver()

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice((1, 40)))


def run(seed: int, acts: int, *, checked: bool) -> Walk:
    walk = Walk(seed, checked=checked)
    for _ in range(acts):
        walk.act()
    return walk


@pytest.mark.parametrize("first", range(1, draws(40) + 1, 10))
def test_each_message_does_what_a_naive_reading_says(seeds: Seeds, first: int) -> None:
    for seed in seeds(10, first):
        run(seed, 200, checked=False)


@pytest.mark.parametrize("first", range(1, draws(10) + 1, 5))
def test_a_crash_between_any_two_facts_changes_nothing(seeds: Seeds, first: int) -> None:
    for seed in seeds(5, first):
        run(seed, 120, checked=True)


def test_the_walks_reach_every_stage() -> None:
    kinds = {type(fact).__name__ for seed in range(1, 11) for fact in run(seed, 200, checked=False).world.log}
    assert kinds >= {
        *("JobOffered", "OfferCancelled", "OfferEnded", "JobTransferred", "TransferEnded"),
        *("ArrivalConfirmed", "ArrivalDropped", "OutcomeTold"),
    }
