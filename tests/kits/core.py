"""A small cluster for tests of the core: messages in, facts out.

After each fact every invariant is checked, and the store's rows and the log have to give the same state again. After each
batch readers see what there is, and nothing of it before.
"""

from __future__ import annotations

import msgspec

from eslurm.core.control.planning import plan_slices
from eslurm.core.control.reactor import Batch, BatchAnswer, Reactor
from eslurm.core.dispatch.effect_delivery import EffectDelivery, Send
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.facts import Fact, JobPlaced
from eslurm.core.model.job import ArraySpec, Attempt, Dependency, Job, JobSpec, Principal, StepEnd
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    HoldJobs,
    JobRef,
    Message,
    NodeOutcome,
    PlanMade,
    Refused,
    Reports,
    RequeueJobs,
    SubmitJobs,
    Submitted,
    Tick,
    UpdateNodes,
)
from eslurm.core.model.protocol import (
    AGENT_PROTOCOL,
    CoresReported,
    End,
    Gone,
    HeldAttempt,
    NodeGone,
    Prepare,
    Registration,
    RegistrationReply,
    Report,
    ReportBody,
    Start,
    Started,
    StepEnded,
)
from eslurm.core.model.ranges import Ranges
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.state.cluster import State, attempts_of
from eslurm.core.state.view import View
from eslurm.replay import state_check
from tests.kits.mirror import Mirror

SECOND = 1_000_000
ALICE = Principal("alice", 1000, 1000)
BOB = Principal("bob", 1001, 1001)
ROOT = Principal("root", 0, 0)


def check_view(view: View, state: State) -> None:
    """Assert that readers see this state and nothing else."""
    expected = vars(View(state))
    for name, shown in vars(view).items():
        if name != "now_us":
            assert shown == expected[name], f"the view's {name} is not the state's"


_begun: set[str] = set()
"""Beginnings of worlds that this process has checked after each fact: the checks hold for all equal beginnings."""


