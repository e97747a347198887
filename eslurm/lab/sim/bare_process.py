"""Common parts of everything that runs somewhere in a simulation: a name, an address, a clock and one timer.

Invariants: a dead process does nothing; a paused one does nothing either, and when it resumes it catches up in order; a
timer fires only for the process that set it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from eslurm.lab.sim.network import Network
from eslurm.lab.sim.scheduler import Scheduler


class Ground(Protocol):
    """The world in which processes run: one time, one network, and names that are never used twice."""

    scheduler: Scheduler
    network: Network

    def new_name(self, address: str) -> str: ...


class BareProcess:
    """One start of one daemon. `name` is new at each start, `address` is not.

    `offset_us` is how far its clock is before the true time: it began with some wall clock and counts by itself.
    `takes_links`: others may dial it.
    """

    takes_links = True

    def __init__(self, ground: Ground, address: str, offset_us: int = 0) -> None:
        self._ground = ground
        self.address = address
        self.name = ground.new_name(address)
        self.alive = True
        self._offset_us = offset_us
        self._timer_us: int | None = None
        # What came while it was paused, in order; None while it is not.
        self._missed: list[tuple[Any, tuple[Any, ...]]] | None = None

    @property
    def now_us(self) -> int:
        """The present in microseconds, as far as this process knows."""
        return self._ground.scheduler.at_us + self._offset_us

    @property
    def is_paused(self) -> bool:
        """Check whether it stands still."""
        return self._missed is not None

    def send(self, target: str, message: object) -> None:
        """Send to the process of that name."""
        if self.alive:
            self._ground.network.send(self, target, message)

    def later(self, delay_us: int, method: Any, *arguments: Any) -> None:
        """Call a method of this process after a while, if it still lives then."""
        self._ground.scheduler.call_in(delay_us, partial(self._if_alive, method, arguments))

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
            self._ground.network.on_paused(self)
            self._ground.scheduler.call_in(for_us, self._go_on)

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
        self._ground.scheduler.call_at(due_us - self._offset_us, fire)

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
