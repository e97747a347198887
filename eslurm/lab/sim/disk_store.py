"""The simulator's disk under a store: writes take virtual time and a crash tears those under way.

The simulator calls `begin` or `start` when a controller hands work over and `finish` when the virtual disk has
synced it. Invariant: unfinished work is invisible; a crash leaves it either fully there or not at all, and the seed
alone decides which, so a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.store import Batch, FenceLost, Key, LeadershipTaken, Prune, Pruned, Row

OnCommit = Callable[[int, Batch], None]
OnPrune = Callable[[int], None]


class _Write(msgspec.Struct, frozen=True):
    owner: str
    writer: str
    work: Callable[[], Any]


class DiskStore(StoreImage):
    """A `StoreImage` with writes under way. Reads and `commit` see and change only what is synced.

    `on_commit` gets each batch when it becomes visible, with the epoch of its writer; `on_prune` before which
    revision facts are about to go.
    """

    def __init__(
        self,
        seed: int,
        cluster_id: str = "",
        on_commit: OnCommit | None = None,
        on_prune: OnPrune | None = None,
    ) -> None:
        super().__init__(cluster_id)
        self._random = random.Random(seed)
        self._under_way: dict[int, _Write] = {}
        self._tickets = 0
        self._on_commit = on_commit
        self._on_prune = on_prune

    def commit(self, owner: str, epoch: int, batch: Batch) -> None:
        """See `StoreImage.commit`."""
        is_new = not self.committed(owner, epoch, batch)
        super().commit(owner, epoch, batch)
        if is_new and self._on_commit is not None:
            self._on_commit(epoch, batch)

    def prune(self, owner: str, epoch: int, limits: Prune) -> Pruned:
        """See `StoreImage.prune`."""
        is_cut = limits.facts_before_revision > 0 and epoch == self.head(owner).epoch
        if self._on_prune is not None and is_cut:
            self._on_prune(limits.facts_before_revision)
        return super().prune(owner, epoch, limits)

    def begin(self, owner: str, epoch: int, batch: Batch) -> int:
        """Starts a commit and returns the ticket that `finish` or `tear` takes. Checks nothing yet."""
        return self.start(owner, partial(self.commit, owner, epoch, batch))

    def start(self, owner: str, work: Callable[[], Any], writer: str = "") -> int:
        """Starts any other write of an owner; `writer` names the process, if several write for one owner."""
        self._tickets += 1
        self._under_way[self._tickets] = _Write(owner, writer, work)
        return self._tickets

    def is_under_way(self, ticket: int) -> bool:
        """Check whether the write is not settled yet."""
        return ticket in self._under_way

    def finish(self, ticket: int) -> Any:
        """The disk has synced: the write is visible. Returns and raises as the store does, fence included.

        KeyError for a ticket that a crash has already settled.
        """
        return self._under_way.pop(ticket).work()

    def tear(self, ticket: int) -> None:
        """The write's outcome never reaches its writer, which gets StoreUnavailable: the seed decides the outcome."""
        write = self._under_way.pop(ticket)
        if self._random.random() < 0.5:
            return
        try:
            write.work()
        except (FenceLost, LeadershipTaken):
            # An earlier commit of the same writer was lost, or a successor took over: the writer is gone.
            return

    def crash(self, owner: str, writer: str = "") -> None:
        """The process or host dies: its writes under way are torn, in the order they began."""
        for ticket in [ticket for ticket, write in self._under_way.items() if _is_by(write, owner, writer)]:
            self.tear(ticket)

    def rows(self, owner: str) -> Mapping[str, Mapping[Key, Row]]:
        """Every current row of an owner by table and key."""
        return self._of(owner).tables

    def under_way(self, owner: str) -> int:
        """Number of the owner's writes that have begun and not ended."""
        return sum(write.owner == owner for write in self._under_way.values())


def _is_by(write: _Write, owner: str, writer: str) -> bool:
    return write.owner == owner and writer in ("", write.writer)
