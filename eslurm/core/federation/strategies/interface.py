"""The interface of strategies: a strategy finds nodes of other cells for a job, and learns from the answers.

A `Strategy` is a cell's knowledge of other pools, a `Search` the way of one job to its nodes. Both are pure: a driver takes
the step that `Search.choose` names, once, and brings the answer; every answer of the store has the pools as they are now, a
refused change too. A search that holds claims without being complete holds nodes on which nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from eslurm.core.federation import pools
from eslurm.core.model.federation import Order, Pool

POOLS_MAX: Final = 32
"""Pools in one transaction."""
MS: Final = 1_000

Draw: TypeAlias = Callable[[], float]
"""Random numbers of [0, 1)."""


class PoolSeen:
    """The pool of a cell at one version; None: there is none. Not to be changed."""

    __slots__ = ("_free", "cell", "pool", "version")

    def __init__(self, cell: int, version: int, pool: Pool | None) -> None:
        self.cell = cell
        self.version = version
        self.pool = pool
        # Searches ask for the same counts again and again.
        self._free: dict[tuple[int, int], int] = {}

    def free(self, kind: int = 0, for_s: int = 0) -> int:
        """Nodes to claim."""
        if self.pool is None:
            return 0
        count = self._free.get((kind, for_s))
        if count is None:
            count = self._free[kind, for_s] = pools.claimable(self.pool, kind, for_s)
        return count


class Need(msgspec.Struct, frozen=True):
    """Nodes that a job of cell `own` needs. `order` ranks it among all jobs of the federation."""

    own: int
    serial: int
    nodes: int
    order: Order
    kind: int = 0
    for_s: int = 0


# ---- steps ----


class Look(msgspec.Struct, frozen=True):
    """Read pools, all at one revision."""

    cells: tuple[int, ...]


class Take(msgspec.Struct, frozen=True):
    """Claim so many nodes of each of these pools, in one transaction against the versions seen."""

    parts: tuple[tuple[PoolSeen, int], ...]


class Enqueue(msgspec.Struct, frozen=True):
    """Enter tickets for so many nodes in each of these pools, in one transaction. Their pools are watched from then on."""

    parts: tuple[tuple[PoolSeen, int], ...]


class Convert(msgspec.Struct, frozen=True):
    """Make all tickets of the search claims, in one transaction."""

    pools: tuple[PoolSeen, ...]


class Leave(msgspec.Struct, frozen=True):
    """Withdraw all tickets of the search that are still there, in one transaction."""

    pools: tuple[PoolSeen, ...]


class GiveBack(msgspec.Struct, frozen=True):
    """End all claims of the search; there is no answer."""


class Later(msgspec.Struct, frozen=True):
    """Ask again then; with `wakes` as soon as a pool that this cell watches has changed."""

    at_us: int
    wakes: bool = False


class Done(msgspec.Struct, frozen=True):
    """The search holds all nodes that it needs."""


Asking: TypeAlias = Look | Take | Enqueue | Convert | Leave
Step: TypeAlias = Asking | GiveBack | Later | Done


class Interests(msgspec.Struct, frozen=True):
    """The pools of other cells that a strategy watches; `summaries`: all counts too. A driver asks again at `until_us`."""

    pools: tuple[int, ...] = ()
    summaries: bool = False
    until_us: int = 2**62


class Counts(Protocol):
    """Free nodes of cells as their summaries say."""

    def most_free(self, count: int) -> Sequence[int]:
        """Up to so many cells with free nodes, those with most of them first."""


class Search(Protocol):
    """The way of one job to its nodes."""

    @property
    def held(self) -> int:
        """Nodes that it has claimed so far."""

    def choose(self, now_us: int, draw: Draw) -> Step:
        """Choose the next step. A driver does not ask while a step waits for its answer."""

    def answered(self, step: Asking, done: bool, seen: Sequence[PoolSeen], now_us: int) -> None:
        """The answer: whether the change was made, and the pools of the step as they are."""


class Strategy(Protocol):
    """The knowledge of one cell. The own pool is always watched."""

    @property
    def name(self) -> str:
        """As in the configuration."""

    def interests(self, now_us: int, draw: Draw) -> Interests:
        """The pools to watch besides the own one."""

    def on_word(self, seen: PoolSeen, now_us: int) -> None:
        """A pool, from a watch or from any answer; the latest version counts."""

    def begin(self, need: Need) -> Search:
        """A search for a job. `ended` is called at its end."""

    def ended(self, search: Search) -> None:
        """The search has its nodes, or was given up."""
