"""A simulated leader's housekeeping: the core's `LogKeeping` over the simulated disk, with a log kept for moments.

Packing, committing and pruning take virtual time, and the process may die between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from eslurm.core.control.log_keeping import BASES, Base, LogKeeping, MakeBase, Prune, decode_bases
from eslurm.core.state.cluster import State
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.store_lane import StoreLane
from eslurm.lab.sim.world_view import WorldView
from eslurm.ports import store
from eslurm.ports.store import BlobRow, FenceLost, Head, Pruned, RowChange, SettingRow, content_hash
from eslurm.replay.base import BasePacker


class Keeper(Protocol):
    """The controller whose log it is."""

    world: WorldView
    epoch: int
    state: State

    @property
    def seat(self) -> Place: ...

    def later(self, delay_us: int, method: Any, *arguments: Any) -> None: ...

    def keep(self, rows: Sequence[RowChange], blobs: Sequence[BlobRow], then: Callable[[], None]) -> bool: ...

    def lose_fence(self, error: FenceLost) -> None: ...


class LogKeeper:
    """One controller's. With `kept_us` 0 the log is kept whole."""

    def __init__(self, controller: Keeper, lane: StoreLane, kept_us: int) -> None:
        self._controller = controller
        self._world = controller.world
        self._lane = lane
        self._keeping = LogKeeping(kept_us)

    def start(self) -> None:
        """Wait for the next turn."""
        # Not at regular moments, or the same things would always happen at the same time.
        jitter = self._world.random.uniform(0.5, 1.5)
        self._controller.later(int(self._keeping.turn_every_us * jitter), self._turn)

    def _turn(self) -> None:
        if not self._controller.seat.reaches_store:
            self.start()
            return
        disk, owner = self._world.disk, self._world.owner
        if not self._keeping.is_begun:
            self._keeping.begin(stored_bases(disk.rows(owner)[SettingRow.TABLE].get((BASES,))))
        state = self._controller.state
        action = self._keeping.turn(state, disk.head(owner).revision, state.now_us)
        if isinstance(action, MakeBase):
            self._make_base()
        else:
            self._begin_pruning(action)

    def _make_base(self) -> None:
        head, *rows = self._world.disk.load_unfinished(self._world.owner)
        assert isinstance(head, Head)
        packer = BasePacker(head.revision, head.at_us)
        packer.add_rows([row for row in rows if not isinstance(row, Head)])
        data = packer.finish()
        base = Base(head.revision, head.at_us, content_hash(data))
        row = SettingRow(BASES, self._keeping.packed(base))
        self._controller.keep([row], [BlobRow(base.hash, data)], self._on_kept)

    def _on_kept(self) -> None:
        self._begin_pruning(self._keeping.kept())

    def _begin_pruning(self, action: Prune) -> None:
        self._prune(store.Prune(**msgspec.structs.asdict(action)))

    def _prune(self, limits: store.Prune) -> None:
        prune = partial(self._world.disk.prune, self._world.owner, self._controller.epoch, limits)
        self._lane.ask("prune", prune, partial(self._on_pruned, limits))

    def _on_pruned(self, limits: store.Prune, result: Pruned | store.StoreError) -> None:
        if isinstance(result, FenceLost):
            self._controller.lose_fence(result)
        elif isinstance(result, Pruned) and result.fills(limits):
            self._prune(limits)
        else:
            self.start()


def stored_bases(row: object) -> list[Base]:
    """The base states that this settings row lists, oldest first."""
    return decode_bases(row.blob) if isinstance(row, SettingRow) else []
