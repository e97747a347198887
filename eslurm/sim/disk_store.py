"""The simulator's disk under a store: commits take virtual time and a crash tears those under way.

The simulator calls `begin` when a controller hands a batch over and `finish` when the virtual disk has
synced it. Invariant: an unfinished commit is invisible; a crash leaves it either fully there or not at all,
and the seed alone decides which, so a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from eslurm.ports.store import Batch, FenceLost, Key, Row
from eslurm.store.image import StoreImage


class _Commit(msgspec.Struct, frozen=True):
    owner: str
    epoch: int
    batch: Batch


class DiskStore(StoreImage):
    """A `StoreImage` with commits under way. Reads and `commit` see and change only what is synced."""

    def __init__(self, seed: int, cluster_id: str = "") -> None:
        super().__init__(cluster_id)
        self._random = random.Random(seed)
        self._under_way: dict[int, _Commit] = {}
        self._tickets = 0

    def begin(self, owner: str, epoch: int, batch: Batch) -> int:
        """Starts a commit and returns the ticket that `finish` or `tear` takes. Checks nothing yet."""
        self._tickets += 1
        self._under_way[self._tickets] = _Commit(owner, epoch, batch)
        return self._tickets

    def finish(self, ticket: int) -> None:
        """The disk has synced: the commit is visible. Raises as `StoreImage.commit` does, fence included.

        KeyError for a ticket that a crash has already settled.
        """
        commit = self._under_way.pop(ticket)
        self.commit(commit.owner, commit.epoch, commit.batch)

    def tear(self, ticket: int) -> None:
        """The commit's outcome never reaches its writer, who sees StoreUnavailable: the seed decides it."""
        commit = self._under_way.pop(ticket)
        if self._random.random() < 0.5:
            return
        try:
            self.commit(commit.owner, commit.epoch, commit.batch)
        except FenceLost:
            # An earlier commit of the same writer was lost, or a successor took over: nobody is left to tell.
            return

    def crash(self, owner: str) -> None:
        """The owner's process or host dies: its commits under way are torn, in the order they began."""
        for ticket in [ticket for ticket, commit in self._under_way.items() if commit.owner == owner]:
            self.tear(ticket)

    def rows(self, owner: str) -> Mapping[str, Mapping[Key, Row]]:
        """Every current row of an owner by table and key."""
        return self._of(owner).tables

    def under_way(self, owner: str) -> int:
        """How many of the owner's commits have begun and not ended."""
        return sum(commit.owner == owner for commit in self._under_way.values())
