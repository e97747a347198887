"""All links of a process: found by endpoint, dialled once, kept while used, closed when idle.

Invariant: at most one dial per endpoint is under way; dialled links and dials are bounded; an endpoint that failed is
left alone until its back-off ends. A peer that restarted (same endpoint, new process) loses its old links at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import grpc
import grpc.aio
import msgspec

from eslurm.ports.link import Link, LinkError, LinkSink, LinkUnreachable
from eslurm.rpc.counters import LinkCounters
from eslurm.rpc.dial import dial
from eslurm.rpc.hello import LocalPeer
from eslurm.rpc.link import GrpcLink
from eslurm.rpc.options import LinkSettings, TableSettings
from eslurm.rpc.signing import Keyring
from eslurm.v1 import link_pb2


class Rng(Protocol):
    """Where jitter comes from."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class _Backoff(msgspec.Struct, frozen=True):
    failures: int
    until_s: float
    text: str


class LinkTable:
    """The links of this process. It is the sink of its `LinkServer` and dials, and passes everything on to `sink`."""

    def __init__(
        self,
        local: LocalPeer,
        keyring: Keyring,
        sink: LinkSink,
        rng: Rng,
        settings: TableSettings | None = None,
        link_settings: LinkSettings | None = None,
        counters: LinkCounters | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.counters = counters or LinkCounters()
        self._local = local
        self._keyring = keyring
        self._sink = sink
        self._rng = rng
        self._settings = settings or TableSettings()
        self._link_settings = link_settings or LinkSettings()
        self._credentials = credentials
        # Several links to one process are rare (both sides dialled at once); the newest is the last.
        self._by_endpoint: dict[str, list[GrpcLink]] = {}
        self._by_process: dict[str, list[GrpcLink]] = {}
        self._dialled: dict[GrpcLink, str] = {}
        self._dialling: dict[str, asyncio.Task[GrpcLink]] = {}
        self._backoff: dict[str, _Backoff] = {}
        self._dial_slots = asyncio.Semaphore(self._settings.dials_max)
        self._closing = ""
        self._holds_grpc = False

    # ---- finding ----

    def find(self, endpoint: str) -> GrpcLink | None:
        """The live link to the process at `endpoint`, dialled by either side, if there is one now."""
        return _newest_live(self._by_endpoint.get(endpoint, ()))

    def find_process(self, process: str) -> GrpcLink | None:
        """The live link to a process by its identity."""
        return _newest_live(self._by_process.get(process, ()))

    @property
    def links(self) -> list[GrpcLink]:
        """One live link per peer process."""
        return [link for links in self._by_process.values() if (link := _newest_live(links)) is not None]

    async def get(self, endpoint: str) -> GrpcLink:
        """The live link to `endpoint`, dialled if need be; concurrent callers share one dial.

        Raises `LinkUnreachable` (at once, with `retry_after_s`, during the back-off after a failure) or
        `LinkRefused`. Cancelling a caller does not end the dial that others may wait for.
        """
        link = self.find(endpoint)
        if link is not None:
            link.active_at_s = asyncio.get_running_loop().time()
            return link
        task = self._dialling.get(endpoint)
        if task is None:
            self._admit(endpoint)
            task = asyncio.create_task(self._dial(endpoint), name=f"dial {endpoint}")
            self._dialling[endpoint] = task
            task.add_done_callback(lambda done: self._on_dialled(endpoint, done))
        return await asyncio.shield(task)

    # ---- dialling ----

    def _admit(self, endpoint: str) -> None:
        if self._closing:
            raise LinkUnreachable(f"{endpoint}: {self._closing}")
        now_s = asyncio.get_running_loop().time()
        backoff = self._backoff.get(endpoint)
        if backoff is not None and now_s < backoff.until_s:
            raise LinkUnreachable(backoff.text, retry_after_s=backoff.until_s - now_s)
        if len(self._dialled) + len(self._dialling) >= self._settings.dialled_max:
            raise LinkUnreachable(
                f"{endpoint}: this process has {len(self._dialled)} dialled links and takes no more",
                retry_after_s=self._settings.backoff_max_s,
            )

    async def _dial(self, endpoint: str) -> GrpcLink:
        self._hold_grpc()
        async with self._dial_slots:
            # The peer may have dialled us while we waited for our turn.
            link = self.find(endpoint)
            if link is not None:
                return link
            link = await dial(
                endpoint,
                self._local,
                self._keyring,
                self,
                self._link_settings,
                self.counters,
                self._credentials,
            )
        self._enter(endpoint, link)
        self._dialled[link] = endpoint
        self._evict()
        return link

    def _hold_grpc(self) -> None:
        # With the last of its objects gRPC stops, and that blocks the loop until every write to a peer that does
        # not read was given up (5 s): in a process that only dials, the end of one link would be an outage.
        if not self._holds_grpc:
            self._holds_grpc = True
            grpc.aio.init_grpc_aio()

    def _on_dialled(self, endpoint: str, task: asyncio.Task[GrpcLink]) -> None:
        del self._dialling[endpoint]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._backoff.pop(endpoint, None)
        elif isinstance(error, LinkError):
            self._back_off(endpoint, str(error))

    def _back_off(self, endpoint: str, text: str) -> None:
        earlier = self._backoff.pop(endpoint, None)
        failures = earlier.failures + 1 if earlier else 1
        settings = self._settings
        wait_s = min(settings.backoff_max_s, settings.backoff_first_s * 2.0 ** min(failures - 1, 16))
        wait_s *= 0.5 + self._rng.random() / 2
        until_s = asyncio.get_running_loop().time() + wait_s
        self._backoff[endpoint] = _Backoff(failures, until_s, text)
        if len(self._backoff) > settings.backoff_entries_max:
            del self._backoff[next(iter(self._backoff))]

    def _evict(self) -> None:
        excess = len(self._dialled) - self._settings.cached_max
        if excess <= 0:
            return
        quiet_since_s = asyncio.get_running_loop().time() - self._settings.idle_s
        idle = [link for link in self._dialled if link.active_at_s <= quiet_since_s]
        for link in sorted(idle, key=lambda link: link.active_at_s)[:excess]:
            self.counters.evictions += 1
            link.close("idle")

    # ---- the sink of all links ----

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Pass on what arrived."""
        self._sink.on_items(link, items)

    def on_up(self, link: Link) -> None:
        """Remember a new link. The newest link of a process is the one to use."""
        assert isinstance(link, GrpcLink)
        endpoint = link.peer.endpoint
        if endpoint:
            for earlier in self._by_endpoint.get(endpoint, ()):
                if earlier.peer.process != link.peer.process:
                    earlier.abort("the peer restarted")
            self._enter(endpoint, link)
            self._backoff.pop(endpoint, None)
        self._by_process.setdefault(link.peer.process, []).append(link)
        self._sink.on_up(link)

    def on_down(self, link: Link, reason: str) -> None:
        """Forget a link that ended."""
        assert isinstance(link, GrpcLink)
        dialled_at = self._dialled.pop(link, "")
        for endpoint in {link.peer.endpoint, dialled_at}:
            _drop(self._by_endpoint, endpoint, link)
        _drop(self._by_process, link.peer.process, link)
        self._sink.on_down(link, reason)

    def _enter(self, endpoint: str, link: GrpcLink) -> None:
        links = self._by_endpoint.setdefault(endpoint, [])
        if link not in links:
            links.append(link)

    async def close(self, reason: str) -> None:
        """End all dialled links in good order; no dial succeeds afterwards. Accepted ones end with their server."""
        self._closing = reason
        for task in list(self._dialling.values()):
            task.cancel()
        await asyncio.gather(*self._dialling.values(), return_exceptions=True)
        links = list(self._dialled)
        for link in links:
            link.close(reason)
        for link in links:
            await link.finished.wait()
        if self._holds_grpc:
            self._holds_grpc = False
            grpc.aio.shutdown_grpc_aio()


def _newest_live(links: Sequence[GrpcLink]) -> GrpcLink | None:
    return next((link for link in reversed(links) if not link.closed.is_set()), None)


def _drop(index: dict[str, list[GrpcLink]], key: str, link: GrpcLink) -> None:
    links = index.get(key)
    if links is not None and link in links:
        links.remove(link)
        if not links:
            del index[key]
