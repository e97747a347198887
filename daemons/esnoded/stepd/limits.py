"""The clock of a step: its time limit, the warning before that, and standing still, all on CLOCK_BOOTTIME.

Invariants: a step's limit is counted from its start, less the time it stood still; while it stands still nothing of
this falls due; a step that is being ended is not stopped, and one that was stopped is woken to hear its signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from eslurm.telemetry.clocks import boot_us
from esnoded.procd.wire import Delivery
from esnoded.stepd.guard import Guard
from esnoded.stepd.step import Step
from esnoded.stepd.timers import Timer, Timers

_STOP_AGAIN_US = 50_000
"""Delay of a second stop: a process may have been born to one that was not stopped yet."""
_NOT_YET_US = 10_000


class StepClock:
    """Watches over the limits of all steps of a supervisor; what to do about them is done by its owner.

    `deliver` sends signals, `on_limit` ends a step whose time is up, `on_warning` warns it, with the microseconds left.
    """

    def __init__(
        self,
        timers: Timers,
        guard: Guard,
        deliver: Callable[[Delivery], None],
        on_limit: Callable[[Step], None],
        on_warning: Callable[[Step, int], None],
    ) -> None:
        self._timers = timers
        self._guard = guard
        self._deliver = deliver
        self._on_limit = on_limit
        self._on_warning = on_warning

    def begin(self, step: Step) -> None:
        """The step starts now; one that was ordered to stand still before does so now."""
        step.begun_us = boot_us()
        step.limit_us = step.spec.time_limit_us if step.limit_us < 0 else step.limit_us
        if step.stopped_us:
            step.stopped_us = step.begun_us
            self._stop_soon(step, 2)
        else:
            self._arm(step)

    def suspend(self, step: Step, *, resume: bool) -> None:
        """Stop a step, or let it go on. A queued one only takes note."""
        now_us = boot_us()
        if step.is_ending or resume is not bool(step.stopped_us):
            return
        if not step.begun_us:
            step.stopped_us = 0 if resume else now_us
        elif resume:
            step.paused_us += now_us - step.stopped_us
            step.stopped_us = 0
            self._deliver(Delivery(step.key, (signal.SIGCONT,), "thorough"))
            self._arm(step)
        else:
            step.stopped_us = now_us
            step.cancel_clock()
            if step.announced:
                self._deliver(Delivery(step.key, (signal.SIGSTOP,), "thorough"))
            self._stop_soon(step, 1 if step.announced else 2)

    def set_limit(self, step: Step, limit_us: int) -> None:
        """Another limit, counted from the start; a warning that lies ahead (again) is given (again)."""
        if step.limit_us == limit_us:
            return
        step.limit_us = limit_us
        if not step.begun_us or step.stopped_us or step.is_ending:
            return
        if step.is_warned and step.warning_due_us > boot_us():
            step.is_warned = False
        self._arm(step)

    def _arm(self, step: Step) -> None:
        step.cancel_clock()
        if not step.limit_us or step.is_ending:
            return
        step.limit_timer = self._at(step, step.limit_due_us, lambda: self._on_limit(step))
        if step.spec.warning is not None and not step.is_warned:
            step.warning_timer = self._at(step, step.warning_due_us, lambda: self._warn(step))

    def _warn(self, step: Step) -> None:
        now_us = boot_us()
        if not step.announced:
            # Until it runs its program a signal would end it instead of warning it.
            step.warning_timer = self._at(step, now_us + _NOT_YET_US, lambda: self._warn(step))
            return
        step.is_warned = True
        self._on_warning(step, max(0, step.limit_due_us - now_us))

    def _stop_soon(self, step: Step, times: int) -> None:
        """Stop it so many times more, the first one once it runs its program: before that it could not say that it does."""

        def stop() -> None:
            if not step.stopped_us or step.is_ending:
                return
            left = times
            if step.announced:
                self._deliver(Delivery(step.key, (signal.SIGSTOP,), "thorough"))
                left -= 1
            if left:
                self._stop_soon(step, left)

        step.timers = [timer for timer in step.timers if timer.callback is not None]
        step.timers.append(self._at(step, boot_us() + _STOP_AGAIN_US, stop))

    def _at(self, step: Step, due_us: int, callback: Callable[[], None]) -> Timer:
        return self._timers.at(due_us, self._guard.wrap(step, callback))
