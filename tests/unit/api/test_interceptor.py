"""The end of a refused call of a caller that has gone meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import grpc
import grpc.aio
import pytest

from eslurm.api.interceptor import Interceptor, abort
from eslurm.api.methods import PING
from eslurm.api.tokens import Identified
from eslurm.ports.api import ApiError, Status
from tests.kits.api import ALICE, PATIENCE_S
from tests.support.loops import run

SERVICE = "eslurm.v1.Controller"


class _Anybody:
    """An authenticator."""

    async def identify(self, *_told: object, encrypted: bool) -> Identified:
        return Identified(ALICE, "1")


class _Caller(threading.Thread):
    """Makes a call, and is gone without an answer as soon as its handler runs."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.handled, self.gone = threading.Event(), threading.Event()

    def run(self) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/{PING.name}").future(b"", timeout=PATIENCE_S)
            self.handled.wait(PATIENCE_S)
            call.cancel()
        self.gone.set()


def test_a_caller_that_has_gone_ends_its_call_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        ends: asyncio.Queue[BaseException] = asyncio.Queue()
        patience_s = 0.001

        async def answer(_requests: Any, context: Any) -> bytes:
            # The loop stands still, so that nobody cancels this handler before it refuses.
            caller.handled.set()
            assert caller.gone.wait(PATIENCE_S)
            time.sleep(patience_s)
            try:
                await abort(context, ApiError(Status.UNAVAILABLE, "the controller stops"))
            except BaseException as error:
                ends.put_nowait(error)
                raise

        server = grpc.aio.server(interceptors=[Interceptor(_Anybody())])
        handlers = {PING.name: grpc.stream_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with asyncio.timeout(PATIENCE_S):
            # Whether the news of its going is there before the refusal is gRPC's: more time each time until it is.
            while True:
                caller = _Caller(port)
                caller.start()
                ended = await ends.get()
                caller.join()
                if not isinstance(ended, grpc.aio.AbortError):
                    break
                patience_s *= 2
        await server.stop(0)

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert caplog.records == []
