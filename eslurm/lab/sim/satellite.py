"""A simulated satellite: the core's relay and report router, links instead of streams, nothing kept.

Invariant: a satellite that starts knows nothing of the one before it.
"""

from __future__ import annotations

from typing import Any

from eslurm.core.dispatch.report_router import ReportRouter
from eslurm.core.dispatch.satellite_pool import SatelliteStatus, satellite_number
from eslurm.core.model.protocol import Report
from eslurm.core.relay import messages as tree
from eslurm.core.relay.relay import Relay
from eslurm.lab.sim import wire
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.world_view import WorldView

REDIAL_US = 300_000


class Satellite(Process):
    """One start of the satellite at this place of the configuration."""

    def __init__(self, world: WorldView, index: int) -> None:
        super().__init__(world, f"satellite{index}")
        self.relay = Relay(root=True, tuning=world.tuning)
        self.router: ReportRouter[Report] = ReportRouter()
        self._number = satellite_number(index)
        # The leader, or a process that believes it leads: the latest epoch counts.
        self._leaders: dict[str, wire.Welcome] = {}

    @property
    def _leader(self) -> str:
        """The process of the controller that leads, as far as this satellite knows; empty if it knows none."""
        return max(self._leaders, key=lambda name: self._leaders[name].epoch, default="")

    def start(self) -> None:
        """Find the controllers."""
        self._dial()

    def _dial(self) -> None:
        for address in self.world.controller_addresses:
            target = self.world.network.find_dialled(address)
            if target and target not in self._leaders:
                self.send(target, wire.Hello(self._number))
        self.later(REDIAL_US, self._dial)

    def on_message(self, source: str, message: Any) -> None:
        """Relay, gather, route."""
        now_us = self.now_us
        kind = type(message)
        if self.relays(self.relay, source, message):
            pass
        elif kind is wire.Reports:
            self.router.on_reports(source, message.reports, now_us)
        elif kind is wire.Acks:
            for peer, ack in self.router.on_acks(message.acks):
                self.send(str(peer), wire.Acks((ack,)))
        elif kind is wire.Hello:
            self.send(source, self._leaders.get(self._leader, wire.Welcome()))
        elif kind is wire.Ping:
            tasks = self.relay.live
            self.send(source, wire.Status(SatelliteStatus(message.seq, tasks, queued=self.relay.queued)))
        elif kind is wire.Welcome:
            self._leaders[source] = message
            self.router.on_controller(True)
        self.arm()

    def on_link_down(self, peer: str) -> None:
        """A controller or an agent process is out of reach."""
        self.router.on_link_down(peer)
        self.perform(self.relay.on_link_down(peer, self.now_us))
        if self._leaders.pop(peer, None) is not None:
            self.router.on_controller(bool(self._leaders))
        self.arm()

    def on_refused(self, broadcast_id: tree.BroadcastId, heads: tuple[int, ...]) -> None:
        """No process listens at a node's address."""
        self.perform(self.relay.on_refused(broadcast_id, heads, "connection refused", self.now_us))
        self.arm()

    def next_timer_us(self) -> int | None:
        """The relay's, or the next batch of reports."""
        times = (self.relay.next_timer_us(), self.router.next_due_us())
        return min((at_us for at_us in times if at_us is not None), default=None)

    def on_timer(self) -> None:
        """Relay timers, and a batch of reports if it is due."""
        self.perform(self.relay.on_timer(self.now_us))
        batch = self.router.take(self.now_us)
        if batch:
            self.send(self._leader, wire.Reports(batch))
