"""A standby's link to the leader, over which its API socket answers.

Invariant: a call goes out only over a link to a process that leads under the epoch that the leader row names, or a later
one; calls on a link that has ended are answered as UNAVAILABLE, so that commands retry.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from esctld.lead.leadership import NAME_FEATURE
from eslurm import __version__
from eslurm.api.forward import Forwarder
from eslurm.api.methods import Method
from eslurm.core.dispatch.election import is_dialled, is_led_under
from eslurm.links.hello import LocalPeer
from eslurm.links.links import LinkTable
from eslurm.ports.api import Answered, Caller
from eslurm.ports.link import Link, LinkError, Wanted
from eslurm.ports.store import Leader
from eslurm.security.credentials import Credentials
from eslurm.transport.options import TableSettings
from eslurm.transport.tls import Tls
from eslurm.v1 import link_pb2

log = logging.getLogger("esctld.leaderlink")

REDIAL_S = 0.1
BACKOFF_MAX_S = 0.5
NO_LEADER = "no controller leads at present: try again in a moment"


class LeaderLink:
    """Implements `ports.link.LinkSink` and `ports.api.Answerer`. `on_lost` is called when the link ends.

    Tell it of each leader row with `follow`; run it as a task.
    """

    def __init__(
        self,
        cluster: str,
        owner: str,
        name: str,
        endpoint: str,
        credentials: Credentials,
        on_lost: Callable[[], None],
        tls: Tls | None = None,
    ) -> None:
        process = f"{name}.{secrets.token_hex(6)}"
        local = LocalPeer(
            cluster=cluster,
            role="controller",
            process=process,
            endpoint=endpoint,
            build=__version__,
            features=(f"{NAME_FEATURE}{name}",),
            owner=owner,
        )
        settings = TableSettings(backoff_max_s=BACKOFF_MAX_S)
        self._table = LinkTable(local, credentials, self, random.Random(), settings, tls=tls)
        self._forwarder = Forwarder(process, self._find, lambda: 0, NO_LEADER, in_parts=True)
        self._on_lost = on_lost
        self._name = name
        self._leader = Leader()
        self._link: Link | None = None
        self._moved = asyncio.Event()
        self._configuration = ""

    # ---- whom to follow ----

    def follow(self, leader: Leader) -> None:
        """The leader row as it is now."""
        before = self._leader
        self._leader = leader
        if (before.epoch, before.released) != (leader.epoch, leader.released):
            if self._link is not None and not self._leads(self._link):
                self._link.close("another controller leads")
            self._moved.set()

    def _find(self) -> Link | None:
        link = self._link
        return link if link is not None and not link.closed.is_set() and self._leads(link) else None

    def _leads(self, link: Link) -> bool:
        return is_led_under(self._leader, link.peer.epoch)

    async def run(self) -> None:
        """Stay linked to the leader, until cancelled."""
        told = ""
        while True:
            leader = self._leader
            self._moved.clear()
            if not is_dialled(leader, self._name):
                await self._moved.wait()
                continue
            try:
                link = await self._table.get(leader.endpoint, Wanted("controller"))
            except LinkError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("no link to the leader %s: %s", leader.holder, error)
                await self._pause(REDIAL_S)
                continue
            if link.peer.epoch < leader.epoch:
                # The former leader, which does not know it yet.
                link.close("another controller leads")
                await self._pause(REDIAL_S)
                continue
            told = ""
            log.info("linked to the leader %s at %s", leader.holder, leader.endpoint)
            self._link = link
            if self._configuration:
                self._tell(link)
            await link.closed.wait()
            self._link = None

    def tell_configuration(self, problem: str) -> None:
        """Let the leader show a problem of this controller's configuration file; empty: there is none."""
        self._configuration = problem
        if self._link is not None and not self._link.closed.is_set():
            self._tell(self._link)

    def _tell(self, link: Link) -> None:
        status = link_pb2.StandbyStatus(configuration=self._configuration)
        link.send(link_pb2.Item(standby_status=status))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved.wait()

    async def close(self) -> None:
        """End the link and what is under way on it."""
        await self._table.close("the standby stops following")

    # ---- ports.api.Answerer ----

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """The leader's answer to a call at the standby's API socket."""
        return await self._forwarder.answer(method, payload, caller)

    # ---- ports.link.LinkSink ----

    def on_up(self, link: Link) -> None:
        """The leader is there."""

    def on_down(self, link: Link, reason: str) -> None:
        """The link is down: callers may retry, and the leader row may tell the cause."""
        self._forwarder.on_link_down(link)
        log.info("the link to the leader has ended: %s", reason)
        self._on_lost()

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Take the leader's answers; a standby gets nothing else."""
        for item in items:
            if item.WhichOneof("kind") == "door_reply":
                self._forwarder.on_reply(item.door_reply)
