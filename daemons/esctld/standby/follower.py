"""Reads the log of the leader into a state: the store around the core's `Replica`, one reading at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from esctld.lead.gc_tuning import spare_collector
from eslurm.core.control.replica import Replica, UnknownFact
from eslurm.core.state.cluster import State
from eslurm.ports.store import LogPruned, SchemaTooNew, StoreFailed, StoreReader
from eslurm.store.rows import load

log = logging.getLogger("esctld.follower")


class Follower:
    """Ask `follow` whenever the log has grown. One call at a time does the work; the others wait for it."""

    def __init__(self, store: StoreReader, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._replica = Replica()
        self._lock = asyncio.Lock()

    @property
    def revision(self) -> int:
        """Up to where it has followed; 0 while it is cold."""
        return self._replica.revision

    @property
    def state(self) -> State | None:
        """The state as it has followed; None while it is cold."""
        return self._replica.state

    async def follow(self, revision: int) -> State:
        """The state at this revision or a later one; StoreUnavailable leaves it where it was.

        Raises StoreFailed when the log ends before it: the store has lost what it had acknowledged. SchemaTooNew: it
        holds what only a newer release can read.
        """
        async with self._lock:
            state = self._replica.state or await self._load()
            if state.revision < revision:
                try:
                    await self._catch_up(state.revision + 1)
                except LogPruned:
                    log.info("the log no longer holds revision %d: loading the rows", state.revision + 1)
                    state = await self._load_anew()
                if self._replica.lacks_record:
                    log.info("a job waits for one that had ended before this standby began: loading the rows")
                    state = await self._load_anew()
            if state.revision < revision:
                raise StoreFailed(f"the log ends at revision {state.revision}, but {revision} was committed")
            return state

    async def _load_anew(self) -> State:
        self._replica.drop()
        return await self._load()

    async def _load(self) -> State:
        state = self._replica.begin(await load(self._store, self._owner))
        spare_collector()
        return state

    async def _catch_up(self, first: int) -> None:
        facts = self._store.load_facts(self._owner, first)
        async with contextlib.aclosing(facts):
            async for chunk in facts:
                try:
                    for _ in self._replica.advance(chunk):
                        await asyncio.sleep(0)
                except UnknownFact as error:
                    raise SchemaTooNew(str(error)) from None
