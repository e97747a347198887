"""The world as its processes see it: what they call, and nothing of what only watches or breaks them.

Processes import this module and `world` imports the processes, so no file imports another in a circle.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from eslurm.calendar import SiteCalendar
from eslurm.core.agent import actions as act
from eslurm.core.control.reactor import Batch
from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.protocol import Command, JobLaunch, Report
from eslurm.core.model.step_key import StepKey
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.relay.messages import Tuning
from eslurm.core.state.cluster import State
from eslurm.lab.sim.config_files import ConfigFiles
from eslurm.lab.sim.controller_phase_checks import ControllerPhaseChecks
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.disk_store import DiskStore
from eslurm.lab.sim.network import Network
from eslurm.lab.sim.program_runner import ProgramScript
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.lab.sim.step_runner import StepScript
from eslurm.ports import store
from eslurm.ports.step_runner import StepOutcome, StepSpec


class PlanWitness(Protocol):
    """`plan_checks.PlanChecks`, as a controller sees it."""

    def on_plan(
        self, state: State, schedule: Schedule, plan: Plan, ranking: Ranking, *, is_old: bool
    ) -> None: ...


class PackWitness(Protocol):
    """`pack_checks.PackChecks`, as a client sees it."""

    def on_submitted(self, job_ids: Sequence[int], delays_s: Sequence[int]) -> None: ...

    def members_of(self, pack_id: int) -> tuple[int, ...]: ...


class Witness(Protocol):
    """`checks.Checks`, as processes see it. Hosts are of any kind here: only the checks look into them."""

    cancelled: dict[int, None]

    @property
    def plans(self) -> PlanWitness: ...

    @property
    def packs(self) -> PackWitness: ...

    def on_fact(self, state: State, fact: facts.Fact) -> None: ...

    def on_lead(self, epoch: int, name: str, state: State) -> None: ...

    def on_shown(self, epoch: int, batch: Batch) -> None: ...

    def on_given(self, number: int, epoch: int) -> None: ...

    def on_followed(self, state: State) -> None: ...

    def on_acknowledged(self, job_ids: Sequence[int]) -> None: ...

    def on_heard(self, revision: int, what: str) -> None: ...

    def on_obeyed(self, epoch: int, numbers: Sequence[int], actions: Sequence[act.Action]) -> None: ...

    def on_launch(self, launch: JobLaunch) -> None: ...

    def on_spawn(self, host: Any, spec: StepSpec) -> None: ...

    def on_ready(self, key: StepKey) -> None: ...

    def on_signalled(self, key: StepKey, signal: int) -> None: ...

    def on_agent_started(self, numbers: Sequence[int]) -> None: ...

    def on_step_ended(self, outcome: StepOutcome) -> None: ...

    @property
    def controller_phases(self) -> ControllerPhaseChecks: ...

    def on_still(self, key: StepKey, *, is_still: bool) -> None: ...

    def on_limit(self, key: StepKey, limit_us: int) -> None: ...

    def on_reboot(self, host: Any) -> None: ...

    def samples_agent(self) -> bool: ...


class CalmPlan(Protocol):
    """The part of `fault_schedule.FaultPlan` that requests are drawn by."""

    @property
    def calm_us(self) -> int: ...


class LongJobs(Protocol):
    """`ordeals.HostFaults`: how many long jobs they need."""

    @property
    def long_jobs(self) -> int: ...


class FaultSource(Protocol):
    """`fault_schedule.Faults`, as processes see it."""

    @property
    def is_calm(self) -> bool: ...

    @property
    def plan(self) -> CalmPlan: ...

    @property
    def ordeals(self) -> LongJobs: ...

    def fate_of(self, kind: str) -> str: ...

    def overhear(self, reports: tuple[Report, ...]) -> None: ...


class LeaderParts(Protocol):
    """Other parts in the process of a controller that leads. Leaders are of any kind here."""

    def on_started(self, leader: Any) -> None: ...

    def on_leading(self, leader: Any) -> None: ...

    def on_shown(self, leader: Any, batch: Batch) -> None: ...

    def on_paused(self, leader: Any, for_us: int) -> None: ...

    def on_leaving(self, leader: Any) -> None: ...

    def on_gone(self, leader: Any) -> None: ...

    def on_durable(self, epoch: int, batch: store.Batch) -> None: ...

    def on_spawn(self, key: StepKey) -> None: ...


class NoParts:
    """Nothing: the cluster is in no federation."""

    def on_started(self, leader: Any) -> None:
        """It begins, from the state where the log stood."""

    def on_leading(self, leader: Any) -> None:
        """Its epoch is committed."""

    def on_shown(self, leader: Any, batch: Batch) -> None:
        """This is durable."""

    def on_paused(self, leader: Any, for_us: int) -> None:
        """It stands still for so long."""

    def on_leaving(self, leader: Any) -> None:
        """It ends in good order."""

    def on_gone(self, leader: Any) -> None:
        """Its process has ended, or goes on in another role."""

    def on_durable(self, epoch: int, batch: store.Batch) -> None:
        """A batch of the leader of this epoch is in the log."""

    def on_spawn(self, key: StepKey) -> None:
        """A step begins on a node."""


class Leading(Protocol):
    """The controller that leads, as others than its host see it."""

    @property
    def state(self) -> State: ...


class WorldView(Protocol):
    """`world.World`, as processes see it."""

    cluster: str
    owner: str
    node_offer: tuple[int, int]
    seed: int
    random: random.Random
    scheduler: Scheduler
    network: Network
    tuning: Tuning
    config: ClusterConfig
    files: ConfigFiles
    calendar: SiteCalendar
    names: tuple[str, ...]
    totals: list[tuple[int, ...]]
    phases: dict[int, tuple[str, ...]]
    actions: int
    store_is_out: bool
    disk: DiskStore
    coverage: Coverage
    satellite_names: tuple[str, ...]
    log_kept_us: int
    inbox_max: int
    movable_bursts: int
    spanning_bursts: int
    unhealthy: float
    parts: LeaderParts

    @property
    def checks(self) -> Witness: ...

    @property
    def faults(self) -> FaultSource: ...

    @property
    def controller(self) -> Leading | None: ...

    @property
    def controller_addresses(self) -> tuple[str, ...]: ...

    @property
    def ways_up(self) -> tuple[str, ...]: ...

    @property
    def now_us(self) -> int: ...

    def new_name(self, address: str) -> str: ...

    def address_of(self, number: int) -> str: ...

    def node_name(self, number: int) -> str: ...

    def restart_delay_us(self) -> int: ...

    def commit_delay_us(self) -> int: ...

    def load_state(self) -> State: ...

    def seal(self, commands: Sequence[Command]) -> list[bytes]: ...

    def unseal(self, sealed: bytes) -> Command: ...

    def fetch_fails(self) -> bool: ...

    def program_of(self, key: PhaseKey) -> ProgramScript: ...

    def script_of(self, spec: StepSpec) -> StepScript: ...

    def note(self, text: str) -> None: ...

    def note_fault(self, kind: str, what: str) -> None: ...
