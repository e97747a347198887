"""A leader as standbys see it: a dispatcher that commits into an image that other stores share."""

from __future__ import annotations

import asyncio

from esctld.lead.clock import Clock
from esctld.lead.dispatcher import Dispatcher
from eslurm.core.control.reactor import Reactor
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.messages import ConfigLoaded, EpochStarted
from eslurm.core.state.cluster import State
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.store import Claim, Leader
from eslurm.store.rows import load
from eslurm.telemetry.metrics import ControllerMetrics

OWNER = "main"
CLUSTER = "test"
LEASE_US = 200_000
CONFIG = ClusterConfig(CLUSTER, (NodeConfig("cn1", (4, 1000)),), (Partition("main", ("cn1",), default=True),))


class LeadingController:
    """Leads as `name` on an image, from what it finds there."""

    def __init__(self, image: StoreImage, name: str = "c1", config: ClusterConfig = CONFIG) -> None:
        self.image = image
        self.name = name
        self._config = config
        self.store = MemoryStore(image, CLUSTER)

    async def __aenter__(self) -> LeadingController:
        seen = await self.store.leader(OWNER)
        self.epoch = await self.store.open(OWNER, Claim(self.name, f"{self.name}:1", seen))
        state = await load(self.store, OWNER) if seen != Leader() else State(OWNER)
        self.dispatcher = Dispatcher(
            Reactor(state),
            self.store,
            ControllerMetrics(),
            inbox_max=1_000,
            on_committed=lambda messages, batch: None,
            clock=Clock(),
        )
        self.task = asyncio.create_task(self.dispatcher.run())
        await self.dispatcher.request(ConfigLoaded(self._config))
        await self.dispatcher.request(EpochStarted(self.epoch))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.dispatcher.stop()
        if not self.task.done():
            await self.task

    @property
    def state(self) -> State:
        """The leader's own."""
        return self.dispatcher.state
