"""The lead of a controller: its lease, the linked standbys, the handover.

Invariant: the lead is released only after the last commit; a handover is announced by a leader that does nothing else from
then on. A lease that cannot be renewed because the store is away changes nothing: commits decide who leads, never this
process's idea of time. Only its nodes' contact is not confirmed any more (`core.model.contact`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from eslurm import __version__
from eslurm.core.dispatch.leader_lease import LeaderLease, Renew, Write
from eslurm.core.dispatch.standby import Lead
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.units import SECOND_US
from eslurm.ports.link import Link
from eslurm.ports.store import AnswerRow, Batch, FenceLost, Store, StoreError, StoreUnavailable
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esctld.leadership")

CONFIGURATION_CHARS_MAX = 1_000
NAME_FEATURE = "controller="
"""Prefix of the controller's name in its Hello."""


class Lease:
    """Keeps the leader row moving; run it as a task from the claim to the release.

    `on_renewed` gets the begin (by `now_us`) of each successful renewal.
    """

    def __init__(
        self,
        store: Store,
        lease: LeaderLease,
        now_us: Callable[[], int] = int,
        on_renewed: Callable[[int], None] = lambda began_us: None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._now_us = now_us
        self._on_renewed = on_renewed
        self._last: Batch | None = None

    async def run(self) -> None:
        """Renew until cancelled. Raises FenceLost when another controller leads."""
        is_away = False
        while (write := self._lease.next(self._now_us())) is not None:
            try:
                await self._make(write)
            except StoreUnavailable as error:
                if not is_away:
                    what = "renewed" if isinstance(write, Renew) else "let go"
                    log.warning("the lead cannot be %s: %s", what, error)
                is_away = True
                self._lease.unavailable(write)
            except FenceLost:
                self._lease.lost(write)
                if self._lease.is_lost:
                    raise
            else:
                is_away = False
                held_us = self._lease.succeeded(write)
                if held_us is not None:
                    self._on_renewed(held_us)
            if not self._lease.is_over:
                await asyncio.sleep(self._lease.pause_us / SECOND_US)

    async def let_go(self, successor: str, last: Batch | None = None) -> None:
        """Write this, and release the lead; `run` must have ended. A store that is away makes others wait for the lease."""
        self._last = last
        self._lease.let_go(successor)
        try:
            await self.run()
        except FenceLost:
            log.info("another controller leads already")

    async def _make(self, write: Write) -> None:
        if isinstance(write, Renew):
            await self._store.renew()
            return
        if self._last is not None:
            await self._store.commit(self._last)
            self._last = None
        await self._store.release(write.successor)
        log.info("let go of the lead%s", f": {write.successor} follows" if write.successor else "")


class Standby(msgspec.Struct, frozen=True):
    """A controller that follows this one."""

    name: str
    endpoint: str
    build: str
    since_us: int
    configuration: str = ""
    """The problem of its configuration file, as it says; empty: none."""


class Standbys:
    """The controllers that are linked to the leader, by their names."""

    def __init__(self) -> None:
        self._linked: dict[Link, Standby] = {}

    def add(self, link: Link, now_us: int) -> Standby:
        """A standby is linked."""
        peer = link.peer
        said = [one.removeprefix(NAME_FEATURE) for one in peer.features if one.startswith(NAME_FEATURE)]
        name = said[0] if said else peer.process.rpartition(".")[0]
        standby = Standby(name, peer.endpoint, peer.build, now_us)
        self._linked[link] = standby
        return standby

    def note(self, link: Link, configuration: str) -> None:
        """Keep the problem of a standby's configuration file, as it says; empty: there is none."""
        standby = self._linked.get(link)
        if standby is not None:
            self._linked[link] = msgspec.structs.replace(
                standby, configuration=configuration[:CONFIGURATION_CHARS_MAX]
            )

    def remove(self, link: Link) -> Standby | None:
        """A link has ended; returns its standby, if it was one's."""
        return self._linked.pop(link, None)

    @property
    def all(self) -> list[Standby]:
        """One for each name, in order; of several links of one name the newest."""
        newest = {standby.name: standby for standby in self._linked.values()}
        return [newest[name] for name in sorted(newest)]


class Leadership:
    """This leader's status, and the handover to another one. `since_us` is the begin of its lead."""

    def __init__(self, lead: Lead, standbys: Standbys, since_us: int) -> None:
        self.lead = lead
        self._standbys = standbys
        self._since_us = since_us
        self._successor = ""
        self._answer: AnswerRow | None = None
        self.handing_over = asyncio.Event()

    def controllers(self) -> list[pb.ControllerInfo]:
        """The leader first, then its standbys."""
        lead = self.lead
        own = pb.ControllerInfo(
            name=lead.name,
            role="leader",
            endpoint=lead.endpoint,
            epoch=lead.epoch,
            since_us=self._since_us,
            build=__version__,
        )
        others = [
            pb.ControllerInfo(
                name=one.name,
                role="standby",
                endpoint=one.endpoint,
                since_us=one.since_us,
                build=one.build,
                configuration=one.configuration,
            )
            for one in self._standbys.all
        ]
        return [own, *others]

    def standbys(self) -> list[str]:
        """The names of the linked standbys."""
        return [one.name for one in self._standbys.all if one.name != self.lead.name]

    def hand_over(self, to: str, request_id: bytes) -> pb.TakeoverReply:
        """Choose the successor; the switch begins once the caller has its answer. Raises Refused."""
        if self.handing_over.is_set():
            raise Refused(RefusalCode.CONFLICT, f"the lead passes to {self._successor} already")
        successor = self._choose(to)
        reply = pb.TakeoverReply(to=successor, epoch=self.lead.epoch)
        setattr(reply, "from", self.lead.name)  # a keyword of Python's
        self._successor = successor
        # A retry that finds the new leader must not make it hand over in its turn.
        self._answer = AnswerRow(request_id, reply.SerializeToString())
        self.handing_over.set()
        return reply

    def _choose(self, to: str) -> str:
        names = self.standbys()
        if to == self.lead.name:
            raise Refused(RefusalCode.CONFLICT, f"controller {to} leads already")
        if not names:
            raise Refused(
                RefusalCode.CONFLICT,
                f"no standby is linked to the leader {self.lead.name}: start another controller "
                "(esctld --name NAME --listen ADDRESS:PORT) and try again",
            )
        if to and to not in names:
            raise Refused(
                RefusalCode.NOT_FOUND,
                f"controller '{to}' is not linked to the leader {self.lead.name}; standbys: {', '.join(names)}",
            )
        return to or names[0]

    async def let_go(self, lease: Lease, now_us: int) -> None:
        """Release the lead, the last write of this leader; when the store is away the others wait for the lease.

        `now_us`: the cluster's time, not before the last commit's: one without facts has moved only the row's time.
        """
        state = self.lead.state
        last = None
        if self._answer is not None:
            last = Batch(state.revision + 1, max(state.now_us, now_us), answers=[self._answer])
        await lease.let_go(self._successor, last)


async def give_up(store: Store) -> None:
    """Release a lead that this controller cannot use, so that a standby need not wait for its expiry."""
    try:
        await store.release()
    except FenceLost:
        log.info("another controller leads already")
    except StoreError as error:
        log.warning("the lead could not be let go: %s", error)
