"""Drives the agent's core: carries out what its pipeline hands out, in order, and reports what becomes of it.

What is done when is decided by `core.agent.pipeline`; here are the step runner, the spool's thread, blobs and the timer.
Invariants: launches and terminations of a step reach the runner in the order in which they were decided; the core is
only ever called on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec, Protocol

import msgspec

from eslurm.core.agent.actions import (
    AcknowledgeSteps,
    Action,
    Answer,
    AwaitStep,
    Contact,
    ExclusionChanged,
    FetchBlobs,
    LimitStep,
    MeasureSteps,
    Numbered,
    Overtaken,
    Refusal,
    RunBatch,
    RunCheck,
    RunHealthCheck,
    RunPhase,
    RunTasks,
    SendReport,
    SignalStep,
    SuspendStep,
    TerminateStep,
    Vacate,
)
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.pipeline import (
    AgentPipeline,
    CompactSpool,
    NotStarted,
    Output,
    ProbeSpool,
    SpoolOrder,
    StorageChanged,
    WriteSpool,
)
from eslurm.core.model.protocol import JobLaunch, Report
from eslurm.core.model.step_key import StepKey
from eslurm.core.model.step_usage import Measured
from eslurm.core.relay.results import FAILED, USER_REFUSED, Outcome, Status, failed
from eslurm.links.blobs import BlobExchange, BlobUnavailable
from eslurm.ports.step_ends import step_end
from eslurm.ports.step_runner import (
    EXIT_CODE_MAX,
    SIGNAL_MAX,
    StepEndCause,
    StepOrder,
    StepOutcome,
    StepRunner,
    StepRunnerError,
    UserRefused,
)
from esnoded.clock import AgentClock
from esnoded.spool import Spool
from esnoded.spool_writer import SpoolWriter

log = logging.getLogger(__name__)
TIMER_AGAIN_US = 1_000_000
INTERNAL_ERROR_CHARS_MAX = 500
MEASURING_MAX = 16
"""Questions about steps that are under way: the answer to further ones is that there are too many."""
MEASURE_TIMEOUT_S = 2.5
"""Half the time of a question in the relay: an agent whose supervisor hangs still answers, and is not taken for silent."""
P = ParamSpec("P")


Check = Callable[[str], Awaitable[str]]
"""Runs the check of the node of this name; returns the reason why it has not passed, empty when it has."""

HealthCheck = Callable[[str], Awaitable[str | None]]
"""Runs a health check of the node of this name; returns how it failed, None when it has passed."""


class AgentLinks(Protocol):
    """The process around the shell: its relay and its link up."""

    def answer(self, broadcast_id: int, nodes: Sequence[int], outcome: Outcome) -> None:
        """Local nodes have an outcome."""
        ...

    def send_report(self, report: Report) -> None:
        """Send up, if there is a way."""
        ...

    def on_numbered(self, name: str, number: int) -> None:
        """Commands for this node may come."""
        ...


class Shell:
    """Drives one `Agent` and its `pipeline`. Feed it with the actions of every call to the agent."""

    def __init__(
        self,
        agent: Agent,
        spool: Spool,
        runner: StepRunner[StepOrder],
        socket: str,
        blobs: BlobExchange,
        links: AgentLinks,
        clock: AgentClock,
        check: Check | None = None,
        job_socket: str = "",
        health: Mapping[str, HealthCheck] | None = None,
    ) -> None:
        """`check` runs the check of a node with a fault; None: there is none. `health` are health checks by their names.

        `socket` and `job_socket` are the sockets for commands and for programs of jobs.
        """
        self.agent = agent
        self._check = check
        self._health = health or {}
        self.pipeline = AgentPipeline(agent, lambda: spool.wants_compaction)
        self._now_us = self.now_us = clock.now_us
        self._to_boot_us = clock.to_boot_us
        self._runner = runner
        self._socket, self._job_socket = socket, job_socket
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._writer = SpoolWriter(spool, self._on_written, self._on_write_failed)
        self._outputs: deque[Output] = deque()
        self._is_acting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._measuring = 0
        self._links = links
        self._acknowledged: list[StepKey] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._closed = False
        self.on_exclusion: Callable[[int], None] = _nothing
        """Called with a job when cores of it were excluded or given back."""
        self._performers: dict[type, Callable[[Any], None]] = {
            WriteSpool: self._writer.begin,
            ProbeSpool: self._writer.begin,
            CompactSpool: self._writer.begin,
            StorageChanged: _log_storage,
            NotStarted: lambda notice: self._log_refused(notice.action, notice.why),
            Answer: lambda action: links.answer(action.ref, action.nodes, action.outcome),
            SendReport: lambda action: links.send_report(action.report),
            RunBatch: self._run_batch,
            RunTasks: self._run_tasks,
            AwaitStep: self._await_step,
            RunPhase: self._run_phase,
            RunCheck: lambda action: self._spawn(self._run_check(action.node)),
            RunHealthCheck: lambda action: self._spawn(self._run_health_check(action)),
            TerminateStep: self._terminate,
            SignalStep: self._signal,
            SuspendStep: self._suspend,
            LimitStep: self._limit,
            AcknowledgeSteps: self._acknowledge,
            Contact: self._contact,
            MeasureSteps: self._begin_measure,
            Vacate: lambda action: self._spawn(_ignoring(self._runner.vacate, action.attempts)),
            FetchBlobs: lambda action: self._spawn(self._fetch(action.hashes)),
            Numbered: lambda action: links.on_numbered(action.name, action.number),
            Overtaken: lambda action: log.warning(
                "node %s registers anew: the controller has accepted a late message of an earlier session",
                action.name,
            ),
            ExclusionChanged: lambda action: self.on_exclusion(action.job_id),
            Refusal: lambda action: log.error("node %s was refused: %s", action.name, action.why),
        }

    def perform(self, actions: list[Action]) -> None:
        """Carry out the actions of one call of the agent in their turn."""
        self._do(self.pipeline.perform(actions, self._now_us()))

    def _do(self, outputs: list[Output]) -> None:
        # What an output leads to at once comes behind the rest.
        self._outputs.extend(outputs)
        if not self._is_acting:
            self._is_acting = True
            try:
                while self._outputs:
                    self._carry_out(self._outputs.popleft())
            finally:
                self._is_acting = False
            self._set_timer()

    def _carry_out(self, output: Output) -> None:
        """An exception ends this action and no other one; a launch is answered with it."""
        try:
            self._performers[type(output)](output)
        except Exception as error:
            log.exception("%s could not be carried out", type(output).__name__)
            if isinstance(output, RunBatch | RunTasks | RunPhase):
                self._refuse(output, internal_error(error))
            elif isinstance(output, SpoolOrder):
                self._on_write_failed()

    def _on_written(self, error: str) -> None:
        self._do(self.pipeline.written(self._now_us(), error))

    def _on_write_failed(self) -> None:
        self._do(self.pipeline.failed(self._now_us()))

    def on_runner_ended(self, ended: StepOutcome) -> None:
        """The runner says how a step ended."""
        key = ended.key
        self._tell("job %d, attempt %d, step %d: ended on node %d", key)
        self.perform(self.agent.on_step_ended(key, step_end(ended), self._now_us()))

    async def close(self) -> None:
        """Stop timers and what waits for the runner; steps run on."""
        self._closed = True
        self.pipeline.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._writer.close()

    # ---- the runner ----

    def _run_batch(self, action: RunBatch) -> None:
        launch = action.launch
        script, environment = self._blob(launch.spec.script_hash), self._blob(launch.spec.environment_hash)
        if script is None or environment is None:
            self._refuse(action, "the script is no longer in the cache")
            return
        contact_us = self._to_boot_us(action.contact_us)
        order = StepOrder(
            *(action.step, action.credential, script, environment, self._socket, contact_us),
            job_socket=self._job_socket,
        )
        self._spawn(self._launch(order))

    def _run_tasks(self, action: RunTasks) -> None:
        environment = self._blob(action.request.environment_hash)
        if environment is None:
            self._refuse(action, "the environment is no longer in the cache")
            return
        order = StepOrder(
            action.step,
            action.credential,
            environment=environment,
            door=self._socket,
            contact_us=self._to_boot_us(action.contact_us),
            job_socket=self._job_socket,
        )
        self._spawn(self._launch(order))

    def _await_step(self, action: AwaitStep) -> None:
        # The runner knows the step: nothing has to permit it again.
        self._spawn(self._launch(StepOrder(action.step, b"")))

    def _run_phase(self, action: RunPhase) -> None:
        end = action.end
        status = None if end is None else (end.exit_code & EXIT_CODE_MAX, min(end.signal, SIGNAL_MAX))
        self._spawn(self._launch(StepOrder(action.step, action.credential, end=status)))

    async def _run_check(self, number: int) -> None:
        name = self.agent.registry.by_number[number].offer.name
        try:
            why = await self._check(name) if self._check is not None else "there is none"
        except Exception as error:
            log.exception("the check of node %s could not be run", name)
            why = internal_error(error)
        if why:
            log.warning("the check of node %s has not passed: %s", name, why)
        else:
            log.info("the check of node %s has passed", name)
        self.perform(self.agent.on_checked(number, self._now_us(), passed=not why))

    async def _run_health_check(self, action: RunHealthCheck) -> None:
        try:
            text = await self._health[action.check](action.name)
        except Exception as error:
            log.exception("health check %s of node %s could not be run", action.check, action.name)
            text = internal_error(error)
        if text is not None:
            log.warning("health check %s of node %s has failed: %s", action.check, action.name, text)
        self.perform(self.agent.on_health_checked(action.name, action.check, self._now_us(), text))

    async def _launch(self, order: StepOrder) -> None:
        step = order.key
        try:
            state = await self._runner.launch(order)
        except StepRunnerError as error:
            code = USER_REFUSED if isinstance(error, UserRefused) else FAILED
            self.perform(self.agent.on_step_refused(step, str(error), self._now_us(), code))
            return
        except Exception as error:
            log.exception(
                "job %d, attempt %d, step %d could not be launched", step.job_id, step.attempt, step.step
            )
            self.perform(self.agent.on_step_refused(step, internal_error(error), self._now_us()))
            return
        if isinstance(state, StepOutcome):
            self.on_runner_ended(state)
        else:
            self._tell("job %d, attempt %d, step %d: began on node %d", order.key)
            self.perform(self.agent.on_step_started(step, state.at_us, self._now_us(), state.ready))

    def _refuse(self, action: RunBatch | RunTasks | RunPhase, why: str) -> None:
        self._log_refused(action, why)
        self.perform(self.agent.on_step_refused(action.step, why, self._now_us()))

    def _log_refused(self, action: RunBatch | RunTasks | RunPhase, why: str) -> None:
        step = action.step
        log.warning(
            "job %d, attempt %d, step %d could not be started here: %s",
            step.job_id,
            step.attempt,
            step.step,
            why,
            extra=self._ids(step.node, action.launch),
        )

    def _terminate(self, action: TerminateStep) -> None:
        grace_us = int(action.grace_s * 1_000_000)
        key = action.step
        self._spawn(_ignoring(self._runner.terminate, key, StepEndCause.SIGNALLED, grace_us))

    def _signal(self, action: SignalStep) -> None:
        self._spawn(_ignoring(self._runner.signal, action.step, action.signal))

    def _suspend(self, action: SuspendStep) -> None:
        self._spawn(_ignoring(self._runner.suspend, action.step, action.resume))

    def _limit(self, action: LimitStep) -> None:
        limit_us = action.time_limit_s * 1_000_000
        self._spawn(_ignoring(self._runner.set_limit, action.step, limit_us, action.credential))

    def _begin_measure(self, action: MeasureSteps) -> None:
        if self._measuring >= MEASURING_MAX:
            self._answer_measure(action, failed("too many questions about steps are open: ask again later"))
            return
        self._measuring += 1
        self._spawn(self._measure(action))

    async def _measure(self, action: MeasureSteps) -> None:
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_S):
                uses = await self._runner.measure(action.attempt, action.steps, with_pids=action.with_pids)
            outcome = Outcome(Status.OK, payload=msgspec.msgpack.encode(Measured(tuple(uses))))
        except TimeoutError:
            outcome = failed("the step supervisor has not answered in time")
        except StepRunnerError as error:
            outcome = failed(str(error))
        except Exception as error:
            log.exception("the steps of job %d could not be measured", action.attempt[1])
            outcome = failed(internal_error(error))
        finally:
            self._measuring -= 1
        self._answer_measure(action, outcome)

    def _answer_measure(self, action: MeasureSteps, outcome: Outcome) -> None:
        ref: Any = action.ref
        self._links.answer(ref, action.attempt[:1], outcome)

    def _acknowledge(self, action: AcknowledgeSteps) -> None:
        if not self._acknowledged:
            self._loop.call_soon(self._flush_acknowledged)
        self._acknowledged.extend(action.steps)

    def _flush_acknowledged(self) -> None:
        keys, self._acknowledged = self._acknowledged, []
        self._spawn(_ignoring(self._runner.acknowledge, keys))

    def _contact(self, action: Contact) -> None:
        self._spawn(_ignoring(self._runner.contact, action.nodes, self._to_boot_us(action.at_us)))

    # ---- blobs ----

    async def _fetch(self, hashes: tuple[bytes, ...]) -> None:
        for digest in hashes:
            try:
                await self._blobs.get(digest)
            except BlobUnavailable as error:
                log.warning("%s", error)
                self.perform(self.agent.on_blobs_missing((digest,), self._now_us()))
            else:
                self.perform(self.agent.on_blobs((digest,), self._now_us()))

    def _blob(self, digest: bytes) -> bytes | None:
        return self._blobs.cache.find(digest) if digest else b""

    # ---- inside ----

    def _tell(self, text: str, key: StepKey) -> None:
        if not log.isEnabledFor(logging.DEBUG):
            return
        node = self.agent.registry.by_number.get(key.node)
        attempt = node.attempts.get((key.job_id, key.attempt)) if node is not None else None
        launch = attempt.launch if attempt is not None else None
        log.debug(text, key.job_id, key.attempt, key.step, key.node, extra=self._ids(key.node, launch))

    def _ids(self, number: int, launch: JobLaunch | None) -> dict[str, object]:
        """Fields of a line about what a launch made: the trace, and the epoch under which the node serves."""
        node = self.agent.registry.by_number.get(number)
        return {
            "epoch": node.epoch if node is not None else 0,
            "trace": launch.spec.trace.hex() if launch is not None else "",
        }

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what was asked of the step runner or for blobs has failed", exc_info=error)

    def _set_timer(self) -> None:
        due_us = self.pipeline.next_timer_us()
        if self._timer is not None:
            if due_us is not None and self._timer_us <= due_us:
                return
            self._timer.cancel()
            self._timer = None
        if due_us is not None and not self._closed:
            self._timer_us = due_us
            self._timer = self._loop.call_later(max(0, due_us - self._now_us()) / 1_000_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._do(self.pipeline.on_timer(self._now_us()))
        except Exception:
            log.exception("what was due now could not be done")
            if self._timer is None and not self._closed:
                # Not at once: it may be due, and fail, for ever.
                self._timer_us = self._now_us() + TIMER_AGAIN_US
                self._timer = self._loop.call_later(TIMER_AGAIN_US / 1_000_000, self._on_timer)


def _log_storage(notice: StorageChanged) -> None:
    if notice.error:
        log.error("the spool cannot be written, no new work is taken until it can: %s", notice.error)
    else:
        log.warning("the spool can be written again")


async def _ignoring(ask: Callable[P, Awaitable[object]], *about: P.args, **more: P.kwargs) -> None:
    """A request whose failure changes nothing: what it is about is decided by what the runner reports."""
    try:
        await ask(*about, **more)
    except StepRunnerError as error:
        log.warning("the step runner: %s", error)


def internal_error(error: Exception) -> str:
    """The text for a fault of the agent's own; its log has the place."""
    return f"internal error: {type(error).__name__}: {error}"[:INTERNAL_ERROR_CHARS_MAX]


def _nothing(_job_id: int) -> None:
    """No process of a job waits."""
