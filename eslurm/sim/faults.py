"""What goes wrong in a run, drawn from its seed, and when.

Each run enables some kinds of faults and not others, so that pairs of them meet often. Invariant: after
`calm_us` nothing goes wrong any more, and everything that was broken is mended.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from eslurm.core.messages import UpdateNodes, UpdateSatellites
from eslurm.sim.network import CALM, Weather

if TYPE_CHECKING:
    from eslurm.sim.world import World

SECOND_US = 1_000_000
COMMIT_CRASHES_MAX = 6
KINDS = (
    "crash_controller",
    "crash_satellite",
    "crash_satellites_at_work",
    "hang_satellite",
    "down_satellite",
    "crash_agent",
    "crash_agent_between_actions",
    "reboot_host",
    "lose_host",
    "isolate",
    "break_links",
    "store_outage",
    "storm",
)


class FaultPlan(msgspec.Struct, frozen=True):
    """The faults of one run. Times are microseconds after its start.

    `commit_crashes` is the share of commits at which the controller dies; four times that for those that
    carry answers.
    """

    weather: Weather
    events: tuple[tuple[int, str], ...]
    commit_crashes: float
    calm_us: int
    fetch_loss: float = 0.0


def draw_plan(seed: int, nodes: int) -> FaultPlan:
    """The plan of a seed."""
    rng = random.Random(f"{seed}/faults")
    calm_us = rng.randint(35, 60) * SECOND_US
    kinds = rng.sample(KINDS, rng.randint(3, len(KINDS)))
    count = rng.randint(6, 12) + min(nodes, 200) // 20
    events = sorted(
        (rng.randint(2 * SECOND_US, calm_us - SECOND_US), rng.choice(kinds)) for _ in range(count)
    )
    weather = Weather(
        loss=rng.choice((0.0, 0.002, 0.01, 0.04)),
        duplication=rng.choice((0.0, 0.01, 0.05, 0.2)),
        slow=rng.choice((0.0, 0.01, 0.05, 0.2)),
        slow_max_us=rng.choice((20_000, 300_000, 3_000_000)),
    )
    commit_crashes = rng.choice((0.0, 0.005, 0.02))
    return FaultPlan(weather, tuple(events), commit_crashes, calm_us, rng.choice((0.0, 0.0, 0.02, 0.1)))


class Faults:
    """Carries a plan out."""

    def __init__(self, world: World, plan: FaultPlan) -> None:
        self.plan = plan
        self.count = 0
        self.is_calm = False
        self._world = world
        self._random = random.Random(f"{world.seed}/strokes")
        self._commit_crashes = 0
        self._strokes: dict[str, Callable[[], None]] = {
            "crash_controller": lambda: world.crash_controller("at any time"),
            "crash_satellite": self._crash_satellite,
            "crash_satellites_at_work": self._crash_satellites_at_work,
            "hang_satellite": self._hang_satellite,
            "down_satellite": self._down_satellite,
            "crash_agent": self._crash_agent,
            "crash_agent_between_actions": self._arm_agent,
            "reboot_host": self._reboot_host,
            "lose_host": self._lose_host,
            "isolate": self._isolate,
            "break_links": self._break_links,
            "store_outage": self._store_outage,
            "storm": self._storm,
        }

    def schedule(self) -> None:
        """Enter everything into the scheduler."""
        world = self._world
        world.network.weather = self.plan.weather
        for at_us, kind in self.plan.events:
            world.scheduler.call_in(at_us, self._strokes[kind])
        world.scheduler.call_in(self.plan.calm_us, self._calm)

    def next_commit(self, has_answers: bool) -> str:
        """What becomes of the commit that is about to begin: "" (well), before, torn or after."""
        share = self.plan.commit_crashes * (4 if has_answers else 1)
        if self.is_calm or self._commit_crashes >= COMMIT_CRASHES_MAX or self._random.random() >= share:
            return ""
        self._commit_crashes += 1
        return self._random.choice(("before", "torn", "after"))

    def _calm(self) -> None:
        self.is_calm = True
        world = self._world
        world.network.weather = CALM
        world.network.heal()
        world.store_is_out = False
        for host in world.hosts:
            if host.agent is not None:
                host.agent.crash_after = None

    # ---- single strokes ----

    def _crash_satellite(self) -> None:
        if self._world.satellites:
            self._world.crash_satellite(self._random.choice(sorted(self._world.satellites)))

    def _crash_satellites_at_work(self) -> None:
        """One to all of those that have a broadcast under way."""
        satellites = self._world.satellites
        at_work = [index for index in sorted(satellites) if satellites[index].relay.live]
        for index in at_work[: self._random.randint(1, 3)]:
            self._world.crash_satellite(index)

    def _hang_satellite(self) -> None:
        world = self._world
        if world.satellites:
            satellite = world.satellites[self._random.choice(sorted(world.satellites))]
            world.note_fault("hang_satellite", satellite.address)
            satellite.hang(int(self._random.choice((0.3, 2.0, 12.0)) * SECOND_US))

    def _down_satellite(self) -> None:
        """An administrator takes a satellite out of service for a while."""
        world = self._world
        names = world.ways_up[:-1]
        if not names:
            return
        name = self._random.choice(names)
        world.note_fault("down_satellite", name)
        delay_us = int(self._random.uniform(0.2, 10.0) * SECOND_US)
        by = world.client.operator
        down, up = (UpdateSatellites(by, (name,), action, known=names) for action in ("down", "resume"))
        world.client.call(
            down,
            lambda answer: world.scheduler.call_in(
                delay_us, lambda: world.client.call(up, lambda answer: None)
            ),
        )

    def _crash_agent(self) -> None:
        world = self._world
        host = self._random.choice(world.hosts)
        if host.agent is not None:
            world.note_fault("crash_agent", host.address)
            host.crash_agent()
            world.scheduler.call_in(world.restart_delay_us(), host.start_agent)

    def _arm_agent(self) -> None:
        host = self._random.choice(self._world.hosts)
        if host.agent is not None:
            host.agent.crash_after = self._random.randint(0, 6)

    def _reboot_host(self) -> None:
        world = self._world
        host = self._random.choice(world.hosts)
        if not host.is_down:
            world.note_fault("reboot_host", host.address)
            host.power_off()
            world.scheduler.call_in(self._random.randint(1, 15) * SECOND_US, host.power_on)

    def _lose_host(self) -> None:
        """A host dies, an administrator says so, and only then it comes back."""
        world = self._world
        host = self._random.choice(world.hosts)
        if host.is_down:
            return
        world.note_fault("lose_host", host.address)
        host.power_off()
        message = UpdateNodes(world.client.operator, host.names, "lost", "burnt down")
        back = lambda answer: world.scheduler.call_in(SECOND_US, host.power_on)  # noqa: E731
        world.scheduler.call_in(SECOND_US, lambda: world.client.call(message, back))

    def _isolate(self) -> None:
        """Some hosts, satellites or even the controller are cut off from the rest for a while."""
        world = self._world
        addresses = [host.address for host in world.hosts]
        share = self._random.choice((1, max(1, len(addresses) // 8), max(1, len(addresses) // 2)))
        cut = self._random.sample(addresses, share)
        cut += [address for address in world.ways_up if self._random.random() < 0.15]
        world.note_fault("isolate", ", ".join(cut[:8]))
        world.network.isolate(cut)
        world.scheduler.call_in(int(self._random.expovariate(1 / 8) * SECOND_US), world.network.heal)

    def _break_links(self) -> None:
        broken = self._world.network.break_links(self._random.choice((0.05, 0.3, 1.0)))
        self._world.note_fault("break_links", str(broken))

    def _store_outage(self) -> None:
        world = self._world
        world.note_fault("store_outage", "")
        world.store_is_out = True
        world.scheduler.call_in(self._random.randint(200_000, 6 * SECOND_US), self._store_back)

    def _store_back(self) -> None:
        self._world.store_is_out = False

    def _storm(self) -> None:
        """The network is very bad for a moment."""
        world = self._world
        world.note_fault("storm", "")
        world.network.weather = Weather(loss=0.3, duplication=0.3, slow=0.3, slow_max_us=2 * SECOND_US)
        world.scheduler.call_in(self._random.randint(1, 8) * SECOND_US, self._storm_over)

    def _storm_over(self) -> None:
        self._world.network.weather = CALM if self.is_calm else self.plan.weather
