"""Faults of real processes, one after another at random moments, each healed after a while.

Invariant: a fault strikes only what is whole, and after `heal_all` everything is.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cluster import Cluster
from benchmarks.processes import Daemon
from benchmarks.recovery.wires import Wires
from escli.errors import ClusterError
from escli.local.chaos_client import ask_in
from eslurm.api.methods import TAKEOVER
from eslurm.faults.chaos_socket import ChaosRequest
from eslurm.faults.switches import Mode
from eslurm.ports.api import ApiRefused, ApiUnreachable
from eslurm.v1 import controller_pb2 as pb

GAP_S = (0.3, 1.5)
DOWN_S = (0.1, 2.0)
PAUSE_S = (0.2, 5.0)
CUT_S = (0.2, 4.0)
STORE_DOWN_S = (0.1, 2.0)
STRUCK_S = (0.5, 5.0)
ASYMMETRIC_S = (2.0, 90.0)
"""Up to longer than the nodes of a run may be silent."""
LATE_US = 4_000_000
CALL_S = 5.0


class Kind(msgspec.Struct, frozen=True):
    """One kind of fault: on which of the things of its sort it strikes, how often in comparison, how long it lasts."""

    name: str
    weight: int
    lasts_s: tuple[float, float]
    begin: Callable[[Any], None]
    end: Callable[[Any], None]
    things: tuple[Any, ...]


class Faults:
    """Call `tick` often; it strikes and heals what is due, and starts again whatever ended by itself."""

    def __init__(self, cluster: Cluster, wires: Wires, server: Any, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.ended_alone: Counter[str] = Counter()
        self._cluster = cluster
        self._random = random.Random(seed)
        self._kinds = _kinds(cluster, wires, server)
        self._struck: dict[object, Kind] = {}
        self._healing: list[tuple[float, int, Kind, Any]] = []
        self._next_s = time.monotonic()

    def tick(self, *, strike: bool = True) -> None:
        """Do what is due."""
        now_s = time.monotonic()
        while self._healing and self._healing[0][0] <= now_s:
            _at_s, _number, kind, thing = heapq.heappop(self._healing)
            self._heal(kind, thing)
        self._revive()
        if strike and now_s >= self._next_s:
            self._strike()
            self._next_s = time.monotonic() + self._random.uniform(*GAP_S)

    def heal_all(self) -> None:
        """End every fault now."""
        while self._healing:
            _at_s, _number, kind, thing = heapq.heappop(self._healing)
            self._heal(kind, thing)
        self._revive()

    def _strike(self) -> None:
        (kind,) = self._random.choices(self._kinds, [kind.weight for kind in self._kinds])
        thing = self._random.choice(kind.things)
        if thing in self._struck:
            return
        self._struck[thing] = kind
        self.counts[kind.name] += 1
        kind.begin(thing)
        heal_s = time.monotonic() + self._random.uniform(*kind.lasts_s)
        heapq.heappush(self._healing, (heal_s, self.counts.total(), kind, thing))

    def _heal(self, kind: Kind, thing: Any) -> None:
        kind.end(thing)
        del self._struck[thing]

    def _revive(self) -> None:
        """A daemon that ended by itself, as one that lost its lead does, is started by its supervisor."""
        cluster = self._cluster
        for daemon in (*cluster.controllers, *cluster.satellites, *cluster.agents):
            if daemon not in self._struck and not daemon.alive:
                self.ended_alone[daemon.name] += 1
                daemon.relaunch()


def _kinds(cluster: Cluster, wires: Wires, server: Any) -> list[Kind]:
    controllers, satellites, agents = cluster.controllers, cluster.satellites, cluster.agents
    state_dirs = tuple(cluster.directory / daemon.name for daemon in (*satellites, *agents))
    agent_dirs = tuple(cluster.directory / daemon.name for daemon in agents)
    return [
        Kind("kill controller", 3, DOWN_S, _kill, _relaunch, tuple(controllers)),
        Kind("pause controller", 3, PAUSE_S, _pause, _resume, tuple(controllers)),
        Kind("kill satellite", 2, DOWN_S, _kill, _relaunch, tuple(satellites)),
        Kind("pause satellite", 2, PAUSE_S, _pause, _resume, tuple(satellites)),
        Kind("kill agent", 3, DOWN_S, _kill, _relaunch, tuple(agents)),
        Kind("pause agent", 2, PAUSE_S, _pause, _resume, tuple(agents)),
        Kind(
            "cut wire",
            2,
            CUT_S,
            lambda number: wires.set(number, "cut"),
            lambda number: wires.set(number, "whole"),
            tuple(range(len(wires.endpoints))),
        ),
        Kind(
            "stall wire",
            2,
            CUT_S,
            lambda number: wires.set(number, "stalled"),
            lambda number: wires.set(number, "whole"),
            tuple(range(len(wires.endpoints))),
        ),
        Kind("partition", 2, STRUCK_S, _partition, _heal_partition, state_dirs),
        *(
            Kind(name, 1, ASYMMETRIC_S, partial(_strike_nodes, mode), _heal_partition, agent_dirs)
            for name, mode in (
                ("cut nodes out", Mode.CUT_OUT),
                ("cut nodes in", Mode.CUT_IN),
                ("slow nodes", Mode.SLOW),
            )
        ),
        Kind(
            "crash store",
            1,
            STORE_DOWN_S,
            lambda one: one.stop(signal.SIGQUIT),
            lambda one: one.start(),
            (server,),
        ),
        Kind("take over", 1, (0.0, 0.0), _take_over, lambda _cluster: None, (cluster,)),
    ]


def _kill(daemon: Daemon) -> None:
    daemon.kill()


def _relaunch(daemon: Daemon) -> None:
    daemon.relaunch()


def _pause(daemon: Daemon) -> None:
    daemon.signal(signal.SIGSTOP)


def _resume(daemon: Daemon) -> None:
    daemon.signal(signal.SIGCONT)


def _partition(state_dir: Path) -> None:
    _ask(state_dir, ChaosRequest(Mode.PARTITIONED, for_us=int(STRUCK_S[1] * 1_000_000)))


def _strike_nodes(mode: Mode, state_dir: Path) -> None:
    _ask(state_dir, ChaosRequest(mode, for_us=int(ASYMMETRIC_S[1] * 1_000_000), delay_us=LATE_US))


def _heal_partition(state_dir: Path) -> None:
    _ask(state_dir, ChaosRequest("heal"))


def _ask(state_dir: Path, request: ChaosRequest) -> None:
    # A daemon that is struck otherwise meanwhile need not answer; the failure ends by itself.
    with contextlib.suppress(ClusterError):
        ask_in(state_dir, state_dir.name, request)


def _take_over(cluster: Cluster) -> None:
    with cluster.client() as client, contextlib.suppress(ApiRefused, ApiUnreachable):
        client.call(TAKEOVER, pb.TakeoverRequest(), CALL_S)
