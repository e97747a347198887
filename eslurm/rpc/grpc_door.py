"""The door for remote clients: the same service over gRPC.

Invariant: nothing is decided here; the guard says who calls, the gate answers.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from eslurm.ports.door import Answerer, DoorError, Status
from eslurm.rpc.guard import abort, current_caller
from eslurm.rpc.methods import METHODS, SERVICE, Method

_Context = grpc.aio.ServicerContext[bytes, bytes]


def door_handler(answerer: Answerer) -> grpc.GenericRpcHandler:
    """Generic handlers for the whole method table, for an `RpcServer` behind a `Guard`."""
    return grpc.method_handlers_generic_handler(
        SERVICE, {method.name: _unary(method, answerer) for method in METHODS}
    )


def _unary(method: Method[Any, Any], answerer: Answerer) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def answer(payload: bytes, context: _Context) -> bytes:
        answered = await answerer.answer(method, payload, current_caller())
        if answered.status is not Status.OK:
            await abort(context, DoorError(answered.status, answered.text))
        return answered.reply

    handler: Any = answer
    return grpc.unary_unary_rpc_method_handler(handler)
