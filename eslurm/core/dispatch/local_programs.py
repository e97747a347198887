"""The programs that a leader runs on its own host: what the committed state wants, against what runs.

Invariant: each run that has begun in the log is started at most once. It holds nothing that a new leader would miss, which
begins the programs again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from eslurm.core.model.controller_phases import PhaseKey, PhaseStage
from eslurm.core.model.job import Attempt, Job
from eslurm.core.state.cluster import State


class StartProgram(msgspec.Struct, frozen=True):
    """Action: start this run; its end is a `ControllerPhaseDone`."""

    key: PhaseKey
    job: Job
    attempt: Attempt
    program: str
    limit_s: int


class EndProgram(msgspec.Struct, frozen=True):
    """Action: end this run. One that was never started has ended, too."""

    key: PhaseKey


Action: TypeAlias = StartProgram | EndProgram


class LocalPrograms:
    """Call `follow` after each commit of this leader."""

    def __init__(self, state: State) -> None:
        self._state = state
        # What had begun before this leader leads is another one's: it begins again under the new epoch.
        self._epoch_before = state.epoch
        # Runs that were started and are still in the state; True: they are being ended.
        self._started: dict[PhaseKey, bool] = {}

    def __len__(self) -> int:
        return len(self._started)

    def follow(self) -> list[Action]:
        """The programs to start and to end now. Most clusters have none."""
        if not (self._state.phases_running or self._started) or self._state.epoch == self._epoch_before:
            return []
        actions: list[Action] = []
        present: set[PhaseKey] = set()
        for job_id in self._state.phases_running:
            job = self._state.get_job(job_id)
            attempt = job.attempt
            assert attempt is not None and attempt.controller is not None
            phase = attempt.controller
            key = PhaseKey(job_id, attempt.number, phase.name, phase.run)
            present.add(key)
            if phase.stage is PhaseStage.ENDING:
                if not self._started.get(key, False):
                    self._started[key] = True
                    actions.append(EndProgram(key))
            elif key not in self._started:
                self._started[key] = False
                programs = self._state.config.phases
                assert programs is not None
                actions.append(
                    StartProgram(key, job, attempt, programs.program(phase.name), programs.limit_s)
                )
        for key in self._started.keys() - present:
            del self._started[key]
        return actions
