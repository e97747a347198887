"""An estimator in a simulated cluster: its forecasts are right, wrong, stale, nonsense, or missing.

Invariant: forecasts are advice only; the run's checks find out whether they end, lose or restart anything.
"""

from __future__ import annotations

import random
from typing import Final

from eslurm.core.model.forecast import Forecast
from eslurm.core.model.messages import SetForecasts
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.client import Client
from eslurm.lab.sim.workload_generator import USERS
from eslurm.lab.sim.world_view import WorldView

FIRST_REQUEST: Final = 1 << 64
"""First number of its requests, apart from users'."""
JOBS_MAX: Final = 8
LONG_S: Final = 90
"""Above any user's time limit."""
UNKNOWN_JOB: Final = 2**31 - 1


class Estimator(Client):
    """Says something now and then as long as things go wrong. In some runs there is none."""

    def __init__(self, world: WorldView) -> None:
        super().__init__(world, "estimator", FIRST_REQUEST)
        self._random = random.Random(f"{world.seed}/estimator")
        self._calls = self._random.choice((0, 5, 20, 40))
        # As it saw them last: some have ended since.
        self._known: list[int] = [UNKNOWN_JOB]

    def start(self) -> None:
        """Spread what it says over the time in which things go wrong."""
        last_us = self.world.faults.plan.calm_us - SECOND_US
        for _ in range(self._calls):
            self.later(self._random.randint(SECOND_US, last_us), self._foretell)

    def _foretell(self) -> None:
        rng, controller = self._random, self.world.controller
        if controller is not None and rng.random() < 0.7:
            self._known = [UNKNOWN_JOB, *controller.state.jobs]
        jobs = rng.choices(self._known, k=rng.randint(1, JOBS_MAX))
        by = self.operator if rng.random() < 0.95 else rng.choice(USERS)
        self.call(SetForecasts(by, tuple([(job_id, self._draw()) for job_id in jobs]), "drawn"))

    def _draw(self) -> Forecast:
        """Mostly sensible in itself, and as a rule wrong."""
        rng = self._random
        if rng.random() < 0.03:
            return Forecast(*(rng.randint(-1, LONG_S) for _ in range(4)))
        low_s, middle_s, high_s = sorted(rng.randint(1, LONG_S) for _ in range(3))
        return Forecast(low_s, middle_s, high_s, rng.choice((1, low_s, middle_s, middle_s, high_s, LONG_S)))
