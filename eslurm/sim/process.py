"""What every simulated daemon has: a name, an address, one timer, and a relay whose actions become messages.

Invariant: a dead process does nothing; a timer fires only for the process that set it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from eslurm.core.tree import messages as tree

if TYPE_CHECKING:
    from eslurm.sim.world import World

REFUSED_AFTER_US = 400
TREE_MESSAGES = (tree.Broadcast, tree.Ack, tree.Reply)


class Process:
    """One start of one daemon. `name` is new at each start, `address` is not."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = address
        self.name = world.new_name(address)
        self.alive = True
        self._timer_us: int | None = None

    @property
    def now_us(self) -> int:
        """The present in microseconds."""
        return self.world.scheduler.at_us

    def send(self, target: str, message: object) -> None:
        """Send to the process of that name."""
        if self.alive:
            self.world.network.send(self, target, message)

    def later(self, delay_us: int, method: Any, *arguments: Any) -> None:
        """Call a method of this process after a while, if it still lives then."""
        self.world.scheduler.call_in(delay_us, partial(self._if_alive, method, arguments))

    def _if_alive(self, method: Any, arguments: tuple[Any, ...]) -> None:
        if self.alive:
            method(*arguments)

    def arm(self) -> None:
        """See to it that `on_timer` is called when it is due next."""
        due_us = self.next_timer_us()
        if due_us is None or (self._timer_us is not None and self._timer_us <= due_us):
            return
        self._timer_us = due_us
        self.world.scheduler.call_at(due_us, partial(self._fire, due_us))

    def _fire(self, due_us: int) -> None:
        if not self.alive or self._timer_us != due_us:
            return
        self._timer_us = None
        next_us = self.next_timer_us()
        if next_us is not None and next_us <= self.now_us:
            self.on_timer()
        if self.alive:
            self.arm()

    def next_timer_us(self) -> int | None:
        """When `on_timer` wants to be called."""
        return None

    def on_timer(self) -> None:
        """Time has passed."""

    def on_message(self, source: str, message: Any) -> None:
        """Something arrived."""

    def on_link_down(self, peer: str) -> None:
        """The link to that process ended."""

    # ---- the relay's actions ----

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
        """A broadcast could not be delivered: nobody listens there."""

    def _send_broadcast(self, action: tree.SendBroadcast) -> None:
        address = self.world.address_of(action.to_node)
        message = action.broadcast
        if not self.world.network.send_to(self, address, message):
            self.later(REFUSED_AFTER_US, self.on_refused, message.broadcast_id, message.nodes[:1])
