"""Drives the agent's core in virtual time: the host's spool and runner, a link up, and the relay.

What is done when is decided by `core.agent.pipeline`, as in the daemon. Invariants: the runner is spoken to over one
ordered channel, which breaks with the process; a crash may happen between any two actions, and in the middle of a write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from eslurm.core.agent import actions as act
from eslurm.core.agent.attempt import MAY_START_STEPS
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.node import NodeOffer
from eslurm.core.agent.pipeline import (
    AgentPipeline,
    CompactSpool,
    Output,
    ProbeSpool,
    SpoolOrder,
    WriteSpool,
    carry_out,
)
from eslurm.core.agent.records import Booted, fold
from eslurm.core.agent.restore import restore
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import Report
from eslurm.core.model.step_key import StepKey
from eslurm.core.relay import messages as tree
from eslurm.core.relay.relay import Relay
from eslurm.lab.sim import agent_invariants, wire
from eslurm.lab.sim.gateway_draws import gateway_argv
from eslurm.lab.sim.health_checks import CHECKS, run_of
from eslurm.lab.sim.phase_checks import LIMIT_S
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.spool import Spool
from eslurm.lab.sim.step_runner import MemoryStepRunner
from eslurm.lab.sim.violation import require
from eslurm.lab.sim.world_view import WorldView
from eslurm.ports.step_ends import step_end
from eslurm.ports.step_runner import (
    StepEndCause,
    StepOutcome,
    StepRunnerError,
    StepSpec,
    StepStarted,
    StepState,
    StepWarning,
)

DIAL_TIMEOUT_US = 1_000_000
BLOB_US = 20_000
RUNNER_US = 3_000
SYNC_US = 3_000
"""Longest time that a write to the disk takes; one to the page cache mostly takes none."""
CACHED_SHARE = 0.9
CHECK_US = 500_000
CHECK_PASSES = 0.7


class Machine(Protocol):
    """The host of an agent process, as it sees it (`host.Host`)."""

    index: int
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    address: str
    skew_us: int
    spool: Spool
    blobs: dict[bytes, None]
    runner: MemoryStepRunner

    @property
    def boot_id(self) -> str: ...

    @property
    def wall_us(self) -> int: ...

    def start_agent(self) -> None: ...

    def crash_agent(self) -> None: ...

    def on_step_ended(self, outcome: StepOutcome) -> None: ...


class AgentDriver(Process):
    """One start of the agent on a host."""

    def __init__(self, world: WorldView, host: Machine) -> None:
        super().__init__(world, host.address, host.skew_us)
        self.host = host
        folded = fold([*host.spool.records, Booted(world.cluster, host.boot_id)])
        offers = [
            NodeOffer(
                name,
                folded.identities.get(name) or f"{name}@{self.name}",
                world.node_offer,
                phases=world.phases.get(number, ()),
                phase_limit_s=LIMIT_S,
                health=CHECKS if world.unhealthy else (),
            )
            for number, name in zip(host.numbers, host.names, strict=True)
        ]
        self.agent = Agent(
            cluster=world.cluster,
            process=self.name,
            session=self.name,
            boot_id=host.boot_id,
            endpoint=host.address,
            offers=offers,
            has_blob=host.blobs.__contains__,
        )
        self._folded = folded
        numbers = [folded.numbers[name] for name in host.names if name in folded.numbers]
        self.relay = Relay(numbers, tuning=world.tuning)
        self.crash_after: int | None = None
        self._uplink = ""
        self._dialled = ""
        self._dials = host.index
        self._is_dialling = False
        self._runner_free_us = 0
        self._outgoing: list[Report] = []
        self.pipeline = AgentPipeline(self.agent, lambda: host.spool.wants_compaction)
        self._outputs: deque[Output] = deque()
        self._is_acting = False
        self._order: SpoolOrder | None = None
        self._calls: dict[type[Output], Callable[[Any], None]] = {
            WriteSpool: self._begin_order,
            ProbeSpool: self._begin_order,
            CompactSpool: self._begin_order,
            act.Answer: self._answer,
            act.SendReport: self._send_report,
            act.RunBatch: self._run_batch,
            act.RunTasks: self._run_tasks,
            act.AwaitStep: self._await_step,
            act.RunPhase: self._run_phase,
            act.RunCheck: self._run_check,
            act.RunHealthCheck: self._run_health_check,
            act.SignalStep: self._signal_step,
            act.TerminateStep: self._terminate_step,
            act.SuspendStep: self._suspend_step,
            act.LimitStep: self._limit_step,
            act.AcknowledgeSteps: self._acknowledge_steps,
            act.FetchBlobs: self._fetch_blobs,
            act.Contact: self._contact,
            act.Vacate: lambda _action: None,
            act.Numbered: self._numbered,
        }

    def start(self) -> None:
        """Become what the spool and the runner remember, and look for a way up."""
        known = self.host.runner.do_list()
        live = [(step.key, step.at_us) for step in known if isinstance(step, StepStarted)]
        ended = [(step.key, step_end(step)) for step in known if isinstance(step, StepOutcome)]
        self.world.coverage.on_restart(key for key, _ in live)
        self.world.checks.on_agent_started(self.host.numbers)
        self._do(restore(self.agent, self._folded, live, ended, self.now_us))
        if self.alive:
            self.later(RUNNER_US, self.host.runner.reconnect, self.host.on_step_ended)
            self._dial()

    # ---- the way up ----

    def _dial(self) -> None:
        if not self._is_dialling:
            self._is_dialling = True
            self._dial_next()

    def _dial_next(self) -> None:
        if self._uplink:
            self._is_dialling = False
            return
        addresses = self.world.ways_up
        self._dialled = self.world.network.find_dialled(addresses[self._dials % len(addresses)])
        self._dials += 1
        if self._dialled:
            self.send(self._dialled, wire.Hello())
        self.later(DIAL_TIMEOUT_US, self._dial_next)

    def on_message(self, source: str, message: Any) -> None:
        """The relay's messages, acknowledgements, and the answer to a dial."""
        now_us = self.now_us
        kind = type(message)
        if self.relays(self.relay, source, message):
            pass
        elif kind is wire.Acks:
            for ack in message.acks:
                self.world.checks.on_heard(ack.revision, "an acknowledgement")
                self._act(self.agent.on_ack(ack, now_us))
        elif kind is wire.Welcome and source == self._dialled and not self._uplink:
            self._uplink = source
            self._act(self.agent.on_link_up(now_us, message.owner, message.epoch))
        if self.alive:
            self.arm()

    def on_link_down(self, peer: str) -> None:
        """A peer is out of reach; if it was the way up, another is looked for."""
        self.perform(self.relay.on_link_down(peer, self.now_us))
        if self.alive and peer == self._uplink:
            self._uplink = ""
            self._act(self.agent.on_link_down(self.now_us))
            self._dial()
        if self.alive:
            self.arm()

    def on_refused(self, broadcast_id: tree.BroadcastId, heads: tuple[int, ...]) -> None:
        """No process listens at a child's address."""
        self.perform(self.relay.on_refused(broadcast_id, heads, "connection refused", self.now_us))
        if self.alive:
            self.arm()

    # ---- time ----

    def next_timer_us(self) -> int | None:
        """The relay's or the agent's."""
        one_us, other_us = self.relay.next_timer_us(), self.pipeline.next_timer_us()
        if one_us is None or other_us is None:
            return other_us if one_us is None else one_us
        return min(one_us, other_us)

    def on_timer(self) -> None:
        """Both look at the clock."""
        self.perform(self.relay.on_timer(self.now_us))
        if self.alive:
            self._carry_out(self.pipeline.on_timer(self.now_us))

    # ---- carrying out ----

    def perform_other(self, action: Any) -> None:
        """The own part of a broadcast."""
        command = self.world.unseal(action.command)
        self.world.checks.on_heard(command.revision, "a command")
        dated_us = min(self.now_us, self.host.wall_us)
        actions = self.pipeline.obey(action, command, self.now_us, dated_us)
        self.world.checks.on_obeyed(command.epoch, action.nodes, actions)
        self._act(actions)

    def _do(self, actions: Sequence[act.Action]) -> None:
        """Carry out what follows from an event, and set the timer."""
        self._act(actions)
        if self.alive:
            self.arm()

    def _act(self, actions: Sequence[act.Action]) -> None:
        """Hand the actions of one call to the pipeline."""
        if self.alive:
            self._carry_out(self.pipeline.perform(actions, self.now_us))

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        self._outputs.extend(outputs)
        if self._is_acting:
            return
        self._is_acting = True
        while self._outputs and self.alive:
            output = self._outputs.popleft()
            call = self._calls.get(type(output))
            if call is not None and not self._crashes_at(output):
                call(output)
        self._is_acting = False
        if self.alive:
            self._flush()
            breaches = agent_invariants.check(self.agent) if self.world.checks.samples_agent() else []
            require(not breaches, f"{self.name}: {'; '.join(breaches)}")

    def _flush(self) -> None:
        if self._outgoing:
            batch, self._outgoing = tuple(self._outgoing), []
            if self._uplink:
                self.world.faults.overhear(batch)
                self.send(self._uplink, wire.Reports(batch))

    def _crashes_at(self, output: Output) -> bool:
        if self.crash_after is None:
            return False
        self.crash_after -= 1
        if self.crash_after >= 0:
            return False
        self.crash_after = None
        if isinstance(output, SpoolOrder):
            self._order = output
        self.world.note_fault("agent_crash_between_actions", self.address)
        self.host.crash_agent()
        self.world.scheduler.call_in(self.world.restart_delay_us(), self.host.start_agent)
        return True

    # ---- the spool ----

    def _begin_order(self, order: SpoolOrder) -> None:
        self._order = order
        random = self.world.random
        is_cached = type(order) is WriteSpool and not order.durable and random.random() < CACHED_SHARE
        delay_us = 0 if is_cached else int(random.random() * SYNC_US)
        delay_us += max(0, self.host.spool.hangs_until_us - self.world.scheduler.at_us)
        if delay_us:
            self.later(delay_us, self._end_order)
        else:
            self._end_order()

    def _end_order(self) -> None:
        order, self._order = self._order, None
        assert order is not None
        self._carry_out(self.pipeline.written(self.now_us, carry_out(order, self.host.spool)))
        if self.alive and not self._is_acting:
            self.arm()

    def on_crash(self) -> None:
        """The process is dead: of records that it was writing some beginning is in the spool."""
        if isinstance(self._order, WriteSpool) and not self.host.spool.is_full:
            records = self._order.records
            for record in records[: self.world.random.randint(0, len(records))]:
                self.host.spool.write(record, durable=False)

    # ---- what the core wants ----

    def _answer(self, action: act.Answer) -> None:
        assert isinstance(action.ref, int)
        self.perform(self.relay.on_local_result(action.ref, action.nodes, action.outcome, self.now_us))

    def _send_report(self, action: act.SendReport) -> None:
        self._outgoing.append(action.report)

    def _numbered(self, action: act.Numbered) -> None:
        self.relay.add_local((action.number,))

    # ---- the runner ----

    def _ask_runner(self, call: Any, *arguments: Any) -> None:
        """Over one ordered channel: nothing overtakes what was asked before."""
        due_us = self.now_us + int(self.world.random.random() * RUNNER_US)
        self._runner_free_us = max(self._runner_free_us, due_us)
        self.later(self._runner_free_us - self.now_us, call, *arguments)

    def _run_batch(self, action: act.RunBatch) -> None:
        launch = action.launch
        self.world.checks.on_launch(launch)
        spec = StepSpec(
            key=action.step,
            node_name=self.world.node_name(action.step.node),
            uid=launch.spec.user.uid,
            gid=launch.spec.user.gid,
            argv=("script",),
            env={},
            cwd=launch.spec.work_dir,
            time_limit_us=launch.spec.time_limit_s * 1_000_000,
            kill_grace_us=int(launch.kill_grace_s * 1e6),
            orphan_timeout_us=int(launch.orphan_timeout_s * 1e6),
            tasks=0 if launch.spec.no_script else 1,
            warning=StepWarning(launch.spec.warn_before_s * 1_000_000, launch.spec.warn_signal)
            if launch.spec.warn_signal
            else None,
        )
        self._ask_runner(self._launch, action.step, spec, self._to_boot_us(action.contact_us))

    def _run_tasks(self, action: act.RunTasks) -> None:
        launch = action.launch
        argv = gateway_argv(action.step, launch) if action.step.is_gateway else action.request.argv
        spec = StepSpec(
            key=action.step,
            node_name=self.world.node_name(action.step.node),
            uid=launch.spec.user.uid,
            gid=launch.spec.user.gid,
            argv=argv,
            env={},
            cwd=action.request.work_dir,
            kill_grace_us=int(launch.kill_grace_s * 1e6),
            orphan_timeout_us=int(launch.orphan_timeout_s * 1e6),
            tasks=action.tasks,
            first_task=action.first_task,
        )
        self._ask_runner(self._launch, action.step, spec, self._to_boot_us(action.contact_us))

    def _await_step(self, action: act.AwaitStep) -> None:
        self._ask_runner(self._await, action.step)

    def _run_phase(self, action: act.RunPhase) -> None:
        self.world.checks.on_launch(action.launch)
        spec = StepSpec(
            key=action.step,
            node_name=self.world.node_name(action.step.node),
            uid=0,
            gid=0,
            argv=(action.step.phase,),
            env={},
            cwd="/",
            time_limit_us=LIMIT_S * 1_000_000,
            kill_grace_us=1_000_000,
        )
        self._ask_runner(self._launch, action.step, spec, 0)

    def _run_check(self, action: act.RunCheck) -> None:
        passed = self.world.faults.is_calm or self.world.random.random() < CHECK_PASSES
        self.later(CHECK_US, self._on_checked, action.node, passed)

    def _on_checked(self, node: int, passed: bool) -> None:
        self._do(self.agent.on_checked(node, self.now_us, passed=passed))

    def _run_health_check(self, action: act.RunHealthCheck) -> None:
        world = self.world
        share = 0.0 if world.faults.is_calm else world.unhealthy
        length_us, text = run_of(world.seed, action.name, action.check, share, world.scheduler.at_us)
        self.later(length_us, self._on_health_checked, action, text)

    def _on_health_checked(self, action: act.RunHealthCheck, text: str | None) -> None:
        self._do(self.agent.on_health_checked(action.name, action.check, self.now_us, text))

    def report_cores(self, key: StepKey, idle: int, *, rejects: bool = False) -> tuple[int, int] | None:
        """An application says how many cores it does not use: (excluded, asked), None when its node cannot say."""
        node = self.agent.registry.by_number.get(key.node)
        attempt = node.attempts.get((key.job_id, key.attempt)) if node is not None else None
        if attempt is None or attempt.stage not in MAY_START_STEPS or attempt.launch is None:
            return None
        actions, view = self.agent.on_cores(attempt, 0, idle, -1, self.now_us, rejects=rejects)
        self._do(actions)
        return view.excluded, view.asked

    def _to_boot_us(self, at_us: int) -> int:
        """A time of this process by the host's clock, which the runner shares; 0 stays 0."""
        return max(0, at_us - self.now_us + self.world.scheduler.at_us) if at_us else 0

    def _launch(self, step: StepKey, spec: StepSpec, contact_us: int) -> None:
        delay_us = int(self.world.random.random() * RUNNER_US)
        try:
            known = self.host.runner.do_launch(spec, contact_us)
        except StepRunnerError as error:
            self.world.coverage.on_refused(str(error))
            self.later(delay_us, self._on_refused_step, step, str(error))
            return
        if step.is_gateway:
            self._await(step)
        else:
            self.later(delay_us, self._on_state, step, known)

    def _await(self, step: StepKey) -> None:
        """Hear of a step of gateways once it is ready, or over."""
        if not self.host.runner.do_await(step, lambda state: self._later_on_state(step, state)):
            self._on_refused_step(step, "the runner does not know the step, and no command starts it")

    def _later_on_state(self, step: StepKey, state: StepState) -> None:
        self.later(int(self.world.random.random() * RUNNER_US), self._on_state, step, state)

    def _on_state(self, step: StepKey, state: StepState) -> None:
        if isinstance(state, StepStarted):
            self._do(self.agent.on_step_started(step, state.at_us, self.now_us, state.ready))
        else:
            self._on_ended(step, step_end(state))

    def _on_refused_step(self, step: StepKey, why: str) -> None:
        self._do(self.agent.on_step_refused(step, why, self.now_us))

    def _on_ended(self, step: StepKey, end: StepEnd) -> None:
        self._do(self.agent.on_step_ended(step, end, self.now_us))

    def hear_of_end(self, outcome: StepOutcome) -> None:
        """The runner says how a step ended."""
        self._if_alive(self._on_step_ended, (outcome,))

    def _on_step_ended(self, outcome: StepOutcome) -> None:
        self._on_ended(outcome.key, step_end(outcome))

    def _signal_step(self, action: act.SignalStep) -> None:
        self._ask_runner(self._on_signal, action.step, action.signal)

    def _on_signal(self, step: StepKey, signal: int) -> None:
        if self.host.runner.do_signal(step, signal):
            self.world.checks.on_signalled(step, signal)

    def _terminate_step(self, action: act.TerminateStep) -> None:
        grace_us = int(action.grace_s * 1e6)
        self._ask_runner(self.host.runner.do_terminate, action.step, StepEndCause.SIGNALLED, grace_us)

    def _suspend_step(self, action: act.SuspendStep) -> None:
        self._ask_runner(self._on_suspend, action.step, action.resume)

    def _on_suspend(self, key: StepKey, resume: bool) -> None:
        if self.host.runner.do_suspend(key, resume):
            self.world.checks.on_still(key, is_still=not resume)

    def _limit_step(self, action: act.LimitStep) -> None:
        limit_us = action.time_limit_s * 1_000_000
        self._ask_runner(self._on_limit, action.step, limit_us)

    def _on_limit(self, key: StepKey, limit_us: int) -> None:
        if self.host.runner.do_set_limit(key, limit_us):
            self.world.checks.on_limit(key, limit_us)

    def _acknowledge_steps(self, action: act.AcknowledgeSteps) -> None:
        self._ask_runner(self.host.runner.do_acknowledge, action.steps)

    def _contact(self, action: act.Contact) -> None:
        self.host.runner.do_contact(action.nodes, self._to_boot_us(action.at_us))

    # ---- blobs ----

    def _fetch_blobs(self, action: act.FetchBlobs) -> None:
        delay_us = int(self.world.random.random() * BLOB_US)
        self.later(delay_us, self._on_fetched, action.hashes)

    def _on_fetched(self, hashes: tuple[bytes, ...]) -> None:
        """The first of these has come or has not; the others are fetched after it."""
        first = hashes[:1]
        if len(hashes) > 1:
            self.later(int(self.world.random.random() * BLOB_US), self._on_fetched, hashes[1:])
        if self.world.fetch_fails():
            self._do(self.agent.on_blobs_missing(first, self.now_us))
            return
        self.world.disk.get_blob(self.world.owner, first[0])
        self.host.blobs[first[0]] = None
        self._do(self.agent.on_blobs(first, self.now_us))
