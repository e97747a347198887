"""How a refused call ends when its caller has gone meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest

from eslurm.ports.door import DoorError, Status
from eslurm.rpc.guard import abort


class _Gone:
    """A call whose other end is closed: gRPC cannot send its status any more."""

    async def abort(self, *_told: object) -> None:
        raise grpc.aio.InternalError("Failed execute_batch")


def test_a_caller_that_has_gone_ends_its_call_without_an_error() -> None:
    refusal = DoorError(Status.UNAVAILABLE, "the controller stops")
    with pytest.raises(grpc.aio.AbortError):
        asyncio.run(abort(cast(Any, _Gone()), refusal))
