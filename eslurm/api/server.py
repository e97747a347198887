"""A process's gRPC server: links and, on the controller, the API.

Invariant: every handler runs behind the `Interceptor`; `stop` waits for the handlers' own clean-up, which gRPC does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import grpc.aio

from eslurm.api.interceptor import Interceptor
from eslurm.core.model.endpoint import split_endpoint
from eslurm.transport.options import CONTROL_FRAME_BYTES_MAX, grpc_target, server_options
from eslurm.transport.peers import StrangerWatch, connections_room
from eslurm.transport.tls import Tls

CALLS_MAX = 16_384
"""Concurrent calls and streams; a link takes up to two."""


class RpcServer:
    """Serves generic handlers. Make it inside the running loop.

    `connections_max` (0: what the process' descriptors allow) bounds the connections at one time: more are closed at once.
    With `shares_port` a socket of this user that does not listen may hold the port meanwhile.
    """

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        guard: Interceptor,
        message_bytes_max: int = CONTROL_FRAME_BYTES_MAX,
        connections_max: int = 0,
        *,
        shares_port: bool = False,
    ) -> None:
        self._guard = guard
        self._watches: list[StrangerWatch] = []
        self._watching: list[asyncio.Task[None]] = []
        self._server = grpc.aio.server(
            handlers=handlers,
            interceptors=(guard,),
            options=server_options(
                message_bytes_max, connections_max or connections_room(), shares_port=shares_port
            ),
            maximum_concurrent_rpcs=CALLS_MAX,
        )

    async def listen(self, endpoint: str, tls: Tls | None = None) -> str:
        """Bind an endpoint (port 0: any) and return it with the port it got.

        Raises OSError that names the endpoint when it cannot be bound, ValueError when it is malformed.
        """
        host, _port = split_endpoint(endpoint)
        target = await grpc_target(endpoint)
        address = target.partition(":")[2]
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, tls.server_credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen at {endpoint}: {error}") from None
        self._watches.append(StrangerWatch(self._guard.peers, port))
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        """Begin to serve."""
        await self._server.start()
        for watch in self._watches:
            self._watching.append(asyncio.create_task(watch.run(), name="strangers"))

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, give those under way `grace_s`, then cancel them and wait for their clean-up.

        The owner has drained its authoriser and closed its links before.
        """
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self._server.stop(grace_s)
        handlers = self._guard.handlers
        if handlers:
            await asyncio.wait(handlers, timeout=max(grace_s, 1.0))
