"""The controller's composition root: builds the parts, starts them in order, stops them in the opposite one.

Start: store (epoch rises) -> state from rows -> configuration and epoch committed as facts -> links -> doors.
Stop: doors refuse -> inbox drained and committed -> links -> store. A lost fence or a damaged store ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import start_http_server

from esctld import housekeeping
from esctld.cargo import BlobCargo
from esctld.conductor import Conductor
from esctld.dispatcher import Dispatcher
from esctld.foresight import Foresight
from esctld.links import ControllerLinks
from esctld.planner import Planner
from esctld.satellites import LinkedSatellites
from esctld.service import ControllerService
from esctld.trees import TreeQueries
from esctld.views import Queries
from eslurm import __version__
from eslurm.config import Config, cluster_config
from eslurm.core.cluster import State
from eslurm.core.job.model import Principal
from eslurm.core.messages import ConfigLoaded, EpochStarted, Message, Refused
from eslurm.core.reactor import Reactor
from eslurm.ports.link import Link
from eslurm.ports.store import BlobMissing, Store, StoreUnavailable
from eslurm.relay.blobs import BlobExchange, BlobUnavailable
from eslurm.relay.book import AddressBook
from eslurm.rpc.gate import Gate
from eslurm.rpc.grpc_door import door_handler
from eslurm.rpc.guard import Guard
from eslurm.rpc.hello import LocalPeer
from eslurm.rpc.link_server import LinkServer
from eslurm.rpc.links import LinkTable
from eslurm.rpc.options import socket_budget, split_endpoint
from eslurm.rpc.principals import Principals
from eslurm.rpc.server import RpcServer
from eslurm.rpc.signing import Keyring
from eslurm.rpc.tokens import TokenAuthenticator
from eslurm.rpc.unix_door import UnixDoor
from eslurm.store.rows import load
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger("esctld")

OWNER = "main"
BLOB_CACHE_BYTES_MAX = 4 * 1024 * 1024
"""Enough for what is launched as it comes; of a long queue the store brings each blob back when its turn comes."""
SOCKETS_MAX = 96
"""Links to satellites, and to agents when there is none: beyond it agents have to wait."""
COLLECT_EVERY = (10_000, 20, 20)
"""The collector's thresholds: records form no cycles, so it is there for what asyncio and errors leave behind."""
DRAIN_S = 5.0
STOP_GRACE_S = 1.0


class CannotStart(Exception):
    """The configuration does not fit what the cluster is doing. The text says what and the way out."""


class ControllerOptions(msgspec.Struct, frozen=True):
    """What `esctld` has to be told besides its configuration file."""

    config: Config
    state_dir: Path
    key: bytes

    @property
    def socket(self) -> Path:
        """The door for commands on this host."""
        return self.state_dir / "esctld.sock"


