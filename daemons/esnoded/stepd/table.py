"""All steps of one supervisor: starting, ending, limits, outcomes. No sockets here but a step's own output.

Work is done in passes (`advance`), so that what a pass has gathered shares one journal write, one fsync and one
look at /proc. Invariants: one entry per key, in `_queued`, `_steps` or `_ledger`; an intent is
written before a process is made; an outcome is committed before `advance` returns it or a waiter hears it.

Processes are made, signalled and collected by `procd` (`processes`), which tells of their ends.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Literal

from eslurm.core.model.step_key import BATCH_STEP, NodeAttempt, StepKey
from eslurm.core.model.step_usage import StepUse
from eslurm.ports.step_runner import StepEndCause, StepOutcome, StepState
from eslurm.telemetry.clocks import boot_us, wall_us
from esnoded.procd.log import complain, survive
from esnoded.procd.wire import STEPS_MAX, Delivery, Drained, Exited
from esnoded.stepd.epilogs import TaskEpilogs
from esnoded.stepd.gateway_output import GatewayOutput
from esnoded.stepd.groups import Groups
from esnoded.stepd.guard import Guard
from esnoded.stepd.journal import Intent, Journal
from esnoded.stepd.ledger import Ledger
from esnoded.stepd.limits import StepClock
from esnoded.stepd.meter import Meter
from esnoded.stepd.output import OutputLink
from esnoded.stepd.phase_output import PhaseOutput
from esnoded.stepd.processes import Processes, read_report
from esnoded.stepd.step import Step, Task, Waiter, signal_name
from esnoded.stepd.terms import Terms
from esnoded.stepd.timers import Timer, Timers
from esnoded.task.program import SpawnError

LIVE_STEPS_MAX = STEPS_MAX
OUTCOMES_MAX = 262_144
_LAUNCHES_PER_PASS = 16
_DRAIN_US_MAX = 5_000_000
_DELIVER_AGAIN_US = 200_000
_LEFT_GRACE_US = 200_000
_GONE_AGAIN_US = 5_000
_STUCK = "some of its processes did not end when they were killed"


class LaunchRefused(Exception):
    """The step was not taken on, and nothing of it is remembered."""


class StepTable:
    """The steps of one supervisor process, which must have a single thread."""

    def __init__(
        self,
        processes: Processes,
        groups: Groups,
        journal: Journal,
        timers: Timers,
        selector: selectors.BaseSelector,
        outcomes: Iterable[StepOutcome],
        outputs: str = "",
    ) -> None:
        """`outputs` is the directory for the output of phases."""
        self._outputs = outputs
        self._processes = processes
        self._groups = groups
        self._journal = journal
        self._timers = timers
        self._selector = selector
        self._queued: dict[StepKey, Step] = {}
        self._steps: dict[StepKey, Step] = {}
        self._ledger = Ledger(journal, timers, outcomes)
        self._tasks: dict[int, tuple[Step, Task]] = {}
        self._deliveries: list[Delivery] = []
        self._reported: deque[tuple[Step, Task]] = deque()
        self._touched: dict[StepKey, Step] = {}
        self._answers: list[tuple[Waiter, StepState]] = []
        self._contact_us: int | None = None
        self._node_contact_us: dict[int, int] = {}
        self._draining: dict[int, Step] = {}
        self._epilogs = TaskEpilogs(processes)
        self._meter = Meter(groups)
        self._guard = Guard(self._on_bug)
        self._clock = StepClock(
            timers, self._guard, lambda one: self._deliveries.append(one), self._on_limit, self._on_warning
        )
        self.is_stopping = False

    @property
    def live(self) -> int:
        """Steps that are not over, queued ones included."""
        return len(self._steps) + len(self._queued)

    @property
    def has_work(self) -> bool:
        """Check whether another pass is due at once."""
        return bool(self._queued or self._deliveries or self._answers or self._processes.has_events)

    # --- what the agent asks -------------------------------------------------------------------------

    def answer(self, key: StepKey, waiter: Waiter) -> bool:
        """Check whether the step is known; `waiter` gets its state once it runs or is over."""
        outcome = self._ledger.find(key)
        step = self._find(key)
        if outcome is not None:
            self._answers.append((waiter, outcome))
        elif step is not None and step.announced:
            self._answers.append((waiter, step.state()))
        elif step is not None:
            step.waiters.append(waiter)
        return outcome is not None or step is not None

    def check_admission(self) -> None:
        """Raises `LaunchRefused` when no further step can be taken on."""
        if self.is_stopping:
            raise LaunchRefused("the step supervisor is stopping")
        if self.live >= LIVE_STEPS_MAX:
            raise LaunchRefused(f"the step supervisor already runs {self.live} steps")
        if len(self._ledger) >= OUTCOMES_MAX:
            raise LaunchRefused(f"{len(self._ledger)} outcomes wait to be acknowledged")

    def launch(self, spec: Terms, waiter: Waiter) -> None:
        """Take on a step that is not known; `waiter` hears its state once it runs or is over. Raises `LaunchRefused`."""
        if self._is_orphaned(spec):
            raise LaunchRefused(_no_contact(spec))
        self._queued[spec.key] = Step(spec, boot_us(), wall_us(), waiters=[waiter])

    def signal(self, key: StepKey, signum: int) -> bool:
        """Send a signal to all processes of a step in this pass; False when it is not live."""
        step = self._steps.get(key)
        if step is None:
            return False
        self._deliveries.append(Delivery(key, (signum,)))
        return True

    def terminate(self, key: StepKey, cause: StepEndCause, grace_us: int, text: str = "") -> bool:
        """End a step, see `StepRunner.terminate`; False when it is not live."""
        queued = self._queued.pop(key, None)
        if queued is not None:
            queued.cause, queued.text = cause, text or "ended before it was started"
            queued.spawning, queued.signum = False, signal.SIGTERM
            self._steps[key] = queued
            self._touch(queued)
            return True
        step = self._steps.get(key)
        if step is None:
            return False
        if step.is_over:
            # Its outcome is not on the disk yet; what it was is decided.
            if step.delivery is not None:
                self._guard.run(step, step.delivery.hurry)
            return True
        due_us = boot_us() + grace_us
        if step.cause is None:
            step.cause, step.text = cause, text
            step.cancel_clock()
        if not step.spec.tasks:
            step.spawning, step.signum = False, signal.SIGTERM
            self._touch(step)
            return True
        if step.kill_timer is None:
            # TERM before CONT: a stopped process must find it when it wakes up.
            reach: Literal["step", "thorough"] = "thorough" if step.stopped_us else "step"
            self._deliveries.append(Delivery(key, (signal.SIGTERM, signal.SIGCONT), reach))
        elif step.kill_timer.due_us <= due_us:
            return True
        else:
            step.kill_timer.cancel()
        step.kill_timer = self._timers.at(due_us, lambda: self._kill(step))
        return True

    def _kill(self, step: Step) -> None:
        self._deliveries.append(Delivery(step.key, (signal.SIGKILL,)))
        survive("the killing of a group", self._groups.kill, step.key)

    def suspend(self, key: StepKey, *, resume: bool) -> bool:
        """See `StepRunner.suspend`."""
        if (step := self._find(key)) is not None and not step.is_over:
            self._clock.suspend(step, resume=resume)
        return step is not None

    def set_limit(self, key: StepKey, limit_us: int) -> bool:
        """See `StepRunner.set_limit`."""
        if (step := self._find(key)) is not None and not step.is_over:
            self._clock.set_limit(step, limit_us)
        return step is not None

    def limit_us(self, key: StepKey) -> int | None:
        """A live step's time limit as it stands, 0: none; None when it is not live."""
        step = self._find(key)
        if step is None:
            return None
        return step.spec.time_limit_us if step.limit_us < 0 else step.limit_us

    def _find(self, key: StepKey) -> Step | None:
        return self._steps.get(key) or self._queued.get(key)

    def list_steps(self) -> list[StepState]:
        """All known steps, ordered by key."""
        # An outcome whose commit has failed is still listed as live: it must not be reported yet.
        live = {key: step.state() for key, step in (self._queued | self._steps).items()}
        known: dict[StepKey, StepState] = live | {one.key: one for one in self._ledger.all()}
        return [known[key] for key in sorted(known)]

    def measure(self, attempt: NodeAttempt, numbers: Collection[int], *, with_pids: bool) -> list[StepUse]:
        """See `StepRunner.measure`."""
        node, job_id, number = attempt
        keys = (StepKey(job_id, number, one, node) for one in sorted(set(numbers)) if one >= BATCH_STEP)
        steps = [step for key in keys if (step := self._steps.get(key)) is not None]
        return self._meter.measure(steps, with_pids=with_pids)

    def outcomes(self) -> list[StepOutcome]:
        """The unacknowledged outcomes."""
        return self._ledger.all()

    def acknowledge(self, keys: Collection[StepKey]) -> None:
        """Forget outcomes."""
        self._ledger.acknowledge(keys)

    def absorb(self, outcomes: Collection[StepOutcome]) -> None:
        """Keep outcomes of another supervisor, which is gone, until they are acknowledged. Raises OSError."""
        if outcomes:
            self._ledger.absorb(outcomes)

    def contact(self, nodes: Collection[int], at_us: int | None = None) -> None:
        """The silence that orphans are judged by counts from `at_us` on, see `StepRunner.contact`."""
        now_us = boot_us()
        at_us = now_us if at_us is None else min(at_us, now_us)
        for node in nodes:
            self._node_contact_us[node] = max(at_us, self._node_contact_us.get(node, 0))
        if not nodes:
            self._contact_us = max(at_us, self._contact_us or 0)

    def _orphaned_us(self, spec: Terms, launched_us: int) -> int:
        """Time at which a step exceeds the allowed silence.

        A launch is no contact, because it may have been on its way for long; it counts only for an agent that reports
        none.
        """
        both = (self._contact_us, self._node_contact_us.get(spec.key.node))
        known = [at_us for at_us in both if at_us is not None]
        return max(known, default=launched_us) + spec.orphan_timeout_us

    def _is_orphaned(self, spec: Terms) -> bool:
        now_us = boot_us()
        return bool(spec.orphan_timeout_us) and self._orphaned_us(spec, now_us) <= now_us

    def stop(self) -> None:
        """Take on nothing more and end every step; a second call does not wait for the grace."""
        for key, step in (self._queued | self._steps).items():
            grace_us = 0 if self.is_stopping else step.spec.kill_grace_us
            self.terminate(key, StepEndCause.SIGNALLED, grace_us, "the step supervisor was stopped")
        self.is_stopping = True

    # --- one pass ------------------------------------------------------------------------------------

    def advance(self) -> list[StepOutcome]:
        """Do what is due and return the outcomes committed by it.

        1. fire deadlines 2. take note of ends 3. start queued steps 4. deliver signals
        5. let go of what is over 6. journal, with one fsync if a step ended 7. answer who waits
        """
        self._timers.run_due(boot_us())
        for event in self._processes.take_events():
            self._on_event(event)
        self._start_queued()
        self._handle_reports()
        deliveries, self._deliveries = self._deliveries, []
        self._deliver(deliveries)
        ended = [step for step in self._touched.values() if step.is_over]
        self._touched.clear()
        over = [step for step in ended if self._is_gone(step) and self._is_delivered(step)]
        if over:
            survive("letting go of what is over", self._processes.over, [step.key for step in over])
        for step in over:
            # A step is not over twice, whatever its delivery has said meanwhile.
            step.delivery = None
            self._touched.pop(step.key, None)
            survive("the counts of a group", self._close_group, step)
            self._ledger.add(step)
            if step.link is not None:
                self._guard.run(step, step.link.finish)
        committed = self._commit()
        answers, self._answers = self._answers, []
        for waiter, state in answers:
            survive("an answer", waiter, state)
        return committed

    def _is_gone(self, step: Step) -> bool:
        """Check whether an ended step has left no process in its group.

        One that it has left is told to end, and soon killed: a server of its own may have files to remove.
        """
        now_us = boot_us()
        try:
            if self._groups.is_empty(step.key):
                return True
            if not step.gone_by_us:
                step.gone_by_us = now_us + _DRAIN_US_MAX
                self._deliveries.append(Delivery(step.key, (signal.SIGTERM, signal.SIGCONT), "thorough"))
                step.timers.append(
                    self._at(step, now_us + _LEFT_GRACE_US, lambda: self._groups.kill(step.key))
                )
        except OSError as error:
            complain(f"the control group of step {step.key}: {error}")
            return True
        if now_us >= step.gone_by_us:
            step.text = step.text or _STUCK
            return True
        # With the outcome it is cancelled: a step is not over twice.
        step.timers.append(self._at(step, now_us + _GONE_AGAIN_US, lambda: self._touch(step)))
        return False

    def _is_delivered(self, step: Step) -> bool:
        """Check whether the command has the output of an ended step, or is not waited for: not after an order to end."""
        if step.delivery is None or step.is_ending:
            return True
        self._guard.run(step, step.delivery.deliver)
        # After a fault there is none any more.
        return step.delivery is None or step.delivery.is_delivered

    def _close_group(self, step: Step) -> None:
        use = self._groups.use(step.key)
        self._groups.close(step.key)
        if use is not None:
            step.take_use(use)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        """Signals are owed: those that could not all be sent (no descriptor to look at /proc) are sent again."""
        # One that is over by now has nothing left to be signalled, and its key may be another's soon.
        deliveries = [one for one in deliveries if one.key in self._steps]
        if deliveries and not survive("the delivery of signals", self._processes.deliver, deliveries):
            self._timers.at(boot_us() + _DELIVER_AGAIN_US, lambda: self._deliveries.extend(deliveries))

    def _on_bug(self, step: Step, text: str) -> None:
        """Something about this step went wrong here: it ends, and no other one."""
        if step.link is not None:
            survive("an output link", step.link.drop)
        step.delivery = None
        if not step.announced:
            step.fail_spawn(1, text)
        elif step.cause is None:
            step.cause, step.text = StepEndCause.SIGNALLED, text
        step.spawning = False
        step.cancel_clock()
        if step.is_alive:
            self._kill(step)
        if self._steps.get(step.key) is step:
            self._touch(step)

    def _touch(self, step: Step) -> None:
        self._touched[step.key] = step

    def _start_queued(self) -> None:
        batch = [self._queued[key] for key, _ in zip(self._queued, range(_LAUNCHES_PER_PASS), strict=False)]
        if not batch:
            return
        for step in batch:
            self._journal.add(Intent(step.key, step.started_us))
        try:
            self._journal.flush()
        except OSError as error:
            self._refuse_all(batch, error)
            return
        for step in batch:
            del self._queued[step.key]
            self._steps[step.key] = step
            self._guard.run(step, self._begin, step)

    def _refuse_all(self, batch: list[Step], error: OSError) -> None:
        """Fail the batch: without a journal nothing may start; an outcome that cannot be recorded is reported once."""
        self._journal.drop_queued()
        survive("letting go of steps", self._processes.over, [step.key for step in batch])
        for step in batch:
            del self._queued[step.key]
            step.fail_spawn(1, f"the step supervisor cannot write its journal: {error.strerror}")
            outcome = step.end(boot_us())
            self._answers += [(waiter, outcome) for waiter in step.waiters]

    def _begin(self, step: Step) -> None:
        spec = step.spec
        if spec.endpoint is not None:
            step.link = step.delivery = OutputLink(
                self._selector,
                self._timers,
                self._guard,
                self._processes,
                step,
                spec.endpoint,
                lambda why: self._on_output_lost(step, why),
                lambda: self._on_delivered(step),
            )
        elif spec.key.is_phase:
            step.link = PhaseOutput(self._selector, spec.key, self._outputs, partial(self._guard.wrap, step))
        elif spec.key.is_gateway:
            step.link = GatewayOutput(
                self._selector,
                spec.key,
                spec.tasks,
                partial(self._guard.wrap, step),
                lambda lines: self._on_ready(step, lines),
                lambda why: self._on_unready(step, why),
            )
        self._clock.begin(step)
        if spec.orphan_timeout_us:
            due_us = self._orphaned_us(spec, step.launched_us)
            if due_us <= boot_us():
                # The journal may have kept it waiting.
                step.fail_spawn(1, _no_contact(spec))
                self._touch(step)
                return
            step.timers.append(self._at(step, due_us, lambda: self._on_silence(step)))
        if spec.tasks:
            try:
                self._groups.open(spec, self._processes.options)
            except OSError as error:
                step.fail_spawn(1, f"the step's control group cannot be made: {error}")
                self._touch(step)
                return
            self._spawn(step)
        else:
            self._announce(step)

    def _at(self, step: Step, due_us: int, callback: Callable[[], None]) -> Timer:
        return self._timers.at(due_us, self._guard.wrap(step, callback))

    def _on_limit(self, step: Step) -> None:
        text = f"time limit of {step.limit_us / 1e6:g} s reached"
        self.terminate(step.key, StepEndCause.TIME_LIMIT, step.spec.kill_grace_us, text)

    def _on_warning(self, step: Step, left_us: int) -> None:
        warning = step.spec.warning
        assert warning is not None
        if warning.signum and warning.to_first_only:
            self._deliveries.append(Delivery(step.key, (warning.signum,), "first"))
        elif warning.signum:
            mates = [mate for mate in self._steps.values() if mate.is_mate_of(step)]
            self._deliveries += [Delivery(mate.key, (warning.signum,)) for mate in mates]
            if not mates:
                self._deliveries.append(Delivery(step.key, (warning.signum,), "around"))
        if warning.script:
            self._spawn_aside(step, left_us)

    def _spawn_aside(self, step: Step, left_us: int) -> None:
        try:
            pid, report_fd = self._processes.spawn_aside(step.key, round(left_us / 1e6))
        except SpawnError as error:
            step.warning_failure = f"its warning could not be given: {error}"
            return
        task = Task(-1, pid, report_fd, is_aside=True)
        step.tasks.append(task)
        self._watch(step, task)

    def _on_silence(self, step: Step) -> None:
        due_us = self._orphaned_us(step.spec, step.launched_us)
        now_us = boot_us()
        if due_us > now_us:
            step.timers = [timer for timer in step.timers if timer.callback is not None]
            step.timers.append(self._at(step, due_us, lambda: self._on_silence(step)))
            return
        # After a host has slept little or nothing is left of the grace.
        grace_us = max(0, due_us + step.spec.kill_grace_us - now_us)
        self.terminate(step.key, StepEndCause.ORPHANED, grace_us, _no_contact(step.spec))

    def _on_output_lost(self, step: Step, why: str) -> None:
        text = f"connection for its output lost: {why}"
        self.terminate(step.key, StepEndCause.SIGNALLED, step.spec.kill_grace_us, text)

    def _on_delivered(self, step: Step) -> None:
        if step.delivery is not None:
            self._touch(step)

    def _spawn(self, step: Step) -> None:
        """Start the tasks that may start now: all, but none before the first has surely opened the files."""
        self._touch(step)
        while len(step.tasks) < step.spec.tasks and step.cause is None:
            try:
                task = self._spawn_one(step, len(step.tasks))
            except SpawnError as error:
                self._on_spawn_failure(step, error)
                return
            step.tasks.append(task)
            self._watch(step, task)
            if task.report_fd >= 0 and len(step.tasks) == 1:
                return
        step.spawning = any(task.report_fd >= 0 for task in step.tasks)
        if not step.spawning and not step.announced and not step.key.is_gateway:
            self._announce(step)

    def _watch(self, step: Step, task: Task) -> None:
        self._tasks[task.pid] = (step, task)
        if task.report_fd >= 0:
            self._selector.register(
                task.report_fd, selectors.EVENT_READ, lambda _mask: self._reported.append((step, task))
            )

    def _spawn_one(self, step: Step, local: int) -> Task:
        pipes: tuple[int, ...] | None = None
        try:
            pipes = step.link.open_pipes(local) if step.link is not None else None
            pid, report_fd = self._processes.spawn(step.key, local, pipes)
        except OSError as error:
            raise SpawnError(1, f"cannot start task {local}: {error.strerror}") from None
        finally:
            for fd in pipes or ():
                os.close(fd)
        return Task(local, pid, report_fd)

    def _announce(self, step: Step) -> None:
        step.announced = True
        state = step.state()
        self._answers += [(waiter, state) for waiter in step.waiters]
        step.waiters.clear()

    def _on_ready(self, step: Step, lines: tuple[str, ...]) -> None:
        """A step of gateways serves: not before, it counts as started."""
        if not step.announced and not step.is_ending:
            step.ready = lines
            self._announce(step)

    def _on_unready(self, step: Step, why: str) -> None:
        self.terminate(step.key, StepEndCause.SIGNALLED, step.spec.kill_grace_us, why)

    def _on_spawn_failure(self, step: Step, error: SpawnError) -> None:
        step.fail_spawn(error.exit_code, error.text)
        self._touch(step)
        if any(task.alive for task in step.tasks):
            self._kill(step)

    def _handle_reports(self) -> None:
        while self._reported:
            step, task = self._reported.popleft()
            if task.report_fd >= 0:
                self._guard.run(step, self._take_report, step, task)

    def _take_report(self, step: Step, task: Task) -> None:
        self._selector.unregister(task.report_fd)
        failure = read_report(task.report_fd)
        task.report_fd = -1
        if task.is_epilog:
            if failure is not None:
                self._epilogs.failed(step, task, failure.text)
        elif task.is_aside:
            step.warning_failure = f"its warning could not be given: {failure}" if failure is not None else ""
        elif failure is not None:
            self._on_spawn_failure(step, failure)
        elif step.spawning:
            self._spawn(step)

    # --- endings -------------------------------------------------------------------------------------

    def _on_event(self, event: Exited | Drained) -> None:
        if isinstance(event, Exited):
            if (owner := self._tasks.pop(event.pid, None)) is not None:
                self._guard.run(owner[0], self._on_task_exit, *owner, event)
        elif (step := self._draining.pop(event.pid, None)) is not None:
            self._guard.run(step, self._on_drained, step, event)

    def _on_task_exit(self, step: Step, task: Task, event: Exited) -> None:
        task.alive = False
        self._touch(step)
        if task.report_fd >= 0:
            self._take_report(step, task)
        if task.is_epilog:
            self._epilogs.ended(step, task, event.wait_status)
        else:
            self._on_task_ended(step, task, event)
        if step.has_asides_only:
            self._kill(step)
        if not event.is_drained:
            step.draining.add(task.pid)
            self._draining[task.pid] = step
            self._at(step, boot_us() + _DRAIN_US_MAX, lambda: self._give_up_draining(step))

    def _on_task_ended(self, step: Step, task: Task, event: Exited) -> None:
        step.add_usage(event.used)
        # Of gateways the first end counts: the other daemons are ended for it.
        is_moot = step.key.is_gateway and step.is_ending
        if step.cause is not StepEndCause.SPAWN_FAILED and not task.is_aside and not is_moot:
            code = step.add_status(event.wait_status)
            if step.link is not None:
                step.link.task_ended(task.local, code)
            if step.key.is_gateway and step.spec.tasks > 1:
                how = f"exit code {code}" if code >= 0 else f"signal {signal_name(-code)}"
                text = f"daemon {task.local} of {step.spec.tasks} ended with {how}"
                self.terminate(step.key, StepEndCause.EXITED, step.spec.kill_grace_us, text)
            epilog = self._epilogs.begin(step, task, event.wait_status)
            if epilog is not None:
                self._watch(step, epilog)

    def _on_drained(self, step: Step, event: Drained) -> None:
        """A task's group has no process left."""
        step.draining.discard(event.pid)
        self._touch(step)
        step.add_usage(event.used)

    def _give_up_draining(self, step: Step) -> None:
        if step.draining:
            for group in step.draining:
                self._draining.pop(group, None)
            step.draining.clear()
            step.text = step.text or _STUCK
            self._touch(step)

    def _commit(self) -> list[StepOutcome]:
        committed = self._ledger.commit()
        for step, outcome in committed:
            del self._steps[step.key]
            self._answers += [(waiter, outcome) for waiter in step.waiters]
        if committed:
            self._ledger.compact_if_wanted(self._steps.values())
        return [outcome for _, outcome in committed]


def _no_contact(spec: Terms) -> str:
    return f"no contact with the controller for {spec.orphan_timeout_us / 1e6:g} s"
