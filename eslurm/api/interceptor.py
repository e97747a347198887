"""The one interceptor of every gRPC server: deadlines, callers, statuses.

Invariant: a path is refused unless it is a link lane (whose handshake authenticates), the join method (whose conversation
does), or in the method table; every unary call has a deadline and a caller before its handler runs; every exception of a
handler becomes a status, a leaked CancelledError included (the client would wait for ever).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from eslurm.api.methods import BY_PATH
from eslurm.api.status import refusal_of
from eslurm.api.tokens import Authenticator
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.transport.peers import Peers
from eslurm.transport.streams import being_cancelled

log = logging.getLogger(__name__)

LINK_PATHS = frozenset({"/eslurm.v1.Link/Control", "/eslurm.v1.Link/Bulk"})
STRANGERS_PATHS = frozenset({"/eslurm.v1.Join/Ask"})
"""Methods for unauthenticated callers, which prove themselves within the conversation."""
_STREAMS = LINK_PATHS | STRANGERS_PATHS
REQUEST_ID_KEY = "eslurm-request-id-bin"
RETRY_KEY = "eslurm-retry"
RETRY_AFTER_KEY = "eslurm-retry-after-ms"
LINKS_ONLY = "this server takes links only: name the port of a controller"

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

_Context = grpc.aio.ServicerContext[Any, Any]
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Behaviour = Callable[[Any, _Context], Awaitable[Any]]

_caller: ContextVar[Caller] = ContextVar("caller")
_peers: ContextVar[Peers] = ContextVar("peers")


def current_peers() -> Peers:
    """Inside a guarded handler: the proven peers of this server."""
    return _peers.get()


def current_caller() -> Caller:
    """Inside a guarded unary handler: the caller."""
    return _caller.get()


async def abort(context: _Context, refusal: ApiError) -> NoReturn:
    """End the call with the refusal's status and text, and the time of a retry."""
    after_ms = math.ceil(refusal.retry_after_s * 1000)
    trailing = ((RETRY_AFTER_KEY, str(after_ms)),) if after_ms else ()
    try:
        await context.abort(_CODES[int(refusal.status)], refusal.text, trailing)
    except grpc.aio.InternalError:
        # The caller is gone, and a call is ended only once.
        raise _CallerGone from None


class _CallerGone(asyncio.CancelledError):
    """A call ends as if it had been cancelled, which gRPC takes from a handler without a word."""


class Interceptor(grpc.aio.ServerInterceptor):
    """Without an `authenticator` no unary call is admitted: the server carries links only."""

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        on_refused: Callable[[str, str, Status, str], None] = lambda *_what: None,
        peers: Peers | None = None,
    ) -> None:
        """`on_refused` gets calls without a known caller: method, peer, status, reason."""
        self._authenticator = authenticator
        self._on_refused = on_refused
        # Wrapped once per method: the table is fixed, and wrapping anew costs each call as much as checking it.
        self._wrapped: dict[str, Any] = {}
        self.peers = peers or Peers()
        # Every handler under way: gRPC itself waits for none of them to clean up.
        self.handlers: set[asyncio.Task[Any]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Wrap the handler gRPC found."""
        path = handler_call_details.method
        known = self._wrapped.get(path)
        if known is None:
            handler: Any = await continuation(handler_call_details)
            if handler is None:
                is_call = self._authenticator is None and path in BY_PATH
                # As a stream, here and below: the request of a stranger is not read.
                return grpc.stream_unary_rpc_method_handler(_send_away) if is_call else None
            known = self._wrap(path, handler)
            if path in _STREAMS or path in BY_PATH:
                self._wrapped[path] = known
        return known  # type: ignore[no-any-return]

    def _wrap(self, path: str, handler: Any) -> Any:
        if path in _STREAMS:
            return grpc.stream_stream_rpc_method_handler(self._tracked(_mapped(handler.stream_stream)))
        if path in BY_PATH and handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(
                self._tracked(self._guarded(BY_PATH[path].name, handler.stream_unary)),
                handler.request_deserializer,
                handler.response_serializer,
            )
        log.error("%s has a handler, but no entry in the method table: refused", path)
        return grpc.stream_unary_rpc_method_handler(_refuse)

    def _tracked(self, behaviour: _Behaviour) -> Any:
        async def tracked(request: Any, context: _Context) -> Any:
            task = asyncio.current_task()
            # Until the task ends, not the handler: after it gRPC still sends the status.
            if task is not None and task not in self.handlers:
                self.handlers.add(task)
                task.add_done_callback(self.handlers.discard)
            _peers.set(self.peers)
            return await behaviour(request, context)

        return tracked

    def _guarded(self, name: str, behaviour: _Behaviour) -> Any:
        mapped = _mapped(behaviour)

        async def guarded(request: Any, context: _Context) -> Any:
            try:
                caller = await self._caller_of(context)
            except ApiError as refusal:
                self._on_refused(name, context.peer(), refusal.status, refusal.text)
                await abort(context, refusal)
            token = _caller.set(caller)
            try:
                return await mapped(request, context)
            finally:
                _caller.reset(token)

        return guarded

    async def _caller_of(self, context: _Context) -> Caller:
        remaining_s: float | None = context.time_remaining()
        if remaining_s is None:
            raise ApiError(Status.INVALID_ARGUMENT, "the call has no deadline; send one")
        if self._authenticator is None:
            raise ApiError(Status.UNAUTHENTICATED, LINKS_ONLY)
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        encrypted = context.auth_context().get("transport_security_type", [b""]) == [b"ssl"]
        who = await self._authenticator.identify(metadata, context.peer(), encrypted=encrypted)
        self.peers.prove(context.peer())
        request_id = metadata.get(REQUEST_ID_KEY, b"")
        retry = metadata.get(RETRY_KEY) == "1"
        return Caller(
            who.principal,
            bytes(request_id),
            retry,
            int(remaining_s * 1e6),
            "token",
            token=who.token,
            peer=context.peer(),
        )


async def _send_away(_request: Any, context: _Context) -> Any:
    await abort(context, ApiError(Status.UNAUTHENTICATED, LINKS_ONLY))


async def _refuse(_request: Any, context: _Context) -> Any:
    await abort(context, ApiError(Status.PERMISSION_DENIED, "this method is not open"))


def _mapped(behaviour: Any) -> Any:
    """The handler with every exception turned into a status."""

    async def mapped(request: Any, context: _Context) -> Any:
        try:
            return await behaviour(request, context)
        except (grpc.aio.AbortError, _CallerGone):
            raise
        except Exception as error:
            refusal = refusal_of(error)
        except BaseException:
            if being_cancelled():
                raise
            refusal = ApiError(Status.UNAVAILABLE, "the call was interrupted inside; try again")
        return await abort(context, refusal)

    return mapped
