"""Health checks of a simulated cluster: which there are, when they fail, and what must hold of their nodes (ADR 54).

Invariants: they are functions of the seed and of time, and take nothing from its other draws; no job is placed on a node
of which the controller knows that a check fails there.
"""

from __future__ import annotations

import random
from typing import Final

from eslurm.core.model import facts
from eslurm.core.model.node_health import CheckTerms
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim.violation import require

HEALTH_FROM: Final = 100_000_000
"""Earlier seeds keep the worlds that they had before nodes had health checks."""
WORLDS_SHARE: Final = 0.4
NODES_MAX: Final = 64
FAILING_SHARE: Final = 0.08
"""Of the spans of time in which a check of a node fails."""
SPAN_US: Final = 9 * SECOND_US
RUN_US_MAX: Final = 800_000
CHECKS: Final = (CheckTerms("disk", 3), CheckTerms("net", 5, "idle"), CheckTerms("gpu", 4, "allocated"))


def draw_share(seed: int, nodes: int) -> float:
    """The share of time for which each check of a seed's nodes fails; 0: they have none."""
    if seed < HEALTH_FROM or nodes > NODES_MAX:
        return 0.0
    return FAILING_SHARE if random.Random(f"{seed}/health").random() < WORLDS_SHARE else 0.0


def run_of(seed: int, name: str, check: str, share: float, at_us: int) -> tuple[int, str | None]:
    """A run of a check that begins now: its duration, and how it fails (None: it passes)."""
    draw = random.Random(f"{seed}/health/{name}/{check}/{at_us // SPAN_US}")
    fails = draw.random() < share
    length_us = int(random.Random(f"{seed}/health/{name}/{check}/{at_us}").random() * RUN_US_MAX)
    return length_us, f"{check} is broken" if fails else None


class HealthFollower:
    """Told of every fact. `taken_out` counts checks that failed, `kept_away` nodes that were out while a job was placed."""

    def __init__(self) -> None:
        self.taken_out = self.returned = self.kept_away = 0

    def on_fact(self, state: State, fact: facts.Fact) -> None:
        """Check a fact that is applied."""
        match fact:
            case facts.NodeHealthReported():
                self.taken_out += bool(fact.failing)
                self.returned += not fact.failing
            case facts.JobPlaced() | facts.GrowthPlaced():
                for span in fact.spans:
                    failing = [fault.check for fault in state.nodes[span.node].faults if fault.check]
                    require(
                        not failing, f"job {fact.job_id} is placed on node {span.node}, where {failing} fail"
                    )
                self.kept_away += sum(
                    any(fault.check for fault in node.faults) for node in state.nodes.values() if node.faults
                )

    def unsettled(self, state: State) -> str:
        """A check that still fails; empty when all pass."""
        for node in state.nodes.values():
            for fault in node.faults:
                if fault.check:
                    return f"node {node.name}: {fault.text}"
        return ""
