"""Routes between the modules of a job: a gateway for each pair of nodes, and the file that says so (X-55, X-56).

The three published formulas choose by numbers: `a` and `b` are the indices of the two nodes in their modules. A choice by
names suits names that say where a node stands. The daemons of one gateway take turns. Invariant: each line names an address
of a gateway and two nodes of different modules; a choice outside of the gateways is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from operator import add
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.core.model.gateways import GatewayStep, is_address

ROUTES_MAX: Final = 4_000_000
"""Lines of a file of routes: two modules of 1,414 nodes each."""

_NODES_MAX: Final = 16_384

ByNumbers: TypeAlias = Callable[[int, int, int, int, int], int]
"""`f(a, b, size_a, size_b, gateways)` is the index of a gateway."""
ByNames: TypeAlias = Callable[[str, str, Sequence[str]], int]
"""`f(node_a, node_b, gateways)` is the index of a gateway in that list of names."""


class RouteError(Exception):
    """No file of routes can be made; the text is one line for the job's user."""


class RoutePlugin(NamedTuple):
    """A plug-in for routes: one of the two kinds of choice."""

    name: str
    by_numbers: ByNumbers | None = None
    by_names: ByNames | None = None


def plugin1(a: int, b: int, _size_a: int, _size_b: int, gateways: int) -> int:
    """Neighbours of either node use different gateways."""
    return (a + b) % gateways


def plugin2(a: int, b: int, _size_a: int, size_b: int, gateways: int) -> int:
    """The first partner and its gateway move with `a`: for pairs of equal index, and few gateways."""
    return (a + (b - a) % size_b % gateways) % gateways


def plugin3(a: int, b: int, _size_a: int, size_b: int, gateways: int) -> int:
    """All pairs in turn: for communication of all with all."""
    return (a * size_b + b) % gateways


def nearest_name(node_a: str, node_b: str, gateways: Sequence[str]) -> int:
    """The gateway whose name begins most like those of both nodes (`rack3-gw1` for `rack3-n12`); equal ones in turn."""
    names = tuple(gateways)
    likeness = list(map(add, _likeness(node_a, names), _likeness(node_b, names)))
    most = max(likeness)
    best = [index for index, found in enumerate(likeness) if found == most]
    return best[(_number(node_a) + _number(node_b)) % len(best)]


@lru_cache(_NODES_MAX)
def _likeness(node: str, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(_alike(name, node) for name in names)


def _alike(name: str, other: str) -> int:
    """The length of what both begin with."""
    return next((at for at, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), len(name))


@lru_cache(_NODES_MAX)
def _number(name: str) -> int:
    """The digits at the end of a name."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits[-9:] or 0)


PLUGINS: Final[Mapping[str, RoutePlugin]] = MappingProxyType(
    {
        one.name: one
        for one in (
            RoutePlugin("plugin1", by_numbers=plugin1),
            RoutePlugin("plugin2", by_numbers=plugin2),
            RoutePlugin("plugin3", by_numbers=plugin3),
            RoutePlugin("names", by_names=nearest_name),
        )
    }
)
"""The plug-ins of this release."""


def route_lines(step: GatewayStep, plugin: RoutePlugin) -> Iterator[str]:
    """A line `ip:port nodeA nodeB` for each ordered pair of nodes in modules that do not reach each other directly.

    Raises `RouteError`; an exception of the plug-in is one.
    """
    names = _expand(step.names)
    if not names or len(names) != len(step.addresses) or not all(step.addresses):
        raise RouteError(f"{len(step.addresses)} addresses do not fit {len(names)} gateways")
    for address in (one for daemons in step.addresses for one in daemons):
        if not is_address(address):
            raise RouteError(f"{address[:64]!r} is not ADDRESS:PORT")
    modules = [(module, _expand(nodes)) for module, nodes in step.modules]
    direct = {frozenset(pair) for pair in step.direct}
    pairs = [
        (nodes_a, nodes_b)
        for (module_a, nodes_a), (module_b, nodes_b) in permutations(modules, 2)
        if frozenset((module_a, module_b)) not in direct
    ]
    count = sum(len(nodes_a) * len(nodes_b) for nodes_a, nodes_b in pairs)
    if count > ROUTES_MAX:
        raise RouteError(f"{count} routes are more than {ROUTES_MAX}: ask for fewer nodes")
    return _lines(names, step.addresses, pairs, plugin)


def _lines(
    names: Sequence[str],
    addresses: Sequence[Sequence[str]],
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    plugin: RoutePlugin,
) -> Iterator[str]:
    turns = [0] * len(names)
    for nodes_a, nodes_b in pairs:
        for a, node_a in enumerate(nodes_a):
            for b, node_b in enumerate(nodes_b):
                chosen = _choose(plugin, a, b, nodes_a, nodes_b, names)
                daemons = addresses[chosen]
                yield f"{daemons[turns[chosen] % len(daemons)]} {node_a} {node_b}\n"
                turns[chosen] += 1


def _choose(
    plugin: RoutePlugin, a: int, b: int, nodes_a: Sequence[str], nodes_b: Sequence[str], names: Sequence[str]
) -> int:
    chosen: object = None
    try:
        if plugin.by_numbers is not None:
            chosen = plugin.by_numbers(a, b, len(nodes_a), len(nodes_b), len(names))
        elif plugin.by_names is not None:
            chosen = plugin.by_names(nodes_a[a], nodes_b[b], names)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:200]
        raise RouteError(
            f"route plug-in {plugin.name!r} failed for {nodes_a[a]} and {nodes_b[b]}: {text}"
        ) from error
    if type(chosen) is not int or not 0 <= chosen < len(names):
        raise RouteError(
            f"route plug-in {plugin.name!r} chose gateway {str(chosen)[:64]!r} for {nodes_a[a]} and {nodes_b[b]}:"
            f" there are 0..{len(names) - 1}"
        )
    return chosen


def _expand(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except OptionError as error:
        raise RouteError(f"the launch names no nodes: {error}") from None
