"""A controller process's access to the store: writes that take time, and may be torn, cut off, or outlive the process.

Invariants: a process's writes begin one after another, in the order asked; each is answered once, with its result or with
the store's error, if the process lives to get it; a process that has learnt of another leader writes no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from eslurm.core.dispatch.leader_lease import LeaderLease, Renew, Write
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.violation import require
from eslurm.ports.store import FenceLost, StoreError, StoreUnavailable

GIVEN_UP_AFTER_US = 2_000


class _Wish(msgspec.Struct, frozen=True):
    kind: str
    work: Callable[[], Any]
    then: Callable[[Any], None]


class StoreLane:
    """Made by a process for itself; `seat` says whether the store can be reached from there."""

    def __init__(self, process: Process, seat: Place) -> None:
        self._process = process
        self._seat = seat
        self._queue: deque[_Wish] = deque()
        self._is_busy = False
        self._is_fenced = False

    def ask(self, kind: str, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have this written; `then` gets what it returned, or the StoreError it raised."""
        require(
            not self._is_fenced, f"{self._process.name} writes ({kind}) after it was told that another leads"
        )
        self._queue.append(_Wish(kind, work, then))
        self._next()

    def _next(self) -> None:
        if self._is_busy or not self._queue or not self._process.alive:
            return
        self._is_busy = True
        wish = self._queue.popleft()
        world = self._process.world
        fate = world.faults.fate_of(wish.kind)
        if fate == "before":
            self._seat.crash(f"before {wish.kind}")
            return
        ticket = world.disk.start(world.owner, wish.work, self._process.name)
        if fate == "torn":
            self._seat.crash(f"torn {wish.kind}")
            return
        if fate == "pause":
            self._seat.pause(f"amid {wish.kind}")
        world.scheduler.call_in(world.commit_delay_us(), partial(self._land, ticket, wish, fate))

    def _land(self, ticket: int, wish: _Wish, fate: str) -> None:
        """The disk has finished the write, whether or not its process still lives."""
        if not self._process.world.disk.is_under_way(ticket):
            return
        result = self._settle(ticket)
        if fate == "after" and not isinstance(result, StoreError):
            self._seat.crash(f"after {wish.kind}")
            return
        delay_us = GIVEN_UP_AFTER_US if isinstance(result, StoreUnavailable) else 0
        self._process.later(delay_us, self._answer, wish, result)

    def _settle(self, ticket: int) -> Any:
        disk = self._process.world.disk
        if self._process.is_paused or not self._seat.reaches_store:
            # Its connection is broken, or the server's patience with a silent transaction is over.
            disk.tear(ticket)
            return StoreUnavailable("the connection to the store was lost")
        try:
            return disk.finish(ticket)
        except StoreError as error:
            return error

    def _answer(self, wish: _Wish, result: Any) -> None:
        self._is_busy = False
        self._is_fenced = self._is_fenced or isinstance(result, FenceLost)
        wish.then(result)
        self._next()


class LeaseWriter:
    """Makes the writes of one lead's `LeaderLease`, in the process' lane; `on_over` is called when there will be no more.

    `on_held` hears since when the lead is known to have been held, by `now_us` of the process.
    """

    def __init__(
        self,
        process: Process,
        lane: StoreLane,
        lease: LeaderLease,
        epoch: int,
        on_over: Callable[[], None],
        on_held: Callable[[int], None] = lambda held_us: None,
    ) -> None:
        self._process = process
        self._lane = lane
        self.lease = lease
        self._epoch = epoch
        self._on_over = on_over
        self._on_held = on_held

    def turn(self) -> None:
        """Make the write that is due."""
        write = self.lease.next(self._process.now_us)
        if write is None:
            return
        disk, owner = self._process.world.disk, self._process.world.owner
        if isinstance(write, Renew):
            self._lane.ask("renew", partial(disk.renew, owner, self._epoch), partial(self._on_answer, write))
        else:
            release = partial(disk.release, owner, self._epoch, write.successor)
            self._lane.ask("release", release, partial(self._on_answer, write))

    def _on_answer(self, write: Write, result: object) -> None:
        lease = self.lease
        if isinstance(result, FenceLost):
            lease.lost(write)
        elif isinstance(result, StoreError):
            lease.unavailable(write)
        else:
            held_us = lease.succeeded(write)
            if held_us is not None:
                self._on_held(held_us)
        if lease.is_over:
            self._on_over()
        else:
            self._process.later(lease.pause_us, self.turn)
