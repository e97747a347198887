"""All links of a process: found by endpoint, dialled once, kept while used, closed when idle.

Invariant: at most one dial per endpoint is under way; dialled links and dials are bounded; an endpoint that failed is left
alone until its back-off ends. A peer that restarted (same endpoint, new process) loses its old links at once. Above the
budget links are closed as soon as they are idle, never while an answer is awaited on them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

import grpc
import grpc.aio
import msgspec

from eslurm.links.dial import dial
from eslurm.links.hello import LocalPeer
from eslurm.links.kinds import STATEMENTS, Kinds, allowed, is_agent
from eslurm.links.link import GrpcLink
from eslurm.links.pending_replies import PendingReplies
from eslurm.links.statement_quota import DROPPED_MAX, StatementQuota
from eslurm.ports.link import (
    ANYBODY,
    CELL,
    IDLE,
    Link,
    LinkBusy,
    LinkError,
    LinkRefused,
    LinkSink,
    LinkUnreachable,
    PeerInfo,
    Wanted,
)
from eslurm.security.credentials import Credentials
from eslurm.security.membership import NotAMember
from eslurm.security.sealing import BadSeal
from eslurm.transport.counters import LinkCounters
from eslurm.transport.options import LinkSettings, TableSettings
from eslurm.transport.tls import Tls
from eslurm.transport.tls_diagnosis import TlsDiagnosis
from eslurm.v1 import link_pb2

log = logging.getLogger(__name__)

TRIM_INTERVAL_S = 0.02
"""Interval of searches for an idle link while the table is above its budget."""


_KEPT = ("controller", CELL)
"""Roles whose dialled links are few, and are not closed for want of room."""


class Rng(Protocol):
    """Source of jitter."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class _NoRoom(LinkUnreachable):
    """This process lacks sockets: no reason for a back-off of the endpoint."""


class _Backoff(msgspec.Struct, frozen=True):
    failures: int
    until_s: float
    text: str
    kind: type[LinkUnreachable] = LinkUnreachable


