"""A whole simulated cluster: what there is, who crashes and restarts, and the seed that decides it all.

Invariant: two worlds of the same seed and size go through the same events in the same order.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from eslurm.core.cluster import State
from eslurm.core.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.tree.messages import Tuning
from eslurm.core.wire import Command
from eslurm.ports.step_runner import BATCH_STEP, StepSpec
from eslurm.sim.checks import Checks, require
from eslurm.sim.client import Client
from eslurm.sim.controller import Controller
from eslurm.sim.disk_store import DiskStore
from eslurm.sim.faults import Faults, draw_plan
from eslurm.sim.host import Host
from eslurm.sim.network import Network
from eslurm.sim.satellite import Satellite
from eslurm.sim.scheduler import Scheduler
from eslurm.sim.step_runner import StepScript
from eslurm.sim.story import describe
from eslurm.store.memory import MemoryStore
from eslurm.store.rows import load

SECOND_US = 1_000_000
START_US = 1_750_000_000 * SECOND_US
CORES = 4
MEMORY_MIB = 4_096
UNSEALED_MAX = 4_096

T = TypeVar("T")
Trace = Callable[[int, str], None]

_encode = msgspec.msgpack.Encoder().encode
_commands = msgspec.msgpack.Decoder(Command)


class World:
    """The cluster of one seed. `trace`, if given, is told of every event."""

    cluster = "sim"
    owner = "ctl"
    node_total = (CORES, MEMORY_MIB)

    def __init__(self, seed: int, nodes: int, trace: Trace | None = None) -> None:
        rng = random.Random(f"{seed}/shape")
        self.seed = seed
        self.random = random.Random(f"{seed}/world")
        self.scheduler = Scheduler(START_US)
        self.network = Network(self.scheduler, f"{seed}/network", self._observe)
        self.disk = DiskStore(seed)
        self.tuning = Tuning()
        self.names = tuple(f"cn{number:04}" for number in range(nodes))
        self.config = draw_config(rng, self.names)
        self.actions = rng.randint(25, 50)
        self.store_is_out = False
        self.events_hash = 0
        self.checks = Checks(self)
        self.faults = Faults(self, draw_plan(seed, nodes))
        self.trace = trace
        self._starts: dict[str, int] = {}
        self._unsealed: dict[bytes, Command] = {}
        self._node_hosts: list[str] = []
        self.hosts: list[Host] = []
        self._place(rng)
        self.controller: Controller | None = None
        self.satellites: dict[int, Satellite] = {}
        self._satellite_count = rng.choice((0, 1, 2, 2, 3)) if nodes <= 64 else 4
        satellites = [f"satellite{index}" for index in range(self._satellite_count)]
        self.ways_up = (*satellites, "controller")
        self.client = Client(self)
        self._script_seed = rng.random()

    def _place(self, rng: random.Random) -> None:
        """Nodes onto agent processes: one each, or several."""
        each = rng.choice((1, 1, 1, 2, 4)) if len(self.names) <= 64 else 50
        for index, first in enumerate(range(0, len(self.names), each)):
            numbers = range(first, min(first + each, len(self.names)))
            self.hosts.append(Host(self, index, numbers))
            self._node_hosts += [self.hosts[-1].address] * len(numbers)

    def start(self) -> None:
        """Everything is switched on, in no particular order."""
        self.network.attach(self.client)
        self.client.start()
        self._start_controller()
        for index in range(self._satellite_count):
            self._start_satellite(index)
        for host in self.hosts:
            self.scheduler.call_in(self.random.randint(0, SECOND_US), host.start_agent)
        self.faults.schedule()

    # ---- names ----

    def new_name(self, address: str) -> str:
        """A name for the next process at this address."""
        self._starts[address] = self._starts.get(address, 0) + 1
        return f"{address}#{self._starts[address]}"

    def address_of(self, number: int) -> str:
        """Where a node, or a satellite (negative), listens."""
        return self._node_hosts[number] if number >= 0 else f"satellite{-1 - number}"

    def node_name(self, number: int) -> str:
        """A node's name: numbers follow the configuration."""
        return self.names[number]

    # ---- crashes and restarts ----

    def crash_controller(self, when: str) -> None:
        """The controller dies; commits under way are torn."""
        controller = self.controller
        if controller is None:
            return
        self.note_fault("crash_controller", when)
        self.controller = None
        controller.alive = False
        self.network.detach(controller)
        self.disk.crash(self.owner)
        self.scheduler.call_in(self.restart_delay_us(), self._start_controller)

    def _start_controller(self) -> None:
        self.controller = Controller(self)
        self.network.attach(self.controller)
        self.controller.start()

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
        """How long a crashed process is away: mostly a moment, sometimes longer."""
        return int(self.random.choice((0.2, 1.0, 1.0, 4.0, 10.0)) * self.random.random() * SECOND_US)

    def note_fault(self, kind: str, what: str) -> None:
        """Count a fault that really happened."""
        self.faults.count += 1
        self.note(f"FAULT {kind} {what}")

    # ---- the disk ----

    def load_state(self) -> State:
        """What a restarted controller finds, checked."""
        state = run_now(load(MemoryStore(self.disk), self.owner))
        self.checks.on_restart(state)
        return state

    def commit_delay_us(self) -> int:
        """How long the disk takes for one commit."""
        return 500 + int(self.random.random() * 8_000)

    # ---- commands, scripts, blobs ----

    def seal(self, command: Command) -> bytes:
        """A command as its bytes."""
        return _encode(command)

    def unseal(self, sealed: bytes) -> Command:
        """The command in these bytes; one object per command, as a process would keep it."""
        command = self._unsealed.get(sealed)
        if command is None:
            command = self._unsealed[sealed] = _commands.decode(sealed)
            if len(self._unsealed) > UNSEALED_MAX:
                del self._unsealed[next(iter(self._unsealed))]
        return command

    def fetch_fails(self) -> bool:
        """Whether a script cannot be fetched this time."""
        return not self.faults.is_calm and self.random.random() < self.faults.plan.fetch_loss

    def script_of(self, spec: StepSpec) -> StepScript:
        """How a step behaves: a function of its identity, whatever happens around it."""
        key = spec.key
        rng = random.Random(f"{self._script_seed}/{key.job_id}/{key.attempt}/{key.step}")
        if rng.random() < 0.03 and not self.faults.is_calm:
            return StepScript(exit_code=127, spawn_error="no such file")
        seconds = rng.choice((0.0, 0.3, 1.0, 3.0, 8.0, 30.0)) * rng.random()
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
        """Whether everything has come to rest, well."""
        controller = self.controller
        if controller is None or self.client.waits or not controller.is_idle:
            return False
        return not self.checks.unsettled(controller.state)

    def why_unsettled(self) -> str:
        """What keeps the cluster from coming to rest."""
        controller = self.controller
        if controller is None:
            return "there is no controller"
        if self.client.waits:
            return "a request has no answer"
        return self.checks.unsettled(controller.state) or f"the controller is busy: {controller.busy_with}"

    def final_check(self) -> None:
        """All is calm and done: was it done right?"""
        require(self.controller is not None, "there is no controller")
        assert self.controller is not None
        self.checks.at_end(self.controller.state)


def draw_config(rng: random.Random, names: tuple[str, ...]) -> ClusterConfig:
    """A cluster with short time-outs, so that they are reached."""
    return ClusterConfig(
        cluster=World.cluster,
        nodes=tuple(NodeConfig(name, World.node_total) for name in names),
        partitions=(Partition("main", names, default=True, time_limit_default_s=60),),
        policy=rng.choice(("easy", "fcfs")),
        heartbeat_s=5.0,
        node_lost_after_s=45.0,
        orphan_timeout_s=rng.choice((15.0, 25.0)),
        kill_grace_s=3.0,
        requeue_delay_s=0.5,
        finished_retention_s=rng.choice((2.0, 30.0)),
        job_id_block=rng.choice((3, 100)),
        relay_width=rng.choice((0, 2, 4, 16)),
        satellite_width=rng.choice((0, 0, 8)),
        relay_grouping=rng.choice(("balanced", "positional")),
        relay_direct_max=rng.choice((0, 0, 2)),
        satellite_max_inflight=rng.choice((1, 2, 64)),
        satellite_reallocations_max=rng.choice((0, 2)),
        satellite_down_after_s=rng.choice((8.0, 1200.0)),
    )


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise RuntimeError("the coroutine waits for something")
