"""Promised starts over changes of leader: thousands of waiting jobs, jobs that end early, arrivals, and leaders that die.

The core alone, in virtual time: each leader is restored from the rows that the one before committed, hears from its nodes,
and plans. Its first plan is held against the promises in the log. Everything follows from the seed.
"""

from __future__ import annotations

import random
import time
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.figures import Figures, rounded
from eslurm.core.control.planning import messages_of, plan_slices
from eslurm.core.control.reactor import BatchAnswer, Reactor
from eslurm.core.dispatch.effect_delivery import EffectDelivery, Send
from eslurm.core.model.accounts import Access, Amount, FreePool, Limit, kind_of
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal, StepEnd
from eslurm.core.model.messages import (
    ChangePolicies,
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    Message,
    NodeOutcome,
    PolicyChange,
    Refused,
    Reports,
    SubmitJobs,
)
from eslurm.core.model.protocol import HeldAttempt, Registration, Report, ReportBody, Started, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.state.cluster import State
from eslurm.lab.sim.store_image import StoreImage
from eslurm.store.rows import Restoring, to_store

OWNER: Final = "main"
ROOT: Final = Principal("root", 0, 0)
CORES: Final = (16, 16, 32)
LATE_MAX_US: Final = 20_000
"""So late a leader notices what is due."""
POLICIES: Final = (
    Limit("each", "user", "*", "cores", Amount(percent=40)),
    Limit("budget", "user", "user3", "cores", Amount(), area_s=768 * 3_600),
    FreePool("short", "cores", Amount(percent=10), (Access(time_max_s=1_200),)),
)


class Succession(msgspec.Struct, frozen=True):
    """The result: promises that first plans were held against, and those that were not kept."""

    leaders: int
    looked: int
    broken: tuple[str, ...]
    waiting: int
    planning_s: float


class _Cluster:
    """Drives the core as a controller would, with nodes that carry out orders at once."""

    def __init__(self, policy: str, nodes: int, seed: int) -> None:
        self.random = random.Random(f"{seed}/{policy}/promises")
        self.now_us = 1_700_000_000 * SECOND_US
        self.image = StoreImage()
        self.epoch = self.image.open(OWNER)
        self.planning_s = 0.0
        self.sequence = 0
        # When what runs ends by itself: (instant, job).
        self.ends: list[tuple[int, int]] = []
        names = tuple(f"cn{number}" for number in range(nodes))
        shapes = tuple(NodeConfig(name, (CORES[at % 3], 64_000)) for at, name in enumerate(names))
        config = ClusterConfig("bench", shapes, (Partition("main", names, default=True),), policy=policy)
        self._lead(State(OWNER))
        self.send(ConfigLoaded(config))
        self.send(EpochStarted(1))
        self._register()
        changes = tuple(PolicyChange("set", kind_of(one), one.name, one) for one in POLICIES)
        self.send(ChangePolicies(ROOT, changes))

    # ---- one leader after another ----

    def _lead(self, state: State) -> None:
        self.state = state
        self.reactor = Reactor(state)
        self.delivery = EffectDelivery(state)
        self.schedule = Schedule()

    def fail_over(self) -> Plan:
        """The leader dies; the next one's first plan."""
        self._lead(self._restored())
        self.delivery.resume(self.now_us)
        self.send(EpochStarted(self.state.epoch + 1))
        self._register()
        return self.cycle()

    def _restored(self) -> State:
        restoring = Restoring(OWNER)
        for row in self.image.load_unfinished(OWNER):
            restoring.take(row)
        return restoring.state()

    def _register(self) -> None:
        for number, node in sorted(self.state.nodes.items()):
            held: list[HeldAttempt] = []
            for job_id in sorted(self.state.jobs_on.get(number, ())):
                attempt = self.state.get_job(job_id).attempt
                if attempt is not None:
                    stage = "running" if number == attempt.first else "prepared"
                    held.append(HeldAttempt(job_id, attempt.number, stage))
            session = f"s{self.state.epoch}"
            uid = f"uid-{node.name}"
            self.report(
                Registration(
                    node.name, uid, "boot", session, self.state.epoch, "host:1", node.total, tuple(held)
                )
            )
            self.delivery.on_registered(number, self.now_us)

    # ---- messages ----

    def send(self, message: Message) -> BatchAnswer:
        """Decide, commit, let go."""
        batch = self.reactor.process((message,), self.now_us)
        self.image.commit(OWNER, self.epoch, to_store(self.state, batch))
        self.delivery.on_effects(batch.effects, self.now_us)
        (answer,) = batch.answers
        if isinstance(answer, Refused):
            raise answer
        return answer

    def report(self, body: ReportBody) -> None:
        """A node's report."""
        self.sequence += 1
        self.send(Reports((Report("agent", self.sequence, body),)))

    def deliver(self) -> None:
        """Nodes carry out their orders."""
        while sends := self.delivery.take_due(self.now_us):
            for one in sends:
                self._done(one)

    def _done(self, one: Send) -> None:
        payload = msgspec.msgpack.encode(Started(self.now_us))
        message = EffectDone(one.revision, 0, (NodeOutcome(one.nodes, "ok", "", payload),))
        self.send(message)
        self.delivery.on_done(message, self.now_us)

    # ---- what happens ----

    def submit(self, count: int) -> None:
        """So many jobs, of all sizes and lengths."""
        draw = self.random
        for _ in range(count):
            nodes = draw.choice((0, 0, 0, 0, 1, 2, 4))
            tasks = nodes or draw.choice((1, 1, 2, 4, 8, 16))
            request = Request(
                tasks=tasks,
                cpus_per_task=draw.choice((1, 2, 4)) if not nodes else draw.choice((8, 16)),
                nodes_min=nodes,
                nodes_max=nodes,
                memory_per_node_mib=draw.choice((0, 0, 16_000)) if nodes else 0,
            )
            uid = draw.randrange(6)
            user = Principal(f"user{uid}", 2_000 + uid, 2_000)
            limit_s = draw.choice((600, 1_200, 3_600, 7_200, 14_400))
            spec = JobSpec(
                "job", user, "main", (request,), b"s" * 32, b"e" * 32, "/tmp", time_limit_s=limit_s
            )
            self.send(SubmitJobs((spec,)))

    def cycle(self) -> Plan:
        """One plan, and what follows from it."""
        began_s = time.perf_counter()
        slices = plan_slices(
            self.state, self.now_us, self.schedule, PlanLimits(improved_max=500), keeps_promises=True
        )
        plan = exhaust(slices)
        self.planning_s += time.perf_counter() - began_s
        for message in messages_of(plan):
            self.send(message)
        self.deliver()
        for placement in plan.placements:
            length_us = placement.until_us - self.now_us
            share = self.random.choice((0.3, 0.6, 0.9, 1.0, 1.0))
            heappush(self.ends, (self.now_us + int(length_us * share), placement.job_id))
        return plan

    def settle(self) -> Plan:
        """Until nothing more begins, nor moves."""
        while (plan := self.cycle()).placements or plan.is_unfinished:
            pass
        return plan

    def next_event(self, plan: Plan) -> Plan:
        """Time passes until something ends or is due."""
        self.now_us = max(self.now_us + 1, min(self.ends[0][0] if self.ends else plan.next_us, plan.next_us))
        self.now_us += self.random.randrange(LATE_MAX_US)
        while self.ends and self.ends[0][0] <= self.now_us:
            self._end(heappop(self.ends)[1])
        self.deliver()
        return self.settle()

    def _end(self, job_id: int) -> None:
        attempt = self.state.get_job(job_id).attempt
        assert attempt is not None
        node = self.state.nodes[attempt.first]
        end = StepEnd(0, started_us=attempt.started_us, ended_us=self.now_us)
        self.report(StepEnded(attempt.first, node.incarnation, job_id, attempt.number, end, True))


