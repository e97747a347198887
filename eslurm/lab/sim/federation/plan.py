"""The federation that a seed draws: the cells, and the faults of their store, their network and of whole cells.

Invariant: each cell is a seed of its own, with few faults within: it is the federation that is put to the test here.
"""

from __future__ import annotations

import random

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.fault_schedule import FaultPlan, draw_plan
from eslurm.lab.sim.federation.fault_actions import ACTIONS

NAMES = ("alpha", "beta", "gamma", "delta")
NODES_MIN = 3
KINDS = tuple(ACTIONS)
CALM_MIN_S, CALM_MAX_S = 60, 110
EVENTS_MAX = 9
OWN_EVENTS_MAX = 4
REQUESTS = (10, 20)
TWIN_SHARE = 0.15
"""Of federations with three cells or more, those in which two sites have one name."""
MEETING_SHARE = 0.5
"""Of federations, those whose spanning jobs meet in the end."""


class CellPlan(msgspec.Struct, frozen=True):
    """One cell, of a site whose keys are its own. `requests` is the number of requests from its users."""

    name: str
    site: str
    seed: int
    nodes: int
    faults: FaultPlan
    requests: int
    begin_us: int


class FederationPlan(msgspec.Struct, frozen=True):
    """All of it. Times are microseconds after the start; after `calm_us` no fault occurs any more."""

    cells: tuple[CellPlan, ...]
    events: tuple[tuple[int, str], ...]
    calm_us: int
    lease_s: float
    probes: int
    meets: bool = False
    """Spanning jobs of all cells meet when the rest is over."""


def draw_cells(seed: int, least: int = 2, most: int = len(NAMES)) -> int:
    """The number of cells of a seed, few more often than many."""
    share = random.Random(f"{seed}/cells").random() ** 1.5
    return least + int(share * (most - least + 1))


def draw_federation(seed: int, cells: int, nodes_max: int) -> FederationPlan:
    """The plan of a seed."""
    rng = random.Random(f"{seed}/federation")
    calm_us = rng.randint(CALM_MIN_S, CALM_MAX_S) * SECOND_US
    kinds = rng.sample(KINDS, rng.randint(3, len(KINDS)))
    events = sorted(
        (rng.randint(3 * SECOND_US, calm_us - SECOND_US), rng.choice(kinds))
        for _ in range(rng.randint(2, EVENTS_MAX))
    )
    names = list(NAMES[:cells])
    if cells > 2 and rng.random() < TWIN_SHARE:
        names[-1] = names[0]
    drawn = tuple(
        _draw_cell(rng, name, name if name not in names[:number] else f"{name}-twin", nodes_max, calm_us)
        for number, name in enumerate(names)
    )
    lease_s, probes = rng.choice((2.0, 5.0, 5.0, 8.0)), rng.randint(2, 3)
    return FederationPlan(drawn, tuple(events), calm_us, lease_s, probes, rng.random() < MEETING_SHARE)


def _draw_cell(rng: random.Random, name: str, site: str, nodes_max: int, calm_us: int) -> CellPlan:
    seed, nodes = rng.randrange(10**9), rng.randint(min(NODES_MIN, nodes_max), nodes_max)
    begin_us = rng.choice((0, 0, rng.randint(0, 20))) * SECOND_US
    calm_us -= begin_us
    plan = draw_plan(seed, nodes)
    own = [one for one in plan.events if one[0] < calm_us]
    faults = msgspec.structs.replace(
        plan,
        events=tuple(sorted(rng.sample(own, min(len(own), rng.randint(0, OWN_EVENTS_MAX))))),
        commit_crashes=rng.choice((0.0, 0.0, plan.commit_crashes)),
        calm_us=calm_us,
        ordeals=(),
    )
    return CellPlan(name, site, seed, nodes, faults, rng.randint(*REQUESTS), begin_us)