class LinkTable:
    """The links of this process. It is the sink of its `LinkServer` and dials, and passes everything on to `sink`."""

    def __init__(
        self,
        local: LocalPeer,
        credentials: Credentials,
        sink: LinkSink,
        rng: Rng,
        settings: TableSettings | None = None,
        link_settings: LinkSettings | None = None,
        counters: LinkCounters | None = None,
        tls: Tls | None = None,
        kinds: Kinds = allowed,
    ) -> None:
        self.counters = counters or LinkCounters()
        self._local = local
        self._credentials = credentials
        credentials.on_learnt = self._on_learnt
        self._sink = sink
        self._rng = rng
        self._settings = settings or TableSettings()
        self._link_settings = link_settings or LinkSettings()
        self._tls = tls
        self._kinds = kinds
        self._mismatch = TlsDiagnosis(tls)
        # Several links to one process are rare (both sides dialled at once); the newest is the last.
        self._by_endpoint: dict[str, list[GrpcLink]] = {}
        self._by_process: dict[str, list[GrpcLink]] = {}
        self._dialled: dict[GrpcLink, str] = {}
        self._pending: dict[str, PendingReplies] = {}
        self._statements: dict[Link, StatementQuota] = {}
        self._accepted: dict[GrpcLink, None] = {}
        self._trimmer: asyncio.TimerHandle | None = None
        self._dialling: dict[str, asyncio.Task[GrpcLink]] = {}
        self._backoff: dict[str, _Backoff] = {}
        self._dials_now = 0
        self._dial_slots = asyncio.Semaphore(self._settings.dials_max)
        self._closing = ""
        self._holds_grpc = False

    # ---- finding ----

    def find(self, endpoint: str, wanted: Wanted = ANYBODY) -> GrpcLink | None:
        """The live link to such a peer at `endpoint`, dialled by either side, if there is one now."""
        return _newest_live(self._by_endpoint.get(endpoint, ()), wanted)

    def find_process(self, process: str) -> GrpcLink | None:
        """The live link to a process by its identity."""
        return _newest_live(self._by_process.get(process, ()))

    @property
    def sockets(self) -> int:
        """Open connections of this process' links, dials and handshakes; listening sockets are not counted."""
        return self.counters.sockets_now

    @property
    def links(self) -> list[GrpcLink]:
        """One live link per peer process."""
        return [link for links in self._by_process.values() if (link := _newest_live(links)) is not None]

    async def get(
        self, endpoint: str, wanted: Wanted = ANYBODY, backoff_max_s: float | None = None
    ) -> GrpcLink:
        """The live link to such a peer at `endpoint`, dialled if need be; concurrent callers share one dial.

        Raises `LinkUnreachable` (at once, with `retry_after_s`, during the back-off after a failure, which is at most
        `backoff_max_s` where the table's own bound is too long) or `LinkRefused`. Cancelling a caller does not end a
        shared dial.
        """
        link = self.find(endpoint, wanted)
        if link is not None:
            link.active_at_s = asyncio.get_running_loop().time()
            return link
        task = self._dialling.get(endpoint)
        if task is None:
            self._admit(endpoint)
            task = asyncio.create_task(self._dial(endpoint, wanted), name=f"dial {endpoint}")
            self._dialling[endpoint] = task
            task.add_done_callback(lambda done: self._on_dialled(endpoint, done, backoff_max_s))
        link = await asyncio.shield(task)
        if not wanted.fits(link.peer):
            raise _other_peer(endpoint, link, wanted)
        return link

    # ---- dialling ----

    def _admit(self, endpoint: str) -> None:
        if self._closing:
            raise LinkUnreachable(f"{endpoint}: {self._closing}")
        now_s = asyncio.get_running_loop().time()
        backoff = self._backoff.get(endpoint)
        if backoff is not None and now_s < backoff.until_s:
            raise backoff.kind(backoff.text, retry_after_s=backoff.until_s - now_s)

    async def _dial(self, endpoint: str, wanted: Wanted) -> GrpcLink:
        self._hold_grpc()
        async with self._dial_slots:
            # The peer may have dialled us while we waited for our turn.
            link = self.find(endpoint, wanted)
            if link is not None:
                return link
            await self._make_room(endpoint)
            self._dials_now += 1
            try:
                link = await dial(
                    endpoint,
                    self._local,
                    self._credentials,
                    self,
                    self._link_settings,
                    self.counters,
                    self._tls,
                    self._mismatch,
                )
            finally:
                self._dials_now -= 1
        if not wanted.fits(link.peer):
            link.close("another peer was looked for")
            raise _other_peer(endpoint, link, wanted)
        self._mismatch.forget(endpoint)
        self._enter(endpoint, link)
        self._dialled[link] = endpoint
        self._trim()
        return link

    async def _make_room(self, endpoint: str) -> None:
        """Wait for space for one more dialled link. Raises `LinkUnreachable` when none becomes idle in time."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._settings.room_wait_s
        while (taken := self._taken()) >= self._settings.dialled_max:
            keep = self._settings.dialled_max - self._dials_now - 1
            self.counters.evictions += self._close_idle(self._dialled, keep, 0.0)
            if loop.time() >= give_up_s:
                text = f"this process has {taken} dialled links in use and takes no more"
                raise _NoRoom(f"{endpoint}: {text}")
            await asyncio.sleep(TRIM_INTERVAL_S)

    def _taken(self) -> int:
        """Links that were dialled or are being dialled; controllers are few and not counted."""
        return self._dials_now + sum(link.peer.role not in _KEPT for link in self._dialled)

    def _hold_grpc(self) -> None:
        # With the last of its objects gRPC stops, and that blocks the loop until every write to a peer that does
        # not read was given up (5 s): in a process that only dials, the end of one link would be an outage.
        if not self._holds_grpc:
            self._holds_grpc = True
            grpc.aio.init_grpc_aio()

    def _on_dialled(self, endpoint: str, task: asyncio.Task[GrpcLink], backoff_max_s: float | None) -> None:
        del self._dialling[endpoint]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._backoff.pop(endpoint, None)
        elif isinstance(error, LinkBusy) and error.retry_after_s:
            # It said when: its turn is not to be missed for our own patience.
            until_s = asyncio.get_running_loop().time() + error.retry_after_s
            self._leave_alone(endpoint, _Backoff(0, until_s, str(error), LinkBusy))
        elif isinstance(error, LinkError) and not isinstance(error, _NoRoom):
            self._back_off(endpoint, error, backoff_max_s)

    def _back_off(self, endpoint: str, error: LinkError, max_s: float | None) -> None:
        earlier = self._backoff.get(endpoint)
        failures = earlier.failures + 1 if earlier else 1
        kind = type(error) if isinstance(error, LinkUnreachable) else LinkUnreachable
        settings = self._settings
        wait_s = settings.backoff_first_s * 2.0 ** min(failures - 1, 16)
        wait_s = min(wait_s, settings.backoff_max_s, settings.backoff_max_s if max_s is None else max_s)
        wait_s *= 0.5 + self._rng.random() / 2
        until_s = asyncio.get_running_loop().time() + wait_s
        self._leave_alone(endpoint, _Backoff(failures, until_s, str(error), kind))

    def _leave_alone(self, endpoint: str, backoff: _Backoff) -> None:
        self._backoff.pop(endpoint, None)
        self._backoff[endpoint] = backoff
        if len(self._backoff) > self._settings.backoff_entries_max:
            del self._backoff[next(iter(self._backoff))]

    # ---- staying within the budget ----

    def _trim(self) -> None:
        """Close idle links above the budget, the longest quiet first; repeat soon while there are too many."""
        settings = self._settings
        dialled = self._close_idle(self._dialled, settings.cached_max, settings.idle_s)
        self.counters.evictions += dialled
        if settings.parked_above:
            parked = self._close_idle(self._accepted, settings.parked_above, settings.parked_quiet_s)
            self.counters.links_parked += parked
        if self._trimmer is None and self._is_above_budget() and not self._closing:
            self._trimmer = asyncio.get_running_loop().call_later(TRIM_INTERVAL_S, self._trim_again)

    def _trim_again(self) -> None:
        self._trimmer = None
        self._trim()

    def _is_above_budget(self) -> bool:
        parked_above = self._settings.parked_above
        return self._taken() > self._settings.cached_max or 0 < parked_above < len(self._accepted)

    def _close_idle(self, links: Iterable[GrpcLink], keep: int, quiet_s: float) -> int:
        open_now = [link for link in links if link.is_usable and link.peer.role not in _KEPT]
        excess = len(open_now) - keep
        if excess <= 0:
            return 0
        now_s = asyncio.get_running_loop().time()
        quiet = [link for link in open_now if link.active_at_s <= now_s - quiet_s]
        quiet.sort(key=lambda link: link.active_at_s)
        idle = (link for link in quiet if link.is_idle(now_s))
        closed = 0
        for link in itertools.islice(idle, excess):
            link.close(IDLE)
            closed += 1
        return closed

    # ---- the sink of all links ----

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Pass on the items that the peer may send; learn sealed statements of the site."""
        kinds = self._kinds(link.peer.role, self._local.role)
        others = []
        for item in items:
            kind = item.WhichOneof("kind") or ""
            if kind not in kinds:
                log.warning("%r sent a %s: the link ends", link, kind)
                assert isinstance(link, GrpcLink)
                link.abort(f"a {kind} is not for the role {link.peer.role} to send")
                break
            if kind in STATEMENTS:
                self._learn(link, item)
                if link.closed.is_set():
                    break
            else:
                others.append(item)
        if others:
            self._sink.on_items(link, others)

    def on_up(self, link: Link) -> None:
        """Record a new link. The newest link of a process is the one to use."""
        assert isinstance(link, GrpcLink)
        endpoint = link.peer.endpoint
        if endpoint:
            for earlier in self._by_endpoint.get(endpoint, ()):
                # Of another host it is no news: that one only says that it listens there.
                if earlier.peer.process != link.peer.process and _is_same_host(earlier.peer, link.peer):
                    earlier.abort("the peer restarted")
            self._enter(endpoint, link)
            self._backoff.pop(endpoint, None)
        process = link.peer.process
        self._by_process.setdefault(process, []).append(link)
        link.pending = self._pending.setdefault(process, link.pending)
        if not link.dialled and is_agent(link.peer.role):
            self._accepted[link] = None
            self._trim()
        # What another cell knows of is its own list.
        known = 0 if link.peer.cell else link.session.revoked_revision
        if known < self._credentials.revoked.revision:
            link.send_encoded(self._revoked_item())
        self._sink.on_up(link)

    def on_down(self, link: Link, reason: str) -> None:
        """Forget a link that ended."""
        assert isinstance(link, GrpcLink)
        dialled_at = self._dialled.pop(link, "")
        self._accepted.pop(link, None)
        self._statements.pop(link, None)
        for endpoint in {link.peer.endpoint, dialled_at}:
            _drop(self._by_endpoint, endpoint, link)
        _drop(self._by_process, link.peer.process, link)
        if link.peer.process not in self._by_process:
            self._pending.pop(link.peer.process, None)
        self._sink.on_down(link, reason)

    def close_quiet(self, role: str, quiet_s: float) -> None:
        """Close idle links that were dialled to peers of this role and have been quiet for so long."""
        now_s = asyncio.get_running_loop().time()
        for link in list(self._dialled):
            is_quiet = link.active_at_s <= now_s - quiet_s
            if link.peer.role == role and is_quiet and link.is_usable and link.is_idle(now_s):
                link.close(IDLE)

    def _enter(self, endpoint: str, link: GrpcLink) -> None:
        links = self._by_endpoint.setdefault(endpoint, [])
        if link not in links:
            links.append(link)

    # ---- what the site states ----

    def _learn(self, link: Link, item: link_pb2.Item) -> None:
        """Learn a statement of the site, which its seal proves, whichever peer passes it on; a cell's is about that cell.

        A cell's link has a quota: each statement costs the check of a seal.
        """
        kind = item.WhichOneof("kind") or ""
        if link.peer.cell and not self._is_welcome(link, kind):
            return
        try:
            keys = self._credentials if not link.peer.cell else self._credentials.cells[link.peer.cell]
            learnt = (
                keys.learn_ring(item.key_ring.sealed)
                if kind == "key_ring"
                else keys.learn_revoked(item.revoked.sealed)
            )
            if learnt and link.peer.cell:
                self.check_links()
        except (BadSeal, KeyError) as error:
            log.warning("%r sent a %s that cannot be trusted: %s", link, kind, error)

    def _is_welcome(self, link: Link, kind: str) -> bool:
        """Check whether the link of a cell may have one more statement looked at; one that sends many ends."""
        if link.closed.is_set():
            return False
        quota = self._statements.setdefault(link, StatementQuota())
        if quota.take(kind, asyncio.get_running_loop().time()):
            return True
        if quota.dropped == 1:
            log.warning("%r sends more than one %s a second: these are dropped", link, kind)
        if quota.dropped > DROPPED_MAX:
            why = f"more than {DROPPED_MAX} statements were dropped"
            log.warning("%r ends: %s", link, why)
            assert isinstance(link, GrpcLink)
            link.abort(why)
        return False

    def _on_learnt(self) -> None:
        """Pass newer keys or revocations to neighbours, and end links of revoked members."""
        try:
            self._credentials.keep()
        except OSError as error:
            log.warning("the site's keys cannot be kept: %s", error)
        ring = link_pb2.SealedStatement(sealed=self._credentials.members.ring.sealed)
        encoded = [link_pb2.Item(key_ring=ring).SerializeToString()]
        if self._credentials.revoked.revision:
            encoded.append(self._revoked_item())
        for link in self.check_links():
            for item in encoded:
                link.send_encoded(item)

    def check_links(self) -> list[GrpcLink]:
        """End links whose peers are members no more; the others."""
        kept = []
        for link in [link for links in self._by_process.values() for link in links]:
            try:
                self._credentials.check_peer(link.session.membership, link.peer.cell, time.time_ns() // 1000)
            except NotAMember as error:
                log.warning("%r ends: %s", link, error)
                link.abort(str(error))
            else:
                kept.append(link)
        return kept

    def _revoked_item(self) -> bytes:
        revoked = link_pb2.SealedStatement(sealed=self._credentials.revoked.sealed)
        return link_pb2.Item(revoked=revoked).SerializeToString()

    async def close(self, reason: str) -> None:
        """End all dialled links in good order; no dial succeeds afterwards. Accepted ones end with their server."""
        self._closing = reason
        if self._trimmer is not None:
            self._trimmer.cancel()
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


def _newest_live(links: Sequence[GrpcLink], wanted: Wanted = ANYBODY) -> GrpcLink | None:
    return next((link for link in reversed(links) if link.is_usable and wanted.fits(link.peer)), None)


def _is_same_host(one: PeerInfo, other: PeerInfo) -> bool:
    return (one.role, one.names, one.cell) == (other.role, other.names, other.cell)


def _other_peer(endpoint: str, link: GrpcLink, wanted: Wanted) -> LinkRefused:
    found = f"{link.peer.role} {link.peer.cell or link.peer.names}"
    return LinkRefused(
        f"{endpoint}: {found} listens there, not {wanted.role or 'a peer'} {wanted.cell or wanted.name}".rstrip()
    )


def _drop(index: dict[str, list[GrpcLink]], key: str, link: GrpcLink) -> None:
    links = index.get(key)
    if links is not None and link in links:
        links.remove(link)
        if not links:
            del index[key]
