"""The plan of a measurement: dead nodes by kind, predicted ones, and errors of an answer.

Pure. Invariant: everything follows from (nodes, percent, seed), so each structure meets the same failures.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from eslurm.core.relay.results import Results, Status

RECALL = 0.8
PRECISION = 0.7


class Failures(msgspec.Struct, frozen=True):
    """Dead nodes, half of each kind, and what a predictor said before. Node numbers, ascending.

    `refused`: a sender gets an error at once. `silent`: messages vanish. `vanishing`: acknowledge one list, then
    are silent.
    """

    refused: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    vanishing: tuple[int, ...] = ()
    predicted: tuple[int, ...] = ()

    @property
    def dead(self) -> frozenset[int]:
        """All that do not answer."""
        return frozenset(self.refused) | frozenset(self.silent) | frozenset(self.vanishing)


NONE = Failures()


def draw(nodes: int, percent: float, seed: int) -> Failures:
    """`percent` of the nodes 1..`nodes` dead; the predictor knows `RECALL` of them and is right in `PRECISION`."""
    rng = random.Random(f"{nodes} {percent} {seed}")
    everyone = range(1, nodes + 1)
    dead = rng.sample(everyone, round(nodes * percent / 100))
    half = len(dead) // 2
    known = rng.sample(dead, round(len(dead) * RECALL))
    alive = sorted(set(everyone).difference(dead))
    false_alarms = rng.sample(alive, min(len(alive), round(len(known) * (1 / PRECISION - 1))))
    return Failures(
        refused=tuple(sorted(dead[:half])),
        silent=tuple(sorted(dead[half:])),
        predicted=tuple(sorted(known + false_alarms)),
    )


def home(number: int, hosts: int) -> int:
    """Which host process serves a node: scattered, or every inner node of a tree might meet in one process."""
    mixed = number * 0x9E3779B1 & 0xFFFFFFFF
    return (mixed ^ mixed >> 15) * 0x85EBCA6B % (1 << 32) * hosts >> 32


class Wrong(msgspec.Struct, frozen=True):
    """Errors of one broadcast, as numbers of nodes. A node may count in more than one place."""

    live_reported_dead: int = 0
    dead_not_reported: int = 0
    acted_twice: int = 0
    not_acted: int = 0
    """Live nodes that were not acted on, whatever was reported, and dead ones that were."""

    @property
    def total(self) -> int:
        """Zero is the only good value."""
        return self.live_reported_dead + self.dead_not_reported + self.acted_twice + self.not_acted

    def __add__(self, other: Wrong) -> Wrong:
        return Wrong(
            self.live_reported_dead + other.live_reported_dead,
            self.dead_not_reported + other.dead_not_reported,
            self.acted_twice + other.acted_twice,
            self.not_acted + other.not_acted,
        )


def count_wrong(nodes: int, dead: frozenset[int], results: Results, acts: Sequence[int]) -> Wrong:
    """Hold an answer about the nodes 1..`nodes` against the truth; `acts[n]` is how often node n was acted on."""
    status: Mapping[int, Status] = {node: outcome.status for node, outcome in results.expand().items()}
    live = [node for node in range(1, nodes + 1) if node not in dead]
    strangers = sum(1 for node in status if not 1 <= node <= nodes)
    return Wrong(
        live_reported_dead=sum(status.get(node) is not Status.OK for node in live),
        dead_not_reported=strangers + sum(status.get(node) is not Status.UNREACHED for node in dead),
        acted_twice=sum(count > 1 for count in acts),
        not_acted=sum(acts[node] == 0 for node in live) + sum(acts[node] > 0 for node in dead),
    )
