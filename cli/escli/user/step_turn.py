"""The creation of a step, and its wait for its turn: until other steps of its job leave it what it claims.

The controller keeps the turn: this command only looks at it, so another controller changes nothing. Invariant: a step whose
command gives up is withdrawn; one whose command is killed has its turn, finds no listener, and is over.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time

from escli import exits
from escli.errors import Interrupted
from escli.failures import CommandFailed
from escli.user.step_calls import await_step, finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.interrupts import Interrupts
    from escli.user.step_claim import Claim
    from escli.user.step_ends import StepTexts, TaskEnds

TOLD_AFTER_S = 1.0
_JOIN_S = 2.0


def begin(
    api: Api, request: Any, interrupts: Interrupts, ends: TaskEnds, texts: StepTexts, claim: Claim
) -> Any | None:
    """Create the step; returns it when it has its turn, None when a signal came first. Raises CommandFailed."""
    try:
        step = api.call("CreateStep", request, request_id=os.urandom(16))
    except CommandFailed as failure:
        raise CommandFailed(failure.code, texts.refused(request.job_id, failure.text)) from None
    if not step.waits:
        return step
    turn = _Turn(api, step)
    try:
        return _await(api, turn, step, interrupts, ends, texts, claim)
    finally:
        turn.close()


def _await(
    api: Api,
    turn: _Turn,
    step: Any,
    interrupts: Interrupts,
    ends: TaskEnds,
    texts: StepTexts,
    claim: Claim,
) -> Any | None:
    label, began_s = f"{step.job_id}.{step.step}", time.monotonic()
    was_told = False
    while True:
        waited_s = time.monotonic() - began_s
        due_s = [TOLD_AFTER_S - waited_s] if not was_told else []
        if claim.immediate_s is not None:
            due_s.append(claim.immediate_s - waited_s)
        select.select(
            [turn.heard.fileno(), interrupts.fileno()], [], [], max(0.0, min(due_s)) if due_s else None
        )
        try:
            interrupts.check()
        except Interrupted:
            finish(api, step, 128 + interrupts.last, interrupts.last)
            ends.problem(label, f"{signal.Signals(interrupts.last).name} while it waited for its turn")
            return None
        if turn.is_over():
            if turn.step is None:
                raise CommandFailed(exits.FAILED, texts.refused(step.job_id, turn.error))
            if was_told:
                ends.begins(label)
            return turn.step
        waited_s = time.monotonic() - began_s
        if claim.immediate_s is not None and waited_s >= claim.immediate_s:
            finish(api, step, 1, 0)
            text = f"--immediate: the step would have to wait for longer than {claim.immediate_s:g} s"
            raise CommandFailed(exits.FAILED, texts.refused(step.job_id, text))
        if not was_told and waited_s >= TOLD_AFTER_S:
            was_told = True
            ends.waits(step.job_id)


class _Turn:
    """Asks for the step's turn in a thread of its own. `heard` is readable once it `is_over`: `step` has its layout, or
    `error` says why there is none.
    """

    def __init__(self, api: Api, step: Any) -> None:
        self.heard, self._tell = socket.socketpair()
        self.step: Any | None = None
        self.error = ""
        self._api = api.another()
        self._asked = step
        self._thread = threading.Thread(target=self._ask, name="turn", daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Check whether the answer is there."""
        return self.step is not None or bool(self.error)

    def close(self) -> None:
        """Wait a moment for the thread: the step has its turn, or is withdrawn, so its answer is due."""
        self._thread.join(_JOIN_S)
        self.heard.close()

    def _ask(self) -> None:
        try:
            with self._api as api:
                step = self._asked
                reply = await_step(
                    api, lambda reply: reply.state != "WAITING", job_id=step.job_id, step=step.step, turn=True
                )
            if reply.HasField("step"):
                self.step = reply.step
            else:
                why = "; ".join(problem.text for problem in reply.failed)
                self.error = why or "the step was withdrawn while it waited for its turn"
        except CommandFailed as failure:
            self.error = failure.text
        finally:
            self._tell.close()
