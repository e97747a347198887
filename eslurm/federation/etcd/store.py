"""`EtcdStore`: the port `KeyValueStore` over etcd's own API."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence

from eslurm.federation.etcd.calls import ANSWER_BYTES_MAX, Calls, EtcdSettings, Server
from eslurm.federation.etcd.entries import entry_of, key_of, prefix_end
from eslurm.federation.etcd.watches import watch
from eslurm.ports.kv import (
    LIST_MAX,
    VALUE_BYTES_MAX,
    Changes,
    Entry,
    Expect,
    Found,
    KvError,
    KvMember,
    KvUnavailable,
    Lease,
    LeaseLost,
    Operation,
    Page,
    Put,
    Swapped,
    WatchBroken,
    check_key,
    check_lease,
    check_page,
    check_swap,
)
from eslurm.v1 import etcd_pb2 as pb

_RANGE = "/etcdserverpb.KV/Range"
_SAFE_PAGE = ANSWER_BYTES_MAX // (2 * VALUE_BYTES_MAX)
"""So many of the largest entries fit into an answer."""


class EtcdStore:
    """A `KeyValueStore` in the etcd at the given endpoints."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._calls = Calls(settings)

    async def open(self) -> None:
        """See `KeyValueStore.open`."""
        await self._calls.open()

    async def close(self) -> None:
        """See `KeyValueStore.close`."""
        await self._calls.close()

    @property
    def endpoint(self) -> str:
        """The member that is asked now."""
        return self._calls.current().endpoint

    # ---- reads ----

    async def get(self, key: str, *, stale: bool = False) -> Found:
        """See `KvReader.get`."""
        check_key(key)
        asked = pb.RangeRequest(key=key.encode(), serializable=stale)
        found = await self._calls.ask(_RANGE, asked, pb.RangeResponse)
        return Found(entry_of(key, found.kvs[0]) if found.kvs else None, found.header.revision)

    async def list(self, prefix: str, *, after: str = "", revision: int = 0, limit: int = LIST_MAX) -> Page:
        """See `KvReader.list`. A page of large values has fewer entries than `limit`."""
        check_page(prefix, after, revision, limit)
        first = after.encode() + b"\0" if after else prefix.encode()
        entries: list[Entry] = []
        while True:
            found = await self._range(first, prefix_end(prefix), revision, limit)
            revision = revision or found.header.revision
            for kv in found.kvs:
                key = key_of(kv.key)
                if key is not None:
                    entries.append(entry_of(key, kv))
            # A page of keys that are not the port's would have no last key to go on from.
            if entries or not found.more:
                return Page(tuple(entries), revision, found.more)
            first = found.kvs[-1].key + b"\0"

    async def _range(self, first: bytes, end: bytes, revision: int, limit: int) -> pb.RangeResponse:
        asked = pb.RangeRequest(key=first, range_end=end, revision=revision, limit=limit)
        try:
            return await self._calls.ask(_RANGE, asked, pb.RangeResponse)
        except KvUnavailable as error:
            if "larger than max" not in str(error) or limit <= _SAFE_PAGE:
                raise
        asked.limit = _SAFE_PAGE
        return await self._calls.ask(_RANGE, asked, pb.RangeResponse)

    def watch(self, prefix: str, revision: int) -> AsyncGenerator[Changes, None]:
        """See `KvReader.watch`."""
        check_key(prefix)
        return watch(self._calls, prefix, revision)

    # ---- changes ----

    async def swap(self, expect: Sequence[Expect], then: Sequence[Operation]) -> Swapped:
        """See `KvWriter.swap`."""
        check_swap(expect, then)
        reads = [
            pb.RequestOp(request_range=pb.RangeRequest(key=condition.key.encode())) for condition in expect
        ]
        # The values after the change come in the same answer, too.
        asked = pb.TxnRequest(
            compare=[_compare(condition) for condition in expect],
            success=[*map(_change, then), *reads],
            failure=reads,
        )
        found = await self._calls.ask("/etcdserverpb.KV/Txn", asked, pb.TxnResponse, is_change=True)
        current: dict[str, Entry | None] = {}
        for condition, answer in zip(expect, found.responses[-len(reads) :], strict=True):
            kvs = answer.response_range.kvs
            current[condition.key] = entry_of(condition.key, kvs[0]) if kvs else None
        return Swapped(found.succeeded, found.header.revision, current)

    async def compact(self, revision: int) -> None:
        """See `KeyValueStore.compact`."""
        asked = pb.CompactionRequest(revision=revision)
        try:
            await self._calls.ask("/etcdserverpb.KV/Compact", asked, pb.CompactionResponse)
        except WatchBroken:
            # It is compacted already.
            return

    # ---- leases ----

    async def grant(self, ttl_s: float) -> Lease:
        """See `KvLeases.grant`. etcd counts whole seconds."""
        check_lease(ttl_s)
        asked = pb.LeaseGrantRequest(ttl=math.ceil(ttl_s))
        found = await self._calls.ask("/etcdserverpb.Lease/LeaseGrant", asked, pb.LeaseGrantResponse)
        if found.error:
            raise KvError(f"etcd grants no lease: {found.error}")
        return Lease(found.id, float(found.ttl))

    async def keep(self, lease: int) -> float:
        """See `KvLeases.keep`."""
        # A stream of one question and one answer is a call, which costs a third less.
        asked = pb.LeaseKeepAliveRequest(id=lease)
        found = await self._calls.ask("/etcdserverpb.Lease/LeaseKeepAlive", asked, pb.LeaseKeepAliveResponse)
        if found.ttl <= 0:
            raise LeaseLost(f"etcd: lease {lease:x} has ended")
        return float(found.ttl)

    async def revoke(self, lease: int) -> None:
        """See `KvLeases.revoke`."""
        try:
            asked = pb.LeaseRevokeRequest(id=lease)
            await self._calls.ask("/etcdserverpb.Lease/LeaseRevoke", asked, pb.LeaseRevokeResponse)
        except LeaseLost:
            return

    # ---- the servers ----

    async def members(self) -> tuple[KvMember, ...]:
        """See `KeyValueStore.members`."""
        return tuple(await asyncio.gather(*map(self._member, self._calls.servers)))

    async def _member(self, server: Server) -> KvMember:
        try:
            self._calls.current()
            status = await self._calls.ask_member(
                server, "/etcdserverpb.Maintenance/Status", pb.StatusRequest(), pb.StatusResponse
            )
            alarms = await self._calls.ask_member(
                server, "/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest(), pb.AlarmResponse
            )
        except KvError as error:
            return KvMember(server.endpoint, error=str(error))
        raised = {pb.AlarmMember.AlarmType.Name(found.alarm) for found in alarms.alarms}
        return KvMember(
            server.endpoint,
            status.version,
            status.leader == status.header.member_id,
            status.db_size,
            tuple(sorted(name.removeprefix("ALARM_TYPE_") for name in raised)),
        )


def _compare(condition: Expect) -> pb.Compare:
    return pb.Compare(
        result=pb.Compare.RESULT_EQUAL,
        target=pb.Compare.TARGET_MOD,
        key=condition.key.encode(),
        mod_revision=condition.version,
    )


def _change(operation: Operation) -> pb.RequestOp:
    key = operation.key.encode()
    if isinstance(operation, Put):
        put = pb.PutRequest(key=key, value=operation.value, lease=operation.lease)
        return pb.RequestOp(request_put=put)
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
