"""The communication structures of E-33, each with or without satellites, on one cluster with dead nodes.

Invariant: satellites share the list by the product's own rules (E-07, E-08), and each list is put in order by
the product's own constructor; a structure without prediction keeps the order it was given.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from benchmarks.curves.parameters import ALIVE, REFUSED, SILENT, Message, System
from benchmarks.curves.walk import Walk
from eslurm.core.dispatch.satellite_pool import legs_wanted
from eslurm.core.relay.construct import TreeShape, arrange, share_out
from eslurm.core.relay.grouping import POSITIONAL, Grouping

Structure = Literal["star", "ring", "pull", "tree", "fptree"]


class Cluster(msgspec.Struct, frozen=True):
    """`states[n]` is that of node n; `predicted` nodes were thought likely to fail."""

    states: bytes
    predicted: frozenset[int] = frozenset()

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.states)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The structure in which messages travel. `root_width` is that of a satellite (0: `width`)."""

    structure: Structure
    width: int
    root_width: int = 0
    grouping: Grouping = POSITIONAL
    satellites: int = 0


def draw(
    nodes: int, failed_share: float, seed: int, recall: float = 1.0, refused_share: float = 0.0
) -> Cluster:
    """Dead nodes all over the list at random, of which the predictor knew `recall`; no false alarms.

    Of one seed a larger share has all the dead nodes of a smaller one.
    """
    dead = _fates(nodes, seed)[: round(nodes * failed_share)]
    refused = round(len(dead) * refused_share)
    states = bytearray(nodes)
    for index, node in enumerate(dead):
        states[node] = REFUSED if index < refused else SILENT
    known = random.Random(seed).sample(dead, round(len(dead) * recall))
    return Cluster(bytes(states), frozenset(known))


def broadcast_s(cluster: Cluster, layout: Layout, system: System, message: Message) -> float:
    """Seconds until the controller knows about every node.

    Raises ValueError when a width is out of range.
    """
    predicted = cluster.predicted if layout.structure == "fptree" else frozenset[int]()
    if not layout.satellites:
        return _list_s(cluster, range(cluster.nodes), predicted, layout, 0, system.leg_s, system, message)
    legs = legs_wanted(cluster.nodes, layout.width, layout.satellites)
    shares = share_out(range(cluster.nodes), predicted, legs)
    clock_s = cluster.nodes * system.construct_node_s
    arrivals: list[tuple[float, int]] = []
    for share in shares:
        clock_s += system.leg_s + message.bulk_s + len(share) * system.send_node_s
        served_s = _list_s(
            cluster, share, predicted, layout, layout.root_width, system.send_s, system, message
        )
        arrivals.append(
            (clock_s + system.dial_s + 2 * system.latency_s + system.hop_s + served_s, len(share))
        )
    for at_s, nodes in sorted(arrivals):
        clock_s = max(clock_s, at_s) + system.merge_s + nodes * system.merge_node_s
    return clock_s


def _list_s(
    cluster: Cluster,
    nodes: Sequence[int],
    predicted: frozenset[int],
    layout: Layout,
    root_width: int,
    send_s: float,
    system: System,
    message: Message,
) -> float:
    """Time of one root for its list, with its own work for each child."""
    match layout.structure:
        case "ring":
            return ring_s(_states(cluster, nodes), system, message)
        case "pull":
            return pull_s(_states(cluster, nodes), system, message)
        case "star":
            shape = TreeShape(max(1, len(nodes)))
            return Walk(system, message, shape).root_s(_states(cluster, nodes), send_s)
    shape = TreeShape(layout.width, root_width, layout.grouping)
    walk = _walk(system, message, shape)
    if layout.structure == "tree":
        return walk.root_s(_states(cluster, nodes), send_s)
    ordered = arrange(nodes, predicted, shape)
    return len(nodes) * system.construct_node_s + walk.root_s(_states(cluster, ordered), send_s)


def ring_s(states: bytes, system: System, message: Message) -> float:
    """Each node hands the message to the next one that answers; the last tells the root. No list travels."""
    live = states.count(ALIVE)
    step_s = system.send_s + message.bulk_s + system.dial_s + system.latency_s + system.hop_s
    lost_s = sum(states.count(state) * system.lost_s(state) for state in (REFUSED, SILENT))
    return live * step_s + lost_s + message.act_s + system.latency_s + system.merge_s


def pull_s(states: bytes, system: System, message: Message) -> float:
    """Every live node looks at the root's board once a period. Dead nodes delay nothing, and stay unknown."""
    live = states.count(ALIVE)
    return max(system.poll_s, live * system.read_s) + 2 * system.latency_s + message.act_s + system.read_s


def _states(cluster: Cluster, order: Sequence[int]) -> bytes:
    return cluster.states if isinstance(order, range) else bytes(map(cluster.states.__getitem__, order))


@lru_cache(maxsize=4)
def _fates(nodes: int, seed: int) -> array[int]:
    """The order in which the nodes would die."""
    order = list(range(nodes))
    random.Random(f"{nodes} {seed}").shuffle(order)
    return array("L", order)


@lru_cache(maxsize=8)
def _walk(system: System, message: Message, shape: TreeShape) -> Walk:
    return Walk(system, message, shape)
