"""Prolog and epilog of a simulated cluster: which nodes have them, how they go, and what must hold of them (S3).

The processes of the hosts are the truth. Of each attempt and node: a phase is spawned once while the host stays up; nothing
of the job runs before its prolog there has ended well, or from its epilog on; and the node is given back only when its
epilog has ended, unless the host was booted or the node lost.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Final

from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import CHECK, EPILOG, EPILOG_STEP, PROLOG, PROLOG_STEP, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.step_runner import StepScript
from eslurm.lab.sim.violation import require
from eslurm.ports.step_runner import StepEndCause, StepOutcome

WORLDS_SHARE: Final = 0.34
LIMIT_S: Final = 10
FAILING_SHARE: Final = 0.05
HANGING_SHARE: Final = 0.02

Place = tuple[int, int, int]
"""(job, attempt, node)."""


def draw_phases(seed: int, numbers: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The programs of each node's own configuration. Mostly none; in some worlds not all nodes have the same."""
    rng = random.Random(f"{seed}/phases")
    if rng.random() >= WORLDS_SHARE:
        return {}
    both = rng.choice(((PROLOG, EPILOG), (PROLOG, EPILOG), (PROLOG,), (EPILOG,)))
    share = rng.choice((1.0, 1.0, 0.7))
    return {number: (*both, CHECK) for number in numbers if rng.random() < share}


def draw_script(seed: float, key: StepKey, *, is_calm: bool) -> StepScript:
    """The end of a phase: a function of its identity, but that all goes well in the end."""
    rng = random.Random(f"{seed}/{key}")
    fate, seconds = rng.random(), rng.choice((0.0, 0.3, 1.0, 3.0)) * rng.random()
    if fate < HANGING_SHARE and not is_calm:
        return StepScript(duration_us=None, ignores_term=rng.random() < 0.5)
    is_bad = fate < HANGING_SHARE + FAILING_SHARE and not is_calm
    return StepScript(duration_us=int(seconds * SECOND_US), exit_code=1 if is_bad else 0)


class PhaseChecks:
    """Told of every spawn and end, and of what the log says of nodes."""

    def __init__(self, phases: Mapping[int, tuple[str, ...]]) -> None:
        self._phases = phases
        self._named: dict[tuple[int, int], tuple[str, ...]] = {}
        self._spawned: dict[StepKey, None] = {}
        self._ended: dict[StepKey, StepOutcome] = {}
        self._live: dict[Place, set[int]] = {}

    def on_launch(self, launch: JobLaunch) -> None:
        """An agent is about to start something of this attempt."""
        if launch.phases:
            self._named[launch.job_id, launch.attempt] = launch.phases

    def on_spawn(self, key: StepKey) -> None:
        """Processes of a step come into being."""
        place = (key.job_id, key.attempt, key.node)
        epilog = StepKey(*place[:2], EPILOG_STEP, key.node)
        require(
            epilog not in self._spawned, f"{key} is spawned after the epilog, or is the epilog a second time"
        )
        if key.is_phase:
            require(key not in self._spawned, f"the prolog {key} runs a second time")
            live = self._live.get(place)
            require(not live, f"{key} runs beside steps {live} of its attempt")
            self._spawned[key] = None
        elif self._has(place, PROLOG):
            end = self._ended.get(StepKey(*place[:2], PROLOG_STEP, key.node))
            ended_well = end is not None and end.exit_code == 0 and end.cause is StepEndCause.EXITED
            require(ended_well, f"{key} runs before its prolog ended well: {end}")
        self._live.setdefault(place, set()).add(key.step)

    def on_ended(self, outcome: StepOutcome) -> None:
        """Processes of a step are gone."""
        key = outcome.key
        self._live.get((key.job_id, key.attempt, key.node), set()).discard(key.step)
        if key in self._spawned:
            self._ended[key] = outcome

    def on_reboot(self, numbers: Collection[int]) -> None:
        """The host of these nodes was booted: what ran there counts no longer."""
        for key in [key for key in self._spawned if key.node in numbers]:
            del self._spawned[key]
            self._ended.pop(key, None)
        for place in [place for place in self._live if place[2] in numbers]:
            del self._live[place]

    def on_lost(self, number: int) -> None:
        """The controller gave the node up, with all that may still run there."""
        for place in [place for place in self._live if place[2] == number]:
            del self._live[place]

    def on_released(self, job_id: int, attempt: int, numbers: Collection[int]) -> None:
        """The log says that nothing of the attempt is left on these nodes."""
        for number in numbers:
            place = (job_id, attempt, number)
            if place not in self._live:
                continue
            live = self._live[place]
            phases = live & {PROLOG_STEP, EPILOG_STEP}
            require(
                not phases, f"node {number} is given back by attempt {job_id}.{attempt}, whose {phases} runs"
            )
            if self._has(place, EPILOG) and not self._prolog_failed(place):
                epilog = StepKey(job_id, attempt, EPILOG_STEP, number)
                is_over = epilog in self._ended
                require(
                    is_over, f"node {number} is given back without the epilog of attempt {job_id}.{attempt}"
                )

    def _has(self, place: Place, phase: str) -> bool:
        named = self._named.get(place[:2], ())
        return phase in named and phase in self._phases.get(place[2], ())

    def _prolog_failed(self, place: Place) -> bool:
        end = self._ended.get(StepKey(*place[:2], PROLOG_STEP, place[2]))
        return end is not None and (end.exit_code != 0 or end.cause is not StepEndCause.EXITED)