class World:
    """Drives a reactor by hand: time stands still unless a test moves it."""

    def __init__(
        self,
        nodes: int = 4,
        cores: int = 4,
        *,
        register: bool = True,
        restarts: bool = True,
        nodes_with: tuple[NodeConfig, ...] = (),
        **config: object,
    ) -> None:
        self.now_us = 1_000 * SECOND
        self.mirror = Mirror(restarts=restarts)
        self._take_over(State("main"))
        self.log: list[Fact] = []
        self._seq = 0
        names = tuple(f"cn{number}" for number in range(nodes))
        policy = {
            "cluster": "test",
            "nodes": nodes_with or tuple(NodeConfig(name, (cores, 1000)) for name in names),
            "partitions": (Partition("main", names, default=True),),
            **config,
        }
        beginning = repr((nodes, register, policy))
        self._is_checked = beginning not in _begun
        self.mirror.restarts = restarts and self._is_checked
        self.send(ConfigLoaded(ClusterConfig(**policy)))  # type: ignore[arg-type]
        self.send(EpochStarted(1))
        if register:
            for number in range(nodes):
                self.register(number)
        if restarts:
            _begun.add(beginning)
        self._is_checked, self.mirror.restarts = True, restarts

    def _take_over(self, state: State) -> None:
        self.state = state
        self.reactor = Reactor(state, observe=self._observe)
        self.view = View(state)
        self.delivery = EffectDelivery(state)

    def _observe(self, state: State, fact: Fact) -> None:
        if self._is_checked:
            state_check.check(state)
        self.mirror(state, fact)

    def restart(self, *, epoch: bool = True, register: bool = True) -> None:
        """The controller dies; another one starts from the rows and leads under the next epoch."""
        self._take_over(self.mirror.restored())
        # Finished jobs stay in the store: the log is compared from here on with what was loaded.
        self.mirror.replayed = self.mirror.restored()
        self.delivery.resume(self.now_us)
        if epoch:
            self.send(EpochStarted(self.state.epoch + 1))
        if epoch and register:
            for number in sorted(self.state.nodes):
                self.register(number, *self.inventory(number), session=f"s{self.state.epoch}")

    def inventory(self, number: int) -> list[HeldAttempt]:
        """The inventory of an honest node: all that the controller believes it to hold."""
        held: list[HeldAttempt] = []
        for job_id in sorted(self.state.jobs_on.get(number, ())):
            for attempt in attempts_of(self.job(job_id)):
                if number in attempt.held and attempt.phase is not AttemptPhase.PREPARING:
                    stage = "running" if number == attempt.first else "prepared"
                    held.append(HeldAttempt(job_id, attempt.number, stage))
        return held

    # ---- in ----

    def batch(self, *messages: Message) -> Batch:
        batch = self.reactor.process(messages, self.now_us)
        self.view.advance(batch.touched, self.state.revision, batch.now_us)
        if self._is_checked:
            check_view(self.view, self.state)
        self.log += batch.facts
        self.delivery.on_effects(batch.effects, self.now_us)
        return batch

    def send(self, message: Message) -> BatchAnswer:
        return self.batch(message).answers[0]

    def report(self, body: ReportBody) -> BatchAnswer:
        self._seq += 1
        return self.send(Reports((Report("agent", self._seq, body),)))

    def register(
        self,
        number: int,
        *held: HeldAttempt,
        session: str = "s1",
        uid: str = "",
        boot: str = "b1",
        protocol: int = AGENT_PROTOCOL,
        phases: tuple[str, ...] = (),
        contained: tuple[str, ...] = (),
    ) -> RegistrationReply:
        name = f"cn{number}"
        registration = Registration(
            name,
            uid or f"uid-{name}",
            boot,
            session,
            self.state.epoch,
            "host:1",
            (64, 64_000),
            held,
            protocol=protocol,
            phases=phases,
            contained=contained,
        )
        answer = self.report(registration)
        assert isinstance(answer, tuple)
        self.delivery.on_registered(number, self.now_us)
        return answer[0].registrations[0]

    def submit(
        self,
        *,
        user: Principal = ALICE,
        name: str = "job",
        tasks: Ranges | None = None,
        limit: int = 0,
        **spec: object,
    ) -> int:
        answer = self.try_submit(user=user, name=name, tasks=tasks, limit=limit, **spec)
        assert isinstance(answer, Submitted), answer
        return answer.job_ids[0]

    def try_submit(
        self,
        *,
        user: Principal = ALICE,
        name: str = "job",
        tasks: Ranges | None = None,
        limit: int = 0,
        **spec: object,
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

    def cycle(self) -> Plan:
        """One planning cycle."""
        return exhaust(plan_slices(self.state, self.now_us, None, PlanLimits()))

    def planned(self) -> PlanMade:
        """The starts of one planning cycle."""
        plan = self.cycle()
        return PlanMade(plan.placements, plan.generation)

    def promised_us(self, job_id: int) -> int | None:
        """The planned start of a waiting job."""
        return self.cycle().start_us(job_id)

    def report_cores(self, job_id: int, attempt: int, *, idle: int, excluded: int = 0, node: int = 0) -> None:
        """The node's report of the attempt's cores."""
        incarnation = self.state.nodes[node].incarnation
        self.report(CoresReported(node, incarnation, job_id, attempt, idle, excluded))

    def plan(self) -> list[int]:
        """One planning cycle; the ids of the jobs it placed."""
        batch = self.batch(self.planned())
        return [fact.job_id for fact in batch.facts if isinstance(fact, JobPlaced)]

    def pass_time(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)
        self.send(Tick())

    # ---- out ----

    def sends(self) -> list[Send]:
        return self.delivery.take_due(self.now_us)

    def done(
        self,
        send: Send,
        status: str = "ok",
        nodes: tuple[int, ...] | None = None,
        payload: bytes = b"",
        code: int = 0,
    ) -> None:
        """All of the send's nodes answered `status`; with `nodes`, the others were unreached."""
        hit = send.nodes if nodes is None else nodes
        outcomes = [NodeOutcome(hit, status, "why" if status == "failed" else "", payload, code)]
        rest = tuple(number for number in send.nodes if number not in hit)
        if rest:
            outcomes.append(NodeOutcome(rest, "unreached"))
        message = EffectDone(send.revision, 0, tuple(outcomes))
        self.send(message)
        self.delivery.on_done(message, self.now_us)

    def answer_of(self, send: Send) -> bytes:
        """The answer of a node that has carried out the command."""
        match send.body:
            case Prepare(start=True) | Start():
                return msgspec.msgpack.encode(Started(self.now_us))
            case End():
                return msgspec.msgpack.encode(Gone(started=True))
            case _:
                return b""

    def deliver(self) -> list[Send]:
        """Every due send is answered well by all of its nodes (never started: no `End` finds anything)."""
        sent = self.sends()
        for send in sent:
            self.done(send, payload=self.answer_of(send))
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

    def lose(self, number: int) -> None:
        """An administrator vouches that nothing runs on the node any more."""
        self.send(UpdateNodes(ROOT, (f"cn{number}",), "lost"))

    def requeue(self, job_id: int, by: Principal = ALICE) -> BatchAnswer:
        return self.send(RequeueJobs(by, (JobRef(job_id),)))

    def hold(self, job_id: int, by: Principal = ALICE, *, release: bool = False) -> BatchAnswer:
        return self.send(HoldJobs(by, (JobRef(job_id),), release))

    def attempt(self, job_id: int) -> Attempt:
        attempt = self.job(job_id).attempt
        assert attempt is not None, f"job {job_id} has no attempt"
        return attempt

    def kinds(self, since: int = 0) -> list[str]:
        """The log's facts from a position on, by name."""
        return [type(fact).__name__ for fact in self.log[since:]]

    def state_of(self, job_id: int) -> str:
        return self.job(job_id).state.value


def refused(answer: BatchAnswer) -> str:
    """The refusal's text; fails when the answer is none."""
    assert isinstance(answer, Refused), answer
    return answer.text


def depends(kind: str, job_id: int = 0, delay_s: int = 0) -> tuple[Dependency, ...]:
    return (Dependency(kind, job_id, delay_s),)


def problem(answer: BatchAnswer) -> str:
    """The text of the one thing that could not be changed; fails when all could."""
    assert isinstance(answer, Changed), answer
    assert len(answer.problems) == 1, answer
    return answer.problems[0].text
