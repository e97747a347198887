"""Jobs that change their cell: what is offered and what is not, and records in the store that strangers wrote."""

from __future__ import annotations

import random

import pytest

from eslurm.core.federation.actions import AskBid, CellAnswer, DeliverJob, SwapKeys
from eslurm.core.federation.transfers.agenda import Agenda
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.transfers.key_changes import OwnerKey, Remove, Withdraw, WriteOffer
from eslurm.core.federation.transfers.offers import BIDS_CELL_MAX, BIDS_MAX, Offers
from eslurm.core.federation.values import encode
from eslurm.core.model.federation import FORMAT, JobOwner, Outcome, OwnerStage
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import Arrival, CancelJobs, JobRef, SubmitJobs
from eslurm.core.model.transfer import TransferStage
from eslurm.lab.kv.image import KvImage
from tests.kits.core import ALICE
from tests.kits.federation import KEYS, held, put, remove, summary, swap
from tests.kits.transfers import CallNetwork, Cluster, arriving

OUTCOME = Outcome("COMPLETED")


class Cells:
    """Two cells without faults. `wait_us` is each one's bid."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.image = KvImage()
        self.clusters = {name: Cluster(name) for name in ("alpha", "beta")}
        self.network = CallNetwork(self.image, random.Random(1), self.clusters)
        self.network.faults = 0.0
        self.alpha, self.beta = (cluster.lead() for cluster in self.clusters.values())
        self.alpha.shows = self.beta.shows = summary()
        self.network.controllers += [self.alpha, self.beta]
        self.calls: list[object] = []
        self.answers: list[CellAnswer] = []
        call = CallNetwork._call

        def called(network: CallNetwork, controller: object, action: object) -> CellAnswer:
            self.calls.append(action)
            if isinstance(action, AskBid):
                return self.answers[0] if self.answers else CellAnswer(is_done=True, wait_us=0)
            return call(network, controller, action)  # type: ignore[arg-type]

        monkeypatch.setattr(CallNetwork, "_call", called)
        self.settle(3)

    def settle(self, seconds: float, *, commits: bool = True) -> None:
        for _ in range(int(seconds * 4)):
            self.network.settle(0.25)
            for controller in self.network.controllers if commits else ():
                controller.commit()

    def submit(self, **wanted: object) -> int:
        return self.clusters["alpha"].world.submit(cells=("any",), **wanted)

    def stage(self, cell: str, job_id: int) -> TransferStage | None:
        job = self.clusters[cell].jobs.get(job_id)
        return job.transfer.stage if job is not None and job.transfer is not None else None

    @property
    def records(self) -> list[str]:
        return [key for key in held(self.image, KEYS.jobs) if not key.endswith("+withdrawals")]


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    return Cells(monkeypatch)


def test_a_job_goes_where_it_starts_earlier_and_its_end_comes_home(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(4)
    assert cells.stage("alpha", job_id) is TransferStage.TRANSFERRED
    assert cells.stage("beta", job_id) is TransferStage.OWNED
    there = cells.clusters["beta"].world
    assert there.start() == [job_id]
    there.end(job_id, 3)
    cells.settle(4)
    job = cells.clusters["alpha"].jobs[job_id]
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    assert cells.stage("beta", job_id) is TransferStage.TOLD
    assert cells.records == []


def test_a_cell_without_movable_jobs_reads_no_record_and_walks_no_job(cells: Cells) -> None:
    cells.clusters["alpha"].world.submit()
    cells.settle(2)
    assert not cells.alpha.seen.transfers and not cells.calls
    assert not any(watch.action.prefix.startswith(KEYS.jobs) for watch in cells.network.watches)
    cells.submit()
    cells.settle(1)
    assert any(watch.action.prefix == KEYS.jobs_of("alpha") for watch in cells.network.watches)


@pytest.mark.parametrize(
    ("start_s", "bid_s", "is_offered"),
    [(None, 9, True), (None, 3_600, False), (60, 50, True), (60, 53, False), (60, 59, False), (1, 0, False)],
)
def test_an_offer_is_made_for_a_clearly_earlier_start(
    cells: Cells, start_s: int | None, bid_s: int, *, is_offered: bool
) -> None:
    now_us = cells.clusters["alpha"].world.now_us
    start_us = None if start_s is None else now_us + start_s * 1_000_000
    inputs = cells.alpha._inputs
    cells.alpha._inputs = type(inputs)(
        inputs.view, inputs.profile, inputs.wall_us, inputs.commit, lambda _: start_us
    )
    cells.answers = [CellAnswer(is_done=True, wait_us=bid_s * 1_000_000)]
    job_id = cells.submit()
    cells.settle(4)
    assert (cells.stage("alpha", job_id) is not None) == is_offered


def test_a_cell_that_refuses_says_why_and_is_asked_less_and_less(cells: Cells) -> None:
    cells.answers = [CellAnswer(is_done=False, is_refused=True, text="no account \x1b[31m" + "x" * 500)]
    job_id = cells.submit()
    cells.settle(3)
    reasons = cells.alpha.transfers.reasons(job_id)
    assert reasons["beta"].startswith("no account ?[31mx") and len(reasons["beta"]) == 200
    cells.settle(57)
    asked = len(cells.calls)
    assert 4 <= asked <= 5, "after 1, 6, 16, 36 and 76 seconds"
    assert cells.alpha.transfers.counts["bids refused"] == asked
    cells.beta.shows = summary(free=3)
    cells.settle(2)
    assert len(cells.calls) == asked + 1, "the cell has become freer"


def test_bids_under_way_are_bounded(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallNetwork, "_carry", lambda self, call: None)
    ids = [cells.submit(priority=1_000 - number) for number in range(100)]
    asked: list[AskBid] = []
    now_us = cells.network.now_us
    for _ in range(40):
        now_us += 100_000
        asked += [one for one in cells.alpha.transfers.tick(now_us, 0.5) if isinstance(one, AskBid)]
        cells.alpha.transfers.mirror.is_listed = True
    assert len(asked) == BIDS_CELL_MAX < BIDS_MAX
    assert [one.job_id for one in asked] == ids[:BIDS_CELL_MAX]


def test_jobs_that_come_and_go_leave_nothing_behind() -> None:
    world = Cluster("alpha").world
    job = world.job(world.submit(cells=("any",)))
    offers = Offers(lambda _: None, lambda _: None, Commits(print), lambda *_: None, lambda _: None)  # type: ignore[arg-type, return-value]
    for number in range(2_000):
        offers.show(job, number)
        offers._wake(offers._waiting[job.job_id])
        offers.drop(job.job_id)
    assert offers.size == len(offers._queue) == len(offers._agenda) == 0
    assert len(offers._open) < 500


def test_an_offer_that_is_not_answered_is_withdrawn_and_the_cell_rests_for_this_job(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(0.5)
    cells.network.stop(cells.beta)
    cells.settle(3)
    assert cells.stage("alpha", job_id) is TransferStage.OFFERED and len(cells.records) == 1
    cells.settle(10)
    assert cells.stage("alpha", job_id) is None and cells.records == []
    assert "10 s" in cells.alpha.transfers.reasons(job_id)["beta"]
    assert cells.alpha.transfers.counts["withdrawn"] == 1
    cells.calls.clear()
    cells.settle(20)
    assert not cells.calls and cells.clusters["alpha"].world.start() == [job_id]


def test_a_write_of_an_offer_that_comes_after_its_withdrawal_is_not_made(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(0.5)
    cells.network.stop(cells.beta)
    cells.settle(3)
    key = KEYS.job("alpha", job_id)
    late = next(
        action
        for controller, action in cells.network.made
        if controller is cells.alpha and any(write.key == key for write in action.then)
    )
    cells.settle(10)
    assert cells.records == []
    answer = swap(cells.image, SwapKeys(late.expect, late.then))
    assert not answer.done and cells.records == []


def test_a_job_that_is_cancelled_while_it_is_offered_ends_at_home(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(0.5)
    cells.network.stop(cells.beta)
    cells.settle(2)
    assert cells.stage("alpha", job_id) is TransferStage.OFFERED
    cells.clusters["alpha"].send(CancelJobs(ALICE, (JobRef(job_id),)))
    cells.settle(2)
    assert cells.clusters["alpha"].jobs[job_id].state is JobState.CANCELLED and cells.records == []


def test_a_leader_that_finds_an_offer_delivers_it_again(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(0.5)
    cells.network.stop(cells.beta)
    cells.settle(2)
    cells.network.stop(cells.alpha)
    cells.calls.clear()
    remove(cells.image, KEYS.job("alpha", job_id))
    cells.network.controllers += [cluster.lead() for cluster in cells.clusters.values()]
    cells.settle(6)
    assert any(isinstance(call, DeliverJob) and call.is_repeated for call in cells.calls)
    assert cells.stage("alpha", job_id) is TransferStage.TRANSFERRED


@pytest.mark.parametrize("stage", list(OwnerStage))
def test_records_of_unknown_jobs_are_removed_unless_a_cell_owns_them(cells: Cells, stage: OwnerStage) -> None:
    key = KEYS.job("alpha", 4_711)
    outcome = OUTCOME if stage is OwnerStage.ENDED else None
    put(cells.image, key, encode(JobOwner(FORMAT, 9, "beta", stage, outcome)))
    cells.submit()
    cells.settle(2)
    assert (key in cells.records) == (stage is OwnerStage.OWNED)


def test_records_that_cannot_be_read_are_counted_and_skipped(cells: Cells) -> None:
    put(cells.image, KEYS.jobs_of("alpha") + "nonsense", b"x")
    put(cells.image, KEYS.job("alpha", 4_711), b"\xff")
    put(cells.image, KEYS.job("alpha", 4_712), b"x" * 50_000)
    no_end = JobOwner(FORMAT, 9, "beta", OwnerStage.ENDED)
    put(cells.image, KEYS.job("alpha", 4_713), encode(no_end))
    job_id = cells.submit()
    cells.settle(4)
    assert cells.stage("alpha", job_id) is TransferStage.TRANSFERRED
    assert cells.alpha.transfers.counts["skipped"] == 1
    assert cells.alpha.transfers.problem == "3 owner records of jobs cannot be read"
    assert len(cells.records) == 5


@pytest.mark.parametrize(
    "forged",
    [
        JobOwner(FORMAT, 1, "beta", OwnerStage.OWNED),
        JobOwner(FORMAT, 2**53, "beta", OwnerStage.ENDED, OUTCOME),
        JobOwner(FORMAT, 2**53, "gamma", OwnerStage.OFFERED),
    ],
)
def test_a_forged_record_ends_no_job_and_starts_none_twice(cells: Cells, forged: JobOwner) -> None:
    job_id = cells.submit()
    cells.network.stop(cells.beta)
    cells.settle(2)
    put(cells.image, KEYS.job("alpha", job_id), encode(forged))
    cells.settle(15)
    job = cells.clusters["alpha"].jobs[job_id]
    assert job.state is JobState.PENDING and job.transfer is None


def test_an_arrival_without_an_offer_in_the_store_vanishes(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(0.5)
    spec = cells.alpha.seen.jobs[job_id].spec
    cells.clusters["beta"].send(SubmitJobs((arriving(spec),), arrival=Arrival("alpha", 77, 5)))
    assert cells.stage("beta", 77) is TransferStage.ARRIVING
    cells.settle(2)
    assert 77 not in cells.clusters["beta"].jobs
    assert cells.beta.transfers.counts["dropped"] == 1


def test_an_owner_writes_again_what_another_store_lacks(cells: Cells) -> None:
    job_id = cells.submit()
    cells.settle(4)
    remove(cells.image, KEYS.job("alpha", job_id))
    cells.settle(2)
    assert cells.records == []
    cells.beta.rejoin(cells.network.now_us)
    cells.settle(2)
    assert cells.records == [KEYS.job("alpha", job_id)]


def test_while_the_store_is_away_the_machines_wait(cells: Cells) -> None:
    for number in range(20):
        cells.submit(name=f"job{number}")
    cells.settle(1.5)
    cells.network.away_until_us = cells.network.now_us + 60_000_000
    steps = 0
    for _ in range(100):
        cells.settle(0.25)
        now_us = cells.network.now_us
        due_us = cells.alpha.transfers.due_us(now_us)
        steps += due_us is not None and due_us <= now_us
    assert steps <= 20


def test_a_leader_that_is_not_the_one_shown_alive_changes_no_record_of_its_cell(cells: Cells) -> None:
    owner = JobOwner(FORMAT, 9, "beta", OwnerStage.ENDED, OUTCOME)
    put(cells.image, KEYS.job("alpha", 4_711), encode(owner))
    at = OwnerKey(KEYS, "alpha", 4_711)
    membership = cells.alpha.membership
    current = {key: cells.image.get(key).entry for key in (at.key, at.withdrawals, membership.own.alive_key)}
    free = {**current, at.key: None}
    changes = (
        Remove(at, membership, owner),
        Withdraw(at, membership, 9),
        WriteOffer(at, membership, 9, "beta"),
    )
    assert changes[0].writes(current) and changes[1].writes(free) and changes[2].writes(free)
    # Another controller leads the cell by now.
    alive_key = membership.own.alive_key
    for entry in (None, cells.image.get(cells.beta.membership.own.alive_key).entry):
        for change in changes:
            assert change.writes({**current, alive_key: entry}) == ()
            assert change.writes({**free, alive_key: entry}) == ()


def test_a_job_is_on_the_agenda_once() -> None:
    agenda = Agenda()
    agenda.put(1, 50)
    agenda.put(2, 20)
    agenda.put(1, 10)
    assert (agenda.due_us, len(agenda)) == (10, 2)
    assert agenda.take(15, 9) == [1]
    assert agenda.take(60, 1) == [2] and agenda.due_us is None
    for number in range(500):
        agenda.put(1, number)
        agenda.drop(1)
    assert agenda.take(1_000, 9) == [] and len(agenda) == 0
