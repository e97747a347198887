"""Lessons, one at a time, on a thread beside the event loop.

The thread is a daemon thread: a process that ends does not wait for a lesson. A subprocess would need the lesson's input
sent to it, and a fork is not possible where gRPC runs. Invariant: whatever a lesson does, its end is reported on the event
loop exactly once, and the lesson after a failed one waits a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from eslurm.ports.estimator import Lesson, Model

log = logging.getLogger("esestd")

NICE = 10
"""Other processes of this host come first."""


class Learnt(NamedTuple):
    """The end of a lesson: a model, or the reason for none. `cpu_s` is its cost."""

    model: Model | None
    error: BaseException | None
    cpu_s: float


class Trainer:
    """Runs lessons in order. Use it on the loop that made it; `told` is called there."""

    def __init__(self, told: Callable[[Learnt], None]) -> None:
        self._told = told
        self._loop = asyncio.get_running_loop()
        self.busy = False

    def teach(self, lesson: Lesson) -> None:
        """Begin a lesson. None may be under way."""
        assert not self.busy, "a lesson is under way"
        self.busy = True
        threading.Thread(target=self._work, args=(lesson,), name="lesson", daemon=True).start()

    def _work(self, lesson: Lesson) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        model: Model | None = None
        failure: BaseException | None = None
        try:
            model = lesson()
        except BaseException as error:
            failure = error
        learnt = Learnt(model, failure, time.thread_time())
        with suppress(RuntimeError):
            # The loop has ended, and with it the need for a model.
            self._loop.call_soon_threadsafe(self._end, learnt)

    def _end(self, learnt: Learnt) -> None:
        self.busy = False
        self._told(learnt)
