"""A cluster of real processes on loopback, on the default code path, that leaves nothing behind.

Invariant: whatever was started is ended when the `with` block is left, however it is left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.processes import Daemon, cpu_s, end_descendants, module
from eslurm.rpc.methods import NODES, PING
from eslurm.rpc.unix_client import Client
from eslurm.v1 import controller_pb2 as pb

HOST = "127.0.0.1"
NAME = "bench"
UP_S = 60.0
POLL_S = 0.01
NODE_MEMORY_MIB = 64_000


class Shape(msgspec.Struct, frozen=True):
    """How large a cluster to start. With `agents` 0 its nodes are configured but never come up.

    With `each` every node has an agent process of its own, below those `agents`. `sockets_max` is the satellites'
    budget of connections; 0: their default.
    """

    nodes: int
    cores: int = 8
    agents: int = 2
    satellites: int = 2
    each: bool = False
    sockets_max: int = 0


class Cluster:
    """One running cluster. The controller can be killed and started again."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.directory = directory
        self.shape = shape
        self.socket = directory / "esctld.sock"
        self.key_file = directory / "cluster.key"
        ports = free_ports(1 + shape.satellites)
        self.endpoint = f"{HOST}:{ports[0]}"
        self._satellite_endpoints = [f"{HOST}:{port}" for port in ports[1:]]
        self.controller = self._controller()
        self.satellites = [self._satellite(number) for number in range(shape.satellites)]
        self.agents = [self._agent(number) for number in range(shape.agents)]

    def start(self, up_s: float = UP_S) -> None:
        """Write the configuration, start all daemons, wait until every node that has an agent is up.

        With a process for each node they are there before the controller calls any: they need both cores to start.
        """
        self._write_files()
        for daemon in self.satellites if self.shape.each else (self.controller, *self.satellites):
            daemon.start()
        for daemon, ready_fd in [(daemon, daemon.launch()) for daemon in self.agents]:
            daemon.wait_ready(ready_fd, up_s)
        if self.shape.each:
            self.controller.start()
        if self.agents:
            self.wait_for(lambda reply: reply.nodes_up == self.shape.nodes, up_s)

    def stop(self) -> None:
        """End every process of the cluster, steps and their supervisors included."""
        for daemon in (self.controller, *self.agents, *self.satellites):
            daemon.stop()
        end_descendants()

    def client(self) -> Client:
        """A connection to the controller."""
        return Client(self.socket)

    def ping(self) -> pb.PingReply:
        """How the controller stands now."""
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
        """The process ids of the step supervisors."""
        found = []
        for path in self.directory.glob("agent*/esstepd.json"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(int(msgspec.json.decode(path.read_bytes())["pid"]))
        return found

    # ---- what is started ----

    def _write_files(self) -> None:
        shape = self.shape
        fd = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        lines = [
            f'[cluster]\nname = "{NAME}"\noperators = [{os.getuid()}]\n[controller]\nlisten = "{self.endpoint}"\n',
            *(
                f'[[satellite]]\nname = "sat{number}"\nlisten = "{endpoint}"\n'
                for number, endpoint in enumerate(self._satellite_endpoints)
            ),
            f'[[nodes]]\nnames = "cn[0001-{shape.nodes:04}]"\ncores = {shape.cores}\n'
            f"memory_mib = {NODE_MEMORY_MIB}\n",
            '[[partition]]\nname = "main"\ndefault = true\n',
        ]
        (self.directory / "eslurm.toml").write_text("".join(lines))

    def _controller(self) -> Daemon:
        config = str(self.directory / "eslurm.toml")
        command = module("esctld", "--config", config, "--state-dir", str(self.directory))
        return Daemon("esctld", command, self.directory / "esctld.log")

    def _satellite(self, number: int) -> Daemon:
        name = f"sat{number}"
        command = module(
            "essatd",
            *("--cluster", NAME, "--key-file", str(self.key_file), "--name", name),
            *("--listen", self._satellite_endpoints[number], "--controllers", self.endpoint),
            *(("--sockets-max", str(self.shape.sockets_max)) if self.shape.sockets_max else ()),
        )
        return Daemon(name, command, self.directory / f"{name}.log")

    def _agent(self, number: int) -> Daemon:
        shape = self.shape
        name = f"agent{number}"
        first = shape.nodes * number // shape.agents + 1
        last = shape.nodes * (number + 1) // shape.agents
        command = module(
            "esnoded",
            *("--cluster", NAME, "--key-file", str(self.key_file), "--nodes", f"cn[{first:04}-{last:04}]"),
            *("--satellites", ",".join(self._satellite_endpoints), "--controller", self.endpoint),
            *("--state-dir", str(self.directory / name), "--cores", str(shape.cores)),
            *("--memory-mib", str(NODE_MEMORY_MIB), *(("--each",) if shape.each else ())),
        )
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
    """Ports on loopback that nobody uses now; below those of outgoing connections, so that a restart finds them free."""
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
