"""A cluster to which everything happens that may: one seed, one history.

Messages are lost, doubled, late and reordered; nodes drop off, restart and reboot; the controller dies and
starts from its rows; people submit, cancel, requeue and change jobs meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from eslurm.core.model.config import NodeConfig, Partition
from eslurm.core.model.facts import AttemptEnded, JobPlaced, JobSubmitted
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import ArraySpec, Dependency, Job, JobSpec
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    CancelJobs,
    ConfigLoaded,
    CreateStep,
    EffectDone,
    FinishStep,
    HeartbeatDone,
    HoldJobs,
    JobRef,
    Refused,
    Reports,
    RequeueJobs,
    SetForecasts,
    SubmitJobs,
    UpdateJob,
    UpdateNodes,
)
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Registration, Report, ReportAck
from eslurm.core.model.request import Request
from eslurm.core.model.retry import RetryRequest
from tests.kits.core import ALICE, BOB, ROOT, World
from tests.kits.fleet import Agent, Order, order_of, outcomes_of

NODES = 5


def _sensible(forecast: Forecast) -> Forecast:
    low, middle, high = sorted((forecast.p10_s, forecast.p50_s, forecast.p90_s))
    return Forecast(low + 1, middle + 1, high + 1, forecast.estimate_s + 1)


class Chaos:
    """Call `act` as often as wanted, then `recover`."""

    def __init__(self, seed: int, *, checked: bool) -> None:
        self.rng = random.Random(seed)
        # Drawn apart: the other choices of a seed stay what they are.
        self.retries = random.Random(f"{seed}/retries")
        self.world = World(
            NODES,
            register=False,
            restarts=checked,
            node_lost_after_s=90.0,
            finished_retention_s=20.0,
            finished_jobs_max=15,
            launch_failures_max=4,
            policy=self.rng.choice(("fcfs", "easy")),
        )
        self.agents = [Agent(number, f"cn{number}") for number in range(NODES)]
        self.orders: list[Order] = []
        self.old: list[Report | EffectDone] = []
        self.narrow = False
        for agent in self.agents:
            self._register(agent)
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (10, self.submit),
            (14, self.plan),
            (30, self.deliver),
            (20, self.report),
            (14, self.script),
            (8, self.pass_time),
            (4, self.cancel),
            (3, self.change),
            (2, self.requeue),
            (3, self.step),
            (3, self.drop_off),
            (5, self.come_back),
            (2, self.restart_agent),
            (1, self.administer),
            (3, self.repeat),
            (1, self.restart_controller),
            (1, self.reconfigure),
            (4, self.forecast),
        ]

    def act(self) -> None:
        """One random event."""
        weights = [weight for weight, _ in self.actions]
        self.rng.choices(self.actions, weights)[0][1]()
        self._check_scripts()

    # ---- people ----

    def submit(self) -> None:
        specs = tuple(self._spec() for _ in range(self.rng.choice((1, 1, 1, 3))))
        self.world.send(SubmitJobs(specs))

    def _spec(self) -> JobSpec:
        rng = self.rng
        width = rng.choice((0, 0, 0, 1, 2, 3))
        request = Request(tasks=rng.choice((1, 1, 2, 4)), nodes_min=width, nodes_max=width)
        array = ArraySpec(((0, rng.randint(0, 6)),), rng.choice((0, 1, 2))) if rng.random() < 0.25 else None
        spec = JobSpec(
            rng.choice(("a", "b", "c")),
            rng.choice((ALICE, BOB)),
            "main",
            (request,),
            b"s" * 32,
            b"e" * 32,
            "/tmp",
            time_limit_s=rng.choice((0, 60, 600)),
            begin_us=self.world.now_us + 5_000_000 if rng.random() < 0.1 else 0,
            requeue=rng.random() < 0.7,
            held=rng.random() < 0.05,
            dependencies=self._dependencies(),
            array=array,
        )
        return replace(spec, retry=self._retry(spec))

    def _retry(self, spec: JobSpec) -> RetryRequest | None:
        """Retries for some of those that may have them."""
        rng = self.retries
        causes = rng.choice(((), ("timeout",), ("node-fail",), ("timeout", "node-fail")))
        may = {"timeout": spec.time_limit_s > 0, "node-fail": spec.requeue}
        causes = tuple([cause for cause in causes if may[cause]])
        wish = RetryRequest(causes, rng.randint(1, 3), rng.choice((100, 150, 1000)), rng.choice((0, 700)))
        return wish if causes else None

    def _dependencies(self) -> tuple[Dependency, ...]:
        rng = self.rng
        known = sorted(self.world.state.jobs)
        if not known or rng.random() < 0.6:
            return ()
        kinds = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")
        found = []
        for _ in range(rng.randint(1, 2)):
            kind = rng.choice(kinds)
            found.append(
                Dependency(kind, 0 if kind == "singleton" else rng.choice(known), rng.choice((0, 0, 9)))
            )
        return tuple(found)

    def _any_job(self) -> Job | None:
        jobs = [job for _, job in sorted(self.world.state.jobs.items()) if job.state not in FINAL]
        return self.rng.choice(jobs) if jobs else None

    def cancel(self) -> None:
        job = self._any_job()
        if job is None:
            return
        rng = self.rng
        task = rng.randint(0, 6) if job.is_array and rng.random() < 0.5 else -1
        refs = [JobRef(job.job_id, task)]
        if rng.random() < 0.3 and (other := self._any_job()) is not None:
            refs.append(JobRef(other.job_id))
        if rng.random() < 0.2:
            self.world.send(
                CancelJobs(ROOT, name=rng.choice("abc"), state=rng.choice(("", "pending", "running")))
            )
        else:
            self.world.send(CancelJobs(ROOT, tuple(refs), signal=rng.choice((0, 0, 0, 10))))

    def forecast(self) -> None:
        """An estimator says something, of jobs that are there or not, sensible or not."""
        rng = self.rng
        known = [*self.world.state.jobs, 10**6]
        said = tuple(
            (rng.choice(known), Forecast(*(rng.randint(0, 900) for _ in range(4))))
            for _ in range(rng.choice((1, 1, 5)))
        )
        if rng.random() < 0.8:
            said = tuple((job_id, _sensible(forecast)) for job_id, forecast in said)
        self.world.send(SetForecasts(rng.choice((ROOT, ROOT, ALICE)), said, "drawn"))

    def requeue(self) -> None:
        if (job := self._any_job()) is not None:
            self.world.send(RequeueJobs(ROOT, (JobRef(job.job_id),)))

    def change(self) -> None:
        job, rng = self._any_job(), self.rng
        if job is None:
            return
        ref = JobRef(job.job_id)
        match rng.randint(0, 3):
            case 0:
                self.world.send(HoldJobs(rng.choice((ALICE, BOB, ROOT)), (ref,), release=rng.random() < 0.5))
            case 1:
                self.world.send(UpdateJob(ROOT, ref, array_limit=rng.choice((0, 1, 3))))
            case 2:
                self.world.send(UpdateJob(ROOT, ref, name=rng.choice("abc"), priority=rng.choice((1, 5000))))
            case _:
                width = rng.choice((1, 2))
                self.world.send(UpdateJob(ROOT, ref, time_limit_s=99, nodes_min=width, nodes_max=width))

    def step(self) -> None:
        running = [job for job in self.world.state.jobs.values() if job.state is JobState.RUNNING]
        if not running:
            return
        job = self.rng.choice(running)
        if self.rng.random() < 0.6:
            by = job.spec.user
            self.world.send(CreateStep(by, job.job_id, 0, 0, ("x",), b"", "/", "host:1", b"c"))
        elif steps := sorted(self.world.state.steps_of.get(job.job_id, ())):
            self.world.send(FinishStep(job.spec.user, job.job_id, self.rng.choice(steps), 0))

    def administer(self) -> None:
        name = f"cn{self.rng.randrange(NODES)}"
        action = self.rng.choice(("drain", "resume", "resume", "lost"))
        self.world.send(UpdateNodes(ROOT, (name,), action, "because"))
        self._bury_lost()

    def reconfigure(self) -> None:
        """A node leaves the configuration or comes back."""
        self.narrow = not self.narrow
        names = tuple(f"cn{number}" for number in range(NODES - self.narrow))
        nodes = tuple(NodeConfig(name, (4, 1000)) for name in names)
        partitions = (Partition("main", names, default=True),)
        config = replace(self.world.state.config, nodes=nodes, partitions=partitions)
        self.world.send(ConfigLoaded(config))

    # ---- machines ----

    def plan(self) -> None:
        self.world.plan()

    def deliver(self) -> None:
        """Broadcasts go out; one of those under way arrives, at some of its nodes."""
        self.orders += [order_of(send, self.world.state) for send in self.world.sends()]
        if not self.orders:
            return
        order = self.orders.pop(self.rng.randrange(len(self.orders)))
        self._arrive(order, lossy=True)

    def _arrive(self, order: Order, *, lossy: bool) -> None:
        rng = self.rng
        answers: dict[int, tuple[str, bytes] | None] = {}
        for number in order.send.nodes:
            agent = self._at(number)
            fate = rng.random() if lossy else 1.0
            answers[number] = None
            if agent is not None and agent.connected and fate > 0.05:
                for _ in range(2 if lossy and rng.random() < 0.1 else 1):
                    answers[number] = agent.on_order(order, rng, self.world.now_us)
                if fate < 0.1:
                    answers[number] = None
        done = EffectDone(order.send.revision, 0, outcomes_of(answers))
        self.old.append(done)
        self.world.send(done)
        assert not self.world.batch(done).facts, "the second copy of an outcome did something"
        self.world.delivery.on_done(done, self.world.now_us)

    def report(self) -> None:
        agent = self.rng.choice(self.agents)
        pending = list(agent.reports())
        if not pending or not agent.connected or not agent.registered:
            return
        report = self.rng.choice(pending)
        self.old.append(report)
        self._hand_in(report, acknowledged=self.rng.random() < 0.8)

    def _hand_in(self, report: Report, *, acknowledged: bool) -> None:
        acks = self.world.send(Reports((report,)))
        assert isinstance(acks, tuple)
        assert not self.world.batch(Reports((report,))).facts, "the second copy of a report did something"
        for ack in acks:
            self._acknowledge(ack if acknowledged else ReportAck(ack.process, ()))

    def _acknowledge(self, ack: ReportAck) -> None:
        agent = next(agent for agent in self.agents if agent.name == ack.process)
        for seq in ack.seqs:
            agent.on_ack(seq)

    def script(self) -> None:
        agent = self.rng.choice(self.agents)
        for key, stage in agent.held.items():
            if stage == "starting":
                if self.rng.random() < 0.5:
                    agent.script_starts(key)
                else:
                    agent.script_refused(key)
                return
            if stage == "running":
                exit_code = self.rng.choice((0, 0, 1))
                if self.retries.random() < 0.3:
                    agent.script_ends(key, 15, self.world.now_us, "time_limit")
                else:
                    agent.script_ends(key, exit_code, self.world.now_us)
                return

    def pass_time(self) -> None:
        self.world.pass_time(self.rng.choice((0.3, 1, 5, 20)))
        self._bury_lost()

    def _bury_lost(self) -> None:
        """End all that runs on lost nodes: a node is declared lost on the promise that nothing runs there."""
        for node in self.world.state.nodes.values():
            agent = self._at(node.number)
            if agent is not None and node.state is NodeState.LOST:
                agent.registered = False
                for key, stage in list(agent.held.items()):
                    if stage in ("starting", "running"):
                        agent.script_ends(key, 137, self.world.now_us)

    def drop_off(self) -> None:
        agent = self.rng.choice(self.agents)
        agent.connected = False
        self.world.send(HeartbeatDone(missing=(agent.number,)))

    def come_back(self) -> None:
        agent = self.rng.choice(self.agents)
        agent.connected = True
        if agent.registered and agent.epoch == self.world.state.epoch:
            self.world.send(HeartbeatDone(back=(agent.number,)))
        else:
            self._register(agent)

    def restart_agent(self) -> None:
        agent = self.rng.choice(self.agents)
        if agent.connected:
            self._register(agent, reboot=self.rng.random() < 0.4)

    def _register(self, agent: Agent, *, reboot: bool = False) -> None:
        if agent.name not in self.world.state.numbers:
            return
        registration = agent.offer(self.world.state.epoch, reboot=reboot)
        report = Report(agent.name, -agent.starts, registration)
        self.old.append(report)
        acks = self.world.send(Reports((report,)))
        assert isinstance(acks, tuple)
        agent.accept(acks[0].registrations[0])
        self.world.delivery.on_registered(agent.number, self.world.now_us)

    def repeat(self) -> None:
        """A copy of something said before arrives late."""
        if not self.old:
            return
        message = self.rng.choice(self.old)
        if isinstance(message, EffectDone):
            self.world.send(message)
        elif not self._is_latest(message):
            self.world.send(Reports((message,)))

    def _is_latest(self, report: Report) -> bool:
        """A second copy of the latest registration is answered like the first: nothing to see."""
        body = report.body
        return (
            isinstance(body, Registration) and body.session == f"{body.name}-{self._agent(body.name).starts}"
        )

    def _agent(self, name: str) -> Agent:
        return next(agent for agent in self.agents if agent.name == name)

    def _at(self, number: int) -> Agent | None:
        return next((agent for agent in self.agents if agent.number == number), None)

    def restart_controller(self) -> None:
        self.world.restart(register=False)
        self.orders.clear()
        for agent in self.agents:
            agent.registered = False
            if agent.connected:
                self._register(agent)

    # ---- after the storm ----

    def recover(self) -> None:
        """Everything works again, and scripts come to their end: so must every job."""
        if self.narrow:
            self.reconfigure()
        world = self.world
        for agent in self.agents:
            agent.connected = True
            self._register(agent)
            world.send(UpdateNodes(ROOT, (agent.name,), "resume"))
        for _ in range(400):
            self._settle()
            if not any(job.state not in FINAL for job in world.state.jobs.values()) and not world.state.owed:
                break
        self._settle()

    def _settle(self) -> None:
        world = self.world
        waiting = [job for job in world.state.jobs.values() if job.hold]
        for job in waiting:
            answer = world.send(HoldJobs(ROOT, (JobRef(job.job_id),), release=True))
            assert not isinstance(answer, Refused), answer
        world.pass_time(31)
        for node in world.state.nodes.values():
            if node.state in (NodeState.LOST, NodeState.UNKNOWN):
                self._register(self._agent(node.name))
        world.plan()
        self.orders += [order_of(send, world.state) for send in world.sends()]
        while self.orders:
            self._arrive(self.orders.pop(0), lossy=False)
        for agent in self.agents:
            for key, stage in list(agent.held.items()):
                if stage in ("starting", "running"):
                    agent.script_ends(key, 0, world.now_us)
            for report in list(agent.reports()):
                self._hand_in(report, acknowledged=True)
        self._check_scripts()

    def _check_scripts(self) -> None:
        """No job runs its script twice at a time."""
        running: set[int] = set()
        for agent in self.agents:
            for (job_id, number), stage in agent.held.items():
                if stage in ("starting", "running"):
                    assert job_id not in running, f"job {job_id}.{number} runs twice"
                    running.add(job_id)

    def assert_retries(self) -> int:
        """No job was retried more often than it asked for; the number of retries."""
        wishes: dict[int, RetryRequest | None] = {}
        counts: dict[int, int] = {}
        for fact in self.world.log:
            if isinstance(fact, JobSubmitted):
                wishes[fact.job_id] = fact.spec.retry
            elif isinstance(fact, JobPlaced) and fact.array_job_id:
                wishes[fact.job_id] = wishes[fact.array_job_id]
            elif isinstance(fact, AttemptEnded) and fact.retry is not None:
                wish = wishes[fact.job_id]
                counts[fact.job_id] = counts.get(fact.job_id, 0) + 1
                assert wish is not None and fact.retry.cause in wish.causes
                assert counts[fact.job_id] <= wish.retries_max
        return sum(counts.values())

    def assert_clean(self) -> None:
        """Nothing is left of anything."""
        state = self.world.state
        left = {
            job.job_id: (job.state.value, job.hold, job.open)
            for job in state.jobs.values()
            if job.state not in FINAL
        }
        assert not left, left
        assert not state.jobs_on and not state.owed and not state.step_owed and not state.steps
        assert state.ledger.idle == state.ledger.topology.everything
        assert (
            not len(state.queue) and not state.dependents and not state.same_name and not state.tasks_pending
        )
        assert not len(self.world.delivery), vars(self.world.delivery)
        for agent in self.agents:
            assert not [key for key, stage in agent.held.items() if stage != "prepared"], agent.held
