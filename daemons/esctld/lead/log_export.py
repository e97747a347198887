"""Base states, which replace the beginning of the log of facts, and the log's pages for `esctl log export`.

Invariant: rows == base + replay(log). A base state is made of the rows as of one revision, in one read transaction, and is
durable before any fact up to its revision is removed. The dispatcher's decisions neither wait for this nor delay it: pages
come straight from the store's reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec

from esctld.lead.dispatcher import Dispatcher
from eslurm.core.control.log_keeping import BASES, Base, LogKeeping, MakeBase, decode_bases
from eslurm.core.model.units import SECOND_US
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.ports.store import (
    BlobMissing,
    BlobRow,
    Head,
    LoggedFact,
    LogPruned,
    Prune,
    SettingRow,
    Store,
    StoreReader,
    content_hash,
)
from eslurm.replay.base import BasePacker
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esctld.log_export")

DAY_US = 24 * 3600 * SECOND_US
PAGE_FACTS_MAX = 5_000
PAGE_BYTES_MAX = 1 << 20
"""A page also passes through a standby's link, where items are small."""
READ_ROWS = 1_000


async def stored_bases(reader: StoreReader, owner: str) -> list[Base]:
    """The listed base states, oldest first."""
    rows = reader.load_unfinished(owner)
    try:
        async for chunk in rows:
            for row in chunk:
                if isinstance(row, SettingRow):
                    if row.name == BASES:
                        return _decoded(row.blob)
                elif not isinstance(row, Head):
                    # Settings come first.
                    return []
    finally:
        await rows.aclose()
    return []


def _decoded(blob: bytes) -> list[Base]:
    """The list; an unreadable one counts as none: the next base state begins a new one."""
    try:
        return decode_bases(blob)
    except msgspec.MsgspecError as error:
        log.error("the list of base states cannot be read: %s", error)
        return []


class LogKeeper:
    """Makes base states as the log grows, and bounds pruning. `kept_us` 0: the whole log is kept."""

    def __init__(self, store: Store, owner: str, dispatcher: Dispatcher, kept_days: float) -> None:
        self._store = store
        self._owner = owner
        self._dispatcher = dispatcher
        self._keeping = LogKeeping(int(kept_days * DAY_US))

    @property
    def turn_every_s(self) -> float:
        """The time between two turns."""
        return self._keeping.turn_every_us / SECOND_US

    async def turn(self, now_us: int) -> Prune:
        """Make a base state if one is due; what may go now. Raises StoreUnavailable, or NotNow as `Dispatcher.keep`."""
        keeping = self._keeping
        if not keeping.is_begun:
            keeping.begin(await stored_bases(self._store, self._owner))
        action = keeping.turn(self._dispatcher.state, self._dispatcher.view.revision, now_us)
        if isinstance(action, MakeBase):
            head, data = await pack_rows(self._store, self._owner)
            base = Base(head.revision, head.at_us, content_hash(data))
            row = SettingRow(BASES, keeping.packed(base))
            await self._dispatcher.keep([row], [BlobRow(base.hash, data)])
            log.info("base state of revision %d stored: %d bytes", base.revision, len(data))
            action = keeping.kept()
        return Prune(**msgspec.structs.asdict(action))


async def pack_rows(reader: StoreReader, owner: str) -> tuple[Head, bytes]:
    """The rows as of one revision as a base state. Packing is done on a thread: it may take seconds for many jobs."""
    packer: BasePacker | None = None
    head = Head()
    rows = reader.load_unfinished(owner, READ_ROWS)
    try:
        async for chunk in rows:
            for row in chunk:
                if isinstance(row, Head):
                    head = row
                    packer = BasePacker(head.revision, head.at_us)
            assert packer is not None, "the head comes first"
            kept = [row for row in chunk if not isinstance(row, Head)]
            await asyncio.to_thread(packer.add_rows, kept)
    finally:
        await rows.aclose()
    assert packer is not None, "the head comes first"
    return head, await asyncio.to_thread(packer.finish)


class LogPages:
    """Answers ExportLog."""

    def __init__(self, store: StoreReader, owner: str, cluster: str) -> None:
        self._store = store
        self._owner = owner
        self._cluster = cluster

    async def export(self, request: pb.ExportLogRequest, caller: Caller) -> pb.ExportLogReply:
        """A page: facts from a revision on, or, with 0, the beginning that is needed to know all from `since_us` on."""
        try:
            if request.from_revision:
                return await self._page(request.from_revision, request.limit)
            return await self._first_page(request)
        except LogPruned as error:
            raise ApiError(Status.NOT_FOUND, f"{error}: begin anew") from None

    async def _first_page(self, request: pb.ExportLogRequest) -> pb.ExportLogReply:
        for base in await self._beginnings(request.since_us):
            try:
                data = await self._store.get_blob(self._owner, base.hash) if base is not None else b""
                reply = await self._page(base.revision + 1 if base is not None else 1, request.limit)
            except (LogPruned, BlobMissing):
                continue
            reply.base = data
            return reply
        raise ApiError(Status.NOT_FOUND, "the log's beginning is gone and no base state fits what is left")

    async def _beginnings(self, since_us: int) -> Sequence[Base | None]:
        """Possible beginnings of the log, best first; None: revision 1."""
        bases = await stored_bases(self._store, self._owner)
        early = [base for base in bases if since_us and base.at_us < since_us]
        late = [base for base in bases if base not in early]
        return [*reversed(early), None, *late]

    async def _page(self, first: int, limit: int) -> pb.ExportLogReply:
        head = await self._store.leader(self._owner)
        reply = pb.ExportLogReply(head_revision=head.revision, cluster=self._cluster, owner=self._owner)
        size = 0
        facts_max = min(limit or PAGE_FACTS_MAX, PAGE_FACTS_MAX)
        chunks = self._store.load_facts(self._owner, first, min(facts_max, READ_ROWS))
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                for fact in chunk:
                    size += len(fact.blob) + 32
                    if len(reply.facts) >= facts_max or (reply.facts and size > PAGE_BYTES_MAX):
                        reply.next_revision = fact.revision
                        return reply
                    reply.facts.append(_logged(fact))
        return reply


def _logged(fact: LoggedFact) -> pb.LoggedFact:
    return pb.LoggedFact(
        revision=fact.revision,
        at_us=fact.at_us,
        kind=fact.kind,
        version=fact.version,
        blob=fact.blob,
        epoch=fact.epoch,
    )
