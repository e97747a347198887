"""Scripts and environments attached to a launch on one node, and the duration of each broadcast.

A one-node launch waits until its blobs are loaded; small ones then travel with it, so that the node need not ask.
Invariant: at most one query to the store is under way, for all waiting launches; they go out in order of arrival.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from prometheus_client import Histogram

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.protocol import JobLaunch, Prepare
from eslurm.links.blobs import BlobCache, BlobUnavailable
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import link_pb2

log = logging.getLogger("esctld.cargo")

ATTACHED_BYTES_MAX = 32 * 1024
"""Larger scripts and environments are asked for by the node, on the bulk lane."""
LOADED_AT_ONCE = 64
"""Launches whose blobs are loaded together: with all that may be attached to them they take some megabytes."""

Load: TypeAlias = Callable[[Collection[bytes], int], Awaitable[Mapping[bytes, bytes]]]
"""Loads the blobs that exist and have at most this many bytes. Raises `BlobUnavailable`."""


class BlobAttachments:
    """Implements `Broadcaster`'s `Attachments`. `attach` and `ready` are the controller's driver and broadcaster.

    Blobs from the store go into the launch and not into the cache: for a long queue each is needed once.
    """

    def __init__(self, cache: BlobCache, load: Load, metrics: ControllerMetrics) -> None:
        self._cache = cache
        self._load = load
        self._metrics = metrics
        self._timers: dict[str, Histogram] = {}
        self._began: dict[int, tuple[str, float]] = {}
        self._deferred: deque[Send] = deque()
        self._loaded: Mapping[bytes, bytes] = {}
        self._loading: asyncio.Task[None] | None = None
        self._closed = False

    def connect(
        self,
        attach: Callable[[int, tuple[link_pb2.Blob, ...]], None],
        detach: Callable[[int], None],
        ready: Callable[[Sequence[Send]], None],
    ) -> None:
        """Set the callbacks for attachments and for sends that need not wait any more."""
        self._attach = attach
        self._detach = detach
        self._ready = ready

    def defers(self, send: Send) -> bool:
        """Check whether the launch must wait for blobs from the store."""
        if all(self._cache.find(digest) is not None for digest in _digests(send)):
            return False
        self._deferred.append(send)
        self._begin()
        return True

    def on_broadcast(self, broadcast_id: int, kind: str, send: Send | None) -> None:
        """Attach small blobs."""
        self._began[broadcast_id] = (kind, time.perf_counter())
        if send is None:
            return
        if isinstance(send.body, Prepare) and log.isEnabledFor(logging.DEBUG):
            _tell(send.body.launch, broadcast_id)
        found = [(digest, self._find(digest)) for digest in _digests(send)]
        blobs = tuple(link_pb2.Blob(sha256=digest, data=data) for digest, data in found if data is not None)
        if blobs and sum(len(blob.data) for blob in blobs) <= ATTACHED_BYTES_MAX:
            self._attach(broadcast_id, blobs)

    def on_answered(self, broadcast_id: int) -> None:
        """Record its duration."""
        self._detach(broadcast_id)
        kind, began = self._began.pop(broadcast_id)
        timer = self._timers.get(kind)
        if timer is None:
            timer = self._timers[kind] = self._metrics.broadcast.labels(kind)
        timer.observe(time.perf_counter() - began)

    def _find(self, digest: bytes) -> bytes | None:
        data = self._loaded.get(digest)
        return data if data is not None else self._cache.find(digest)

    def _begin(self) -> None:
        if self._loading is None and not self._closed:
            self._loading = asyncio.get_running_loop().create_task(self._load_all(), name="launch blobs")
            self._loading.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("launches could not be sent", exc_info=error)
        if self._deferred:
            self._begin()

    async def _load_all(self) -> None:
        while self._deferred:
            sends = [self._deferred.popleft() for _ in range(min(LOADED_AT_ONCE, len(self._deferred)))]
            digests = dict.fromkeys(digest for send in sends for digest in _digests(send))
            missing = [digest for digest in digests if self._cache.find(digest) is None]
            self._loaded = await self._load_some(missing)
            try:
                self._ready(sends)
            finally:
                self._loaded = {}

    async def _load_some(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        try:
            found = await self._load(digests, ATTACHED_BYTES_MAX)
        except BlobUnavailable as error:
            # The nodes will ask for them themselves, and say what is missing.
            log.warning("launches go without their blobs: %s", error)
            return {}
        except Exception:
            # On any error: a launch that never goes out is never retried, because it counts as under way.
            log.exception("launches go without their blobs")
            return {}
        return {digest: data for digest, data in found.items() if hashlib.sha256(data).digest() == digest}

    async def close(self) -> None:
        """Drop the waiting launches."""
        self._closed = True
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)


def _tell(launch: JobLaunch, broadcast_id: int) -> None:
    """Log the line that joins a job's ids with its broadcast's: satellites and agents' relays log the latter."""
    log.debug(
        "job %d, attempt %d: sent with broadcast %d",
        launch.job_id,
        launch.attempt,
        broadcast_id,
        extra={"trace": launch.spec.trace.hex()},
    )


def _digests(send: Send) -> tuple[bytes, ...]:
    body = send.body
    if not isinstance(body, Prepare) or not body.start:
        return ()
    return (body.launch.spec.script_hash, body.launch.spec.environment_hash)
