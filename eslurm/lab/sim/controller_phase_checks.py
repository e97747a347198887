"""Prolog and epilog on a simulated controller's host: whether there are any, how they go, and what must hold of them.

What really runs is the truth. A run that has begun is started at most once; nothing of an attempt runs on a node before its
prolog on the controller's host has ended well; its epilog begins when its script is gone, and runs for each attempt whose
prolog had begun.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import Final

from eslurm.core.model.controller_phases import ControllerPrograms, PhaseKey
from eslurm.core.model.job import StepEnd
from eslurm.core.model.step_key import BATCH_STEP, EPILOG, PROLOG, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.program_runner import ProgramScript
from eslurm.lab.sim.violation import require

WORLDS_SHARE: Final = 0.15
LIMIT_S: Final = 10
FAILING_SHARE: Final = 0.05
HANGING_SHARE: Final = 0.02

Key = tuple[int, int]
"""(job, attempt)."""


def draw_programs(seed: int) -> ControllerPrograms | None:
    """The programs of the cluster's controllers. Mostly none."""
    rng = random.Random(f"{seed}/controller phases")
    if rng.random() >= WORLDS_SHARE:
        return None
    prolog, epilog = rng.choice(
        (("/prolog", "/epilog"), ("/prolog", "/epilog"), ("/prolog", ""), ("", "/epilog"))
    )
    return ControllerPrograms(prolog, epilog, LIMIT_S, rng.choice((1, 2, 64)))


def draw_program(seed: float, key: PhaseKey, *, is_calm: bool) -> ProgramScript:
    """The end of a program: a function of its identity, but that all goes well in the end."""
    rng = random.Random(f"{seed}/{tuple(key)}")
    fate, seconds = rng.random(), rng.choice((0.0, 0.1, 0.5, 3.0)) * rng.random()
    if fate < HANGING_SHARE and not is_calm:
        return ProgramScript(None, ignores_term=rng.random() < 0.5)
    is_bad = fate < HANGING_SHARE + FAILING_SHARE and not is_calm
    return ProgramScript(int(seconds * SECOND_US), exit_code=1 if is_bad else 0)


class ControllerPhaseChecks:
    """Told of every program and every script."""

    def __init__(self, programs: ControllerPrograms | None, coverage: Coverage) -> None:
        self._programs = programs or ControllerPrograms()
        self._coverage = coverage
        self._started: dict[PhaseKey, None] = {}
        self._prepared: set[Key] = set()
        self._finished: set[Key] = set()
        self._scripts: dict[Key, int] = {}

    def on_started(self, key: PhaseKey) -> None:
        """A program begins to run."""
        require(key not in self._started, f"{key} is started a second time")
        self._started[key] = None
        attempt = (key.job_id, key.attempt)
        if key.run > 1:
            self._coverage.count("program run again by a new leader")
        if key.phase == EPILOG:
            require(attempt not in self._finished, f"{key} runs although the epilog has ended")
            node = self._scripts.get(attempt)
            require(node is None, f"{key} runs while the script runs on node {node}")
        else:
            require(
                attempt not in self._prepared or key.run > 1, f"{key} runs although the prolog has ended well"
            )

    def on_ended(self, key: PhaseKey, end: StepEnd) -> None:
        """A program is gone, and its controller hears of it."""
        if key.phase == PROLOG and end.is_good:
            self._prepared.add((key.job_id, key.attempt))

    def on_logged(self, key: PhaseKey) -> None:
        """The log says that this run has ended."""
        if key.phase == EPILOG:
            attempt = (key.job_id, key.attempt)
            require(attempt not in self._finished, f"{key} ends a second time")
            self._finished.add(attempt)

    def on_spawn(self, key: StepKey) -> None:
        """Processes of a step come into being on a node."""
        attempt = (key.job_id, key.attempt)
        if self._programs.prolog:
            require(attempt in self._prepared, f"{key} runs before the controller prolog ended well")
        if key.step == BATCH_STEP:
            self._scripts[attempt] = key.node

    def on_step_ended(self, key: StepKey) -> None:
        """Processes of a step are gone."""
        if key.step == BATCH_STEP:
            self._scripts.pop((key.job_id, key.attempt), None)

    def on_vacated(self, numbers: Collection[int]) -> None:
        """These nodes were booted or given up: what runs there counts no longer."""
        for attempt in [attempt for attempt, node in self._scripts.items() if node in numbers]:
            del self._scripts[attempt]

    def at_end(self, placed: Iterable[Key]) -> None:
        """All is done: each attempt has had what it was owed."""
        if not self._programs.epilog:
            return
        begun = {(key.job_id, key.attempt) for key in self._started if key.phase == PROLOG}
        owed = begun if self._programs.prolog else set(placed)
        missing = sorted(owed - self._finished)
        require(not missing, f"attempts {missing[:5]} have had no controller epilog")
