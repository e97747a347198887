"""A controller while it does not lead: it watches the leader row, follows the log, and its API socket leads to the leader.

What it does when is `core.dispatch.standby`'s, the same as in the simulator; here are the store, the tasks and the link.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from esctld.lead.leadership import Lease, give_up
from esctld.standby.follower import Follower
from esctld.standby.leader_link import LeaderLink
from esctld.standby.own_file import OwnFile
from eslurm.core.dispatch.standby import FOLLOW_RETRY_US, Claim, Follow, Lead, StandbyTerm, Withdraw
from eslurm.core.model.units import SECOND_US
from eslurm.ports import store as port
from eslurm.ports.api import Answerer
from eslurm.ports.store import (
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

FOLLOW_RETRY_S = FOLLOW_RETRY_US / SECOND_US
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
        config_file: Path,
    ) -> None:
        self._store = store
        self._owner = owner
        self._name = name
        self._endpoint = endpoint
        self._term: StandbyTerm[Leader] = StandbyTerm(name, endpoint, lease_us, Leader())
        self._follower = Follower(store, owner)
        self._look_now = asyncio.Event()
        self._grown = asyncio.Event()
        self._link = link(self._look_now.set)
        self._own_file = OwnFile(config_file, lambda: self._follower.state, self._link.tell_configuration)
        self._on_warm = on_warm
        self._away = False
        self._is_warm = False
        self._cannot_follow = ""

    @property
    def answerer(self) -> Answerer:
        """The answerer of calls at this controller's API socket meanwhile."""
        return self._link

    def health(self) -> Health:
        """Check whether it could take over at any moment."""
        if self._away:
            return Health(False, "the job store cannot be read")
        if self._cannot_follow:
            return Health(False, f"stands by, but cannot follow the log: {self._cannot_follow}")
        if not self._is_warm:
            return Health(False, "stands by, and has not read the log yet")
        leader = self._term.leader.holder or "another controller"
        problem = self._own_file.problem
        return Health(True, f"stands by: {leader} leads{f'; {problem}' if problem else ''}")

    async def look_at_file(self) -> None:
        """Compare the configuration file with what is in force now: an administrator asks."""
        await self._own_file.look()
        said = self._own_file.problem or "its configuration file is the one in force"
        log.info("%s stands by and reads its file when it leads; %s", self._name, said)

    async def run(self) -> Lead:
        """Stand by until it leads. Raises what makes a controller useless: a foreign, a damaged or a newer store."""
        tasks: list[asyncio.Task[None]] = []
        try:
            if not await self._look():
                # Only now: a cluster without a leader does not wait for it.
                if not self._away:
                    leader = self._term.leader.holder or "another controller"
                    log.info("%s stands by: %s leads", self._name, leader)
                tasks = [
                    asyncio.create_task(self._follow(), name="follow"),
                    asyncio.create_task(self._link.run(), name="leader link"),
                    asyncio.create_task(self._own_file.run(), name="own file"),
                ]
                await self._watch(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._link.close()
        return await self._prepare()

    # ---- electing ----

    async def _watch(self, tasks: list[asyncio.Task[None]]) -> None:
        every_s = self._term.look_every_us / SECOND_US
        while True:
            for task in tasks:
                if task.done():
                    task.result()
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._look_now.wait()
            self._look_now.clear()
            if await self._look():
                return

    async def _look(self) -> bool:
        """Look at the leader row once; whether that made this controller the leader."""
        now_us = _monotonic_us()
        try:
            leader = await self._store.leader(self._owner)
        except StoreUnavailable as error:
            if not self._away:
                log.warning("the job store cannot be read: %s; trying again until it can", error)
            self._away = True
            return False
        if self._away:
            log.warning("the job store can be read again")
            self._away = False
        self._link.follow(leader)
        for action in self._term.looked(leader, now_us):
            if isinstance(action, Follow):
                self._grown.set()
            elif isinstance(action, Claim):
                await self._claim(action.seen)
        return bool(self._term.epoch)

    async def _claim(self, seen: Leader) -> None:
        try:
            epoch = await self._store.open(self._owner, port.Claim(self._name, self._endpoint, seen))
        except LeadershipTaken as error:
            log.info("no claim: %s", error)
            self._term.not_claimed()
        except StoreUnavailable as error:
            # Perhaps it was made all the same: then the row names this controller as its holder.
            log.warning("no claim: %s", error)
            self._term.not_claimed()
        else:
            self._term.claimed(epoch)

    # ---- following ----

    async def _follow(self) -> None:
        """Stay close to the log, until cancelled."""
        while True:
            self._grown.clear()
            try:
                await self._follower.follow(self._term.leader.revision)
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

    async def _prepare(self) -> Lead:
        """The state where the log stands; while it is read the lease is renewed already."""
        began_s = time.monotonic()
        lease = asyncio.create_task(Lease(self._store, self._term.lease).run(), name="lease")
        ready = asyncio.create_task(self._final_state(), name="final state")
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
            *(lead.epoch, state.revision, len(state.jobs), took_s),
        )
        return lead

    async def _final_state(self) -> Lead:
        term = self._term
        while True:
            try:
                leader = await self._store.leader(self._owner)
                [action] = term.looked(leader, _monotonic_us())
                if isinstance(action, Follow):
                    [action] = term.followed(await self._follower.follow(action.revision))
            except StoreUnavailable as error:
                log.warning("the state cannot be read: %s", error)
                await asyncio.sleep(FOLLOW_RETRY_S)
                continue
            if isinstance(action, Withdraw):
                raise FenceLost(f"{self._owner}: {action.reason}")
            assert isinstance(action, Lead)
            return action


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
