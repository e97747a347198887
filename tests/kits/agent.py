"""An agent's core with a scripted runner, a spool in memory and a controller played by the test. No I/O, no clock.

`perform` carries out actions like the shell does. With `crash_at` it stops dead before that many-th action; `restart`
then makes a new agent of what the spool and the runner still know.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from eslurm.core.agent import actions as act
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.node import NodeOffer
from eslurm.core.agent.records import Booted, Record, fold
from eslurm.core.agent.restore import restore
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.node_health import CheckTerms
from eslurm.core.model.protocol import (
    Body,
    Command,
    JobLaunch,
    LaunchStep,
    NodeGone,
    NodeGroup,
    Registration,
    RegistrationReply,
    Report,
    ReportAck,
    StepEnded,
)
from eslurm.core.model.step_key import BATCH_STEP, NodeAttempt, StepKey
from eslurm.core.relay.results import FAILED, Outcome, Status
from eslurm.lab.sim.agent_invariants import check
from tests.kits.launches import launch_of

OWNER = "main"
SECOND = 1_000_000
SCRIPT, ENVIRONMENT = b"s" * 32, b"e" * 32
ME = Principal("me", 1000, 1000)

_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Crashed(Exception):
    """The process died at the planned place."""


class FakeRunner:
    """Outlives the agent. `started` counts how often processes were really made."""

    def __init__(self) -> None:
        self.live: dict[StepKey, int] = {}
        self.ended: dict[StepKey, StepEnd] = {}
        self.ready: dict[StepKey, tuple[str, ...]] = {}
        self.started: Counter[StepKey] = Counter()
        self.terminated: list[act.TerminateStep] = []
        self.signalled: list[act.SignalStep] = []
        self.measured: list[act.MeasureSteps] = []
        self.refuses = ""
        self.refuses_code = FAILED

    def launch(self, step: StepKey, at_us: int) -> None:
        if step not in self.live and step not in self.ended:
            self.started[step] += 1
            self.live[step] = at_us

    def finish(self, step: StepKey, end: StepEnd) -> None:
        del self.live[step]
        self.ended[step] = end


class World:
    """One agent process with nodes cn0, cn1, ... whose numbers are 0, 1, ..."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        register: bool = True,
        blobs: bool = True,
        phases: tuple[str, ...] = (),
        health: tuple[CheckTerms, ...] = (),
    ) -> None:
        self.now_us = 1_000 * SECOND
        self.epoch = 1
        self.revision = 0
        self.names = [f"cn{number}" for number in range(nodes)]
        self.phases = phases
        self.health = health
        self.failing: tuple[str, ...] | None = ()
        self.boot_id = "boot-1"
        self.spool: list[bytes] = []
        self.runner = FakeRunner()
        self.blobs = {SCRIPT, ENVIRONMENT} if blobs else set()
        self.incarnations: dict[int, int] = {}
        self.crash_at: int | None = None
        self.actions = 0
        self.answers: list[act.Answer] = []
        self.reports: dict[int, Report] = {}
        self.history: list[Report] = []
        self.log: list[act.Action] = []
        self.contacts: list[tuple[tuple[int, ...], int]] = []
        self.vacated: list[NodeAttempt] = []
        self._runs = 0
        self._events: deque[Callable[[], list[act.Action]]] = deque()
        self._refs = 0
        self.restart(crash=False)
        if register:
            self.register()

    # ---- the process ----

    def restart(self, *, crash: bool = True, boot: bool = False) -> None:
        """Start a process; whatever the former one had only in memory is gone."""
        self._runs += 1
        if boot:
            self.boot_id = f"boot-{self._runs}"
            self.runner.live.clear()
        self._events.clear()
        self.reports.clear()
        state = fold(_record_decoder.decode(record) for record in self.spool)
        state.add(Booted("test", self.boot_id))
        self.agent = Agent(
            cluster="test",
            process=f"p{self._runs}",
            session=f"s{self._runs}",
            boot_id=self.boot_id,
            endpoint="127.0.0.1:1",
            offers=[
                NodeOffer(name, f"uid-{name}", (4, 1024), phases=self.phases, health=self.health)
                for name in self.names
            ],
            has_blob=lambda digest: digest in self.blobs,
        )
        live = list(self.runner.live.items())
        self.perform(restore(self.agent, state, live, list(self.runner.ended.items()), self.now_us))
        self.perform(self.agent.on_link_up(self.now_us))
        self.settle()

    def perform(self, actions: Sequence[act.Action]) -> None:
        """Perform actions as the shell does, one after the other."""
        for action in actions:
            if self.actions == self.crash_at:
                self.crash_at = None
                raise Crashed
            self.actions += 1
            self.log.append(action)
            self._perform(action)
        breaches = check(self.agent)
        assert not breaches, breaches

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.Spool(record):
                self.spool.append(msgspec.msgpack.encode(record))
            case act.Answer():
                self.answers.append(action)
            case act.SendReport(report):
                self.reports[report.seq] = report
                self.history.append(report)
            case act.RunBatch(step) | act.RunTasks(step) | act.RunPhase(step):
                self._launch(step)
            case act.AwaitStep(step):
                self._events.append(lambda: self._tell(step))
            case act.TerminateStep():
                self.runner.terminated.append(action)
            case act.SignalStep():
                self.runner.signalled.append(action)
            case act.AcknowledgeSteps(steps):
                for step in steps:
                    self.runner.ended.pop(step, None)
            case act.Vacate(attempts):
                live = {(step.node, step.job_id, step.attempt) for step in self.runner.live}
                assert not live & set(attempts), "steps of an attempt that has left its node are live"
                self.vacated.extend(attempts)
            case act.MeasureSteps():
                self.runner.measured.append(action)
            case act.Contact(nodes, at_us):
                self.contacts.append((nodes, at_us))

    def _launch(self, step: StepKey) -> None:
        if self.runner.refuses:
            text, code = self.runner.refuses, self.runner.refuses_code
            self._events.append(lambda: self.agent.on_step_refused(step, text, self.now_us, code))
            return
        self.runner.launch(step, self.now_us)
        self._events.append(lambda: self._tell(step))

    def _tell(self, step: StepKey) -> list[act.Action]:
        if step in self.runner.live and step.is_gateway and step not in self.runner.ready:
            return []
        if step in self.runner.live:
            lines = self.runner.ready.get(step, ())
            return self.agent.on_step_started(step, self.runner.live[step], self.now_us, lines)
        end = self.runner.ended.get(step)
        return self.agent.on_step_ended(step, end, self.now_us) if end is not None else []

    def settle(self) -> None:
        """Let the runner's news arrive."""
        while self._events:
            self.perform(self._events.popleft()())

    # ---- the controller ----

    def register(self) -> None:
        """Answer all registrations under way, until every node is registered."""
        while pending := [r for r in self.reports.values() if isinstance(r.body, Registration)]:
            for report in pending:
                self.reply(report)

    def reply(self, report: Report, **fields: object) -> None:
        """Answer one registration; a new session or epoch gets a new incarnation."""
        body = report.body
        assert isinstance(body, Registration)
        number = self.names.index(body.name)
        if body.epoch != self.epoch:
            values: dict[str, object] = {"incarnation": 0, "refused": "stale epoch"}
        else:
            self.incarnations[number] = self.incarnations.get(number, 0) + 1
            values = {"incarnation": self.incarnations[number], "failing": self.failing}
        values |= {"number": number, "epoch": self.epoch, "owner": OWNER} | fields
        self.ack(report.seq, RegistrationReply(body.name, **values))

    def ack(self, seq: int, *replies: RegistrationReply) -> None:
        """Acknowledge a report."""
        report = self.reports.pop(seq)
        self.perform(self.agent.on_ack(ReportAck(report.process, (seq,), replies), self.now_us))
        self.settle()

    def ack_all(self) -> None:
        """Acknowledge all ends and departures under way."""
        for seq in [seq for seq, r in self.reports.items() if not isinstance(r.body, Registration)]:
            self.ack(seq)

    def command(self, body: Body, nodes: Sequence[int] = (0,), **fields: object) -> Command:
        """A command of this controller, under a new revision unless one is given."""
        self.revision += 1
        values: dict[str, object] = {
            "cluster": "test",
            "owner": OWNER,
            "epoch": self.epoch,
            "revision": self.revision,
            "index": 0,
            "nodes": tuple((number, 1) for number in nodes),
            "incarnations": tuple(self.incarnations.get(number, 0) for number in nodes),
            "expires_us": self.now_us + 60 * SECOND,
            "body": body,
        }
        return Command(**(values | fields))

    def give(
        self, command: Command, nodes: Sequence[int] | None = None, deadline_us: int = 5 * SECOND
    ) -> int:
        """Deliver a command in a broadcast of its own; the broadcast's reference."""
        self._refs += 1
        ref = self._refs
        chosen = tuple(nodes if nodes is not None else (number for number, _ in command.nodes))
        self.perform(self.agent.on_command_many(chosen, command, ref, self.now_us, self.now_us + deadline_us))
        return ref

    def order(self, body: Body, nodes: Sequence[int] = (0,), **fields: object) -> dict[int, Outcome]:
        """Give a command, let the runner do its part, and return the answers that came."""
        ref = self.give(self.command(body, nodes, **fields))
        self.settle()
        return self.answered(ref)

    def answered(self, ref: int) -> dict[int, Outcome]:
        """The answers to a broadcast, each node's exactly once."""
        found: dict[int, Outcome] = {}
        for answer in self.answers:
            if answer.ref == ref:
                for node in answer.nodes:
                    assert node not in found, f"node {node} answered twice"
                    found[node] = answer.outcome
        return found

    # ---- things that happen ----

    def finish(self, job_id: int = 7, node: int = 0, step: int = BATCH_STEP, **fields: object) -> None:
        """A step ends."""
        key = StepKey(job_id, 1, step, node)
        values: dict[str, object] = {"exit_code": 0, "started_us": self.now_us, "ended_us": self.now_us}
        self.runner.finish(key, StepEnd(**(values | fields)))
        self.perform(self._tell(key))
        self.settle()

    def be_ready(self, step: int, lines: tuple[str, ...], node: int = 0) -> None:
        """The processes of a step of gateways have said their first lines."""
        key = StepKey(7, 1, step, node)
        self.runner.ready[key] = lines
        self.perform(self._tell(key))
        self.settle()

    def pass_time(self, seconds: float) -> None:
        """Timers fire in their order."""
        until_us = self.now_us + int(seconds * SECOND)
        while (due_us := self.agent.next_timer_us()) is not None and due_us <= until_us:
            self.now_us = max(self.now_us, due_us)
            self.perform(self.agent.on_timer(self.now_us))
            self.settle()
        self.now_us = until_us

    def stages(self, node: int = 0) -> dict[tuple[int, int], str]:
        """The stage of each attempt on a node."""
        attempts = self.agent.registry.by_number[node].attempts
        return {key: attempt.stage.value for key, attempt in attempts.items()}

    def sent(self, kind: type) -> list[Report]:
        """The reports of this kind that were ever sent."""
        return [report for report in self.history if isinstance(report.body, kind)]

    @property
    def ends(self) -> list[StepEnded]:
        return [report.body for report in self.sent(StepEnded)]

    @property
    def gone(self) -> list[NodeGone]:
        return [report.body for report in self.sent(NodeGone)]


def launch(nodes: Sequence[int] = (0,), job_id: int = 7, phases: tuple[str, ...] = ()) -> JobLaunch:
    """A job on these nodes, in this order."""
    return launch_of(
        phases=phases,
        job_id=job_id,
        user=ME,
        groups=tuple(NodeGroup(((number, 1),), (1, 64)) for number in nodes),
        node_names=",".join(f"cn{number}" for number in nodes),
        script_hash=SCRIPT,
        environment_hash=ENVIRONMENT,
    )


def step_launch(nodes: Sequence[int] = (0,), step: int = 0, tasks: int = 1) -> LaunchStep:
    """A step of job 7."""
    return LaunchStep(
        job_id=7,
        attempt=1,
        step=step,
        groups=tuple(NodeGroup(((number, 1),), (1,), tasks) for number in nodes),
        argv=("hostname",),
        environment_hash=ENVIRONMENT,
        work_dir="/",
        endpoint="127.0.0.1:9",
        cookie=b"c",
        tasks=tasks * len(nodes),
    )


def is_ok(outcome: Outcome) -> bool:
    return outcome.status is Status.OK
