"""A small cluster for tests of the core: messages in, facts out, every invariant checked after each fact."""

from __future__ import annotations

import msgspec

from eslurm.core import invariants
from eslurm.core.cluster import State
from eslurm.core.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.courier import Courier, Send
from eslurm.core.facts import Fact
from eslurm.core.job.model import ArraySpec, Dependency, Job, JobSpec, Principal, StepEnd
from eslurm.core.job.ranges import Ranges
from eslurm.core.job.request import Request
from eslurm.core.messages import (
    CancelJobs,
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    JobRef,
    Message,
    NodeOutcome,
    PlanMade,
    Refused,
    Reports,
    SubmitJobs,
    Submitted,
    Tick,
)
from eslurm.core.plan.policy import PlanLimits
from eslurm.core.planning import plan_slices
from eslurm.core.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.wire import (
    Gone,
    HeldAttempt,
    NodeGone,
    Prepare,
    Registration,
    RegistrationReply,
    Report,
    ReportBody,
    Started,
    StepEnded,
)

SECOND = 1_000_000
ALICE = Principal("alice", 1000, 1000)
BOB = Principal("bob", 1001, 1001)
ROOT = Principal("root", 0, 0)


class World:
    """Drives a reactor by hand: time stands still unless a test moves it."""

    def __init__(self, nodes: int = 4, cores: int = 4, *, register: bool = True, **config: object) -> None:
        self.now_us = 1_000 * SECOND
        self.state = State("main")
        self.reactor = Reactor(self.state, observe=lambda state, fact: invariants.check(state))
        self.courier = Courier(self.state)
        self.log: list[Fact] = []
        self._seq = 0
        names = tuple(f"cn{number}" for number in range(nodes))
        policy = {
            "cluster": "test",
            "nodes": tuple(NodeConfig(name, (cores, 1000)) for name in names),
            "partitions": (Partition("main", names, default=True),),
            **config,
        }
        self.send(ConfigLoaded(ClusterConfig(**policy)))  # type: ignore[arg-type]
        self.send(EpochStarted(1))
        if register:
            for number in range(nodes):
                self.register(number)

    # ---- in ----

    def batch(self, *messages: Message) -> Batch:
        batch = self.reactor.process(messages, self.now_us)
        self.log += batch.facts
        self.courier.on_effects(batch.effects, self.now_us)
        return batch

    def send(self, message: Message) -> BatchAnswer:
        return self.batch(message).answers[0]

    def report(self, body: ReportBody) -> BatchAnswer:
        self._seq += 1
        return self.send(Reports((Report("agent", self._seq, body),)))

    def register(
        self, number: int, *held: HeldAttempt, session: str = "s1", uid: str = "", boot: str = "b1"
    ) -> RegistrationReply:
        name = f"cn{number}"
        registration = Registration(
            name, uid or f"uid-{name}", boot, session, self.state.epoch, "host:1", (64, 64_000), held
        )
        answer = self.report(registration)
        assert isinstance(answer, tuple)
        self.courier.on_registered(number, self.now_us)
        return answer[0].registrations[0]

    def submit(self, *, user: Principal = ALICE, name: str = "job", tasks: Ranges | None = None, **spec: object) -> int:
        answer = self.try_submit(user=user, name=name, tasks=tasks, **spec)
        assert isinstance(answer, Submitted), answer
        return answer.job_ids[0]

    def try_submit(
        self, *, user: Principal = ALICE, name: str = "job", tasks: Ranges | None = None, limit: int = 0, **spec: object
    ) -> BatchAnswer:
        request = spec.pop("request", Request())
        assert isinstance(request, Request)
        made = JobSpec(
            name,
            user,
            "",
            (request,),
            b"s" * 32,
            b"e" * 32,
            "/tmp",
            array=ArraySpec(tasks, limit) if tasks is not None else None,
            **spec,  # type: ignore[arg-type]
        )
        return self.send(SubmitJobs((made,)))

    def plan(self) -> list[int]:
        """One planning cycle; the ids of the jobs it placed."""
        slices = plan_slices(self.state, self.now_us, (), PlanLimits())
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan = finished.value
                break
        batch = self.batch(PlanMade(plan.placements, plan.generation))
        return [fact.job_id for fact in batch.facts if type(fact).__name__ == "JobPlaced"]

    def pass_time(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)
        self.send(Tick())

    # ---- out ----

    def sends(self) -> list[Send]:
        return self.courier.take_due(self.now_us)

    def done(self, send: Send, status: str = "ok", nodes: tuple[int, ...] | None = None, payload: bytes = b"") -> None:
        """All of the send's nodes answered `status`; with `nodes`, the others were unreached."""
        hit = send.nodes if nodes is None else nodes
        outcomes = [NodeOutcome(hit, status, "why" if status == "failed" else "", payload)]
        rest = tuple(number for number in send.nodes if number not in hit)
        if rest:
            outcomes.append(NodeOutcome(rest, "unreached"))
        message = EffectDone(send.revision, 0, tuple(outcomes))
        self.send(message)
        self.courier.on_done(message, self.now_us)

    def deliver(self) -> list[Send]:
        """Every due send is answered well by all of its nodes (never started: no `End` finds anything)."""
        sent = self.sends()
        for send in sent:
            match send.body:
                case Prepare(start=True):
                    payload = msgspec.msgpack.encode(Started(self.now_us))
                case body if type(body).__name__ == "Start":
                    payload = msgspec.msgpack.encode(Started(self.now_us))
                case body if type(body).__name__ == "End":
                    payload = msgspec.msgpack.encode(Gone(started=True))
                case _:
                    payload = b""
            self.done(send, payload=payload)
        return sent

    def start(self) -> list[int]:
        """Plan and launch everything that can run."""
        placed = self.plan()
        for _ in range(2):
            self.deliver()
        return placed

    def end(self, job_id: int, exit_code: int = 0, *, gone: bool = True, cause: str = "exited") -> None:
        """The batch script of a running job ends, and its other nodes are released."""
        job = self.state.get_job(job_id)
        assert job.attempt is not None
        attempt = job.attempt
        end = StepEnd(exit_code, cause=cause, started_us=attempt.started_us, ended_us=self.now_us)
        node = self.state.nodes[attempt.first]
        self.report(StepEnded(attempt.first, node.incarnation, job_id, attempt.number, end, gone))
        self.deliver()

    def gone(self, number: int, job_id: int, attempt: int) -> None:
        self.report(NodeGone(number, self.state.nodes[number].incarnation, job_id, attempt))

    def cancel(self, job_id: int, task: int = -1, by: Principal = ALICE) -> BatchAnswer:
        return self.send(CancelJobs(by, (JobRef(job_id, task),)))

    def job(self, job_id: int) -> Job:
        return self.state.get_job(job_id)

    def state_of(self, job_id: int) -> str:
        return self.job(job_id).state.value


def refused(answer: BatchAnswer) -> str:
    """The refusal's text; fails when the answer is none."""
    assert isinstance(answer, Refused), answer
    return answer.text


def depends(kind: str, job_id: int = 0, delay_s: int = 0) -> tuple[Dependency, ...]:
    return (Dependency(kind, job_id, delay_s),)
