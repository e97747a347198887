"""Applications of a simulated cluster that lend cores, and the jobs around them.

A share of the clusters has such jobs, by generators of their own: the other choices of a seed stay what they are. An
application is the truth of its cores: it uses all but those that it has reported idle, and of these only what its node does
not exclude any more. Invariants: applications and borrowers together never use more cores than a node has (see
`script_runs.Occupancy`); in quiet times an application has its cores back within the grace that its borrowers agreed to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import JobSpec
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.request import Request
from eslurm.core.model.step_key import StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.vector import CORES
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.lab.sim.violation import require

WORLDS_SHARE: Final = 0.15
LIMIT_S: Final = 150
"""The time limit that makes a simulated script run so long that its cores are lent and come back."""
GRACES_S: Final = (0, 1, 3)
BACK_US: Final = (max(GRACES_S) + 12) * SECOND_US
"""Cores come back within the grace, some rounds through satellites, and what broadcasts wait."""
ACT_US: Final = (SECOND_US // 5, 4 * SECOND_US)
BURSTS: Final = 6
HASTE: Final = 0.7
HASTE_US: Final = 80_000


def has_lenders(seed: int) -> bool:
    """Check whether jobs of this seed's cluster lend cores."""
    return random.Random(f"{seed}/lending").random() < WORLDS_SHARE


def draw_lending(rng: random.Random, spec: JobSpec, config: ClusterConfig) -> tuple[JobSpec, ...]:
    """An owner of many cores, and some jobs that would borrow them."""
    plain = replace(
        spec,
        array=None,
        parts=(),
        start_at_us=0,
        deadline_us=0,
        begin_us=0,
        dependencies=(),
        held=False,
        reservation="",
        partition="",
        cells=(),
        gateway=None,
    )
    most = max(1, min(node.total[CORES] for node in config.nodes))
    owner = replace(
        plain,
        components=(Request(cpus_per_task=rng.randint(max(1, most - 1), most)),),
        cooperate=rng.choice(("report", "full", "full,comm=30,time=60")),
        time_limit_s=LIMIT_S,
        requeue=rng.random() < 0.8,
    )
    borrowers = [
        replace(
            plain,
            name="borrower",
            components=(Request(cpus_per_task=rng.randint(1, max(1, most - 1))),),
            borrow=f"{rng.choice(('requeue', 'requeue', 'end'))},{rng.choice(GRACES_S)}",
            time_limit_s=rng.choice((20, LIMIT_S)),
        )
        for _ in range(rng.randint(1, 3))
    ]
    return (owner, *borrowers)


class Surroundings(Protocol):
    """The world as applications see it."""

    seed: int
    scheduler: Scheduler

    def note(self, text: str) -> None:
        """Add a line to the story of the run."""
        ...


class Agent(Protocol):
    """The agent of a node, as applications see it."""

    def report_cores(self, key: StepKey, idle: int, *, rejects: bool = False) -> tuple[int, int] | None:
        """Say how many cores are not used: (excluded, asked), None when it cannot be said now."""
        ...


class Node(Protocol):
    """The host of an application."""

    @property
    def agent(self) -> Agent | None:
        """None while there is none."""
        ...


class Application:
    """One script of a cooperating job, on its first node. `idle` is its word, `excluded` what it was last told."""

    __slots__ = ("cores", "excluded", "host", "idle", "is_over", "key", "rng", "wants_since_us")

    def __init__(self, host: Node, key: StepKey, cores: int, rng: random.Random) -> None:
        self.host, self.key, self.cores, self.rng = host, key, cores, rng
        self.idle = self.excluded = 0
        self.wants_since_us: int | None = None
        self.is_over = False

    @property
    def unused(self) -> int:
        """Cores on which it runs nothing."""
        return min(self.cores, max(self.idle, self.excluded))


class Applications:
    """All that run. `unused` is told of each change of the cores that one does not use; `is_calm` since when all is well."""

    def __init__(
        self,
        world: Surroundings,
        unused: Callable[[StepKey, int], None],
        is_still: Callable[[StepKey], bool],
        calm_since_us: Callable[[], int],
        count: Callable[[str], None],
    ) -> None:
        self._world = world
        self._unused = unused
        self._is_still = is_still
        self._calm_since_us = calm_since_us
        self._count = count
        self._running: dict[StepKey, Application] = {}

    def begin(self, host: Node, key: StepKey, launch: JobLaunch) -> None:
        """A script of a cooperating job begins."""
        cores = next(
            (g.amounts[CORES] for g in launch.groups for first, n in g.runs if first <= key.node < first + n),
            0,
        )
        app = Application(host, key, cores, random.Random(f"{self._world.seed}/application/{key}"))
        self._running[key] = app
        self._later(app)

    def end(self, key: StepKey) -> None:
        """A script is over, however."""
        app = self._running.pop(key, None)
        if app is not None:
            app.is_over = True

    def _later(self, app: Application) -> None:
        self._world.scheduler.call_in(app.rng.randint(*ACT_US), lambda: self._act(app))

    def _act(self, app: Application) -> None:
        if app.is_over:
            return
        self._later(app)
        if self._is_still(app.key):
            return
        wants_back = app.excluded > app.idle
        if not wants_back:
            # It takes its cores back as often as it lets others have some.
            app.idle = 0 if app.idle and app.rng.random() < 0.5 else app.rng.randint(0, app.cores - 1)
        rejects = app.rng.random() < 0.2
        view = self._report(app, app.idle, rejects=rejects)
        if view is None:
            return
        excluded, asked = view
        if app.excluded != excluded:
            self._count("cores excluded" if excluded > app.excluded else "cores given back")
        app.excluded = excluded
        if asked and not rejects and app.rng.random() < 0.7:
            self._count("request to exclude cores granted")
            app.idle = min(app.cores - 1, app.idle + asked)
            self._report(app, app.idle)
        self._unused(app.key, app.unused)
        self._check(app)
        if app.idle > app.excluded and app.rng.random() < HASTE:
            # It takes them back while the order to exclude them may be under way.
            self._world.scheduler.call_in(app.rng.randint(0, HASTE_US), lambda: self._change_mind(app))

    def _change_mind(self, app: Application) -> None:
        if app.is_over or self._is_still(app.key):
            return
        app.idle = 0
        if (view := self._report(app, 0)) is not None:
            app.excluded = view[0]
            self._unused(app.key, app.unused)

    def _report(self, app: Application, idle: int, *, rejects: bool = False) -> tuple[int, int] | None:
        """(excluded, asked) as its node's agent answers; None when there is none now."""
        driver = app.host.agent
        return driver.report_cores(app.key, idle, rejects=rejects) if driver is not None else None

    def _check(self, app: Application) -> None:
        """Hold the owner's wait against what was agreed, as long as nothing fails."""
        now_us = self._world.scheduler.at_us
        if app.excluded <= app.idle:
            app.wants_since_us = None
            return
        app.wants_since_us = app.wants_since_us or now_us
        calm_us = self._calm_since_us()
        if calm_us:
            waited_us = now_us - max(app.wants_since_us, calm_us)
            require(
                waited_us <= BACK_US,
                f"the application of {app.key} waits for its cores for {waited_us / 1e6:.1f} s",
            )
