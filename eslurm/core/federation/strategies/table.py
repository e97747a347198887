"""The strategies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from eslurm.core.federation.strategies.balanced import Balanced
from eslurm.core.federation.strategies.cached import Cached
from eslurm.core.federation.strategies.interface import Counts, Strategy
from eslurm.core.federation.strategies.joint import Joint
from eslurm.core.federation.strategies.sampling import Sampling
from eslurm.core.federation.strategies.sorted import Sorted
from eslurm.core.federation.strategies.stealing import Stealing
from eslurm.core.federation.strategies.subscribed import Subscribed
from eslurm.core.federation.strategies.tickets import Tickets

Maker: TypeAlias = Callable[[int, Sequence[int], Counts], Strategy]
"""From the own cell, all cells, and what summaries say."""

STRATEGIES: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "stealing": lambda own, cells, counts: Stealing(own, cells),
        "cached": lambda own, cells, counts: Cached(own, cells),
        "sorted": Sorted,
        "subscribed": lambda own, cells, counts: Subscribed(own, cells),
        "sampling": lambda own, cells, counts: Sampling(own, cells),
        "balanced": lambda own, cells, counts: Balanced(own, cells),
        "joint": lambda own, cells, counts: Joint(own, cells),
        "tickets": lambda own, cells, counts: Tickets(own, cells),
    }
)
