"""The in-memory twin of the step supervisor: steps that take virtual time and end as scripted.

It keeps the promises of `eslurm.ports.step_runner` (once per key, kept until acknowledged, delivered again to a new
listener) and passes the same contract suite. Time comes from the caller's virtual clock; nothing here waits.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.model.step_usage import Amount, StepUse
from eslurm.ports.step_runner import (
    StepEndCause,
    StepOutcome,
    StepOutcomeSink,
    StepRunnerError,
    StepSpec,
    StepStarted,
    StepState,
)

LONG_LIMIT_S = 3_600
"""The time limit that makes a simulated script a long one."""
_FIRST_PID = 1000


class VirtualClock(Protocol):
    """The part of a simulation's clock that a runner needs; microseconds throughout."""

    def now_us(self) -> int:
        """The present."""
        ...

    def call_at(self, due_us: int, callback: Callable[[], None]) -> object:
        """Call back when `due_us` is reached, in the order of (time, call)."""
        ...


class StepScript(msgspec.Struct, frozen=True):
    """Behaviour of a virtual step. `duration_us` None runs until it is ended from outside.

    `spawn_error`, when set, keeps it from starting (then `exit_code` is the code reported). With `ignores_term` only
    SIGKILL ends it. A step of gateways is ready after `ready_us` (None: never), with these first `lines` of its tasks.
    """

    duration_us: int | None = 0
    exit_code: int = 0
    ignores_term: bool = False
    spawn_error: str = ""
    ready_us: int | None = None
    lines: tuple[str, ...] = ()


_HELD = StepScript(duration_us=None)
"""The step of an allocation: no process of it can do anything."""


class _Running(msgspec.Struct, eq=False):
    spec: StepSpec
    script: StepScript
    launched_us: int
    started_us: int
    pid: int
    cause: StepEndCause | None = None
    text: str = ""
    kill_due_us: int | None = None
    limit_us: int = 0
    paused_us: int = 0
    stopped_us: int | None = None
    is_warned: bool = False
    is_ready: bool = False
    waiters: list[Callable[[StepState], None]] = []

    def used_us(self, now_us: int) -> int:
        """Run time without suspensions."""
        until_us = now_us if self.stopped_us is None else self.stopped_us
        return until_us - self.launched_us - self.paused_us


