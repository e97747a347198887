"""What a simulated leader does with a long log: base states, and the facts before them removed.

Mirrors the daemon's logbook, with a log that is kept for moments instead of days. Invariant: a base state, made of the
rows as of one revision, is durable before any fact up to its revision is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from eslurm.lab.sim.place import Place
from eslurm.lab.sim.store_lane import StoreLane
from eslurm.lab.sim.surroundings import Surroundings
from eslurm.ports.store import BlobRow, FenceLost, Head, Prune, RowChange, SettingRow, content_hash
from eslurm.replay.base import BasePacker

BASE = "state_base"
"""Name of the settings row that says which base state the log goes on from."""

_bases = msgspec.msgpack.Decoder(tuple[int, bytes])


class Keeper(Protocol):
    """The controller whose log it is."""

    world: Surroundings
    epoch: int

    @property
    def seat(self) -> Place: ...

    def later(self, delay_us: int, method: Any, *arguments: Any) -> None: ...

    def keep(self, rows: Sequence[RowChange], blobs: Sequence[BlobRow], then: Callable[[], None]) -> bool: ...

    def lose_fence(self, error: FenceLost) -> None: ...


class LogKeeper:
    """One controller's. With `every_us` 0 the log is kept whole."""

    def __init__(self, controller: Keeper, lane: StoreLane, every_us: int) -> None:
        self._controller = controller
        self._lane = lane
        self._every_us = every_us
        self._is_busy = False

    def start(self) -> None:
        """Begin to keep the log short."""
        if self._every_us:
            # Not at regular moments, or the same things would always happen at the same time.
            delay_us = int(self._every_us * self._controller.world.random.uniform(0.5, 1.5))
            self._controller.later(delay_us, self._turn)

    def _turn(self) -> None:
        self.start()
        if self._is_busy or not self._controller.seat.reaches_store:
            return
        head, data = self._pack()
        hash_ = content_hash(data)
        row = SettingRow(BASE, msgspec.msgpack.encode((head.revision, hash_)))
        self._is_busy = self._controller.keep([row], [BlobRow(hash_, data)], partial(self._prune, head))

    def _pack(self) -> tuple[Head, bytes]:
        world = self._controller.world
        head, *rows = world.disk.load_unfinished(world.owner)
        assert isinstance(head, Head)
        packer = BasePacker(head.revision, head.at_us)
        packer.add_rows([row for row in rows if not isinstance(row, Head)])
        return head, packer.finish()

    def _prune(self, base: Head) -> None:
        world = self._controller.world
        limits = Prune(base.at_us, facts_before_revision=base.revision + 1)
        prune = partial(world.disk.prune, world.owner, self._controller.epoch, limits)
        self._lane.ask("prune", prune, self._on_pruned)

    def _on_pruned(self, result: object) -> None:
        self._is_busy = False
        if isinstance(result, FenceLost):
            self._controller.lose_fence(result)


def decode_base(row: SettingRow) -> tuple[int, bytes]:
    """Up to which revision the base state goes, and under which hash it is stored."""
    return _bases.decode(row.blob)
