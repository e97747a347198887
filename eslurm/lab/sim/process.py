"""A simulated daemon of a cluster: a process with a relay whose actions become messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eslurm.core.relay import messages as tree
from eslurm.core.relay.relay import Relay
from eslurm.lab.sim.bare_process import BareProcess
from eslurm.lab.sim.world_view import WorldView

REFUSED_AFTER_US = 400


class Process(BareProcess):
    """One start of one daemon of a cluster."""

    def __init__(self, world: WorldView, address: str, offset_us: int = 0) -> None:
        self.world = world
        super().__init__(world, address, offset_us)

    # ---- the relay's actions ----

    def relays(self, relay: Relay, source: str, message: Any) -> bool:
        """Give the relay its message and carry out what follows; False for a message of another kind."""
        kind = type(message)
        if kind is tree.Broadcast:
            self.perform(relay.on_broadcast(source, message, self.now_us))
        elif kind is tree.Ack:
            self.perform(relay.on_ack(source, message, self.now_us))
        elif kind is tree.Reply:
            self.perform(relay.on_reply(source, message, self.now_us))
        else:
            return False
        return True

    def perform(self, actions: Iterable[Any]) -> None:
        """Carry out what a relay wants; other actions go to `perform_other`."""
        for action in actions:
            if not self.alive:
                return
            kind = type(action)
            if kind is tree.SendBroadcast:
                self._send_broadcast(action)
            elif kind is tree.SendAck:
                self.send(action.to_source, action.ack)
            elif kind is tree.SendReply:
                self.send(action.to_source, action.reply)
            elif not isinstance(action, tree.Notice):
                self.perform_other(action)

    def perform_other(self, action: Any) -> None:
        """An action that is not the relay's own."""
        raise TypeError(f"{self.name} has no use for {type(action).__name__}")

    def on_refused(self, broadcast_id: tree.BroadcastId, heads: tuple[int, ...]) -> None:
        """A broadcast could not be delivered: no process listens there."""

    def _send_broadcast(self, action: tree.SendBroadcast) -> None:
        address = self.world.address_of(action.to_node)
        message = action.broadcast
        if not self.world.network.send_to(self, address, message):
            self.later(REFUSED_AFTER_US, self.on_refused, message.broadcast_id, message.nodes[:1])
