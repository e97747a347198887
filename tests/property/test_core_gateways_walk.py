"""Jobs with gateways, while daemons die, reports come late or twice, limits pass, nodes are lost and leaders change.

After each fact the world checks every invariant, that rows and log give the same state, and what a restart would find. The
walk remembers by itself what was reported: no script starts before all daemons have told their addresses and the routes are
written, no gateway is two jobs', no daemon is left behind, and when all goes well again every job ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.job import Attempt, StepEnd
from eslurm.core.model.job_states import FINAL, AttemptPhase, JobState
from eslurm.core.model.messages import CancelJobs, HoldJobs, JobRef, RequeueJobs, UpdateNodes
from eslurm.core.model.protocol import End, GatewayReported, LaunchStep, PhaseReported, Start, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.model.step_key import GATEWAY_STEP
from eslurm.core.state.cluster import attempts_of
from tests.kits.core import ROOT, World
from tests.kits.gateway_bugs import gateway_leaked, script_before_routes
from tests.kits.gateways import GATEWAYS, USERS, gateway_world, submit
from tests.support.profiles import draws

SEEDS = draws(30)
STEPS = 120
FIRST_GATEWAY = len(USERS)
NODES = FIRST_GATEWAY + len(GATEWAYS)
Key = tuple[int, int]


class Walk:
    """One seed, one history. What nodes were told and have reported of each attempt is kept beside the state."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world: World = gateway_world(
            restarts=seed % 3 == 0, node_lost_after_s=2_000.0, launch_failures_max=50
        )
        self.unsent: list[Send] = []
        self.told: dict[Key, set[int]] = {}
        self.routed: set[Key] = set()
        self.stages: set[GatewayStage] = set()
        self.daemons: set[tuple[int, Key]] = set()
        """Nodes with daemons of an attempt, by what they were told."""
        self.buried: set[tuple[int, Key]] = set()
        """Nodes that start nothing more of an attempt."""

    def act(self) -> None:
        acts = (
            *(self.submit, self.plan, self.plan),
            *(self.deliver,) * 4,
            *(self.address,) * 4,
            *(self.routes,) * 3,
            *(self.dies, self.nonsense, self.end, self.people, self.lose),
        )
        self.rng.choice(acts)()
        self.check()
        self.world.pass_time(self.rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 20, 70, 310)))
        if self.rng.random() < 0.03:
            self.world.restart(epoch=False)
            self.unsent = []
        self.check()

    def check(self) -> None:
        """No gateway is held for two attempts, no daemon outlives its attempt, and no script runs too early."""
        for node, key in self.daemons:
            attempt = self.find(key)
            assert attempt is not None and node in attempt.held, f"a daemon of {key} is left on {node}"
        holders: dict[int, Key] = {}
        for job in self.world.state.jobs.values():
            for attempt in attempts_of(job):
                key = job.job_id, attempt.number
                for node in attempt.held:
                    if node >= FIRST_GATEWAY:
                        assert holders.setdefault(node, key) == key
                if attempt.gateway is not None:
                    self.stages.add(attempt.gateway.stage)
                if attempt.phase in (AttemptPhase.STARTING, AttemptPhase.RUNNING):
                    self.may_start(key, attempt)

    def may_start(self, key: Key, attempt: Attempt) -> None:
        nodes = {node for node in attempt.nodes if node >= FIRST_GATEWAY}
        assert self.told.get(key, set()) >= nodes and key in self.routed

    def submit(self) -> None:
        count = self.rng.choice((1, 1, 2))
        nodes = self.rng.choice((2, 3))
        request = Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes)
        submit(self.world, count, request=request, no_kill=self.rng.random() < 0.3)

    def plan(self) -> None:
        self.world.plan()

    def deliver(self) -> None:
        """Some nodes hear some of what is owed to them, now or too late."""
        self.unsent += self.world.sends()
        self.rng.shuffle(self.unsent)
        while self.unsent and self.rng.random() < 0.8:
            send = self.unsent.pop()
            if isinstance(send.body, Start):
                attempt = self.find((send.body.job_id, send.body.attempt))
                if attempt is not None:
                    self.may_start((send.body.job_id, send.body.attempt), attempt)
            nodes = tuple(node for node in send.nodes if self.rng.random() < 0.95)
            self.hear(send, nodes, self.rng.choice(("ok",) * 19 + ("failed",)))

    def hear(self, send: Send, nodes: tuple[int, ...], status: str = "ok") -> None:
        """These nodes get a command and answer."""
        body = send.body
        if isinstance(body, LaunchStep):
            key = body.job_id, body.attempt
            if any((node, key) in self.buried for node in nodes):
                status = "failed"
            elif status == "ok" and body.step == GATEWAY_STEP:
                self.daemons.update((node, key) for node in nodes)
        elif isinstance(body, End):
            self.bury(nodes, (body.job_id, body.attempt))
            status = "ok"
        self.world.done(send, status, nodes, self.world.answer_of(send) if status == "ok" else b"")

    def bury(self, nodes: Iterable[int], key: Key) -> None:
        """Nothing of the attempt is left on these nodes, nor ever will be."""
        self.buried.update((node, key) for node in nodes)
        self.daemons.difference_update([(node, key) for node in nodes])

    def find(self, key: Key) -> Attempt | None:
        found = self.world.state.find_attempt(*key)
        return found[1] if found is not None else None

    def some(self, *stages: GatewayStage) -> tuple[Key, Attempt] | None:
        """An attempt in one of these stages."""
        found = [
            ((job.job_id, job.attempt.number), job.attempt)
            for job in self.world.state.jobs.values()
            if job.attempt is not None
            and job.attempt.gateway is not None
            and job.attempt.gateway.stage in stages
        ]
        return self.rng.choice(found) if found else None

    def address(self) -> None:
        """A gateway tells an address, perhaps once more."""
        found = self.some(GatewayStage.DAEMONS, GatewayStage.DAEMONS, GatewayStage.ROUTES)
        if found is not None:
            key, attempt = found
            nodes = [node for node in attempt.nodes if node >= FIRST_GATEWAY]
            self.tell(key, self.rng.choice(nodes))

    def tell(self, key: Key, node: int) -> None:
        incarnation = self.world.state.nodes[node].incarnation
        self.told.setdefault(key, set()).add(node)
        self.world.report(GatewayReported(node, incarnation, *key, (f"192.0.2.{node}:5000",)))

    def routes(self) -> None:
        """The helper that writes the routes ends, mostly well; or the one that writes the error file does."""
        found = self.some(GatewayStage.ROUTES, GatewayStage.FAILED)
        if found is None:
            return
        key, attempt = found
        assert attempt.gateway is not None
        if attempt.gateway.stage is GatewayStage.FAILED:
            self.ends(key, attempt.first, "route_error", StepEnd(0))
            return
        end = StepEnd(0 if self.rng.random() < 0.8 else 1)
        if end.is_good:
            self.routed.add(key)
        self.ends(key, attempt.first, "routes", end)

    def ends(self, key: Key, node: int, phase: str, end: StepEnd) -> None:
        self.world.report(PhaseReported(node, self.world.state.nodes[node].incarnation, *key, phase, end))

    def dies(self) -> None:
        """A daemon ends, in any stage."""
        found = self.some(*GatewayStage)
        if found is not None and self.rng.random() < 0.4:
            key, attempt = found
            self.ends(key, self.rng.choice(attempt.nodes), "gateway", StepEnd(0, 11))

    def nonsense(self) -> None:
        """Reports of attempts that are over, of nodes that are none of the job's, and out of order."""
        jobs = list(self.world.state.jobs.values())
        if not jobs:
            return
        job = self.rng.choice(jobs)
        key = job.job_id, self.rng.randrange(0, job.attempts + 2)
        attempt = self.find(key)
        node = self.rng.randrange(NODES)
        if attempt is not None and attempt.gateway is not None:
            return
        if self.rng.random() < 0.5:
            incarnation = self.world.state.nodes[node].incarnation
            self.world.report(GatewayReported(node, incarnation, *key, ("192.0.2.9:1",)))
        else:
            phase = self.rng.choice(("gateway", "routes", "route_error"))
            self.ends(key, node, phase, StepEnd(self.rng.choice((0, 1))))

    def end(self) -> None:
        """A script ends by itself, and its first node is left."""
        running = [job for job in self.world.state.jobs.values() if job.state is JobState.RUNNING]
        if running:
            job = self.rng.choice(running)
            attempt = self.world.attempt(job.job_id)
            key, incarnation = (job.job_id, attempt.number), self.world.state.nodes[attempt.first].incarnation
            self.bury((attempt.first,), key)
            self.world.report(StepEnded(attempt.first, incarnation, *key, StepEnd(0), gone=True))

    def people(self) -> None:
        jobs = [job for job in self.world.state.jobs.values() if job.state not in FINAL]
        if jobs:
            refs = (JobRef(self.rng.choice(jobs).job_id),)
            self.world.send(
                self.rng.choice((CancelJobs(ROOT, refs), RequeueJobs(ROOT, refs), HoldJobs(ROOT, refs)))
            )

    def lose(self) -> None:
        """A host is gone, and boots: what was sent to it before is for another session."""
        node = self.rng.randrange(NODES)
        for key in {
            (job.job_id, number)
            for job in self.world.state.jobs.values()
            for number in range(job.attempts + 1)
        }:
            self.bury((node,), key)
        self.world.send(UpdateNodes(ROOT, (f"cn{node}",), "lost", "gone"))
        self.world.register(node, boot=f"b{self.rng.random()}", session=f"s{self.rng.random()}")

    def deliver_well(self) -> None:
        """Nodes do what they are told, and report it."""
        for send in self.world.sends():
            self.hear(send, send.nodes)
            if isinstance(send.body, LaunchStep) and send.body.step == GATEWAY_STEP:
                for node in send.nodes:
                    self.tell((send.body.job_id, send.body.attempt), node)
        while (found := self.some(GatewayStage.ROUTES, GatewayStage.FAILED)) is not None:
            key, attempt = found
            failed = attempt.gateway is not None and attempt.gateway.stage is GatewayStage.FAILED
            if not failed:
                self.routed.add(key)
            self.ends(key, attempt.first, "route_error" if failed else "routes", StepEnd(0))

    def heal(self) -> None:
        """From now on all goes well: every job gets its gateways, runs and ends."""
        world = self.world
        self.unsent = []
        world.restart()
        world.send(UpdateNodes(ROOT, tuple(node.name for node in world.state.nodes.values()), "resume"))
        for _ in range(40):
            held = [job.job_id for job in world.state.jobs.values() if job.hold]
            if held:
                world.send(HoldJobs(ROOT, tuple(map(JobRef, held)), release=True))
            world.plan()
            for _ in range(6):
                self.deliver_well()
            self.check()
            for job in list(world.state.jobs.values()):
                stops = job.attempt is not None and job.attempt.stop is not None
                if job.attempt is not None and (job.state is JobState.RUNNING or stops):
                    attempt = job.attempt
                    self.bury((attempt.first,), (job.job_id, attempt.number))
                    incarnation = world.state.nodes[attempt.first].incarnation
                    end = StepEnd(0)
                    world.report(
                        StepEnded(attempt.first, incarnation, job.job_id, attempt.number, end, gone=True)
                    )
            world.pass_time(300)
        left = [job.job_id for job in world.state.jobs.values() if job.state not in FINAL]
        assert not left, f"jobs {left} never end"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.act()
    walk.heal()


def test_histories_reach_every_stage() -> None:
    stages: set[GatewayStage] = set()
    for seed in range(6):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.act()
        stages |= walk.stages
    assert stages == set(GatewayStage)


@pytest.mark.parametrize("plant", [gateway_leaked, script_before_routes])
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(40):
            walk = Walk(seed)
            for _ in range(STEPS):
                walk.act()
