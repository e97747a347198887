"""Simulated slowness and partitions of a satellite: every arriving item passes here first.

Invariant: what arrives is handed on in its order, or, while the satellite is partitioned, not at all; then nothing goes
out either. The links themselves stay: whether they live is the transport's to say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from eslurm.faults.chaos_socket import ChaosReply, ChaosRequest, Struck, left_us
from eslurm.faults.relay import FaultyRelayServer
from eslurm.faults.switches import Mode, Switch
from eslurm.ports.link import Link
from eslurm.v1 import link_pb2

Take = Callable[[Link, Sequence[link_pb2.Item]], None]


class FaultyInbox:
    """`take` gets the items that pass; `on_healed` is called at the end of a partition, to ask for lost items again."""

    def __init__(self, driver: FaultyRelayServer, take: Take, on_healed: Callable[[], None]) -> None:
        self._driver = driver
        self._take = take
        self._on_healed = on_healed
        self._loop = asyncio.get_running_loop()
        self._switch: Switch | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._late: deque[tuple[Link, Sequence[link_pb2.Item]]] = deque()

    @property
    def is_cut(self) -> bool:
        """Check whether nothing comes in or goes out."""
        return self._switch is not None and self._switch.mode is Mode.PARTITIONED

    def put(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Pass arrived items on."""
        if self.is_cut:
            return
        delay_us = self._switch.delay_us if self._switch is not None else 0
        if not delay_us and not self._late:
            self._take(link, items)
            return
        self._late.append((link, items))
        # Timers that are due together fire in no certain order: each passes on the oldest.
        self._loop.call_later(delay_us / 1_000_000, self._pass_on)

    def _pass_on(self) -> None:
        link, items = self._late.popleft()
        if not self.is_cut and not link.closed.is_set():
            self._take(link, items)

    def answer(self, request: ChaosRequest) -> ChaosReply:
        """Carry out a chaos request. Raises `ValueError`, with nothing changed."""
        if request.nodes:
            raise ValueError("a satellite serves no nodes")
        changed = 0
        if request.action == "heal":
            changed = int(self._switch is not None)
            self._heal()
        elif request.action != "show":
            self._strike(request)
            changed = 1
        return ChaosReply(changed, self._struck())

    def _strike(self, request: ChaosRequest) -> None:
        mode = Mode(request.action)
        if mode not in (Mode.SLOW, Mode.PARTITIONED):
            raise ValueError(f"a satellite that is {mode} is made with a signal to its process")
        self._heal()
        now_us = self._driver.now_us()
        until_us = None if request.for_us is None else now_us + request.for_us
        self._switch = Switch(mode, until_us, request.delay_us if mode is Mode.SLOW else 0)
        self._driver.is_cut = self.is_cut
        if request.for_us is not None:
            self._expiry = self._loop.call_later(request.for_us / 1_000_000, self._heal)

    def _heal(self) -> None:
        was_cut = self.is_cut
        self._switch = None
        self._driver.is_cut = False
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if was_cut:
            self._on_healed()

    def _struck(self) -> tuple[Struck, ...]:
        if self._switch is None:
            return ()
        switch = self._switch
        return (Struck("", 0, switch.mode.value, left_us(switch, self._driver.now_us()), switch.delay_us),)
