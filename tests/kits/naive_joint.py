"""Every way to place the parts of one job, by trying: for clusters of some nodes and parts of some tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import TypeAlias

from eslurm.core.model.request import Request
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.vector import Vector, add, fits, subtract

Places: TypeAlias = dict[int, Vector]
"""Amounts by position."""

Part: TypeAlias = tuple[Request, str]
"""A request and its partition."""


def is_possible(parts: Sequence[Part], free: Sequence[Vector], licences: int, cluster: Ledger) -> bool:
    """Check whether all parts fit these free amounts together, on the nodes of `cluster`."""
    if sum(items for request, _ in parts for _, items in request.wide) > licences:
        return False
    ways = [list(_ways(part, free, cluster)) for part in parts]
    order = sorted(range(len(parts)), key=lambda index: len(ways[index]))
    return _fit(parts, ways, order, list(free), set())


def _fit(
    parts: Sequence[Part],
    ways: Sequence[Sequence[Places]],
    order: Sequence[int],
    free: list[Vector],
    alone: set[int],
) -> bool:
    if not order:
        return True
    first = order[0]
    for way in ways[first]:
        if alone & way.keys() or not all(fits(amounts, free[position]) for position, amounts in way.items()):
            continue
        left = list(free)
        for position, amounts in way.items():
            left[position] = subtract(left[position], amounts)
        taken = alone | set(way) if parts[first][0].exclusive else alone
        if _fit(parts, ways, order[1:], left, taken):
            return True
    return False


def _ways(part: Part, free: Sequence[Vector], cluster: Ledger) -> Iterator[Places]:
    """Each way to place one part alone; an exclusive one takes all of idle nodes."""
    request, partition = part
    topology = cluster.topology
    members = topology.partitions.get(partition, 0)
    if request.constraint:
        members &= topology.mask_of_constraint(request.constraint)
    named = {topology.positions_by_name[name] for name in request.include}
    allowed = [
        position
        for position in range(topology.size)
        if members >> position & 1 and (not request.exclusive or free[position] == topology.totals[position])
    ]
    seen: set[tuple[tuple[int, Vector], ...]] = set()
    for way in _chunked(request, allowed) if request.chunks else _tasked(request, allowed):
        if not named <= way.keys() or not all(fits(way[position], free[position]) for position in way):
            continue
        if request.exclusive:
            way = {position: topology.totals[position] for position in way}
        key = tuple(sorted(way.items()))
        if key not in seen:
            seen.add(key)
            yield way


def _tasked(request: Request, allowed: Sequence[int]) -> Iterator[Places]:
    unit = (request.cpus_per_task, 0, sum(items for _, items in request.per_task))
    once = (0, request.memory_per_node_mib, sum(items for _, items in request.per_node))
    least, most = (1, request.tasks) if not request.nodes_min else (request.nodes_min, request.nodes_max)
    if request.tasks == 1 and not request.nodes_min:
        most = 1
    for width in range(least, most + 1):
        for nodes in combinations(allowed, width):
            tasks = max(request.tasks, width)
            for cuts in combinations(range(1, tasks), width - 1):
                shares = [after - before for before, after in zip((0, *cuts), (*cuts, tasks), strict=True)]
                yield {
                    node: add(tuple(amount * share for amount in unit), once)
                    for node, share in zip(nodes, shares, strict=True)
                }


def _chunked(request: Request, allowed: Sequence[int]) -> Iterator[Places]:
    units = [
        (chunk.cores, chunk.memory_mib, sum(items for _, items in chunk.resources))
        for chunk in request.chunks
        for _ in range(chunk.count)
    ]
    for places in product(allowed, repeat=len(units)):
        if request.place == "scatter" and len(set(places)) < len(places):
            continue
        if request.place == "pack" and len(set(places)) > 1:
            continue
        way: Places = {}
        for position, unit in zip(places, units, strict=True):
            way[position] = add(way[position], unit) if position in way else unit
        yield way


Stay: TypeAlias = tuple[int, int]
"""Start and end."""


def is_possible_in_time(parts: Sequence[Part], stays: Sequence[Stay], cluster: Ledger) -> bool:
    """Check whether all parts, each over its own stay, fit the empty nodes beside each other."""
    topology = cluster.topology
    kept = [
        max([cores for cores, mask in topology.kept if mask >> position & 1], default=0)
        for position in range(topology.size)
    ]
    free = list(topology.totals)
    ways = [list(_ways(part, free, cluster)) for part in parts]
    plain = [_is_plain(request) for request, _ in parts]
    for index, own in enumerate(ways):
        if plain[index]:
            ways[index] = [
                way
                for way in own
                if all(amounts[0] + kept[position] <= free[position][0] for position, amounts in way.items())
            ]
    order = sorted(range(len(parts)), key=lambda index: len(ways[index]))
    placed: list[tuple[int, Places]] = []

    def fits_beside(index: int, way: Places) -> bool:
        beside = [
            (other, there)
            for other, there in placed
            if stays[other][0] < stays[index][1] and stays[index][0] < stays[other][1]
        ]
        instants = {stays[index][0], *[max(stays[other][0], stays[index][0]) for other, _ in beside]}
        for at in instants:
            for position, amounts in way.items():
                running = [
                    (other, there[position])
                    for other, there in beside
                    if position in there and stays[other][0] <= at < stays[other][1]
                ]
                running.append((index, amounts))
                if len(running) > 1 and any(parts[other][0].exclusive for other, _ in running):
                    return False
                together = running[0][1]
                for _, more in running[1:]:
                    together = add(together, more)
                cores = sum(more[0] for other, more in running if plain[other])
                if not fits(together, free[position]) or (
                    cores + kept[position] > free[position][0] and cores
                ):
                    return False
        return True

    def fit(left: Sequence[int]) -> bool:
        if not left:
            return True
        for way in ways[left[0]]:
            if fits_beside(left[0], way):
                placed.append((left[0], way))
                if fit(left[1:]):
                    return True
                placed.pop()
        return False

    return fit(order)


def _is_plain(request: Request) -> bool:
    return not (request.per_node or request.per_task or any(chunk.resources for chunk in request.chunks))
