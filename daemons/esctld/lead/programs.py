"""The prolog and epilog of jobs on this leader's host: what the committed state wants is started, and its end is a message.

`core.dispatch.local_programs` decides what to start and to end. Invariant: what goes wrong with one ends that one alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from eslurm.compat.environment import controller_phase_environment
from eslurm.core.control.effects import job_launch
from eslurm.core.dispatch.local_programs import LocalPrograms, StartProgram
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import ControllerPhaseDone, Message
from eslurm.core.model.step_key import EPILOG
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.cluster import State
from eslurm.core.state.faults import why
from eslurm.ports.program_runner import CANCELLED, REFUSED, Program, ProgramRunner

log = logging.getLogger("esctld.programs")


class Programs:
    """`post` takes the messages about their ends."""

    def __init__(self, state: State, runner: ProgramRunner, post: Callable[[Message], None]) -> None:
        self._state = state
        self._runner = runner
        self._post = post
        self._programs = LocalPrograms(state)
        self._running: set[PhaseKey] = set()
        self._is_closed = False

    def on_committed(self) -> None:
        """A batch is durable."""
        for action in self._programs.follow() if not self._is_closed else ():
            if isinstance(action, StartProgram):
                self._start(action)
            elif action.key in self._running:
                self._runner.end(action.key)
            else:
                self._done(action.key, StepEnd(0, cause=CANCELLED))

    async def close(self) -> None:
        """End them: the next leader begins them again."""
        self._is_closed = True
        await self._runner.close()

    def _start(self, action: StartProgram) -> None:
        key = action.key
        again = f" (run {key.run}, after a change of the leader)" if key.run > 1 else ""
        log.info("job %d: controller %s begins%s", key.job_id, key.phase, again)
        try:
            program = Program(action.program, self._environment(action), action.limit_s * SECOND_US)
        except Exception as bug:
            log.exception("the environment of the %s of job %d cannot be made", key.phase, key.job_id)
            self._done(key, StepEnd(1, cause=REFUSED, text=f"its environment cannot be made: {bug}"))
            return
        self._running.add(key)
        self._runner.start(key, program, partial(self._done, key))

    def _environment(self, action: StartProgram) -> dict[str, str]:
        key, job, attempt = action.key, action.job, action.attempt
        numbers = dict.fromkeys([span.node for span in spans_to_come(attempt)])
        end = (job.exit_code, job.exit_signal) if key.phase == EPILOG else None
        return controller_phase_environment(
            job_launch(self._state, job, attempt),
            self._state.node_names(numbers),
            self._state.config.cluster,
            key.phase,
            key.run,
            end,
        )

    def _done(self, key: PhaseKey, end: StepEnd) -> None:
        self._running.discard(key)
        if not end.is_good and end.cause != CANCELLED:
            log.warning("job %d: controller %s failed: %s", key.job_id, key.phase, why(end))
        self._post(ControllerPhaseDone(key, end))