class Controller:
    """One controller process. Make it inside the running loop; `run` returns after `stop`, or raises what ends it."""

    def __init__(self, options: ControllerOptions, store: Store) -> None:
        self._options = options
        self._store = store
        self._stopped = asyncio.Event()
        self.metrics = ControllerMetrics()

    def stop(self) -> None:
        """End `run` in good order."""
        self._stopped.set()

    async def run(self, ready: asyncio.Future[str]) -> None:
        """Serve until stopped; `ready` gets the endpoint for satellites."""
        epoch = await self._store.open(OWNER)
        state = await load(self._store, OWNER)
        log.info("epoch %d, revision %d, %d jobs not finished", epoch, state.revision, len(state.jobs))
        self._build(state, epoch)
        async with contextlib.AsyncExitStack() as stack:
            dispatch = asyncio.create_task(self._dispatcher.run(), name="dispatcher")
            stack.push_async_callback(self._end_dispatcher, dispatch)
            await self._first(dispatch, ConfigLoaded(cluster_config(self._options.config)))
            await self._first(dispatch, EpochStarted(epoch))
            await self._serve(stack, dispatch, ready)

    async def _first(self, dispatch: asyncio.Task[None], message: Message) -> None:
        """One of the messages that come before all others. Raises what ends the dispatcher instead of answering."""
        request = self._dispatcher.request(message)
        either: list[asyncio.Future[Any]] = [request, dispatch]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            await dispatch
        answer = await request
        if isinstance(answer, Refused):
            raise CannotStart(answer.text)

    # ---- building ----

    def _build(self, state: State, epoch: int) -> None:
        options = self._options
        cluster = options.config.cluster.name
        keyring = Keyring({1: options.key})
        self._local = LocalPeer(
            cluster=cluster,
            role="controller",
            process=f"{OWNER}.{secrets.token_hex(6)}",
            endpoint=options.config.controller.listen,
            build=__version__,
            owner=OWNER,
            epoch=epoch,
        )
        book = AddressBook(epoch)
        self._principals = Principals()
        self._planner = Planner(self.metrics)
        satellites = LinkedSatellites(state, [(one.name, one.listen) for one in options.config.satellite])
        self._blobs = BlobExchange(BLOB_CACHE_BYTES_MAX, self._load_blob)
        self._cargo = BlobCargo(self._blobs, self.metrics)
        self._conductor = Conductor(state, book, self._local, self._planner, satellites, keyring, self._cargo)
        self._links = ControllerLinks(state, book, satellites, self._principals, self._conductor)
        budget = socket_budget(SOCKETS_MAX)
        self._table = LinkTable(self._local, keyring, self._links, random.Random(), budget.table)
        self._link_server = LinkServer(self._local, keyring, self._table, budget.links, self._table.counters)
        reactor = Reactor(state, on_bug=lambda bug: log.error("a message was refused by a bug", exc_info=bug))
        self._dispatcher = Dispatcher(
            reactor,
            self._store,
            self.metrics,
            inbox_max=options.config.controller.inbox_max,
            on_committed=self._conductor.on_committed,
        )
        self._planner.attach(self._dispatcher)
        self._driver = self._conductor.attach(self._dispatcher, self._table)
        herald = self._conductor.herald
        self._foresight = Foresight(
            options.config.failure, state, self.metrics, herald.set_predicted, self._driver.now_us
        )
        herald.observe(self._foresight)
        queries = Queries(state, self._dispatcher.view, self._planner, self._store, satellites.infos)
        trees = TreeQueries(state, herald, self._foresight, satellites.name)
        service = ControllerService(
            self._dispatcher, self._planner, queries, trees, self._store, self._blobs.cache, OWNER
        )
        self._gate = Gate(service, lambda who: _is_operator(state, who))
        self._links.attach(self._driver, self._dispatcher, self._blobs, self._gate)
        self._door = UnixDoor(options.socket, self._gate, self._principals)
        self._rpc = RpcServer(
            [self._link_server.handler(), door_handler(self._gate)],
            Guard(TokenAuthenticator(keyring, cluster, lambda: time.time_ns() // 1000)),
        )

    async def _load_blob(self, digest: bytes, _source: Link | None) -> bytes:
        try:
            return await self._store.get_blob(OWNER, digest)
        except (BlobMissing, StoreUnavailable) as error:
            raise BlobUnavailable(str(error)) from None

    # ---- serving and stopping ----

    async def _serve(
        self,
        stack: contextlib.AsyncExitStack,
        dispatch: asyncio.Task[None],
        ready: asyncio.Future[str],
    ) -> None:
        endpoint = await self._rpc.listen(self._options.config.controller.listen)
        self._local.endpoint = endpoint
        await self._rpc.start()
        stack.push_async_callback(self._rpc.stop, STOP_GRACE_S)
        stack.push_async_callback(self._end_links)
        await self._door.start()
        stack.push_async_callback(self._door.stop)
        stack.push_async_callback(self._stop_admitting)
        stack.push_async_callback(self._foresight.close)
        await self._foresight.start()
        self._conductor.lead()
        if self._options.config.controller.metrics_listen:
            stack.callback(self._serve_metrics(self._options.config.controller.metrics_listen))
        _spare_collector()
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("planner", self._planner.run()),
                ("ticks", self._conductor.tick()),
                ("pruning", housekeeping.prune(self._store, self._dispatcher.state)),
                ("foresight", self._foresight.run()),
                (
                    "gauges",
                    housekeeping.gauge(self.metrics, self._dispatcher.state, self._conductor.herald),
                ),
            )
        ]
        stack.push_async_callback(_end_tasks, tasks)
        ready.set_result(endpoint)
        log.info("cluster %s: serving %s and %s", self._local.cluster, self._options.socket, endpoint)
        stopped = asyncio.create_task(self._stopped.wait(), name="stop")
        stack.push_async_callback(_end_tasks, [stopped])
        done, _ = await asyncio.wait({stopped, dispatch, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task is not stopped:
                # A loop that ends by itself is broken: better no controller than half of one.
                await task
                raise RuntimeError(f"{task.get_name()} has ended")

    def _serve_metrics(self, listen: str) -> Callable[[], None]:
        """Prometheus' own little server on a thread of its own; returns how to end it."""
        host, port = split_endpoint(listen)
        server, thread = start_http_server(port, host, self.metrics.registry)

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        log.info("metrics at http://%s/metrics", listen)
        return end

    async def _stop_admitting(self) -> None:
        self._gate.stop_admitting("the controller is stopping: try again in a moment")
        self._link_server.stop_admitting("the controller is stopping")
        await self._gate.drain(DRAIN_S)

    async def _end_links(self) -> None:
        await self._links.close()
        await self._cargo.close()
        await self._driver.close()
        await self._blobs.close()
        await self._table.close("the controller stops")
        await self._link_server.close_links("the controller stops")

    async def _end_dispatcher(self, dispatch: asyncio.Task[None]) -> None:
        self._dispatcher.stop()
        try:
            async with asyncio.timeout(DRAIN_S):
                await dispatch
        except TimeoutError:
            log.error("the inbox could not be emptied in %g s", DRAIN_S)
        self._principals.close()


def _spare_collector() -> None:
    """What exists now lives as long as the process: walking it again and again would stall the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


async def _end_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _is_operator(state: State, who: Principal) -> bool:
    return who.uid in state.config.operators
