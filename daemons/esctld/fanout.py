"""Carries effects and heartbeats out: signs each command once, shares its nodes among the satellites, brings outcomes back.

With no satellite linked the controller is the root of the tree itself (E-16). Invariant: every send ends in exactly one
outcome per node; a node nobody has heard of is unreached, which means unknown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from eslurm.core.cluster import SECOND_US, State
from eslurm.core.courier import Send
from eslurm.core.messages import NodeOutcome
from eslurm.core.tree.grouping import split
from eslurm.core.tree.messages import Broadcast, Leg
from eslurm.core.tree.results import Results, Status
from eslurm.core.wire import Body, Command, End, Heartbeat, LaunchStep, Prepare, Signal, Start
from eslurm.relay.blobs import BlobExchange, BlobUnavailable
from eslurm.relay.driver import RelayDriver
from eslurm.rpc.codec import encode_command
from eslurm.rpc.signing import Keyring
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import link_pb2

log = logging.getLogger("esctld.fanout")

KINDS: dict[type[Body], str] = {
    Prepare: "prepare",
    Start: "start",
    End: "end",
    Signal: "signal",
    LaunchStep: "launch_step",
    Heartbeat: "heartbeat",
}
DEADLINE_S: dict[str, float] = {
    "prepare": 10.0,
    "start": 10.0,
    "end": 5.0,
    "signal": 5.0,
    "launch_step": 30.0,
}
EXPIRY_US = 120 * SECOND_US
"""How long a command may be under way by the nodes' clocks: bounds replays, tolerates skewed clocks."""
ATTACHED_BYTES_MAX = 32 * 1024
"""Blobs up to this size ride along with a launch on one node, so that it need not ask for them."""
SATELLITE_NUMBER_FIRST = 1 << 30
"""Satellites are addressed by numbers above any node's."""
_STATUS = {Status.OK: "ok", Status.FAILED: "failed", Status.UNREACHED: "unreached"}

Outcomes = tuple[NodeOutcome, ...]


class Linked:
    """A satellite that is linked: where it listens, since when, and how many broadcasts it was given."""

    __slots__ = ("broadcasts", "endpoint", "process", "since_us")

    def __init__(self, process: str, endpoint: str) -> None:
        self.process = process
        self.endpoint = endpoint
        self.since_us = time.time_ns() // 1000
        self.broadcasts = 0


class Satellites:
    """The satellites that are linked now, in turn (E-09)."""

    def __init__(self) -> None:
        self._linked: dict[int, Linked] = {}
        self._numbers: dict[str, int] = {}
        self._next = SATELLITE_NUMBER_FIRST
        self._turn = 0

    def __iter__(self) -> Iterator[Linked]:
        return iter(self._linked.values())

    def add(self, process: str, endpoint: str) -> None:
        """A satellite process is linked."""
        self.remove(process)
        self._numbers[process] = self._next
        self._linked[self._next] = Linked(process, endpoint)
        self._next += 1

    def remove(self, process: str) -> None:
        """Its link has ended."""
        number = self._numbers.pop(process, None)
        if number is not None:
            del self._linked[number]

    def endpoint(self, number: int) -> str | None:
        """Where a satellite listens."""
        linked = self._linked.get(number)
        return linked.endpoint if linked is not None else None

    def take(self, count: int) -> list[int]:
        """Up to `count` satellites, the next ones in turn."""
        alive = list(self._linked)
        if not alive:
            return []
        first = self._turn % len(alive)
        chosen = (alive[first:] + alive[:first])[:count]
        self._turn += len(chosen)
        for number in chosen:
            self._linked[number].broadcasts += 1
        return chosen


