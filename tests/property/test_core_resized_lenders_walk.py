"""Applications lend and borrow cores while their jobs get nodes and give them back, and nodes are late or lost.

After each fact the world checks every invariant, that rows and log give the same state, and what a restart would find.
Beside it stands a naive model: who uses which cores, what nodes have confirmed, and what each account pays by the second.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from eslurm.core.control.planning import message_of, plan_slices
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model import facts
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.job import Attempt, Job, StepEnd
from eslurm.core.model.job_states import FINAL, AttemptPhase, JobState, StopCause
from eslurm.core.model.messages import CancelJobs, ExtendJob, JobRef, RequeueJobs, ResizeJob
from eslurm.core.model.protocol import Exclude, NodeGone, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.state.cluster import attempts_of
from eslurm.core.state.usage import usage_now
from tests.kits.core import ALICE, ROOT, World
from tests.kits.walks import lose_some
from tests.support.profiles import draws

SEEDS = draws(40)
STEPS = 120
NODES = 4
CORES = 4
WEIGHTS = PriorityWeights(half_life_s=0, billing=(("cores", 1.0),))
ACCOUNTS = ("a", "b")


class Walk:
    """One seed, one history. `confirmed` is what nodes have said, by (job, attempt, node); `paid` is by account."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        policy = self.rng.choice(("fcfs", "easy", "conservative", "planned"))
        self.world = World(
            NODES,
            CORES,
            restarts=seed % 4 == 0,
            policy=policy,
            node_lost_after_s=60.0,
            launch_failures_max=3,
            priority=WEIGHTS,
        )
        self.schedule = Schedule()
        self.unsent: list[Send] = []
        self.confirmed: dict[tuple[int, int, int], int] = {}
        self.paid: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.begin()

    def begin(self) -> None:
        """An owner of the whole cluster lends most of it, to borrowers of one or more nodes."""
        rng, world = self.rng, self.world
        request = Request(nodes_min=NODES, nodes_max=NODES, tasks=NODES, cpus_per_task=CORES)
        owner = world.submit(request=request, account="a", cooperate="full", no_kill=rng.random() < 0.5)
        world.start()
        self.submit(borrow=rng.choice(("requeue", "requeue,5", "end,5")))
        for node in range(rng.randrange(NODES), NODES):
            world.report_cores(owner, 1, idle=rng.choice((2, 3, 4)), node=node)
        for _ in range(3):
            self.submit(borrow="requeue,5")
            for send in world.sends():
                self.answer(send, "ok", send.nodes)
            self.plan()
        self.check([])

    def act(self) -> None:
        acts = (
            *[self.submit] * 2,
            *[self.plan] * 4,
            *[self.deliver] * 5,
            *[self.tell] * 4,
            *[self.resize] * 3,
            *[self.leave] * 2,
            self.end,
            self.people,
        )
        since = len(self.world.log)
        self.rng.choice(acts)()
        if self.rng.random() < 0.02:
            lose_some(self.world, NODES, self.rng)
        self.check(self.world.log[since:])
        self.pass_time(self.rng.choice((0, 0, 1, 5, 20)))
        if self.rng.random() < 0.03:
            self.world.restart()
            self.schedule, self.unsent = Schedule(), []
        self.check([])

    # ---- the naive model ----

    def attempts(self) -> list[tuple[Job, Attempt]]:
        return [(job, attempt) for job in self.world.state.jobs.values() for attempt in attempts_of(job)]

    def pass_time(self, seconds: int) -> None:
        """Each second costs the owners of cores what they have, and borrowers nothing.

        A job that is being ended pays for all of its nodes to its end, also for those that are left before.
        """
        for job, attempt in self.attempts():
            if attempt.phase is AttemptPhase.RUNNING and attempt is job.attempt:
                left = {node for _, node in attempt.given} | attempt.gone
                cores = sum(span.amounts[0] for span in attempt.spans if span.node not in left)
                loans = attempt.more.loans if attempt.more is not None else ()
                cores -= sum(loan.cores for loan in loans if not loan.until_us)
                self.paid[job.spec.account] += cores * seconds
        self.world.pass_time(seconds)

    @staticmethod
    def own(attempt: Attempt) -> dict[int, int]:
        """Cores by node that the attempt holds and does not borrow."""
        found = Counter({span.node: span.amounts[0] for span in attempt.spans if span.node in attempt.held})
        for loan in attempt.loans:
            found[loan.node] -= loan.cores
        return found

    def check(self, told: list[facts.Fact]) -> None:
        state = self.world.state
        owned: Counter[int] = Counter()
        lent: Counter[tuple[int, int, int]] = Counter()
        holders = {(job.job_id, attempt.number): attempt for job, attempt in self.attempts()}
        for attempt in holders.values():
            own = self.own(attempt)
            assert all(cores >= 0 for cores in own.values())
            owned.update(own)
            for loan in attempt.loans:
                lent[loan.owner, loan.attempt, loan.node] += loan.cores
        for node in range(NODES):
            assert state.ledger.free(node)[0] == CORES - owned[node], "each core has one owner"
        for (owner, number, node), cores in lent.items():
            assert node in holders[owner, number].held, "what an owner has left is the borrower's own"
            assert cores <= self.own(holders[owner, number])[node], "what is lent is its owner's"
        charged = {
            account: amount
            for (account, _), amount in exhaust(
                usage_now(state, list(state.jobs.values()), self.world.now_us)
            ).items()
        }
        for account in ACCOUNTS:
            assert charged.get(account, 0.0) == pytest.approx(self.paid[account], abs=1e-6), account
        for fact in told:
            self.told(fact)

    def told(self, fact: facts.Fact) -> None:
        """Compare a fact with what is right by the plainest rules."""
        state = self.world.state
        match fact:
            case facts.JobPlaced(loans=loans):
                for loan in loans:
                    key = loan.owner, loan.attempt, loan.node
                    assert sum(state.loans.get(key, {}).values()) <= self.confirmed.get(key, 0)
                    self.seen["loan"] += 1
            case facts.CoresExcluded(job_id=job_id, attempt=number, nodes=nodes, cores=cores):
                for node in nodes:
                    used = sum(state.loans.get((job_id, number, node), {}).values())
                    assert cores >= used, "what is lent stays excluded until the borrower has gone"
            case facts.GrowthPlaced(spans=spans):
                assert not any(span.lent for span in spans)
                self.seen["growth"] += 1
            case _:
                self.seen[type(fact).__name__] += 1

    # ---- acts ----

    def submit(self, borrow: str | None = None) -> None:
        rng = self.rng
        nodes = rng.choice((1, 1, 2, 3))
        most = rng.choice((nodes, nodes, NODES))
        self.world.try_submit(
            request=Request(
                nodes_min=nodes, nodes_max=most, tasks=nodes, cpus_per_task=rng.choice((1, 2, 3))
            ),
            account=rng.choice(ACCOUNTS),
            time_limit_s=rng.choice((0, 60, 300)),
            no_kill=rng.random() < 0.4,
            elastic=most > nodes,
            cooperate=rng.choice(("", "report", "full", "full")),
            borrow=rng.choice(("", "requeue", "requeue,5", "end,5")) if borrow is None else borrow,
        )

    def plan(self) -> None:
        world = self.world
        plan = exhaust(plan_slices(world.state, world.now_us, self.schedule, PlanLimits()))
        self.schedule.book.check()
        message = message_of(plan)
        if message is not None:
            # A plan is often late: nodes and loans have changed since.
            if self.rng.random() < 0.2:
                self.rng.choice((self.resize, self.tell, self.leave))()
            world.send(message)

    def deliver(self) -> None:
        world, rng = self.world, self.rng
        self.unsent += world.sends()
        rng.shuffle(self.unsent)
        while self.unsent and rng.random() < 0.8:
            send = self.unsent.pop()
            nodes = tuple(node for node in send.nodes if rng.random() < 0.9)
            self.answer(send, rng.choice(("ok",) * 9 + ("failed",)), nodes)

    def answer(self, send: Send, status: str, nodes: tuple[int, ...]) -> None:
        """These nodes answer; the others are not reached."""
        world, body = self.world, send.body
        before = len(world.log)
        # An end takes its time: the node is left later.
        payload = b"" if getattr(body, "cause", "") == "released" else world.answer_of(send)
        world.done(send, status, nodes, payload)
        if isinstance(body, Exclude):
            for fact in world.log[before:]:
                if isinstance(fact, facts.CoresConfirmed):
                    self.confirmed |= dict.fromkeys(
                        [(body.job_id, body.attempt, node) for node in fact.nodes], body.cores
                    )

    def running(self, wish: str = "") -> list[Job]:
        return [
            job
            for job in self.world.state.jobs.values()
            if job.state is JobState.RUNNING and job.attempt is not None and (not wish or job.spec.cooperate)
        ]

    def tell(self) -> None:
        """An application says anything at all of one of its nodes."""
        rng = self.rng
        jobs = self.running("cooperate")
        if jobs:
            job = rng.choice(jobs)
            assert job.attempt is not None
            node = rng.choice(sorted(job.attempt.held))
            one = next((one for one in job.attempt.exclusions if one.node == node), None)
            excluded = rng.choice((one.cores if one is not None else 0, 0, 1))
            idle = rng.choice((0, 1, 2, CORES, CORES))
            before = len(self.world.log)
            self.world.report_cores(job.job_id, job.attempt.number, idle=idle, excluded=excluded, node=node)
            if node in job.attempt.leaving:
                for fact in self.world.log[before:]:
                    is_recall = isinstance(fact, facts.StopRequested) and fact.stop.cause in (
                        StopCause.PREEMPT,
                        StopCause.EVICT,
                    )
                    assert not is_recall, "borrowers of a node that its owner leaves stay"

    def resize(self) -> None:
        rng = self.rng
        if jobs := self.running():
            job = rng.choice(jobs)
            self.world.send(ResizeJob(ALICE, JobRef(job.job_id), by_nodes=rng.choice((1, 1, -1, -1, -2))))

    def leave(self) -> None:
        """Nothing is left of an attempt on a node that it gives back."""
        leaving = [
            (job.job_id, attempt, node)
            for job, attempt in self.attempts()
            for node in sorted(attempt.leaving)
        ]
        if leaving:
            job_id, attempt, node = self.rng.choice(leaving)
            self.seen["lender left"] += (job_id, attempt.number, node) in self.world.state.loans
            self.seen["borrower left"] += any(loan.node == node for loan in attempt.loans)
            self.world.gone(node, job_id, attempt.number)

    def end(self) -> None:
        """The script of an attempt ends now, and some of its other nodes are left."""
        rng, world = self.rng, self.world
        live = [(job, one) for job, one in self.attempts() if one.phase is AttemptPhase.RUNNING]
        if not live:
            return
        job, attempt = rng.choice(live)
        end = StepEnd(0, started_us=attempt.started_us, ended_us=world.now_us)
        node = world.state.nodes[attempt.first]
        world.report(
            StepEnded(attempt.first, node.incarnation, job.job_id, attempt.number, end, rng.random() < 0.7)
        )
        for other in attempt.nodes[1:]:
            if rng.random() < 0.7:
                incarnation = world.state.nodes[other].incarnation
                world.report(NodeGone(other, incarnation, job.job_id, attempt.number))

    def people(self) -> None:
        rng, world = self.rng, self.world
        jobs = [job for job in world.state.jobs.values() if job.state not in FINAL]
        if jobs:
            refs = (JobRef(rng.choice(jobs).job_id),)
            world.send(
                rng.choice(
                    (
                        CancelJobs(ROOT, refs),
                        RequeueJobs(ROOT, refs),
                        ExtendJob(ALICE, refs[0], by_s=rng.choice((10, 200))),
                    )
                )
            )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.act()


def test_histories_lend_and_resize() -> None:
    """Goal: what these histories are for is in them."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.act()
        seen += walk.seen
    for what in ("loan", "growth", "lender left", "borrower left", "JobShrunk", "CoresConfirmed"):
        assert seen[what], f"{what}: {seen}"
