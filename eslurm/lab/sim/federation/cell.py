"""A cell: an ordinary simulated cluster, and the parts of its controllers in the federation.

Invariant: a cell has a part for each process that leads or believes so; the cluster itself knows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eslurm.core.control.reactor import Batch
from eslurm.core.federation.membership import Identity, Standing
from eslurm.core.model.federation import CELL_PROTOCOL, FederationConfig
from eslurm.core.model.job import Job
from eslurm.core.model.step_key import StepKey
from eslurm.core.state.rows import decode_job
from eslurm.lab.sim.bare_process import Ground
from eslurm.lab.sim.controller import Controller
from eslurm.lab.sim.federation.doors import door_address
from eslurm.lab.sim.federation.health import Health
from eslurm.lab.sim.federation.part import Part, Witness
from eslurm.lab.sim.world import World
from eslurm.ports import store
from eslurm.ports.store import JobRow


class Watch(Protocol):
    """Checks that follow the jobs of all cells: `transfer_checks.TransferChecks`, `span_checks.SpanChecks`."""

    def on_durable(self, cell: Cell, epoch: int, batch: store.Batch) -> None: ...

    def on_spawn(self, cell: Cell, key: StepKey) -> None: ...

    def on_leader_gone(self, cell: Cell, transfers: Sequence[Job]) -> None: ...


class Cell:
    """One member, or one that would like to be. Its ring tells the `site` from others: two may claim one name."""

    def __init__(
        self,
        ground: Ground,
        servers: Sequence[str],
        config: FederationConfig,
        site: str,
        world: World,
        health: Health,
        witness: Witness,
        watches: Sequence[Watch],
    ) -> None:
        self.name = config.cell
        self.site = site
        self.ring = f"ring of {site}".encode()
        self.world = world
        self.health = health
        self.parts: dict[str, Part] = {}
        """By the names of their processes."""
        self._ground = ground
        self._servers = servers
        self._config = config
        self._witness = witness
        self._watches = tuple(watches)
        # By addresses: those whose controllers have ended and that are leaving yet.
        self._leaving: dict[str, Part] = {}
        world.parts = self

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of its controllers, and of their doors, in the network between cells."""
        outside = [self._outside(address) for address in self.world.controller_addresses]
        return (*outside, *map(door_address, outside))

    @property
    def part(self) -> Part | None:
        """That of the leader that takes part; of several the one with the newest epoch."""
        found = [part for part in self.parts.values() if part.client is not None and part.client.alive]
        return max(found, key=lambda part: part.epoch, default=None)

    @property
    def is_refused(self) -> bool:
        """Check whether its name is another site's."""
        part = self.part
        return part is not None and part.participant.membership.standing is Standing.REFUSED

    def stored_job(self, job_id: int) -> Job | None:
        """The job as the cell's store has it."""
        row = self.world.disk.rows(self.world.owner)[JobRow.TABLE].get((job_id,))
        return decode_job(row.blob) if isinstance(row, JobRow) else None

    # ---- its controllers: see `world_view.LeaderParts` ----

    def on_started(self, leader: Controller) -> None:
        """It begins, from the state where the log stood."""
        identity = Identity(self.world.cluster, self.ring, "simulated", CELL_PROTOCOL)
        self.parts[leader.name] = Part(
            self._ground,
            self._servers,
            self._config,
            identity,
            leader,
            self._witness,
            self._outside(leader.address),
        )

    def on_leading(self, leader: Controller) -> None:
        """Its epoch is committed."""
        part = self.parts[leader.name]
        if (former := self._leaving.pop(part.address, None)) is not None:
            former.end()
        part.lead()
        self.health.on_begin()

    def on_shown(self, leader: Controller, batch: Batch) -> None:
        """This is durable."""
        self.parts[leader.name].show(batch)

    def on_paused(self, leader: Controller, for_us: int) -> None:
        """It stands still."""
        self.parts[leader.name].pause(for_us)
        self.health.on_trouble(for_us)

    def on_leaving(self, leader: Controller) -> None:
        """It ends in good order."""
        self.parts[leader.name].leave()
        self.health.on_trouble(0)

    def on_gone(self, leader: Controller) -> None:
        """Its process has ended, or goes on in another role."""
        part = self.parts.pop(leader.name)
        for watch in self._watches:
            watch.on_leader_gone(self, tuple(part.transfers.values()))
        if part.is_leaving:
            self._leaving[part.address] = part
        else:
            part.end()
        self.health.on_trouble(0)

    def on_durable(self, epoch: int, batch: store.Batch) -> None:
        """A batch is in the log."""
        for watch in self._watches:
            watch.on_durable(self, epoch, batch)

    def on_spawn(self, key: StepKey) -> None:
        """A step begins on a node."""
        for watch in self._watches:
            watch.on_spawn(self, key)

    def _outside(self, address: str) -> str:
        return f"{self.site}/{address}"
