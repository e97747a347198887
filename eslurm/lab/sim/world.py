"""A whole simulated cluster: its parts, crashes and restarts, and the seed that decides it all.

Invariant: two worlds of the same seed and size go through the same events in the same order.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from eslurm.calendar import SiteCalendar
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.protocol import Command
from eslurm.core.model.step_key import BATCH_STEP
from eslurm.core.model.units import SECOND_US
from eslurm.core.relay.messages import Tuning
from eslurm.core.state.cluster import State
from eslurm.core.state.faults import has_wrong_clock
from eslurm.lab.sim.administrator import Administrator
from eslurm.lab.sim.checks import Checks
from eslurm.lab.sim.client import Client
from eslurm.lab.sim.cluster_config import (
    NODE_OFFER,
    draw_config,
    node_name,
    with_more_on,
    with_new_node,
    without_node,
)
from eslurm.lab.sim.config_files import ConfigFiles
from eslurm.lab.sim.controller import Controller
from eslurm.lab.sim.controller_host import ControllerHost
from eslurm.lab.sim.controller_phase_checks import draw_program, draw_programs
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.disk_store import DiskStore
from eslurm.lab.sim.estimator import Estimator
from eslurm.lab.sim.fault_schedule import HOST_SKEW_US, FaultPlan, Faults, draw_plan
from eslurm.lab.sim.gateway_draws import LIMIT_S as GATEWAYS_LIMIT_S
from eslurm.lab.sim.gateway_draws import draw_gateway_script, draw_modules
from eslurm.lab.sim.gateway_faults import GatewayFaults
from eslurm.lab.sim.host import Host
from eslurm.lab.sim.lending_apps import LIMIT_S as LENDING_LIMIT_S
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.network import Network
from eslurm.lab.sim.phase_checks import draw_phases, draw_script
from eslurm.lab.sim.program_runner import ProgramScript
from eslurm.lab.sim.satellite import Satellite
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.lab.sim.standby import Standby
from eslurm.lab.sim.step_runner import LONG_LIMIT_S, StepScript
from eslurm.lab.sim.trace_format import describe
from eslurm.lab.sim.violation import require
from eslurm.lab.sim.world_view import LeaderParts, NoParts
from eslurm.ports.step_runner import StepSpec
from eslurm.store.rows import load

START_US = 1_750_000_000 * SECOND_US
SLOW_COMMIT_US = 3 * SECOND_US
NODES_ADDED_MAX = 3
UNSEALED_MAX = 4_096

T = TypeVar("T")
Trace = Callable[[int, str], None]

_encode = msgspec.msgpack.Encoder().encode
_commands = msgspec.msgpack.Decoder(Command)


@cache
def _calendar(zone: str) -> SiteCalendar:
    """One for all worlds of a process: what it has worked out of a cron string is true in each."""
    return SiteCalendar(zone)


class World:
    """The cluster of one seed. `trace`, if given, gets every event; `plan` replaces the seed's own faults.

    Clusters with one `scheduler` live in one time.
    """

    cluster = "sim"
    owner = "ctl"
    node_offer = NODE_OFFER

    def __init__(
        self,
        seed: int,
        nodes: int,
        trace: Trace | None = None,
        plan: FaultPlan | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        rng = random.Random(f"{seed}/shape")
        self.seed = seed
        self.random = random.Random(f"{seed}/world")
        self.scheduler = scheduler or Scheduler(START_US)
        self.parts: LeaderParts = NoParts()
        self.movable_bursts = self.spanning_bursts = 0
        """Number of times at which users submit several jobs that any cell may take."""
        self.network = Network(self.scheduler, f"{seed}/network", self._observe)
        self.tuning = Tuning()
        drawn = draw_modules(seed, draw_config(rng, self.cluster, nodes))
        self.config = replace(drawn, phases=draw_programs(seed))
        self.files = ConfigFiles(self.config)
        self.calendar = _calendar(self.config.zone)
        self.names = tuple(node.name for node in self.config.nodes)
        self.totals = [node.total for node in self.config.nodes]
        self.phases = draw_phases(seed, range(nodes))
        self.actions = rng.randint(25, 50)
        self.store_is_out = False
        self.disk_is_slow = False
        self.events_hash = 0
        self.coverage = Coverage()
        self.checks = Checks(self)
        self.disk = DiskStore(seed, on_commit=self.checks.on_durable, on_prune=self.checks.on_prune)
        self.faults = Faults(self, draw_plan(seed, nodes) if plan is None else plan)
        self.unhealthy = self.faults.plan.unhealthy
        gateway_faults = GatewayFaults(self, self.faults.plan.gateway_faults)
        self.checks.gateways.on_stage = gateway_faults.on_stage
        self.trace = trace
        self.administrator = Administrator(self, works=self.faults.plan.reconfigures)
        self._starts: dict[str, int] = {}
        self._unsealed: dict[bytes, Command] = {}
        self._node_hosts: list[str] = []
        self.hosts: list[Host] = []
        self._place(rng)
        self._nodes_first = nodes
        self.satellites: dict[int, Satellite] = {}
        satellites = rng.choice((0, 1, 2, 2, 3)) if nodes <= 64 else 4
        self.satellite_names = tuple(f"satellite{index}" for index in range(satellites))
        self.seats: list[ControllerHost] = []
        self.client = Client(self)
        self.estimator = Estimator(self)
        self._script_seed = rng.random()
        # The product's default, or so few that it is full whenever the store is slow.
        self.inbox_max = random.Random(f"{seed}/inbox").choice((3, 20_000))
        self.log_kept_us = rng.choice((0, 4, 4, 16) if nodes <= 64 else (0, 32)) * SECOND_US

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """Addresses of the controllers, leading or not."""
        return tuple(seat.address for seat in self.seats)

    @property
    def ways_up(self) -> tuple[str, ...]:
        """Addresses at which an agent may find an uplink."""
        return (*self.satellite_names, *self.controller_addresses)

    @property
    def controller(self) -> Controller | None:
        """The leader; of several that believe so the last one."""
        leaders = [leader for seat in self.seats if (leader := seat.leader) is not None]
        return max(leaders, key=lambda leader: leader.epoch, default=None)

    def _place(self, rng: random.Random) -> None:
        """Nodes onto agent processes: one each, or several."""
        each = rng.choice((1, 1, 1, 2, 4)) if len(self.names) <= 64 else 50
        for first in range(0, len(self.names), each):
            self._add_host(range(first, min(first + each, len(self.names))))

    def _add_host(self, numbers: range) -> Host:
        skew_us = self.random.randint(-HOST_SKEW_US, HOST_SKEW_US) if self.faults.plan.skew_s else 0
        host = Host(self, len(self.hosts), numbers, skew_us)
        self.hosts.append(host)
        self._node_hosts += [host.address] * len(numbers)
        return host

    def start(self) -> None:
        """Switch everything on, in no particular order."""
        self.network.attach(self.client)
        self.network.attach(self.estimator)
        skew_us = int(self.faults.plan.skew_s * SECOND_US / 2)
        for index in range(self.faults.plan.controllers):
            self.seats.append(ControllerHost(self, index, self.random.randint(-skew_us, skew_us)))
        self.client.start()
        self.estimator.start()
        for seat in self.seats:
            self.scheduler.call_in(self.random.randint(0, SECOND_US) if seat.name != "c0" else 0, seat.start)
        for index in range(len(self.satellite_names)):
            self._start_satellite(index)
        for host in self.hosts:
            self.scheduler.call_in(self.random.randint(0, SECOND_US), host.start_agent)
        self.faults.schedule()
        self.administrator.schedule(self.faults.plan.calm_us)

    def grow(self, rng: random.Random) -> str:
        """The configuration gets another node, or more on one; in force when a controller has read it."""
        added = len(self._node_hosts) - self._nodes_first
        if added < NODES_ADDED_MAX and rng.random() < 0.5:
            what = f"{self.add_node(rng)} is new"
        else:
            number = rng.randrange(len(self.config.nodes))
            self.rewrite(with_more_on(self.config, number, rng))
            what = str(self.config.nodes[number])
        for seat in self.seats:
            self.files.copy_to(seat.name)
        return what

    def add_node(self, rng: random.Random) -> str:
        """Another node, in the file and as a host; its name. Its number is the next one."""
        name = node_name(len(self.names))
        self.names = (*self.names, name)
        self.totals.append(())
        self.rewrite(with_new_node(self.config, name))
        host = self._add_host(range(len(self.names) - 1, len(self.names)))
        self.scheduler.call_in(rng.randint(0, 10 * SECOND_US), host.start_agent)
        return name

    def remove_node(self, name: str) -> None:
        """A node that was added is no longer in the file; its host stays."""
        self.rewrite(without_node(self.config, name))

    def rewrite(self, config: ClusterConfig) -> None:
        """An administrator writes another version of the file."""
        self.config = config
        self.files.write(config)
        numbers = {name: number for number, name in enumerate(self.names)}
        for node in config.nodes:
            self.totals[numbers[node.name]] = node.total

    # ---- names ----

    def new_name(self, address: str) -> str:
        """A name for the next process at this address."""
        self._starts[address] = self._starts.get(address, 0) + 1
        return f"{address}#{self._starts[address]}"

    def address_of(self, number: int) -> str:
        """Address of a node, or a satellite (negative)."""
        return self._node_hosts[number] if number >= 0 else f"satellite{-1 - number}"

    def node_name(self, number: int) -> str:
        """A node's name: numbers follow the configuration."""
        return self.names[number]

    # ---- crashes and restarts ----

    def crash_satellite(self, index: int) -> None:
        """A satellite dies with all that was in it."""
        satellite = self.satellites.pop(index)
        self.note_fault("crash_satellite", satellite.address)
        satellite.alive = False
        self.network.detach(satellite)
        self.scheduler.call_in(self.restart_delay_us(), lambda: self._start_satellite(index))

    def _start_satellite(self, index: int) -> None:
        satellite = self.satellites[index] = Satellite(self, index)
        self.network.attach(satellite)
        satellite.start()

    def restart_delay_us(self) -> int:
        """Time for which a crashed process is away: mostly a moment, sometimes longer."""
        return int(self.random.choice((0.2, 1.0, 1.0, 4.0, 10.0)) * self.random.random() * SECOND_US)

    def note_fault(self, kind: str, what: str) -> None:
        """Count a fault that really happened."""
        self.faults.count += 1
        self.faults.seen[kind] = self.faults.seen.get(kind, 0) + 1
        self.note(f"FAULT {kind} {what}")

    # ---- the disk ----

    def load_state(self) -> State:
        """A restarted controller's state, checked."""
        state = run_now(load(MemoryStore(self.disk), self.owner))
        self.checks.on_restart(state)
        return state

    def commit_delay_us(self) -> int:
        """Duration of one commit."""
        return 500 + int(self.random.random() * (SLOW_COMMIT_US if self.disk_is_slow else 8_000))

    # ---- commands, scripts, blobs ----

    def seal(self, commands: Sequence[Command]) -> list[bytes]:
        """Commands as their bytes."""
        return [_encode(command) for command in commands]

    def unseal(self, sealed: bytes) -> Command:
        """The command in these bytes; one object per command, as a process would keep it."""
        command = self._unsealed.get(sealed)
        if command is None:
            command = self._unsealed[sealed] = _commands.decode(sealed)
            if len(self._unsealed) > UNSEALED_MAX:
                del self._unsealed[next(iter(self._unsealed))]
        return command

    def fetch_fails(self) -> bool:
        """Check whether a script cannot be fetched this time."""
        return not self.faults.is_calm and self.random.random() < self.faults.plan.fetch_loss

    def program_of(self, key: PhaseKey) -> ProgramScript:
        """Behaviour of a program on a controller's host."""
        return draw_program(self._script_seed, key, is_calm=self.faults.is_calm)

    def script_of(self, spec: StepSpec) -> StepScript:
        """Behaviour of a step: a function of its identity, whatever happens around it."""
        key = spec.key
        if key.is_phase:
            return draw_script(self._script_seed, key, is_calm=self.faults.is_calm)
        if key.is_gateway:
            calm = self.faults.is_calm
            return draw_gateway_script(self._script_seed, key, spec.tasks, spec.argv, is_calm=calm)
        if not spec.tasks:
            # An allocation holds its nodes until it is ended.
            return StepScript(duration_us=None)
        if key.step == BATCH_STEP and "-of-" in spec.env.get("SLURM_JOB_NAME", ""):
            # It holds nodes for a job of another cell until it is ended.
            return StepScript(duration_us=None)
        rng = random.Random(f"{self._script_seed}/{key.job_id}/{key.attempt}/{key.step}")
        if rng.random() < 0.03 and not self.faults.is_calm:
            return StepScript(exit_code=127, spawn_error="no such file")
        seconds = rng.choice((0.0, 0.3, 1.0, 3.0, 8.0, 30.0)) * rng.random()
        if spec.time_limit_us == LONG_LIMIT_S * SECOND_US:
            seconds = rng.uniform(40.0, 130.0)
        if spec.time_limit_us == GATEWAYS_LIMIT_S * SECOND_US:
            seconds = rng.uniform(1.0, 20.0)
        if spec.time_limit_us == LENDING_LIMIT_S * SECOND_US:
            seconds = rng.uniform(5.0, 50.0)
        return StepScript(
            duration_us=int(seconds * SECOND_US) if key.step == BATCH_STEP or rng.random() < 0.9 else None,
            exit_code=0 if rng.random() < 0.85 else 1,
            ignores_term=rng.random() < 0.1,
        )

    # ---- watching ----

    @property
    def now_us(self) -> int:
        """Microseconds since the run began."""
        return self.scheduler.at_us - START_US

    def note(self, text: str) -> None:
        """Add a line to the story of this run."""
        self.events_hash = zlib.crc32(f"{self.scheduler.at_us} {text}".encode(), self.events_hash)
        if self.trace is not None:
            self.trace(self.now_us, text)

    def _observe(self, kind: str, source: str, target: str, message: object) -> None:
        text = f"{kind} {source} {target} {type(message).__name__}"
        self.events_hash = zlib.crc32(f"{self.scheduler.at_us} {text}".encode(), self.events_hash)
        if self.trace is not None:
            self.trace(self.now_us, f"{kind} {source} -> {target} {describe(message)}")

    def is_settled(self) -> bool:
        """Check whether everything has come to rest, well."""
        return not self.why_unsettled()

    def why_unsettled(self) -> str:
        """The reason why the cluster is not quiet; empty when it is."""
        controller = self.controller
        if controller is None:
            return "there is no controller"
        if self.client.waits or self.estimator.waits:
            return "a request has no answer"
        if self.administrator.waits:
            return f"version {self.files.newest} of the configuration is not in force"
        if not controller.is_idle:
            return f"the controller is busy: {controller.busy_with}"
        for seat in self.seats:
            if seat.process is None or seat.process.is_paused:
                return f"controller {seat.name} is not there"
            if seat.leader not in (None, controller):
                return f"{seat.name} thinks that it leads"
            if isinstance(seat.process, Standby) and not seat.process.is_warm:
                return f"standby {seat.name} does not follow"
        return self.checks.unsettled(controller.state)

    @property
    def jobs_left(self) -> int:
        """Number of jobs that have not ended, as the log has it."""
        return self.checks.jobs_left

    def set_clocks_right(self) -> None:
        """An administrator sets the clocks of nodes that the leader shows as wrong: to the leader's own, right or not."""
        for seat in self.seats:
            if seat.leader is None or seat.leader is not self.controller:
                continue
            nodes = seat.leader.state.nodes
            for host in self.hosts:
                # A host that was added may not be in the configuration that the leader has.
                if any(number in nodes and has_wrong_clock(nodes[number]) for number in host.numbers):
                    host.skew_us = seat.skew_us

    def final_check(self) -> None:
        """All is calm and done: was it done right?"""
        require(self.controller is not None, "there is no controller")
        assert self.controller is not None
        self.checks.at_end(self.controller.state)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise RuntimeError("the coroutine waits for something")
