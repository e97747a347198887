"""A cluster of real processes on loopback, on the default code path, that leaves nothing behind.

Invariant: whatever was started is ended when the `with` block is left, however it is left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.processes import Daemon, cpu_s, end_descendants, module
from eslurm.api.methods import NODES, PING
from eslurm.api.unix_client import Client
from eslurm.security.enrolment import enrol
from eslurm.security.membership import Role
from eslurm.security.site_keys import new_site, write_site_keys
from eslurm.v1 import controller_pb2 as pb

HOST = "127.0.0.1"
NAME = "bench"
UP_S = 60.0
POLL_S = 0.01
NODE_MEMORY_MIB = 64_000
ABSENT_CORES = 64
AGENT_UID = 61_300
"""User id of agents that root starts: no account has it."""


class Shape(msgspec.Struct, frozen=True):
    """Size of the cluster to start. With `agents` 0 its nodes are configured but never come up.

    With `each` every node has an agent process of its own, below those `agents`. `sockets_max` is the satellites'
    budget of connections; 0: their default. `absent` more nodes, of `ABSENT_CORES` each, are configured and have no
    agent. `store_url` is where jobs are kept; empty: in SQLite beside the rest. `operators` are the user ids that are
    operators; None: who runs the benchmark. `controller` is more lines for that section. With several `controllers`
    the first is `main`, the others are `c2` and so on. `chaos` lets satellites and agents be told to fail. `sections`
    end the configuration. With `watched` every daemon serves its metrics.
    """

    nodes: int
    cores: int = 8
    agents: int = 2
    satellites: int = 2
    each: bool = False
    sockets_max: int = 0
    absent: int = 0
    store_url: str = ""
    operators: tuple[int, ...] | None = None
    controller: str = ""
    controllers: int = 1
    chaos: bool = False
    sections: str = ""
    watched: bool = False


class Cluster:
    """One running cluster. Its daemons can be killed and started again.

    `uplinks` are where satellites find the controllers, if not at the controllers' own endpoints.
    """

    def __init__(
        self,
        directory: Path,
        shape: Shape,
        endpoints: Sequence[str] = (),
        uplinks: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.shape = shape
        self.names = ["main", *(f"c{number}" for number in range(2, shape.controllers + 1))]
        self.sockets = [self._socket_of(name) for name in self.names]
        self.socket = self.sockets[0]
        self.site = new_site(NAME, time.time_ns() // 1000)
        ports = free_ports(shape.controllers + shape.satellites)
        self.endpoints = list(endpoints) or [f"{HOST}:{port}" for port in ports[: shape.controllers]]
        self.endpoint = self.endpoints[0]
        self._uplinks = list(uplinks) or self.endpoints
        self.watched: list[str] = []
        """Metrics endpoints of the daemons."""
        self._satellite_endpoints = [f"{HOST}:{port}" for port in ports[shape.controllers :]]
        self.controllers = [self._controller(number) for number in range(shape.controllers)]
        self.controller = self.controllers[0]
        self.satellites = [self._satellite(number) for number in range(shape.satellites)]
        self.agents = [self._agent(number) for number in range(shape.agents)]

    def start(self, up_s: float = UP_S) -> None:
        """Write the configuration, start all daemons, wait until every node that has an agent is up.

        With a process for each node they are there before the controller calls any: they need both cores to start.
        """
        self.write_files()
        for daemon in self.satellites if self.shape.each else (*self.controllers, *self.satellites):
            daemon.start()
        for daemon, ready_fd in [(daemon, daemon.launch()) for daemon in self.agents]:
            daemon.wait_ready(ready_fd, up_s)
        if self.shape.each:
            self.controller.start()
        if self.agents:
            self.wait_for(lambda reply: reply.nodes_up == self.shape.nodes, up_s)

    def stop(self) -> None:
        """End every process of the cluster, steps and their supervisors included."""
        for daemon in (*self.controllers, *self.agents, *self.satellites):
            daemon.stop()
        end_descendants()

    def client(self) -> Client:
        """A connection to the controller that leads."""
        return Client([str(path) for path in self.sockets])

    def ping(self) -> pb.PingReply:
        """The controller's state now."""
        with self.client() as client:
            return client.call(PING, pb.PingRequest(), 30)

    def wait_for(
        self, fits: Callable[[pb.PingReply], bool], timeout_s: float, poll_s: float = POLL_S
    ) -> float:
        """Seconds until the controller's own count fits. Raises TimeoutError with where it stood."""
        began = time.perf_counter()
        with self.client() as client:
            while True:
                reply = client.call(PING, pb.PingRequest(), 30)
                now = time.perf_counter()
                if fits(reply):
                    return now - began
                if now - began > timeout_s:
                    raise TimeoutError(f"after {timeout_s:g} s the cluster stands at\n{reply}")
                time.sleep(poll_s)

    def cores_used(self) -> int:
        """Cores held on all nodes now."""
        with self.client() as client:
            return sum(node.cores_used for node in client.call(NODES, pb.NodesRequest(), 30).nodes)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds used so far, by kind of daemon; jobs' own processes are not counted."""
        return {
            "esctld": self.controller.cpu_s(),
            "essatd": sum(daemon.cpu_s() for daemon in self.satellites),
            "esnoded": sum(daemon.cpu_s() for daemon in self.agents),
            "esstepd": sum(cpu_s(pid) for pid in self.supervisors()),
        }

    def supervisors(self) -> list[int]:
        """The process ids of the step supervisors, both parts of each."""
        found = []
        for path in self.directory.glob("agent*/stepd/esstepd.json"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                status = msgspec.json.decode(path.read_bytes())
                found += [int(status[name]) for name in ("pid", "server_pid") if status.get(name)]
        return found

    # ---- what is started ----

    def write_files(self) -> None:
        """The configuration and the site's keys."""
        shape = self.shape
        operators = (os.getuid(),) if shape.operators is None else shape.operators
        write_site_keys(self.directory, self.site)
        lines = [
            f'[cluster]\nname = "{NAME}"\noperators = [{",".join(map(str, operators))}]\n',
            f'[controller]\nlisten = "{self.endpoint}"\nstore_url = "{shape.store_url}"\n',
            f"{shape.controller}\n",
            *(
                f'[[satellite]]\nname = "sat{number}"\nlisten = "{endpoint}"\n'
                for number, endpoint in enumerate(self._satellite_endpoints)
            ),
            f'[[nodes]]\nnames = "cn[0001-{shape.nodes:04}]"\ncores = {shape.cores}\n'
            f"memory_mib = {NODE_MEMORY_MIB}\n",
            f'[[nodes]]\nnames = "away[0001-{shape.absent:04}]"\ncores = {ABSENT_CORES}\n'
            f"memory_mib = {NODE_MEMORY_MIB}\n"
            if shape.absent
            else "",
            '[[partition]]\nname = "main"\ndefault = true\n',
            "[agent]\nallow_root_jobs = true\n",
            shape.sections,
        ]
        (self.directory / "eslurm.toml").write_text("".join(lines))

    def _socket_of(self, name: str) -> Path:
        return self.directory / ("esctld.sock" if name == "main" else f"esctld-{name}.sock")

    def _controller(self, number: int) -> Daemon:
        name = self.names[number]
        config = str(self.directory / "eslurm.toml")
        command = module("esctld", "--config", config, "--state-dir", str(self.directory))
        if number:
            command += ["--name", name, "--listen", self.endpoints[number]]
        command += self._watch()
        return Daemon(f"esctld-{name}", command, self.directory / f"esctld-{name}.log")

    def _satellite(self, number: int) -> Daemon:
        name = f"sat{number}"
        command = module(
            "essatd",
            *("--cluster", NAME, "--name", name, "--state-dir", self._home(name, "satellite", name)),
            *("--listen", self._satellite_endpoints[number], "--controllers", ",".join(self._uplinks)),
            *(("--sockets-max", str(self.shape.sockets_max)) if self.shape.sockets_max else ()),
            *(("--allow-chaos",) if self.shape.chaos else ()),
        )
        command += self._watch()
        return Daemon(name, command, self.directory / f"{name}.log")

    def _home(self, name: str, role: Role, names: str) -> str:
        """A daemon's directory, with its identity in it."""
        home = self.directory / name
        home.mkdir(mode=0o711, exist_ok=True)
        enrol(self.site, home, role, names, time.time_ns() // 1000)
        return str(home)

    def _watch(self) -> list[str]:
        if not self.shape.watched:
            return []
        self.watched.append(f"{HOST}:{free_ports(1)[0]}")
        return ["--metrics-listen", self.watched[-1]]

    def _agent(self, number: int) -> Daemon:
        shape = self.shape
        name = f"agent{number}"
        first = shape.nodes * number // shape.agents + 1
        last = shape.nodes * (number + 1) // shape.agents
        nodes = f"cn[{first:04}-{last:04}]"
        command = module(
            "esnoded",
            *("--cluster", NAME, "--nodes", nodes),
            *("--satellites", ",".join(self._satellite_endpoints), "--controller", ",".join(self.endpoints)),
            *("--state-dir", self._home(name, "agent", nodes), "--cores", str(shape.cores)),
            "--allow-root-jobs",
            *(("--user", str(AGENT_UID)) if os.geteuid() == 0 else ()),
            *("--memory-mib", str(NODE_MEMORY_MIB), *(("--each",) if shape.each else ())),
            *(("--allow-chaos",) if shape.chaos else ()),
        )
        command += self._watch()
        return Daemon(name, command, self.directory / f"{name}.log")


@contextlib.contextmanager
def running(parent: Path, shape: Shape) -> Iterator[Cluster]:
    """A cluster in a new directory below `parent`, for as long as the block runs."""
    directory = parent / secrets.token_hex(3)
    directory.mkdir(mode=0o711)
    cluster = Cluster(directory, shape)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def free_ports(count: int) -> list[int]:
    """Free ports on loopback; below those of outgoing connections, so that a restart finds them free."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = 10_240 + secrets.randbelow(max(lowest - 10_240, 1000))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                probe.listen(1)
                if port not in found:
                    found.append(port)
    return found
