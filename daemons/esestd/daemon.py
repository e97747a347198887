"""The estimator daemon: it follows the controller, drives an estimator, and sends its forecasts.

No other process waits for this one: without it plans use time limits. Everything but lessons happens on one event loop, in
slices; lessons have a thread of their own, and models are written on another. It may be killed at any moment: the
controller reports all jobs again, and models are on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from esestd.follower import POLL_S, Follower
from esestd.forecaster import Forecaster
from esestd.leader_calls import LeaderCalls, TokenFile
from esestd.sender import Sender
from esestd.status import EstimatorStatus
from eslurm.api.unix_client import Client
from eslurm.estimator.files import ModelFiles, other_settings
from eslurm.estimator.registry import make
from eslurm.ports.estimator import Estimator, Model, Setting
from eslurm.telemetry.clocks import wall_us
from eslurm.telemetry.estimator import EstimatorMetrics

if TYPE_CHECKING:
    from eslurm.api.client import ApiClient
    from eslurm.transport.tls import Tls

MODELS = "models"
"""Directory of models in the state directory."""
log = logging.getLogger("esestd")

TICK_S = 1.0


class EstimatorOptions(msgspec.Struct, frozen=True):
    """The options of `esestd`. Without `sockets` it calls `controllers` (host:port) with the token in
    `token_file`.
    """

    cluster: str
    estimator: str
    settings: dict[str, Setting]
    state_dir: Path
    sockets: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    token_file: Path = Path()
    refresh_s: float = 300.0
    metrics_listen: str = ""
    warm_start: Model | None = None
    """A model of another cluster, for as long as there is none of this one."""
    poll_s: float = POLL_S
    tls: Tls | None = None
    """For the way to `controllers`; None: plain, which is for controllers on this host."""


class EstimatorDaemon:
    """One `esestd`. Make it inside the running loop; `run` returns when `stop` is called."""

    def __init__(self, options: EstimatorOptions, factory: Callable[[], Estimator] | None = None) -> None:
        """`factory` stands for the registered estimator of the options' name.

        Raises ValueError when there is none, or when it cannot use the settings or the initial model.
        """
        self._options = options
        self._factory = factory or (lambda: make(options.estimator, options.settings))
        first = self._factory()
        if options.warm_start is not None:
            first.adopt(options.warm_start)
        self._stopped = asyncio.Event()
        self._files = ModelFiles(options.state_dir / MODELS, options.estimator, options.settings)
        self.metrics = EstimatorMetrics(lambda: wall_us() / 1e6)
        # Two: the follower's question is held while forecasts are sent.
        self._leaders = LeaderCalls(_client(options)), LeaderCalls(_client(options))
        self._follower = Follower(self._leaders[0], options.poll_s)
        self._sender = Sender(self._leaders[1], self.metrics, options.estimator)
        self._forecaster = Forecaster(
            self._make,
            self._sender,
            self.metrics,
            options.refresh_s,
            lambda: wall_us() / 1e6,
            self._keep,
            self._follower.begin_anew,
        )
        self._status = EstimatorStatus(
            options.estimator,
            self._follower,
            self.metrics,
            lambda: self._forecaster.is_answering,
            tls=options.tls,
        )
        self._at_work = asyncio.Lock()
        self._at_files = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def is_learning(self) -> bool:
        """True while a lesson is under way: its thread would delay a clean exit."""
        return self._forecaster.is_learning

    async def run(self, ready: asyncio.Future[str]) -> None:
        """Serve until stopped; `ready` is set at once, as the controller may be away. Raises OSError."""
        async with AsyncExitStack() as stack:
            for leader in self._leaders:
                stack.push_async_callback(leader.close)
            stack.push_async_callback(self._status.close)
            if self._options.metrics_listen:
                await self._status.open(self._options.metrics_listen)
            self._files.tidy()
            ready.set_result("esestd")
            log.info("estimator %s of cluster %s", self._options.estimator, self._options.cluster)
            await self._work()

    def stop(self) -> None:
        """End `run` in good order."""
        self._stopped.set()

    async def _work(self) -> None:
        """All tasks until `stop`, or until one of them fails."""
        works: tuple[Coroutine[Any, Any, Any], ...] = (
            self._stopped.wait(),
            self._follow(),
            self._tick(),
            self._sender.run(),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *self._writing, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            # Also when nothing has happened: a story may have ended with the part before.
            await self._do(self._forecaster.take(await self._follower.next()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._do(self._forecaster.tick())

    async def _do(self, slices: Iterator[None]) -> None:
        """One step of work after the other; signals and answers are handled in between."""
        async with self._at_work:
            for _ in slices:
                await asyncio.sleep(0)

    # ---- models ----

    def _make(self) -> Estimator:
        """A new estimator with the newest model that it can use.

        A model with other settings is better than none, and soon replaced: the replay of jobs gives the estimator its
        input.
        """
        estimator = self._factory()
        for kept in self._files.newest_first():
            try:
                estimator.adopt(kept.model)
            except ValueError as error:
                log.warning("%s cannot be used: %s", kept.path, error)
                continue
            log.info("goes on with %s", kept.path)
            others = other_settings(kept, self._options.settings)
            if others:
                log.warning(
                    "%s was learnt with other settings (%s): it answers until the next training",
                    kept.path,
                    others,
                )
            return estimator
        if self._options.warm_start is not None:
            estimator.adopt(self._options.warm_start)
            log.info("begins with the model of --warm-start")
        return estimator

    def _keep(self, model: Model, scores: dict[str, float]) -> None:
        task = asyncio.create_task(self._write(model, scores))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, model: Model, scores: dict[str, float]) -> None:
        try:
            async with self._at_files:
                path = await asyncio.to_thread(self._files.save, model, scores)
        except (OSError, ValueError) as error:
            log.warning("the model is used but could not be kept: %s", error)
        else:
            log.info("kept %s", path)


def _client(options: EstimatorOptions) -> ApiClient:
    if options.sockets:
        return Client(options.sockets)
    # Imported only where it is needed: gRPC takes time and memory.
    from eslurm.api.grpc_client import GrpcClient

    return GrpcClient(options.controllers, TokenFile(options.token_file).read, options.tls)
