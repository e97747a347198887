"""The faults of a run and their times, drawn from its seed.

Each run enables some kinds of faults and not others, so that pairs of them meet often. Invariants: after `calm_us` no
fault occurs any more, and everything that was broken is mended; an event's effect depends on itself and the state of the
world, not on the number of events before it.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial

import msgspec

from eslurm.core.model.protocol import Registration, Report
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.fault_actions import STROKES, FaultActions
from eslurm.lab.sim.health_checks import draw_share
from eslurm.lab.sim.host_faults import HostFault, HostFaults, draw_ordeals
from eslurm.lab.sim.network import CALM, Weather
from eslurm.lab.sim.site_view import SiteView

COMMIT_FAULTS_MAX = 8
OVERHEARD_MAX = 200
SKEW_MAX_S = 30.0
HOST_SKEW_US = 15 * SECOND_US
"""Normal error of hosts' wall clocks."""
GATEWAY_FAULTS = 0.3
"""Of the stages that the gateways of jobs go through, the share in which a fault strikes."""
RECONFIGURED_FROM = 10_000
"""Earlier seeds keep the worlds that they had before configurations changed in running clusters."""
RECONFIGURED_SHARE = 0.3
RECONFIGURED_MAX = 64
"""Nodes of a cluster whose configuration changes while it runs."""
KINDS = tuple(STROKES)
FATES = ("before", "torn", "after", "pause")
RISKS = {"commit": 1.0, "answers": 4.0, "claim": 8.0, "renew": 0.5, "release": 12.0, "prune": 2.0}
"""Rate of faults at other writes relative to a plain commit."""


class FaultPlan(msgspec.Struct, frozen=True):
    """The faults of one run. Times are microseconds after its start.

    `commit_crashes` is the share of commits at which the controller dies or stops; a multiple of that for
    other writes (`RISKS`). `skew_s` is how far apart the wall clocks of two controllers may be. With `host_faults`, people
    submit jobs that run for minutes, too. `gateway_faults` is the share of the stages of gateways in which a fault strikes.
    """

    weather: Weather
    events: tuple[tuple[int, str], ...]
    commit_crashes: float
    calm_us: int
    fetch_loss: float = 0.0
    controllers: int = 1
    skew_s: float = 0.0
    ordeals: tuple[HostFault, ...] = ()
    gateway_faults: float = 0.0
    reconfigures: bool = False
    """An administrator changes the configuration of the running cluster, too."""
    unhealthy: float = 0.0
    """Share of time for which each health check of a node fails; 0: nodes have none."""


def draw_plan(seed: int, nodes: int) -> FaultPlan:
    """The plan of a seed."""
    rng = random.Random(f"{seed}/faults")
    calm_us = rng.randint(35, 60) * SECOND_US
    kinds = rng.sample(KINDS, rng.randint(4, len(KINDS)))
    count = rng.randint(7, 14) + min(nodes, 200) // 20
    events = sorted(
        (rng.randint(2 * SECOND_US, calm_us - SECOND_US), rng.choice(kinds)) for _ in range(count)
    )
    ordeals, last_us = draw_ordeals(seed, calm_us)
    return FaultPlan(
        weather=Weather(
            loss=rng.choice((0.0, 0.002, 0.01, 0.04)),
            duplication=rng.choice((0.0, 0.01, 0.05, 0.2)),
            slow=rng.choice((0.0, 0.01, 0.05, 0.2)),
            slow_max_us=rng.choice((20_000, 300_000, 3_000_000)),
        ),
        events=tuple(events),
        commit_crashes=rng.choice((0.0, 0.005, 0.02)),
        calm_us=last_us,
        fetch_loss=rng.choice((0.0, 0.0, 0.02, 0.1)),
        controllers=rng.choice((1, 2, 2, 3)) if nodes <= 200 else rng.choice((1, 2)),
        skew_s=rng.choice((0.0, 2.0, 2 * SKEW_MAX_S)),
        ordeals=ordeals,
        gateway_faults=GATEWAY_FAULTS,
        reconfigures=seed >= RECONFIGURED_FROM
        and nodes <= RECONFIGURED_MAX
        and random.Random(f"{seed}/reconfigures").random() < RECONFIGURED_SHARE,
        unhealthy=draw_share(seed, nodes),
    )


class Offer(msgspec.Struct, frozen=True):
    """A registration as it was sent."""

    process: str
    body: Registration
    report: Report


class Faults:
    """Carries a plan out."""

    def __init__(self, world: SiteView, plan: FaultPlan) -> None:
        self.plan = plan
        self.count = 0
        self.seen: dict[str, int] = {}
        self.is_calm = False
        self.calm_since_us = 0
        """Time at which the last fault was over; 0: not yet."""
        self._world = world
        self._random = random.Random(f"{world.seed}/commits")
        self._commit_faults = 0
        self.ordeals = HostFaults(world, plan.ordeals)
        self._overheard: deque[Offer] = deque(maxlen=OVERHEARD_MAX)

    def schedule(self) -> None:
        """Enter everything into the scheduler."""
        world = self._world
        world.network.weather = self.plan.weather
        for at_us, kind in self.plan.events:
            world.scheduler.call_in(at_us, partial(self.strike, at_us, kind))
        self.ordeals.schedule()
        world.scheduler.call_in(self.plan.calm_us, self._calm)

    def strike(self, at_us: int, kind: str) -> None:
        """A fault of this kind happens; `at_us` is a part of its luck."""
        rng = random.Random(f"{self._world.seed}/{at_us}/{kind}")
        STROKES[kind](FaultActions(self._world, rng))

    def fate_of(self, kind: str) -> str:
        """The fate of the next write: "" (success), or one of `FATES`."""
        share = self.plan.commit_crashes * RISKS[kind]
        if self.is_calm or self._commit_faults >= COMMIT_FAULTS_MAX or self._random.random() >= share:
            return ""
        self._commit_faults += 1
        return self._random.choice(FATES)

    def overhear(self, reports: tuple[Report, ...]) -> None:
        """Reports are on their way: a registration among them may come once more, much later."""
        for report in reports:
            if isinstance(report.body, Registration):
                self._overheard.append(Offer(report.process, report.body, report))

    @property
    def overheard(self) -> tuple[Offer, ...]:
        """Registrations that were sent, whether or not they arrived, the oldest first."""
        return tuple(self._overheard)

    def _calm(self) -> None:
        self.is_calm = True
        world = self._world
        self.calm_since_us = world.scheduler.at_us
        world.network.weather = CALM
        world.network.heal()
        world.network.relieve()
        world.store_is_out = False
        world.disk_is_slow = False
        for seat in world.seats:
            seat.is_cut_off = False
        for host in world.hosts:
            host.spool.is_full, host.spool.hangs_until_us = False, 0
            host.skew_us = max(-HOST_SKEW_US, min(HOST_SKEW_US, host.skew_us))
            if host.agent is not None:
                host.agent.crash_after = None
