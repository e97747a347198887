"""Scripts and environments that ride along with a launch on one node, and how long each broadcast took.

A one-node launch waits until its blobs are at hand; small ones then travel with it, so that the node need not ask.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from eslurm.core.courier import Send
from eslurm.core.wire import JobLaunch, Prepare
from eslurm.relay.blobs import BlobExchange, BlobUnavailable
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import link_pb2

log = logging.getLogger("esctld.cargo")

ATTACHED_BYTES_MAX = 32 * 1024
"""Larger scripts and environments are asked for by the node, on the bulk lane."""


class BlobCargo:
    """Implements `Herald`'s `Cargo`. `attach` and `ready` are the controller's driver and herald."""

    def __init__(self, blobs: BlobExchange, metrics: ControllerMetrics) -> None:
        self._blobs = blobs
        self._metrics = metrics
        self._began: dict[int, tuple[str, float]] = {}
        self._loading: set[asyncio.Task[None]] = set()

    def connect(
        self,
        attach: Callable[[int, tuple[link_pb2.Blob, ...]], None],
        detach: Callable[[int], None],
        ready: Callable[[Send], None],
    ) -> None:
        """Where attachments go, and who takes a send that need not wait any more."""
        self._attach = attach
        self._detach = detach
        self._ready = ready

    def defers(self, send: Send) -> bool:
        """Whether the launch has to wait for blobs that only the store has."""
        digests = _digests(send)
        if all(self._blobs.cache.find(digest) is not None for digest in digests):
            return False
        task = asyncio.get_running_loop().create_task(self._load(send, digests), name="launch blobs")
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)
        return True

    def on_broadcast(self, broadcast_id: int, kind: str, send: Send | None) -> None:
        """Attach what is small enough."""
        self._began[broadcast_id] = (kind, time.perf_counter())
        if send is None:
            return
        if isinstance(send.body, Prepare) and log.isEnabledFor(logging.DEBUG):
            _tell(send.body.launch, broadcast_id)
        found = [(digest, self._blobs.cache.find(digest)) for digest in _digests(send)]
        blobs = tuple(link_pb2.Blob(sha256=digest, data=data) for digest, data in found if data is not None)
        if blobs and sum(len(blob.data) for blob in blobs) <= ATTACHED_BYTES_MAX:
            self._attach(broadcast_id, blobs)

    def on_answered(self, broadcast_id: int) -> None:
        """Count how long it took."""
        self._detach(broadcast_id)
        kind, began = self._began.pop(broadcast_id)
        self._metrics.broadcast.labels(kind).observe(time.perf_counter() - began)

    async def _load(self, send: Send, digests: tuple[bytes, ...]) -> None:
        try:
            for digest in digests:
                await self._blobs.get(digest)
        except BlobUnavailable as error:
            # The node will ask for them itself, and say what is missing.
            log.warning("a launch goes without its blobs: %s", error)
        self._ready(send)

    async def close(self) -> None:
        """Give up what waits."""
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)


def _tell(launch: JobLaunch, broadcast_id: int) -> None:
    """The one line that has a job's ids and its broadcast's: satellites and agents' relays log the latter."""
    log.debug(
        "job %d, attempt %d: sent with broadcast %d",
        launch.job_id,
        launch.attempt,
        broadcast_id,
        extra={"trace": launch.trace.hex()},
    )


def _digests(send: Send) -> tuple[bytes, ...]:
    body = send.body
    if not isinstance(body, Prepare) or not body.start:
        return ()
    return (body.launch.script_hash, body.launch.environment_hash)
