"""A node agent's fence per controller (owner): refuses what must not happen any more.

Owns the highest epoch, the floor, tombstones and kept outcomes. Invariant: nothing of a revision below the floor is kept,
and an attempt behind a tombstone or below the floor never starts. The number kept is bounded: when it would be exceeded
the oldest goes and the floor rises over it, which refuses more, never less.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from eslurm.core.model.contact import AnsweredRounds
from eslurm.core.model.protocol import Command
from eslurm.core.model.step_key import NodeAttempt
from eslurm.core.relay.results import OK, Outcome

KEPT_MAX = 65_536

EffectOnNode: TypeAlias = tuple[int, int, int]
"""(revision, index, node)."""


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that is over on a node. `started`: its batch script had run there."""

    revision: int
    started: bool


class Fence:
    """One owner's fence in this process; it holds for all nodes of the process."""

    __slots__ = ("_heap", "_kept_max", "epoch", "floor", "outcomes", "rounds", "signals", "tombstones")

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.epoch = 0
        self.floor = 0
        self.rounds = AnsweredRounds()
        self.tombstones: dict[NodeAttempt, Tombstone] = {}
        self.outcomes: dict[EffectOnNode, Outcome] = {}
        self.signals: set[EffectOnNode] = set()
        self._heap: list[tuple[int, tuple[int, int, int], bool]] = []
        self._kept_max = kept_max

    def bury(self, key: NodeAttempt, revision: int, started: bool) -> None:
        """Put up a tombstone. A second one for the same attempt keeps the higher revision.

        Below the floor none is needed: no launch of that age is accepted.
        """
        if revision < self.floor:
            return
        before = self.tombstones.get(key)
        if before is not None:
            revision = max(revision, before.revision)
            started = started or before.started
            if before == Tombstone(revision, started):
                return
        self.tombstones[key] = Tombstone(revision, started)
        self._push(revision, key, True)

    def never_started(self, key: NodeAttempt) -> None:
        """The script of a buried attempt has not run after all: the runner refused it after the order to end it had come."""
        before = self.tombstones.get(key)
        if before is not None:
            self.tombstones[key] = Tombstone(before.revision, False)

    def keep(self, effect: EffectOnNode, outcome: Outcome) -> None:
        """Keep the outcome of an effect; later copies of it get this answer."""
        if effect[0] >= self.floor and effect not in self.outcomes:
            self.outcomes[effect] = outcome
            self._push(effect[0], effect, False)

    def keep_signal(self, effect: EffectOnNode) -> None:
        """A signal was sent: unlike other outcomes this must survive a restart."""
        if effect[0] >= self.floor:
            self.signals.add(effect)
            self.keep(effect, OK)

    def raise_floor(self, floor: int) -> bool:
        """Forget everything below `floor`; True when the floor rose."""
        if floor <= self.floor:
            return False
        self.floor = floor
        heap = self._heap
        while heap and heap[0][0] < floor:
            self._pop()
        return True

    def _push(self, revision: int, key: tuple[int, int, int], is_tombstone: bool) -> None:
        heapq.heappush(self._heap, (revision, key, is_tombstone))
        while len(self._heap) > self._kept_max:
            self.floor = max(self.floor, self._heap[0][0] + 1)
            while self._heap and self._heap[0][0] < self.floor:
                self._pop()

    def _pop(self) -> None:
        revision, key, is_tombstone = heapq.heappop(self._heap)
        if not is_tombstone:
            self.outcomes.pop(key, None)
            self.signals.discard(key)
        elif (tombstone := self.tombstones.get(key)) is not None and tombstone.revision == revision:
            del self.tombstones[key]


class Addressed:
    """The addressees of a command: node -> incarnation, without unfolding long lists for a few nodes."""

    __slots__ = ("_by_node", "_runs", "_size")

    def __init__(self, command: Command) -> None:
        self._runs = tuple(zip(command.nodes, command.incarnations, strict=False))
        self._size = sum(length for _, length in command.nodes)
        self._by_node: dict[int, int] | None = None

    def incarnations(self, nodes: Sequence[int]) -> list[int | None]:
        """The incarnation that the command names for each of `nodes`; None for a node it is not for."""
        if self._by_node is None and len(nodes) * len(self._runs) <= self._size + 64:
            return [self._scan(node) for node in nodes]
        if self._by_node is None:
            self._by_node = {
                number: incarnation
                for (start, length), incarnation in self._runs
                for number in range(start, start + length)
            }
        find = self._by_node.get
        return [find(node) for node in nodes]

    def _scan(self, node: int) -> int | None:
        for (start, length), incarnation in self._runs:
            if start <= node < start + length:
                return incarnation
        return None
