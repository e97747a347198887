"""The whole cluster as faults and checks see it: hosts, controllers and satellites to look into or to break.

`world.World` is one. Nothing that is in the cluster imports this module.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.protocol import Registration, Report
from eslurm.lab.sim.client import Client
from eslurm.lab.sim.config_files import ConfigFiles
from eslurm.lab.sim.controller import Controller
from eslurm.lab.sim.controller_host import ControllerHost
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.disk_store import DiskStore
from eslurm.lab.sim.host import Host
from eslurm.lab.sim.network import Network, Weather
from eslurm.lab.sim.satellite import Satellite
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.lab.sim.world_view import LeaderParts


class Offered(Protocol):
    """`fault_schedule.Offer`."""

    @property
    def process(self) -> str: ...

    @property
    def body(self) -> Registration: ...

    @property
    def report(self) -> Report: ...


class LastingPlan(Protocol):
    """The part of `fault_schedule.FaultPlan` that outlasts single faults."""

    @property
    def weather(self) -> Weather: ...


class Striking(Protocol):
    """`fault_schedule.Faults`, as single faults see it."""

    @property
    def is_calm(self) -> bool: ...

    calm_since_us: int

    @property
    def plan(self) -> LastingPlan: ...

    @property
    def overheard(self) -> Sequence[Offered]: ...

    def strike(self, at_us: int, kind: str) -> None: ...


class BusyHosts(Protocol):
    """`checks.Checks`, as faults see it."""

    @property
    def busy_hosts(self) -> list[Host]: ...


class SiteView(Protocol):
    """The cluster of one seed."""

    owner: str
    seed: int
    scheduler: Scheduler
    network: Network
    config: ClusterConfig
    files: ConfigFiles
    totals: list[tuple[int, ...]]
    phases: dict[int, tuple[str, ...]]
    store_is_out: bool
    disk_is_slow: bool
    disk: DiskStore
    coverage: Coverage
    trace: Callable[[int, str], None] | None
    hosts: list[Host]
    satellites: dict[int, Satellite]
    satellite_names: tuple[str, ...]
    seats: list[ControllerHost]
    client: Client
    parts: LeaderParts

    @property
    def checks(self) -> BusyHosts: ...

    @property
    def faults(self) -> Striking: ...

    @property
    def controller(self) -> Controller | None: ...

    @property
    def ways_up(self) -> tuple[str, ...]: ...

    @property
    def now_us(self) -> int: ...

    def add_node(self, rng: random.Random) -> str: ...

    def remove_node(self, name: str) -> None: ...

    def rewrite(self, config: ClusterConfig) -> None: ...

    def grow(self, rng: random.Random) -> str: ...

    def crash_satellite(self, index: int) -> None: ...

    def restart_delay_us(self) -> int: ...

    def note(self, text: str) -> None: ...

    def note_fault(self, kind: str, what: str) -> None: ...