class Fanout:
    """One per controller. Outcomes come back through the callback of each send."""

    def __init__(
        self,
        state: State,
        driver: RelayDriver,
        satellites: Satellites,
        keyring: Keyring,
        blobs: BlobExchange,
        metrics: ControllerMetrics,
    ) -> None:
        self._state = state
        self._driver = driver
        self._satellites = satellites
        self._keyring = keyring
        self._blobs = blobs
        self._metrics = metrics
        self._counter = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, send: Send, done: Callable[[Outcomes], None]) -> None:
        """Carry out one effect."""
        launch = send.body
        if isinstance(launch, Prepare) and launch.start:
            digests = (launch.launch.script_hash, launch.launch.environment_hash)
            kept = [self._blobs.cache.find(digest) for digest in digests]
            if any(data is None for data in kept):
                self._spawn(self._send_with_blobs(send, digests, done))
                return
            self._broadcast(send.revision, send.nodes, send.body, done, _attachments(digests, kept))
            return
        self._broadcast(send.revision, send.nodes, send.body, done)

    def heartbeat(
        self, nodes: tuple[int, ...], floor: int, deadline_s: float, done: Callable[[Outcomes], None]
    ) -> None:
        """Ask nodes whether they are there."""
        self._broadcast(0, nodes, Heartbeat(floor), done, deadline_s=deadline_s)

    async def close(self) -> None:
        """Give up sends that wait for blobs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send_with_blobs(
        self, send: Send, digests: tuple[bytes, bytes], done: Callable[[Outcomes], None]
    ) -> None:
        try:
            found: list[bytes | None] = [await self._blobs.get(digest) for digest in digests]
        except BlobUnavailable as error:
            # The node will ask for them itself, and say what is missing.
            log.warning("launching without attachments: %s", error)
            found = [None, None]
        self._broadcast(send.revision, send.nodes, send.body, done, _attachments(digests, found))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _broadcast(
        self,
        revision: int,
        nodes: tuple[int, ...],
        body: Body,
        done: Callable[[Outcomes], None],
        attachments: tuple[link_pb2.Blob, ...] = (),
        deadline_s: float = 0.0,
    ) -> None:
        kind = KINDS[type(body)]
        self._counter += 1
        width = self._state.config.relay_width
        broadcast = Broadcast(
            broadcast_id=(self._state.epoch << 32) | (self._counter & 0xFFFF_FFFF),
            nodes=nodes,
            width=width,
            deadline_us=int((deadline_s or DEADLINE_S[kind]) * SECOND_US),
            kind=kind,
            command=self._signed(revision, nodes, body),
        )
        started = time.perf_counter()

        def answered(results: Results) -> None:
            self._metrics.broadcast.labels(kind).observe(time.perf_counter() - started)
            done(outcomes_of(results, nodes))

        self._driver.start(broadcast, self._legs(nodes, width), answered, attachments)

    def _legs(self, nodes: tuple[int, ...], width: int) -> list[Leg]:
        """Equal shares for as many satellites as the number of nodes is worth (Eq. 1, E-07)."""
        wanted = max(1, -(-len(nodes) // width))
        chosen = self._satellites.take(min(wanted, len(nodes)))
        if not chosen:
            self._metrics.takeovers.inc()
            return []
        shares = split(nodes, len(chosen))
        return [Leg(number, tuple(share)) for number, share in zip(chosen, shares, strict=True)]

    def _signed(self, revision: int, nodes: tuple[int, ...], body: Body) -> bytes:
        runs, incarnations = self._runs(nodes)
        state = self._state
        command = Command(
            cluster=state.config.cluster,
            owner=state.owner,
            epoch=state.epoch,
            revision=revision,
            index=0,
            nodes=runs,
            incarnations=incarnations,
            expires_us=time.time_ns() // 1000 + EXPIRY_US,
            body=body,
        )
        return self._keyring.sign(encode_command(command))

    def _runs(self, nodes: tuple[int, ...]) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """Consecutive nodes of equal incarnation, in order."""
        runs: list[tuple[int, int]] = []
        incarnations: list[int] = []
        known = self._state.nodes
        for number in nodes:
            incarnation = known[number].incarnation
            if runs:
                first, length = runs[-1]
                if number == first + length and incarnation == incarnations[-1]:
                    runs[-1] = (first, length + 1)
                    continue
            runs.append((number, 1))
            incarnations.append(incarnation)
        return tuple(runs), tuple(incarnations)


def outcomes_of(results: Results, nodes: tuple[int, ...]) -> Outcomes:
    """Every node in exactly one outcome; those without any are unreached."""
    left = set(nodes)
    found: list[NodeOutcome] = []
    for row in results.rows:
        members = tuple(number for run in row.ranges() for number in run if number in left)
        if members:
            left.difference_update(members)
            outcome = row.outcome
            found.append(NodeOutcome(members, _STATUS[outcome.status], outcome.text, outcome.payload))
    if left:
        found.append(NodeOutcome(tuple(number for number in nodes if number in left), "unreached"))
    return tuple(found)


def _attachments(digests: tuple[bytes, ...], found: list[bytes | None]) -> tuple[link_pb2.Blob, ...]:
    blobs = [(digest, data) for digest, data in zip(digests, found, strict=True) if data is not None]
    if sum(len(data) for _, data in blobs) > ATTACHED_BYTES_MAX:
        return ()
    return tuple(link_pb2.Blob(sha256=digest, data=data) for digest, data in blobs)