class MemoryStepRunner:
    """Implements `StepRunner` in virtual time. `script_of` says how each step behaves, `wall_us` what the host's wall
    clock says, if that is another one: it is only ever reported. `on_ready` hears of steps of gateways that serve.

    The plain methods (`do_*`) do the work at once, for a simulation without an event loop; the port's are
    thin coroutines over them.
    """

    def __init__(
        self,
        clock: VirtualClock,
        on_ended: StepOutcomeSink,
        script_of: Callable[[StepSpec], StepScript],
        wall_us: Callable[[], int] | None = None,
        on_ready: Callable[[StepKey], None] = lambda key: None,
    ) -> None:
        self._clock = clock
        self._wall_us = wall_us or clock.now_us
        self._on_ended = on_ended
        self._script_of = script_of
        self._on_ready = on_ready
        self._running: dict[StepKey, _Running] = {}
        self._outcomes: dict[StepKey, StepOutcome] = {}
        self._next_pid = _FIRST_PID
        self._contact_us: int | None = None
        self._node_contact_us: dict[int, int] = {}
        self.spawned = 0
        """Number of steps that ever began to run: the measure of "once per key"."""
        self.warned: list[tuple[StepKey, int]] = []
        """Steps warned of their time limit, with the microseconds before it."""

    async def launch(self, order: StepSpec) -> StepState:
        """See `StepRunner.launch`."""
        return self.do_launch(order)

    async def signal(self, key: StepKey, signum: int) -> bool:
        """See `StepRunner.signal`."""
        return self.do_signal(key, signum)

    async def terminate(self, key: StepKey, cause: StepEndCause, grace_us: int) -> bool:
        """See `StepRunner.terminate`."""
        return self.do_terminate(key, cause, grace_us)

    async def suspend(self, key: StepKey, resume: bool = False) -> bool:
        """See `StepRunner.suspend`."""
        return self.do_suspend(key, resume)

    async def set_limit(self, key: StepKey, time_limit_us: int, credential: bytes = b"") -> bool:
        """See `StepRunner.set_limit`."""
        return self.do_set_limit(key, time_limit_us)

    async def list_steps(self) -> Sequence[StepState]:
        """See `StepRunner.list_steps`."""
        return self.do_list()

    async def acknowledge(self, keys: Collection[StepKey]) -> None:
        """See `StepRunner.acknowledge`."""
        self.do_acknowledge(keys)

    async def contact(self, nodes: Collection[int] = (), at_us: int | None = None) -> None:
        """See `StepRunner.contact`."""
        self.do_contact(nodes, at_us)

    async def measure(
        self, attempt: NodeAttempt, steps: Collection[int], *, with_pids: bool = False
    ) -> Sequence[StepUse]:
        """See `StepRunner.measure`: each task computes all of the time, and has no memory."""
        node, job_id, number = attempt
        uses = []
        for one in sorted(set(steps)):
            running = self._running.get(StepKey(job_id, number, one, node))
            if running is None or not running.spec.tasks:
                continue
            tasks, first = running.spec.tasks, running.spec.first_task
            used_us = running.used_us(self._clock.now_us())
            cpu_us = Amount(tasks * used_us, used_us, first, used_us, first)
            pids, ranks = ((running.pid,), (0,)) if with_pids else ((), ())
            uses.append(StepUse(one, tasks, cpu_us, pids=pids, local_ranks=ranks, first_task=first))
        return uses

    async def vacate(self, attempts: Collection[NodeAttempt]) -> None:
        """See `StepRunner.vacate`: steps share nothing here."""

    def do_launch(self, spec: StepSpec, contact_us: int | None = None) -> StepState:
        """Start a step or find it. `contact_us` is its node's last contact, see `StepOrder`."""
        known = self._outcomes.get(spec.key)
        if known is not None:
            return known
        running = self._running.get(spec.key)
        if running is not None:
            return self._state(running)
        if not spec.argv or (spec.tasks < 1 and not spec.key.is_batch):
            raise StepRunnerError("a step needs a program and at least one task")
        if contact_us is not None:
            self.do_contact((spec.key.node,), contact_us)
        if spec.orphan_timeout_us and self._orphaned_us(spec, self._clock.now_us()) <= self._clock.now_us():
            raise StepRunnerError(_no_contact(spec))
        script = self._script_of(spec)
        if not spec.tasks:
            script = _HELD
        now_us, at_us = self._clock.now_us(), self._wall_us()
        if script.spawn_error:
            cause = StepEndCause.SPAWN_FAILED
            outcome = StepOutcome(spec.key, script.exit_code, 0, cause, script.spawn_error, at_us, at_us)
            self._outcomes[spec.key] = outcome
            self._clock.call_at(now_us, lambda: self._report(outcome))
            return outcome
        return self._begin(_Running(spec, script, now_us, at_us, self._next_pid))

    def _begin(self, step: _Running) -> StepStarted:
        spec, start_us = step.spec, step.launched_us
        self._next_pid += spec.tasks
        self.spawned += 1
        self._running[spec.key] = step
        step.limit_us = spec.time_limit_us
        self._arm(step)
        if spec.orphan_timeout_us:
            self._clock.call_at(self._orphaned_us(spec, start_us), lambda: self._on_silence(step))
        return self._state(step)

    def do_await(self, key: StepKey, heard: Callable[[StepState], None]) -> bool:
        """Call back once the step is ready, or over; False when it is unknown. Steps of gateways only are ever ready."""
        step = self._running.get(key)
        if step is not None and not step.is_ready:
            step.waiters.append(heard)
            return True
        known = self._outcomes.get(key) if step is None else self._state(step)
        if known is not None:
            heard(known)
        return known is not None

    def _state(self, step: _Running) -> StepStarted:
        lines = step.script.lines if step.is_ready else ()
        return StepStarted(step.spec.key, step.started_us, step.pid, lines)

    def do_signal(self, key: StepKey, signum: int) -> bool:
        """Signal a step; SIGKILL always ends it, SIGTERM and SIGINT unless its script ignores them."""
        step = self._running.get(key)
        if step is None:
            return False
        polite = signum in (signal.SIGTERM, signal.SIGINT)
        if signum == signal.SIGKILL or (polite and not step.script.ignores_term):
            self._end(step, 0, signum)
        return True

    def do_terminate(self, key: StepKey, cause: StepEndCause, grace_us: int, text: str = "") -> bool:
        """End a step, politely first."""
        step = self._running.get(key)
        if step is None:
            return False
        if step.cause is None:
            step.cause, step.text = cause, text
        self._go_on(step)
        if not step.script.ignores_term:
            self._end(step, 0, signal.SIGTERM)
            return True
        due_us = self._clock.now_us() + grace_us
        if step.kill_due_us is None or due_us < step.kill_due_us:
            step.kill_due_us = due_us
            self._clock.call_at(due_us, lambda: self._end(step, 0, signal.SIGKILL))
        return True

    def do_suspend(self, key: StepKey, resume: bool = False) -> bool:
        """Let a step stand still, or go on."""
        step = self._running.get(key)
        if step is None:
            return False
        if resume:
            self._go_on(step)
        elif step.stopped_us is None and step.cause is None:
            step.stopped_us = self._clock.now_us()
        return True

    def _go_on(self, step: _Running) -> None:
        if step.stopped_us is not None:
            step.paused_us += self._clock.now_us() - step.stopped_us
            step.stopped_us = None
            self._arm(step)

    def do_set_limit(self, key: StepKey, time_limit_us: int) -> bool:
        """Another time limit, counted from the start."""
        step = self._running.get(key)
        if step is None:
            return False
        step.limit_us = time_limit_us
        warning = step.spec.warning
        if warning is not None and time_limit_us - warning.before_us > step.used_us(self._clock.now_us()):
            step.is_warned = False
        self._arm(step)
        return True

    def _arm(self, step: _Running) -> None:
        """Look at the step again when something of it falls due, should it run on: each look sees what is in force then."""
        warning, due_us = step.spec.warning, [step.script.duration_us]
        if not step.is_ready:
            due_us.append(step.script.ready_us)
        if step.limit_us:
            due_us.append(step.limit_us)
            if warning is not None and not step.is_warned:
                due_us.append(step.limit_us - warning.before_us)
        for used_us in due_us:
            if used_us is not None:
                left_us = max(0, used_us - step.used_us(self._clock.now_us()))
                self._clock.call_at(self._clock.now_us() + left_us, lambda: self._look(step))

    def _look(self, step: _Running) -> None:
        if not self._is_live(step) or step.stopped_us is not None:
            return
        used_us, duration_us, warning = (
            step.used_us(self._clock.now_us()),
            step.script.duration_us,
            step.spec.warning,
        )
        ready_us = step.script.ready_us
        if ready_us is not None and used_us >= ready_us and not step.is_ready and step.cause is None:
            step.is_ready = True
            self._on_ready(step.spec.key)
            for heard in step.waiters:
                heard(self._state(step))
            step.waiters = []
        if duration_us is not None and used_us >= duration_us:
            self._end(step, step.script.exit_code, 0)
            return
        if not step.limit_us or step.cause is not None:
            return
        if warning is not None and not step.is_warned and used_us >= step.limit_us - warning.before_us:
            step.is_warned = True
            self.warned.append((step.spec.key, max(0, step.limit_us - used_us)))
        if used_us >= step.limit_us:
            text = f"time limit of {step.limit_us / 1e6:g} s reached"
            self.do_terminate(step.spec.key, StepEndCause.TIME_LIMIT, step.spec.kill_grace_us, text)

    def do_list(self) -> list[StepState]:
        """All known steps, ordered by key."""
        known: dict[StepKey, StepState] = dict(self._outcomes)
        for key, step in self._running.items():
            known[key] = self._state(step)
        return [known[key] for key in sorted(known)]

    def do_acknowledge(self, keys: Collection[StepKey]) -> None:
        """Forget outcomes."""
        for key in keys:
            self._outcomes.pop(key, None)

    def do_contact(self, nodes: Collection[int] = (), at_us: int | None = None) -> None:
        """The silence of these nodes, or of all, counts from then on."""
        now_us = self._clock.now_us()
        at_us = now_us if at_us is None else min(at_us, now_us)
        for node in nodes:
            self._node_contact_us[node] = max(at_us, self._node_contact_us.get(node, 0))
        if not nodes:
            self._contact_us = max(at_us, self._contact_us or 0)

    def _orphaned_us(self, spec: StepSpec, launched_us: int) -> int:
        both = (self._contact_us, self._node_contact_us.get(spec.key.node))
        known = [at_us for at_us in both if at_us is not None]
        return max(known, default=launched_us) + spec.orphan_timeout_us

    def reconnect(self, on_ended: StepOutcomeSink) -> None:
        """The agent was restarted: deliver every unacknowledged outcome to the new listener."""
        self._on_ended = on_ended
        for outcome in tuple(self._outcomes.values()):
            on_ended(outcome)

    def crash(self) -> None:
        """The supervisor dies and is started anew: what ran is lost, what had ended is delivered again."""
        for step in tuple(self._running.values()):
            step.cause, step.text = StepEndCause.LOST, "its step supervisor died while it ran"
            self._end(step, 0, 0, report=False)
        self.reconnect(self._on_ended)

    def power_off(self, is_remembered: Callable[[StepKey], bool]) -> None:
        """The host dies: running steps are over, and known as lost only if their starts had reached the disk.

        Outcomes stay, because they were durable; they are reported at the next `reconnect`.
        """
        for step in tuple(self._running.values()):
            step.cause, step.text = StepEndCause.LOST, "its host was rebooted while it ran"
            self._end(step, 0, 0, report=False)
            if not is_remembered(step.spec.key):
                del self._outcomes[step.spec.key]

    def _on_silence(self, step: _Running) -> None:
        if not self._is_live(step):
            return
        spec, now_us = step.spec, self._clock.now_us()
        due_us = self._orphaned_us(spec, step.launched_us)
        if due_us > now_us:
            self._clock.call_at(due_us, lambda: self._on_silence(step))
            return
        grace_us = max(0, due_us + spec.kill_grace_us - now_us)
        self.do_terminate(spec.key, StepEndCause.ORPHANED, grace_us, _no_contact(spec))

    def _is_live(self, step: _Running) -> bool:
        return self._running.get(step.spec.key) is step

    def _end(self, step: _Running, exit_code: int, signum: int, *, report: bool = True) -> None:
        if not self._is_live(step):
            return
        key, now_us = step.spec.key, self._clock.now_us()
        del self._running[key]
        cause = step.cause or (StepEndCause.SIGNALLED if signum else StepEndCause.EXITED)
        text = step.text or (f"ended by signal {signal.Signals(signum).name}" if signum else "")
        ended_us = step.started_us + now_us - step.launched_us
        outcome = StepOutcome(key, exit_code, signum, cause, text, step.started_us, ended_us)
        self._outcomes[key] = outcome
        for heard in step.waiters:
            heard(outcome)
        if report:
            # Not from within the call that caused it: the real one is heard of later, too.
            self._clock.call_at(now_us, lambda: self._report(outcome))

    def _report(self, outcome: StepOutcome) -> None:
        if self._outcomes.get(outcome.key) is outcome:
            self._on_ended(outcome)


def _no_contact(spec: StepSpec) -> str:
    return f"no contact with the controller for {spec.orphan_timeout_us / 1e6:g} s"
