"""Watches: one stream each, from a revision on, until it breaks or is closed.

Older members answer a manual request for progress with a revision that the watch has not reached yet; so an
answer without events tells that the member lives, never how far the watch is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio

from eslurm.federation.etcd.calls import Calls, Server
from eslurm.federation.etcd.entries import entry_of, key_of, prefix_end
from eslurm.federation.etcd.refusals import error_of, is_about_token
from eslurm.ports.kv import PROGRESS_S, Changes, Entry, KvDenied, KvUnavailable, WatchBroken
from eslurm.transport.streams import being_cancelled
from eslurm.v1 import etcd_pb2 as pb

EVENTS_MAX = 65_536
"""In one answer with all its fragments; more is a reason to list again."""
WRITE_S = 3.0
_PATH = "/etcdserverpb.Watch/Watch"


async def watch(calls: Calls, prefix: str, revision: int) -> AsyncGenerator[Changes, None]:
    """See `KvReader.watch`."""
    server, stream = await calls.stream(_PATH, pb.WatchResponse)
    one = _Watch(server, stream, revision)
    try:
        await one.begin(prefix)
        while True:
            yield await one.next()
    except grpc.RpcError as error:
        calls.move_on(server)
        if is_about_token(error):
            calls.forget_token()
            raise KvUnavailable(f"etcd at {server.endpoint}: the token has ended") from None
        raise error_of(error, server.endpoint, is_change=False) from None
    except asyncio.CancelledError:
        # A stream that `close` has ended cancels what reads it.
        if being_cancelled():
            raise
        raise KvUnavailable("the connection to etcd is closed") from None
    except _Silent:
        calls.current()
        calls.move_on(server)
        raise KvUnavailable(f"etcd at {server.endpoint}: silent for {2 * PROGRESS_S:g} s") from None
    finally:
        await one.end()
        calls.end(stream)


class _Silent(Exception):
    """A member says nothing at all, not even that nothing has happened."""


class _Watch:
    """One watch on an open stream. `_seen`: the revision up to which everything was handed out."""

    def __init__(self, server: Server, stream: Any, revision: int) -> None:
        self._server = server
        self._stream = stream
        self._seen = revision
        self._reading: asyncio.Future[Any] | None = None

    async def begin(self, prefix: str) -> None:
        """Ask for all changes after the revision."""
        await self._write(
            pb.WatchRequest(
                create_request=pb.WatchCreateRequest(
                    key=prefix.encode(),
                    range_end=prefix_end(prefix),
                    start_revision=self._seen + 1,
                    watch_id=1,
                    fragment=True,
                )
            )
        )

    async def next(self) -> Changes:
        """The next changes; empty ones when the member lives and nothing has happened."""
        entries: dict[str, Entry] = {}
        deleted: dict[str, None] = {}
        revision = self._seen
        events = 0
        while True:
            answer = await self._read()
            if answer.canceled:
                self._break(answer)
            events += len(answer.events)
            if events > EVENTS_MAX:
                raise WatchBroken(f"etcd at {self._server.endpoint}: more than {EVENTS_MAX} changes at once")
            for event in answer.events:
                revision = max(revision, event.kv.mod_revision)
                key = key_of(event.kv.key)
                if key is None:
                    continue
                if event.type == pb.Event.EVENT_TYPE_DELETE:
                    entries.pop(key, None)
                    deleted[key] = None
                else:
                    deleted.pop(key, None)
                    entries[key] = entry_of(key, event.kv)
            if not answer.fragment and not answer.created:
                self._seen = revision
                return Changes(revision, tuple(entries.values()), tuple(deleted))

    async def end(self) -> None:
        """Leave no task behind."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> Any:
        """The next answer; after PROGRESS_S of silence the member is asked for one."""
        for is_last in (False, True):
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._stream.read())
            await asyncio.wait({self._reading}, timeout=PROGRESS_S)
            if self._reading.done():
                reading, self._reading = self._reading, None
                answer = reading.result()
                if answer is grpc.aio.EOF:
                    raise KvUnavailable(f"etcd at {self._server.endpoint} has ended the watch")
                return answer
            if not is_last:
                await self._write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        raise _Silent

    async def _write(self, request: pb.WatchRequest) -> None:
        try:
            # A stream that ends before it has begun leaves its writer waiting.
            async with asyncio.timeout(WRITE_S):
                await self._stream.write(request)
        except TimeoutError:
            raise _Silent from None

    def _break(self, answer: Any) -> None:
        endpoint = self._server.endpoint
        if answer.compact_revision:
            text = f"etcd at {endpoint}: revisions before {answer.compact_revision} are compacted"
            raise WatchBroken(text, answer.compact_revision)
        reason = answer.cancel_reason or "no reason given"
        if "permission denied" in reason:
            raise KvDenied(f"etcd at {endpoint}: {reason}")
        raise KvUnavailable(f"etcd at {endpoint} has ended the watch: {reason}")
