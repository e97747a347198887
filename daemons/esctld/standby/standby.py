"""A controller while it does not lead: it watches the leader row, follows the log, and its door leads to the leader.

Invariant: nothing is written before the claim; the lead is handed on only with a state that stands exactly where the log
does, at the claim's own epoch. While it prepares to lead its lease is renewed already.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from esctld.lead.leadership import Lead, Lease, give_up
from esctld.standby.follower import Follower
from esctld.standby.leader_link import LeaderLink
from eslurm.core.dispatch.election import Election
from eslurm.ports.door import Answerer
from eslurm.ports.store import (
    Claim,
    FenceLost,
    Leader,
    LeadershipTaken,
    SchemaTooNew,
    Store,
    StoreFailed,
    StoreUnavailable,
)
from eslurm.telemetry.status import Health

log = logging.getLogger("esctld.standby")

FOLLOW_RETRY_S = 0.2
FOLLOW_AGAIN_S = 1.0
"""Pause after the store said that it cannot be followed: it answers, so nothing is gained by asking on."""


class Standby:
    """One term as a standby. `on_warm` is called once it could lead at any moment, or knows that it cannot follow."""

    def __init__(
        self,
        store: Store,
        owner: str,
        name: str,
        endpoint: str,
        lease_us: int,
        link: Callable[[Callable[[], None]], LeaderLink],
        on_warm: Callable[[], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._name = name
        self._endpoint = endpoint
        self._election = Election(name, endpoint, lease_us)
        self._follower = Follower(store, owner)
        self._look_now = asyncio.Event()
        self._grown = asyncio.Event()
        self._leader = Leader()
        self._link = link(self._look_now.set)
        self._on_warm = on_warm
        self._away = False
        self._is_warm = False
        self._cannot_follow = ""

    @property
    def door(self) -> Answerer:
        """Where calls at this controller's door go meanwhile."""
        return self._link

    def health(self) -> Health:
        """Whether it could take over at any moment."""
        if self._away:
            return Health(False, "the job store cannot be read")
        if self._cannot_follow:
            return Health(False, f"stands by, but cannot follow the log: {self._cannot_follow}")
        if not self._is_warm:
            return Health(False, "stands by, and has not read the log yet")
        return Health(True, f"stands by: {self._leader.holder or 'another controller'} leads")

    async def run(self) -> Lead:
        """Until it leads. Raises what makes a controller useless: a foreign, a damaged or a newer store."""
        tasks: list[asyncio.Task[None]] = []
        try:
            claimed = await self._look()
            if claimed is None:
                # Only now: a cluster that nobody leads is not kept waiting for it.
                if not self._away:
                    log.info(
                        "%s stands by: %s leads", self._name, self._leader.holder or "another controller"
                    )
                tasks = [
                    asyncio.create_task(self._follow(), name="follow"),
                    asyncio.create_task(self._link.run(), name="leader link"),
                ]
                claimed = await self._watch(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._link.close()
        return await self._prepare(claimed)

    # ---- electing ----

    async def _watch(self, tasks: list[asyncio.Task[None]]) -> int:
        every_s = self._election.look_every_us / 1_000_000
        while True:
            for task in tasks:
                if task.done():
                    task.result()
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._look_now.wait()
            self._look_now.clear()
            claimed = await self._look()
            if claimed is not None:
                return claimed

    async def _look(self) -> int | None:
        """Look at the leader row once; the epoch if that made this controller the leader."""
        now_us = time.monotonic_ns() // 1000
        try:
            leader = await self._store.leader(self._owner)
        except StoreUnavailable as error:
            if not self._away:
                log.warning("the job store cannot be read: %s; trying again until it can", error)
            self._away = True
            return None
        if self._away:
            log.warning("the job store can be read again")
            self._away = False
        if leader.revision > self._leader.revision:
            self._grown.set()
        self._leader = leader
        self._link.follow(leader)
        if not self._election.look(leader, now_us):
            return None
        try:
            return await self._store.open(self._owner, Claim(self._name, self._endpoint, leader))
        except LeadershipTaken as error:
            log.info("no claim: %s", error)
        except StoreUnavailable as error:
            # Perhaps it was made all the same: then the row names this controller as its holder.
            log.warning("no claim: %s", error)
        return None

    # ---- following ----

    async def _follow(self) -> None:
        """Stay close to the log, until cancelled."""
        while True:
            self._grown.clear()
            try:
                await self._follower.follow(self._leader.revision)
            except StoreUnavailable as error:
                log.debug("the log cannot be followed: %s", error)
                await asyncio.sleep(FOLLOW_RETRY_S)
                continue
            except SchemaTooNew:
                raise
            except StoreFailed as error:
                # As for a database that its leader has not made or brought forward yet.
                if str(error) != self._cannot_follow:
                    log.warning("the log cannot be followed: %s; trying again when it grows", error)
                self._cannot_follow = str(error)
                self._on_warm()
                await asyncio.sleep(FOLLOW_AGAIN_S)
                await self._grown.wait()
                continue
            if self._cannot_follow:
                log.info("the log can be followed now")
                self._cannot_follow = ""
            self._is_warm = True
            self._on_warm()
            await self._grown.wait()

    # ---- leading ----

    async def _prepare(self, epoch: int) -> Lead:
        """The state where the log stands; nobody else writes it from now on."""
        began_s = time.monotonic()
        lease = asyncio.create_task(Lease(self._store, self._election).run(), name="lease")
        ready = asyncio.create_task(self._final_state(epoch), name="final state")
        try:
            await asyncio.wait({lease, ready}, return_when=asyncio.FIRST_COMPLETED)
            if lease.done():
                lease.result()
            lead = await ready
        except FenceLost:
            raise
        except BaseException:
            await give_up(self._store)
            raise
        finally:
            for task in (lease, ready):
                task.cancel()
            await asyncio.gather(lease, ready, return_exceptions=True)
        took_s = time.monotonic() - began_s
        state = lead.state
        log.info(
            "epoch %d, revision %d, %d jobs not finished, ready after %.2f s",
            *(epoch, state.revision, len(state.jobs), took_s),
        )
        return lead

    async def _final_state(self, epoch: int) -> Lead:
        while True:
            try:
                head = await self._store.leader(self._owner)
                if head.epoch != epoch:
                    raise FenceLost(f"{self._owner}: claimed epoch {epoch}, the store has epoch {head.epoch}")
                state = await self._follower.follow(head.revision)
                break
            except StoreUnavailable as error:
                log.warning("the state cannot be read: %s", error)
                await asyncio.sleep(FOLLOW_RETRY_S)
        if state.revision != head.revision:
            raise StoreFailed(f"the state is at revision {state.revision}, the log at {head.revision}")
        # A batch of answers alone moves the log's time and leaves no fact to learn it from.
        state.now_us = max(state.now_us, head.at_us)
        # Following may have been interrupted between two facts: what it touched is in the store already.
        state.take_touched()
        return Lead(self._name, self._endpoint, epoch, state)
