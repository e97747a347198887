"""The simulated network: processes at addresses, and messages that are late, lost, doubled, overtaken or cut off.

A message goes from one process to another, both named afresh at each start, so nothing said to a dead
process reaches its successor. Invariant: every draw comes from the network's own generator, in the order of
events, so a seed determines the run.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.scheduler import Scheduler

LATENCY_MIN_US = 150
LATENCY_SPREAD_US = 1_500
KEEPALIVE_MIN_US = 4 * SECOND_US
KEEPALIVE_SPREAD_US = 4 * SECOND_US
ON_LEADERS_HOST = frozenset({"client", "estimator"})
"""Processes that only make calls."""


class Peer(Protocol):
    """A process as the network knows it."""

    name: str
    address: str

    @property
    def takes_links(self) -> bool:
        """Check whether it may be dialled."""
        ...

    @property
    def is_paused(self) -> bool:
        """Check whether it stands still: then it answers no keepalive."""
        ...

    def hear(self, source: str, message: Any) -> None:
        """Something arrived from the process of that name."""
        ...

    def lose(self, peer: str) -> None:
        """The link to that process ended."""
        ...


class Weather(msgspec.Struct, frozen=True):
    """Quality of the network; shares are per message."""

    loss: float = 0.0
    duplication: float = 0.0
    slow: float = 0.0
    slow_max_us: int = 0


CALM = Weather()


class Trouble(msgspec.Struct, frozen=True):
    """Faults of the links of one address: cut one way or both, each message `delay_us` later, some lost.

    With a period the cuts are open for the first `open_us` of each.
    """

    cuts_out: bool = False
    cuts_in: bool = False
    delay_us: int = 0
    loss: float = 0.0
    period_us: int = 0
    open_us: int = 0

    def is_open(self, now_us: int) -> bool:
        """Check whether the cuts let everything pass just now."""
        return bool(self.period_us) and now_us % self.period_us < self.open_us


class Cut(enum.Enum):
    """Direction of an island's cut: out, in, or both."""

    BOTH = "both"
    OUT = "out"
    IN = "in"


