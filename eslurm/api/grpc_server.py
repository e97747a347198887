"""The door for remote clients: the same service over gRPC.

Invariant: nothing is decided here; the guard says who calls, the gate answers. Who is told to come again later is
told so late that asking at full speed costs the controller next to nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from eslurm.api.bodies import Bodies
from eslurm.api.interceptor import abort, current_caller
from eslurm.api.methods import METHODS, SERVICE, Method
from eslurm.ports.door import Answerer, DoorError, Status

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
    """On the wire a call of one message is like any other. As one of several it is not read before it is asked for."""

    async def answer(_requests: object, context: _Context) -> bytes:
        caller = current_caller()
        async with bodies.of(caller.principal.uid, context) as payload:
            answered = await answerer.answer(method, payload, caller)
        if answered.status is not Status.OK:
            left_s = await _hold(context, answered.retry_after_s) if answered.retry_after_s else 0.0
            await abort(context, DoorError(answered.status, answered.text, left_s))
        return answered.reply

    handler: Any = answer
    return grpc.stream_unary_rpc_method_handler(handler)


async def _hold(context: _Context, retry_after_s: float) -> float:
    """Keep a refusal back for a part of the time the caller is to stay away; returns the rest, never 0."""
    remaining_s = context.time_remaining() or 0.0
    held_s = max(0.0, min(_HOLD_MAX_S, retry_after_s, remaining_s - _MARGIN_S))
    await asyncio.sleep(held_s)
    return max(retry_after_s - held_s, 0.001)
