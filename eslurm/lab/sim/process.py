"""Common parts of every simulated daemon: a name, an address, a clock, one timer, and a relay whose actions become
messages.

Invariants: a dead process does nothing; a paused one does nothing either, and when it resumes it catches up in order; a
timer fires only for the process that set it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from eslurm.core.relay import messages as tree
from eslurm.core.relay.relay import Relay
from eslurm.lab.sim.world_view import WorldView

REFUSED_AFTER_US = 400


class Process:
    """One start of one daemon. `name` is new at each start, `address` is not.

    `offset_us` is how far its clock is before the true time: it began with some wall clock and counts by itself.
    `takes_links`: others may dial it.
    """

    takes_links = True

    def __init__(self, world: WorldView, address: str, offset_us: int = 0) -> None:
        self.world = world
        self.address = address
        self.name = world.new_name(address)
        self.alive = True
        self._offset_us = offset_us
        self._timer_us: int | None = None
        # What came while it was paused, in order; None while it is not.
        self._missed: list[tuple[Any, tuple[Any, ...]]] | None = None

    @property
    def now_us(self) -> int:
        """The present in microseconds, as far as this process knows."""
        return self.world.scheduler.at_us + self._offset_us

    @property
    def is_paused(self) -> bool:
        """Check whether it stands still."""
        return self._missed is not None

    def send(self, target: str, message: object) -> None:
        """Send to the process of that name."""
        if self.alive:
            self.world.network.send(self, target, message)

    def later(self, delay_us: int, method: Any, *arguments: Any) -> None:
        """Call a method of this process after a while, if it still lives then."""
        self.world.scheduler.call_in(delay_us, partial(self._if_alive, method, arguments))

    def _if_alive(self, method: Any, arguments: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self._missed is not None:
            self._missed.append((method, arguments))
        else:
            method(*arguments)

    # ---- standing still ----

    def pause(self, for_us: int) -> None:
        """Do nothing for a while (SIGSTOP); what arrives meanwhile waits."""
        if self.alive and self._missed is None:
            self._missed = []
            self.world.network.on_paused(self)
            self.world.scheduler.call_in(for_us, self._go_on)

    def _go_on(self) -> None:
        missed, self._missed = self._missed, None
        for method, arguments in missed or ():
            # It may be paused or end again while it catches up.
            self._if_alive(method, arguments)
        if self.alive and self._missed is None:
            self.arm()

    # ---- in ----

    def hear(self, source: str, message: Any) -> None:
        """The network hands over a message."""
        self._if_alive(self.on_message, (source, message))

    def lose(self, peer: str) -> None:
        """The network says that a link is gone."""
        self._if_alive(self.on_link_down, (peer,))

    def on_message(self, source: str, message: Any) -> None:
        """Something arrived."""

    def on_link_down(self, peer: str) -> None:
        """The link to that process ended."""

    # ---- the timer ----

    def arm(self) -> None:
        """See to it that `on_timer` is called when it is due next."""
        due_us = self.next_timer_us()
        if due_us is None or (self._timer_us is not None and self._timer_us <= due_us):
            return
        self._timer_us = due_us
        fire = partial(self._if_alive, self._fire, (due_us,))
        self.world.scheduler.call_at(due_us - self._offset_us, fire)

    def _fire(self, due_us: int) -> None:
        if self._timer_us != due_us:
            return
        self._timer_us = None
        next_us = self.next_timer_us()
        if next_us is not None and next_us <= self.now_us:
            self.on_timer()
        if self.alive:
            self.arm()

    def next_timer_us(self) -> int | None:
        """Time of the next `on_timer`."""
        return None

    def on_timer(self) -> None:
        """Time has passed."""

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
