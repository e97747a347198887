"""Calls to the members of one etcd: one member at a time, another when that one does not answer.

Invariants: each call ends within its deadline; a change is sent to one member only, unless it certainly was not sent; every
call requires that the member sees a leader, so a member that is cut off does not answer from its own past.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from eslurm.config.federation import split_url
from eslurm.core.model.endpoint import split_endpoint
from eslurm.federation.etcd.refusals import error_of, is_about_token, was_not_sent
from eslurm.ports.kv import KvAmbiguous, KvError, KvUnavailable
from eslurm.transport.options import Options, grpc_target
from eslurm.transport.tls import Tls
from eslurm.v1 import etcd_pb2 as pb

ReplyT = TypeVar("ReplyT", bound=Message)

ANSWER_BYTES_MAX = 16 * 1024 * 1024
CALLS_MAX = 256
"""Calls under way; more wait within their deadlines."""
_KEEPALIVE_MS = 10_000
"""etcd ends clients that ask more often than every five seconds."""
_CONNECT_MS = 2_000
_SPARE_S = 1.0
MEMBER_S = 1.0
"""For a question to one member, while a caller waits for the answer."""

Metadata = tuple[tuple[str, str], ...]


class EtcdSettings(msgspec.Struct, frozen=True):
    """Etcd's endpoints, and the credentials for them.

    `endpoints` are `http://host:port` or, with `tls`, `https://host:port`. `password` is asked at each authentication: a
    file's password may be replaced. `probe` is the key of the first read, which the user has to be allowed.
    """

    endpoints: tuple[str, ...]
    tls: Tls | None = None
    user: str = ""
    password: Callable[[], str] = lambda: ""
    probe: str = "/"
    call_s: float = 3.0
    open_s: float = 5.0


def address_of(endpoint: str, *, encrypted: bool) -> str:
    """`host:port` of an endpoint. Raises ValueError for one that does not fit."""
    parts = split_url(endpoint)
    if (parts.scheme == "https") != encrypted:
        raise ValueError(f"etcd endpoint {endpoint!r}: https with an authority's certificate, http without")
    return parts.netloc


class Server:
    """A connection to one member. It is made anew when the files of TLS change."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        self.endpoint = endpoint
        self._address = address_of(endpoint, encrypted=tls is not None)
        self._tls = tls
        self._revision = 0
        self._channel: grpc.aio.Channel | None = None

    async def channel(self) -> grpc.aio.Channel:
        """The connection. Raises `KvUnavailable` when the host's name is not found."""
        revision = 0
        if self._tls is not None:
            self._tls.current()
            revision = self._tls.revision
        if self._channel is not None and revision == self._revision:
            return self._channel
        try:
            target = await grpc_target(self._address)
        except OSError as error:
            raise KvUnavailable(f"etcd at {self.endpoint}: {error}") from None
        await self.close()
        self._revision = revision
        options = _options(split_endpoint(self._address)[0])
        if self._tls is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, self._tls.channel_credentials(), options)
        return self._channel

    async def close(self) -> None:
        """Drop the connection; calls under way end."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _options(host: str) -> Options:
    return [
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.default_authority", host),
        ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _CONNECT_MS),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _CONNECT_MS),
    ]


class Calls:
    """Unary calls and streams to the current member, by etcd's paths."""

    def __init__(self, settings: EtcdSettings) -> None:
        if not settings.endpoints:
            raise ValueError("etcd: no endpoint is given")
        self.settings = settings
        self.servers: Sequence[Server] = [Server(endpoint, settings.tls) for endpoint in settings.endpoints]
        self._at = 0
        self._token: str | None = None
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._is_open = False
        self._streams: set[Any] = set()

    async def open(self) -> None:
        """Allow calls, after a first one. Raises `KvUnavailable` or `KvDenied`."""
        self._is_open = True
        try:
            await self.ask(
                "/etcdserverpb.KV/Range",
                pb.RangeRequest(key=self.settings.probe.encode()),
                pb.RangeResponse,
                timeout_s=self.settings.open_s,
            )
        except KvError:
            await self.close()
            raise

    async def close(self) -> None:
        """End streams and connections."""
        self._is_open = False
        for stream in list(self._streams):
            stream.cancel()
        for server in self.servers:
            await server.close()

    def current(self) -> Server:
        """The member that is asked now. Raises `KvUnavailable` after `close`."""
        if not self._is_open:
            raise KvUnavailable("the connection to etcd is closed")
        return self.servers[self._at]

    def move_on(self, server: Server) -> None:
        """Ask another member next, because this one did not answer."""
        if self.servers[self._at] is server:
            self._at = (self._at + 1) % len(self.servers)

    async def ask(
        self,
        path: str,
        request: Message,
        reply: type[ReplyT],
        *,
        is_change: bool = False,
        timeout_s: float = 0.0,
    ) -> ReplyT:
        """The answer to one call. Reads go to each member in turn until one answers; a change goes to one."""
        timeout_s = timeout_s or self.settings.call_s
        last: KvError | None = None
        is_sent = False
        try:
            # A call ends by its own deadline; beyond it there are waits for a slot, a name, a token.
            async with asyncio.timeout(timeout_s + _SPARE_S), self._slots:
                for _ in self.servers:
                    server = self.current()
                    share_s = timeout_s if is_change else timeout_s / len(self.servers)
                    is_sent = True
                    try:
                        return await self._ask(server, path, request, reply, share_s)
                    except grpc.RpcError as error:
                        last = error_of(error, server.endpoint, is_change=is_change)
                        if isinstance(last, KvUnavailable | KvAmbiguous):
                            self.move_on(server)
                        if not isinstance(last, KvUnavailable) or (is_change and not was_not_sent(error)):
                            raise last from None
                        is_sent = False
                    except KvUnavailable as error:
                        last = error
                        self.move_on(server)
        except TimeoutError:
            text = f"etcd: no answer within {timeout_s:g} s"
            if is_change and is_sent:
                raise KvAmbiguous(text) from None
            last = last or KvUnavailable(text)
        assert last is not None
        raise last

    async def _ask(
        self, server: Server, path: str, request: Message, reply: type[ReplyT], timeout_s: float
    ) -> ReplyT:
        try:
            return await self._call(server, path, request, reply, timeout_s, await self.metadata(server))
        except grpc.RpcError as error:
            if not self.settings.user or not is_about_token(error):
                raise
        self._token = None
        return await self._call(server, path, request, reply, timeout_s, await self.metadata(server))

    async def metadata(self, server: Server) -> Metadata:
        """Metadata of every call: that a leader is required, and the token of the user."""
        if self.settings.user and not self._token:
            asked = pb.AuthenticateRequest(name=self.settings.user, password=self.settings.password())
            found = await self._call(
                server,
                "/etcdserverpb.Auth/Authenticate",
                asked,
                pb.AuthenticateResponse,
                self.settings.call_s,
                (),
            )
            self._token = found.token
        required = (("hasleader", "true"),)
        return (*required, ("token", self._token)) if self._token else required

    async def _call(
        self,
        server: Server,
        path: str,
        request: Message,
        reply: type[ReplyT],
        timeout_s: float,
        metadata: Metadata,
    ) -> ReplyT:
        channel = await self._channel(server)
        call: Any = channel.unary_unary(
            path, request_serializer=_serialized, response_deserializer=reply.FromString
        )
        answer: ReplyT = await call(request, timeout=timeout_s, metadata=metadata)
        return answer

    async def ask_member(self, server: Server, path: str, request: Message, reply: type[ReplyT]) -> ReplyT:
        """The answer of this member to a read, and of no other."""
        try:
            return await self._ask(server, path, request, reply, MEMBER_S)
        except grpc.RpcError as error:
            raise error_of(error, server.endpoint, is_change=False) from None

    async def _channel(self, server: Server) -> grpc.aio.Channel:
        """The connection to a member. Raises `KvUnavailable` when `close` came meanwhile."""
        channel = await server.channel()
        if not self._is_open:
            await server.close()
            self.current()
        return channel

    async def stream(self, path: str, reply: type[Message]) -> tuple[Server, Any]:
        """A stream of requests and answers to the current member; end it by `end`."""
        server = self.current()
        try:
            channel = await self._channel(server)
            metadata = await self.metadata(server)
        except grpc.RpcError as error:
            self.move_on(server)
            raise error_of(error, server.endpoint, is_change=False) from None
        except KvUnavailable:
            self.move_on(server)
            raise
        self.current()
        call: Any = channel.stream_stream(
            path, request_serializer=_serialized, response_deserializer=reply.FromString
        )
        stream = call(metadata=metadata)
        self._streams.add(stream)
        return server, stream

    def end(self, stream: Any) -> None:
        """End a stream, whatever its state."""
        self._streams.discard(stream)
        stream.cancel()

    def forget_token(self) -> None:
        """Authenticate again before the next call."""
        self._token = None


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
