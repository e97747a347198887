"""A state kept warm by the log of whoever leads: load the rows once, then apply what is committed.

Invariant: it decides nothing and writes nothing; its state is the leader's own as of some revision. Memory is bounded
as the leader's is: jobs leave when the log says that they are forgotten, timers that mean nothing any more are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from esctld.lead.gc_tuning import spare_collector
from eslurm.core.control.timers import drop_stale
from eslurm.core.model.facts import Fact, decode_fact
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.ports.store import LoggedFact, LogPruned, SchemaTooNew, StoreFailed, StoreReader
from eslurm.store.rows import load

log = logging.getLogger("esctld.follower")

SLICE_FACTS = 100
"""Facts applied before others have their turn."""
TIMERS_SLACK = 1_000
"""More timers than twice those that were alive the last time, and so many: time to drop the stale ones."""


class Follower:
    """Ask `follow` whenever the log has grown. One call at a time does the work; the others wait for it."""

    def __init__(self, store: StoreReader, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._state: State | None = None
        self._lock = asyncio.Lock()
        self._timers_alive = 0

    @property
    def revision(self) -> int:
        """Up to where it has followed; 0 while it is cold."""
        return self._state.revision if self._state is not None else 0

    @property
    def is_warm(self) -> bool:
        """Whether it has a state."""
        return self._state is not None

    async def follow(self, revision: int) -> State:
        """The state at this revision or a later one; StoreUnavailable leaves it where it was.

        Raises StoreFailed when the log ends before it: the store has lost what it had acknowledged. SchemaTooNew: it
        holds what only a newer release can read.
        """
        async with self._lock:
            if self._state is None:
                self._state = await self._load()
            if self._state.revision < revision:
                try:
                    await self._catch_up(self._state)
                except LogPruned:
                    log.info(
                        "the log no longer holds revision %d: loading the rows", self._state.revision + 1
                    )
                    self._state = None
                    self._state = await self._load()
            if self._state.revision < revision:
                ends = self._state.revision
                raise StoreFailed(f"the log ends at revision {ends}, but {revision} was committed")
            return self._state

    async def _load(self) -> State:
        state = await load(self._store, self._owner)
        self._timers_alive = len(state.timers)
        spare_collector()
        return state

    async def _catch_up(self, state: State) -> None:
        facts = self._store.load_facts(self._owner, state.revision + 1)
        async with contextlib.aclosing(facts):
            async for chunk in facts:
                for at, fact in enumerate(chunk, 1):
                    apply(state, _read(fact), fact.revision, fact.at_us)
                    if not at % SLICE_FACTS:
                        await asyncio.sleep(0)
                # Whoever committed these facts wrote their rows.
                state.take_touched()
        if len(state.timers) > 2 * self._timers_alive + TIMERS_SLACK:
            drop_stale(state)
            self._timers_alive = len(state.timers)


def _read(logged: LoggedFact) -> Fact:
    """The fact, unless a newer release wrote it: what is not understood must not be guessed."""
    try:
        fact = decode_fact(logged.kind, logged.version, logged.blob)
    except msgspec.ValidationError:
        fact = None
    if fact is None or logged.version > fact.VERSION:
        raise SchemaTooNew(
            f"revision {logged.revision} is a {logged.kind} of version {logged.version}, which this release "
            "cannot read: upgrade this controller"
        )
    return fact