def succeed(
    policy: str, *, waiting: int, nodes: int, leaders: int, events: int = 6, seed: int = 1
) -> Succession:
    """So many leaders, with so many jobs waiting under each, and some events between two of them."""
    cluster = _Cluster(policy, nodes, seed)
    looked = 0
    broken: list[str] = []
    plan: Plan | None = None
    for number in range(leaders):
        for _ in range(events):
            missing = waiting - len(cluster.state.queue.ids())
            cluster.submit(max(missing, cluster.random.randrange(3)))
            plan = cluster.settle() if plan is None else cluster.next_event(plan)
        promises = dict(cluster.state.promises)
        plan = cluster.fail_over()
        placed = {placement.job_id for placement in plan.placements}
        for job_id, promise in promises.items():
            looked += 1
            start_us = plan.start_us(job_id)
            if job_id not in placed and (start_us is None or start_us > promise.start_us):
                why = next((one.why for one in plan.broken if one.job_id == job_id), "")
                broken.append(
                    f"leader {number + 2}: job {job_id} was promised {promise.start_us}, now {start_us}: {why}"
                )
        plan = cluster.settle()
    queued = len(cluster.state.queue.ids())
    return Succession(leaders, looked, tuple(broken), queued, cluster.planning_s)


def measure(figures: Figures, directory: Path, *, quick: bool) -> None:
    """All policies, 3,000 waiting jobs and 20 changes of leader. Raises `RuntimeError` when a promise is not kept."""
    waiting, nodes, leaders = (300, 40, 5) if quick else (3_000, 300, 20)
    for policy in BUILT_IN:
        found = succeed(policy, waiting=waiting, nodes=nodes, leaders=leaders)
        figures.add(f"recovery.promises_{policy}_looked_at", found.looked, "promises", found.leaders)
        figures.add(f"recovery.promises_{policy}_broken", len(found.broken), "promises", found.leaders)
        figures.add(f"recovery.promises_{policy}_planning_s", rounded(found.planning_s), "s", found.leaders)
        if found.broken:
            raise RuntimeError(f"{policy}: {len(found.broken)} promises were broken: {found.broken[0]}")
