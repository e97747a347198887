"""Faults that strike an attempt in a stage of its gateways: those of the plan rarely meet one, for a stage is short.

Invariant: what strikes an attempt is its own luck, whatever struck others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from eslurm.core.model.messages import CancelJobs, JobRef, RequeueJobs, UpdateNodes
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.gateway_checks import Attempted
from eslurm.lab.sim.host import Host
from eslurm.lab.sim.site_view import SiteView

LEADERS: Final = ("crash_controller", "take_over", "stop_controller", "pause_controller")
DELAYS_S: Final = (0.0, 0.1, 0.5, 2.0)


class GatewayFaults:
    """Strikes a share of the stages that attempts enter."""

    def __init__(self, world: SiteView, share: float) -> None:
        self._world = world
        self._share = share

    def on_stage(self, key: Attempted, stage: str, nodes: tuple[int, ...]) -> None:
        """An attempt enters a stage."""
        rng = random.Random(f"{self._world.seed}/{key}/{stage}")
        if self._world.faults.is_calm or rng.random() >= self._share:
            return
        delay_us = int(rng.choice(DELAYS_S) * rng.random() * SECOND_US)
        act = rng.choice(
            (self._lead, self._lead, self._crash, self._crash, self._lose, self._boot, self._stop)
        )
        self._world.scheduler.call_in(delay_us, lambda: self._strike(act, rng, key, nodes))

    def _strike(
        self,
        act: Callable[[random.Random, Attempted, Host], None],
        rng: random.Random,
        key: Attempted,
        nodes: tuple[int, ...],
    ) -> None:
        if not self._world.faults.is_calm:
            # The first node and the last one, a gateway, twice as often as the others.
            number = rng.choice((nodes[0], nodes[-1], *nodes))
            host = next(host for host in self._world.hosts if number in host.numbers)
            act(rng, key, host)

    def _lead(self, rng: random.Random, key: Attempted, host: Host) -> None:
        self._world.faults.strike(self._world.scheduler.at_us, rng.choice(LEADERS))

    def _crash(self, rng: random.Random, key: Attempted, host: Host) -> None:
        if host.agent is None:
            return
        if rng.random() < 0.5:
            host.agent.crash_after = rng.randint(0, 6)
            return
        self._world.note_fault("crash_agent", host.address)
        host.crash_agent()
        self._world.scheduler.call_in(self._world.restart_delay_us(), host.start_agent)

    def _boot(self, rng: random.Random, key: Attempted, host: Host) -> None:
        if not host.is_down:
            self._world.note_fault("reboot_host", host.address)
            host.power_off()
            self._later(rng.randint(1, 15), host.power_on)

    def _lose(self, rng: random.Random, key: Attempted, host: Host) -> None:
        if host.is_down:
            return
        client = self._world.client
        self._world.note_fault("lose_host", host.address)
        host.power_off()
        message = UpdateNodes(client.operator, host.names, "lost", "burnt down")
        self._later(1.0, lambda: client.call(message, lambda answer: self._later(1.0, host.power_on)))

    def _stop(self, rng: random.Random, key: Attempted, host: Host) -> None:
        client, jobs = self._world.client, (JobRef(key[0]),)
        client.call(
            CancelJobs(client.operator, jobs) if rng.random() < 0.5 else RequeueJobs(client.operator, jobs)
        )

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._world.scheduler.call_in(int(seconds * SECOND_US), call)
