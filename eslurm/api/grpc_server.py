"""The API endpoint for remote clients: the same service over gRPC.

Invariant: nothing is decided here; the interceptor identifies the caller, the authoriser answers. A refusal with a retry
time is sent so late that asking at full speed costs the controller next to nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from eslurm.api.bodies import Bodies
from eslurm.api.interceptor import abort, current_caller
from eslurm.api.methods import METHODS, SERVICE, Method
from eslurm.ports.api import Answerer, ApiError, Status

_Context = grpc.aio.ServicerContext[bytes, bytes]

_HOLD_MAX_S = 1.0
_MARGIN_S = 0.5
"""A refusal that is held back leaves the caller so much of its deadline."""


def door_handler(answerer: Answerer) -> grpc.GenericRpcHandler:
    """Generic handlers for the whole method table, for an `RpcServer` behind a `Guard`."""
    bodies = Bodies()
    return grpc.method_handlers_generic_handler(
        SERVICE, {method.name: _unary(method, answerer, bodies) for method in METHODS}
    )


def _unary(
    method: Method[Any, Any], answerer: Answerer, bodies: Bodies
) -> grpc.RpcMethodHandler[bytes, bytes]:
    """A unary call as a stream handler: both look alike on the wire, and so the request is not read before
    authentication.
    """

    async def answer(_requests: object, context: _Context) -> bytes:
        caller = current_caller()
        async with bodies.of(caller.principal.uid, context) as payload:
            answered = await answerer.answer(method, payload, caller)
        if answered.status is not Status.OK:
            left_s = await _hold(context, answered.retry_after_s) if answered.retry_after_s else 0.0
            await abort(context, ApiError(answered.status, answered.text, left_s))
        return answered.reply

    handler: Any = answer
    return grpc.stream_unary_rpc_method_handler(handler)


async def _hold(context: _Context, retry_after_s: float) -> float:
    """Delay a refusal for a part of the time the caller must stay away; returns the rest, never 0."""
    remaining_s = context.time_remaining() or 0.0
    held_s = max(0.0, min(_HOLD_MAX_S, retry_after_s, remaining_s - _MARGIN_S))
    await asyncio.sleep(held_s)
    return max(retry_after_s - held_s, 0.001)