class Network:
    """Listeners, open links, and messages on the way."""

    def __init__(self, scheduler: Scheduler, seed: str, observe: Callable[..., None]) -> None:
        self.weather = CALM
        self.messages = 0
        self._scheduler = scheduler
        self._random = random.Random(seed)
        self._observe = observe
        self._processes: dict[str, Peer] = {}
        self._listening: dict[str, Peer] = {}
        self._links: dict[str, dict[str, int]] = {}
        self._opened = 0
        self._islands: dict[str, None] = {}
        self._cut = Cut.BOTH
        self._dark: dict[str, None] = {}
        self._troubles: dict[str, Trouble] = {}
        self._trouble_random = random.Random(f"{seed}/troubles")

    # ---- processes ----

    def attach(self, process: Peer) -> None:
        """A process begins to listen at its address."""
        self._processes[process.name] = process
        self._listening[process.address] = process
        self._links[process.name] = {}
        self._dark.pop(process.address, None)

    def detach(self, process: Peer, *, silently: bool = False) -> None:
        """A process ends. Its peers hear of it at once, or (its host died) only by their keepalives."""
        name = process.name
        del self._processes[name]
        del self._listening[process.address]
        if silently:
            self._dark[process.address] = None
        for peer, opened in self._links.pop(name).items():
            if peer not in self._links:
                continue
            if silently:
                self._scheduler.call_in(self._keepalive_us(), partial(self._expire, peer, name, opened))
            else:
                del self._links[peer][name]
                self._tell_soon(peer, name)

    def find(self, address: str) -> str:
        """The name of the process that listens there; empty if there is none."""
        process = self._listening.get(address)
        return process.name if process is not None else ""

    def find_dialled(self, address: str) -> str:
        """The same for a process that is to be linked to: one that takes no links refuses the connection."""
        process = self._listening.get(address)
        return process.name if process is not None and process.takes_links else ""

    def reaches(self, source: str, target: str) -> bool:
        """Check whether what one address says arrives at another."""
        return not self._is_cut(source, target)

    # ---- messages ----

    def send_to(self, source: Peer, address: str, message: object) -> bool:
        """Send to the listener at `address`; False when the connection is refused."""
        target = self._listening.get(address)
        if target is not None:
            self.send(source, target.name, message)
            return True
        return address in self._dark

    def send(self, source: Peer, target: str, message: object) -> None:
        """Send to one process; what is said to a dead one is lost."""
        self.messages += 1
        other = self._processes.get(target)
        if other is None or source.name not in self._links:
            return
        delay_us = 0
        if self._troubles or self._islands:
            if self._is_cut(source.address, other.address):
                return
            for address in (source.address, other.address):
                trouble = self._troubles.get(address)
                if trouble is not None and source.address != other.address:
                    if trouble.loss and self._trouble_random.random() < trouble.loss:
                        self._observe("lost", source.name, target, message)
                        return
                    delay_us += trouble.delay_us
        opened = self._link(source.name, target)
        weather = self._weather_between(source, other)
        copies = 1
        if weather.loss or weather.duplication:
            luck = self._random.random()
            if luck < weather.loss:
                self._observe("lost", source.name, target, message)
                return
            copies += luck >= 1.0 - weather.duplication
        for _ in range(copies):
            due_us = self._scheduler.at_us + self._latency_us(weather) + delay_us
            arrive = partial(self._arrive, source.name, target, opened, message)
            self._scheduler.call_at(due_us, arrive)

    def _weather_between(self, source: Peer, target: Peer) -> Weather:
        # They reach the controller through a socket on its own host.
        is_local = source.address in ON_LEADERS_HOST or target.address in ON_LEADERS_HOST
        return CALM if is_local else self.weather

    def _latency_us(self, weather: Weather) -> int:
        latency_us = LATENCY_MIN_US + int(self._random.random() * LATENCY_SPREAD_US)
        if weather.slow and self._random.random() < weather.slow:
            latency_us += int(self._random.random() * weather.slow_max_us)
        return latency_us

    def _arrive(self, source: str, target: str, opened: int, message: object) -> None:
        process = self._processes.get(target)
        links = self._links.get(target)
        if process is None or links is None or links.get(source) != opened:
            return
        self._observe("message", source, target, message)
        process.hear(source, message)

    # ---- links ----

    def break_links(self, share: float) -> int:
        """End a share of the open links; both ends hear of it. Returns how many were ended."""
        broken = [pair for pair in self._pairs() if self._random.random() < share]
        for a, b in broken:
            self._close(a, b)
        return len(broken)

    def isolate(self, addresses: Iterable[str], cut: Cut = Cut.BOTH) -> None:
        """Cut these addresses off from all others (not from each other)."""
        self._islands = dict.fromkeys(addresses)
        self._cut = cut
        for a, b in self._pairs():
            if self._is_split(a, b):
                delay_us = self._keepalive_us()
                self._scheduler.call_in(
                    delay_us, partial(self._expire_if, a, b, self._links[a][b], self._is_split)
                )

    def heal(self) -> None:
        """End all islands; single addresses in trouble stay so."""
        self._islands = {}

    def trouble(self, address: str, trouble: Trouble) -> None:
        """From now on the links of this address suffer; those that are open may expire."""
        self._troubles[address] = trouble
        if trouble.cuts_in or trouble.cuts_out:
            for a, b in self._pairs():
                if address in (self._processes[a].address, self._processes[b].address):
                    expire = partial(self._expire_if, a, b, self._links[a][b], self._is_split)
                    delay_us = KEEPALIVE_MIN_US + int(self._trouble_random.random() * KEEPALIVE_SPREAD_US)
                    self._scheduler.call_in(delay_us, expire)

    def relieve(self, address: str = "") -> None:
        """The links of this address, or all, are well again."""
        if address:
            self._troubles.pop(address, None)
        else:
            self._troubles.clear()

    def on_paused(self, process: Peer) -> None:
        """Peers of the process get nothing, not even keepalives, until it resumes."""
        for peer, opened in self._links.get(process.name, {}).items():
            # A process that stands still does not wait for its own keepalives.
            if peer == process.name:
                continue
            expire = partial(self._expire_if, process.name, peer, opened, self._is_stuck)
            self._scheduler.call_in(self._keepalive_us(), expire)

    def _is_cut(self, source: str, target: str) -> bool:
        """Check whether what one address says does not reach another."""
        if self._troubles and source != target:
            out, into = self._troubles.get(source), self._troubles.get(target)
            if out is not None and out.cuts_out and not out.is_open(self._scheduler.at_us):
                return True
            if into is not None and into.cuts_in and not into.is_open(self._scheduler.at_us):
                return True
        if not self._islands or (source in self._islands) == (target in self._islands):
            return False
        return self._cut is Cut.BOTH or (self._cut is Cut.OUT) == (source in self._islands)

    def _is_split(self, a: str, b: str) -> bool:
        """Check whether one of these processes does not hear the other, so that keepalives between them fail."""
        one, other = self._processes[a].address, self._processes[b].address
        return self._is_cut(one, other) or self._is_cut(other, one)

    def _is_stuck(self, a: str, b: str) -> bool:
        return self._processes[a].is_paused or self._processes[b].is_paused

    def _link(self, a: str, b: str) -> int:
        opened = self._links[a].get(b)
        if opened is None:
            # Only the living open links, so both ends always know of the same ones.
            self._opened += 1
            opened = self._links[a][b] = self._links[b][a] = self._opened
        return opened

    def _pairs(self) -> list[tuple[str, str]]:
        return [(a, b) for a, peers in self._links.items() for b in peers if a < b and b in self._links]

    def _close(self, a: str, b: str) -> None:
        del self._links[a][b]
        del self._links[b][a]
        self._tell_soon(a, b)
        self._tell_soon(b, a)

    def _tell_soon(self, name: str, peer: str) -> None:
        self._scheduler.call_in(self._latency_us(CALM), partial(self._tell, name, peer))

    def _keepalive_us(self) -> int:
        return KEEPALIVE_MIN_US + int(self._random.random() * KEEPALIVE_SPREAD_US)

    def _expire(self, name: str, dead: str, opened: int) -> None:
        """The keepalive of a link to a dead host ran out."""
        if self._links.get(name, {}).get(dead) == opened:
            del self._links[name][dead]
            self._tell(name, dead)

    def _expire_if(self, a: str, b: str, opened: int, is_so: Callable[[str, str], bool]) -> None:
        if self._links.get(a, {}).get(b) == opened and b in self._links and is_so(a, b):
            self._close(a, b)

    def _tell(self, name: str, peer: str) -> None:
        process = self._processes.get(name)
        if process is not None:
            self._observe("down", peer, name, None)
            process.lose(peer)
