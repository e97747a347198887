"""The processes of the benchmark: hosts, satellites, and the root in this one.

Invariant: whatever was started is ended when the `async with` block is left, however it is left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from benchmarks.cluster import HOST, free_ports
from benchmarks.processes import Daemon, module
from benchmarks.relay.control import Collected, Order, Pull, Switch, Wire
from benchmarks.relay.host import HostPlan
from benchmarks.relay.plan import Failures
from benchmarks.relay.root import Root
from eslurm.security.credentials import read_credentials
from eslurm.security.enrolment import enrol
from eslurm.security.membership import Role
from eslurm.security.site_keys import new_site

CLUSTER = "bench"
HOSTS = 4
SATELLITES = 4


class Totals(msgspec.Struct, frozen=True):
    """All that was done everywhere, as far as it can be counted: CPU and frames since the start."""

    acts: bytes
    lists: int
    frames: int
    late_acts: int
    cpu_s: dict[str, float]


class Site:
    """Everything that runs. `root` broadcasts."""

    def __init__(self, directory: Path, nodes: int, hosts: int, satellites: int) -> None:
        self._directory = directory
        self.nodes = nodes
        self._keys = new_site(CLUSTER, time.time_ns() // 1000)
        ports = [f"{HOST}:{port}" for port in free_ports(1 + hosts + satellites)]
        self._endpoint, self._host_endpoints = ports[0], tuple(ports[1 : 1 + hosts])
        self._sockets = [directory / f"host{index}.sock" for index in range(hosts)]
        self.hosts = [self._host(index) for index in range(hosts)]
        self.satellites = [
            self._satellite(index, endpoint) for index, endpoint in enumerate(ports[1 + hosts :])
        ]
        self._wires: list[Wire] = []
        self._lists = 0

    def _host(self, index: int) -> Daemon:
        plan = HostPlan(
            CLUSTER,
            str(self._home(f"host{index}", "agent")),
            self._host_endpoints,
            index,
            self.nodes,
            str(self._sockets[index]),
        )
        command = module("benchmarks.relay.host", msgspec.json.encode(plan).decode())
        return Daemon(f"host{index}", command, self._directory / f"host{index}.log")

    def _satellite(self, index: int, endpoint: str) -> Daemon:
        name = f"sat{index}"
        command = module(
            "essatd",
            *("--cluster", CLUSTER, "--name", name, "--state-dir", str(self._home(name, "satellite"))),
            *("--listen", endpoint, "--controllers", self._endpoint),
        )
        return Daemon(name, command, self._directory / f"{name}.log")

    def _home(self, name: str, role: Role) -> Path:
        """A process' directory, with its identity in it."""
        home = self._directory / name
        home.mkdir(mode=0o700, exist_ok=True)
        # A host serves any of the nodes: which ones, the book says.
        names = f"{name},n[1-{self.nodes}]" if role == "agent" else name
        enrol(self._keys, home, role, names, time.time_ns() // 1000)
        return home

    async def start(self) -> None:
        """All processes, all links."""
        for daemon, ready_fd in [(one, one.launch()) for one in (*self.hosts, *self.satellites)]:
            daemon.wait_ready(ready_fd)
        self._wires = [await Wire.open(path) for path in self._sockets]
        self.root = Root(
            CLUSTER,
            read_credentials(self._home("root", "controller")),
            self._endpoint,
            self._host_endpoints,
            self.nodes,
        )
        await self.root.start(len(self.satellites))

    async def stop(self) -> None:
        """End every process."""
        for wire in self._wires:
            await wire.close()
        if hasattr(self, "root"):
            await self.root.close()
        for daemon in (*self.satellites, *self.hosts):
            daemon.stop()

    async def fail(self, failures: Failures) -> None:
        """These nodes are dead from now on, and no others."""
        await self._tell(Switch(failures.refused, failures.silent, failures.vanishing))

    async def pull(self, period_s: float, nodes: int) -> None:
        """Nodes ask the board every `period_s`; 0: no more."""
        await self._tell(Pull(period_s, nodes))

    async def collect(self, broadcast_id: int) -> Totals:
        """The counts of work done."""
        found: list[Collected] = [await wire.collect(broadcast_id) for wire in self._wires]
        acts = bytearray(self.nodes + 1)
        for one in found:
            for node, count in enumerate(one.acts):
                if count:
                    acts[node] = min(255, acts[node] + count)
        counters = self.root.counters
        # A satellite's own frames in are what was sent and came in nowhere else.
        frames = counters.frames_in + counters.frames_out - self.root.frames_from_hosts
        frames += sum(one.frames_in + one.frames_out - one.frames_between for one in found)
        return Totals(
            acts=bytes(acts),
            lists=sum(one.lists for one in found),
            frames=frames,
            late_acts=sum(one.late_acts for one in found),
            cpu_s={
                "hosts": sum(one.cpu_s for one in found),
                "satellites": sum(daemon.cpu_s() for daemon in self.satellites),
                "root": sum(os.times()[:2]),
            },
        )

    async def _tell(self, order: Order) -> None:
        for wire in self._wires:
            await wire.ask(order)


@contextlib.asynccontextmanager
async def running(
    parent: Path, nodes: int, hosts: int = HOSTS, satellites: int = SATELLITES
) -> AsyncIterator[Site]:
    """A site in a new directory below `parent`, for as long as the block runs."""
    directory = parent / secrets.token_hex(3)
    directory.mkdir(mode=0o711)
    site = Site(directory, nodes, hosts, satellites)
    try:
        await site.start()
        yield site
    finally:
        await site.stop()
