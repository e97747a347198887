"""Links that are bad for longer than every limit: one way cut, slow, lossy or flapping, while jobs run for minutes.

Only some seeds have them. They are drawn from generators of their own, so the other choices of a seed stay what they were.
Invariant: an ordeal strikes one host, mostly one that runs a script, and what it did to its links is mended when it is over.
"""

from __future__ import annotations

import random
from functools import partial

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.network import Trouble
from eslurm.lab.sim.site_view import SiteView

SHARE = 0.35
"""Of the seeds, so many have ordeals."""
LONG_JOBS_MAX = 6
KINDS = ("out", "in", "slow", "lossy", "flapping")
INTERRUPTIONS = ("", "", "crash_controller", "take_over", "pause_controller", "crash_agent", "pause_agent")


class HostFault(msgspec.Struct, frozen=True):
    """One of them: `kind` as in `KINDS`; `then` strikes `then_us` after it began (empty: nothing)."""

    at_us: int
    for_us: int
    kind: str
    then: str = ""
    then_us: int = 0
    strikes_leader: bool = False


def draw_ordeals(seed: int, calm_us: int) -> tuple[tuple[HostFault, ...], int]:
    """The ordeals of a seed whose other faults end at `calm_us`, and when all is calm then."""
    rng = random.Random(f"{seed}/ordeals")
    if rng.random() >= SHARE:
        return (), calm_us
    ordeals = []
    at_us = rng.randint(8, 20) * SECOND_US
    for _ in range(rng.randint(1, 3)):
        for_us = rng.randint(50, 150) * SECOND_US
        then = rng.choice(INTERRUPTIONS)
        then_us = rng.randint(5 * SECOND_US, for_us)
        strikes_leader = rng.random() < 0.1
        ordeals.append(HostFault(at_us, for_us, rng.choice(KINDS), then, then_us, strikes_leader))
        # Two may overlap.
        at_us += rng.randint(20, 120) * SECOND_US
    return tuple(ordeals), max(calm_us, *(one.at_us + one.for_us + 5 * SECOND_US for one in ordeals))


def draw_trouble(rng: random.Random, kind: str) -> Trouble:
    """The faults of the host's links."""
    match kind:
        case "out":
            return Trouble(cuts_out=True)
        case "in":
            return Trouble(cuts_in=True)
        case "slow":
            return Trouble(delay_us=rng.randint(1_500, 12_000) * 1_000)
        case "lossy":
            return Trouble(loss=rng.uniform(0.5, 0.97))
        case _:
            period_us = rng.randint(2, 16) * SECOND_US
            cuts_out = rng.random() < 0.7
            return Trouble(
                cuts_out=cuts_out,
                cuts_in=not cuts_out or rng.random() < 0.3,
                period_us=period_us,
                open_us=int(period_us * rng.uniform(0.1, 0.6)),
            )


class HostFaults:
    """Carries them out."""

    def __init__(self, world: SiteView, ordeals: tuple[HostFault, ...]) -> None:
        self._world = world
        self._ordeals = ordeals

    @property
    def long_jobs(self) -> int:
        """Number of long jobs submitted for them."""
        return min(LONG_JOBS_MAX, 2 * len(self._ordeals))

    def schedule(self) -> None:
        """Enter everything into the scheduler."""
        for ordeal in self._ordeals:
            self._world.scheduler.call_in(ordeal.at_us, partial(self._begin, ordeal))

    def _begin(self, ordeal: HostFault) -> None:
        world = self._world
        rng = random.Random(f"{world.seed}/ordeal/{ordeal.at_us}")
        address = self._victim(rng, ordeal)
        if not address:
            return
        world.note_fault(f"long_{ordeal.kind}", f"{address} for {ordeal.for_us / SECOND_US:.0f} s")
        world.network.trouble(address, draw_trouble(rng, ordeal.kind))
        world.scheduler.call_in(ordeal.for_us, partial(self._end, ordeal, address))
        if ordeal.then:
            world.scheduler.call_in(ordeal.then_us, partial(world.faults.strike, ordeal.at_us, ordeal.then))

    def _victim(self, rng: random.Random, ordeal: HostFault) -> str:
        world = self._world
        if ordeal.strikes_leader:
            return world.controller.address if world.controller is not None else ""
        busy = world.checks.busy_hosts
        return rng.choice(busy or world.hosts).address

    def _end(self, ordeal: HostFault, address: str) -> None:
        world = self._world
        world.network.relieve(address)
        world.note(f"{address} is well again")
        if not ordeal.strikes_leader and ordeal.for_us > world.config.node_lost_after_s * SECOND_US:
            world.coverage.count(f"link {ordeal.kind} for longer than node_lost_after_s")
