"""Several clusters in one time, with one network between them and one store: the federation of one seed.

Invariant: each cell's own events are those of an ordinary cluster of its own seed; what cells have in common is drawn here.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from functools import partial

from eslurm.core.federation.actions import Action, CellAnswer, CellCall
from eslurm.core.federation.membership import Standing
from eslurm.core.model.federation import FederationConfig
from eslurm.core.model.units import SECOND_US
from eslurm.lab.kv.linearizable import Call
from eslurm.lab.sim.federation.cell import Cell
from eslurm.lab.sim.federation.checks import LOOK_US, FederationChecks
from eslurm.lab.sim.federation.coverage import FederationCoverage
from eslurm.lab.sim.federation.fault_actions import ACTIONS, FederationFaults
from eslurm.lab.sim.federation.health import Health
from eslurm.lab.sim.federation.part import Part, Witness
from eslurm.lab.sim.federation.plan import CellPlan, FederationPlan
from eslurm.lab.sim.federation.probe import Probe
from eslurm.lab.sim.federation.span_checks import SpanChecks
from eslurm.lab.sim.federation.transfer_checks import TransferChecks
from eslurm.lab.sim.kv_hosts import KvHosts
from eslurm.lab.sim.network import Network
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.lab.sim.world import START_US, Trace, World
from eslurm.ports.kv import KvError

FEDERATION = "lab"
MOVABLE_BURSTS_MAX = 6
SPANNING_BURSTS_MAX = 4
MEETING_WITHIN_US = SECOND_US
"""Jobs that meet are submitted within this time,"""
MEETING_US = 60 * SECOND_US
"""and cancelled after so long: nodes that are drained, or a rule, may keep some from ever starting."""
MENDED_US = SECOND_US // 2
"""Before the calm begins, everything that lasts is mended."""


class FederatedWorld:
    """All of it. `trace`, if given, gets every event; those of a cell end with its name."""

    def __init__(self, seed: int, plan: FederationPlan, trace: Trace | None = None) -> None:
        self.seed = seed
        self.plan = plan
        self.scheduler = Scheduler(START_US)
        self.network = Network(self.scheduler, f"{seed}/between", self._observe)
        self.store = KvHosts(self, f"{seed}/store")
        self.store_health = Health(self.scheduler)
        self.coverage = FederationCoverage(self.store.image)
        self.trace = trace
        self.own_faults = 0
        self.history: list[Call] = []
        self._hash = 0
        self._starts: dict[str, int] = {}
        config = FederationConfig(FEDERATION, "", plan.lease_s)
        self.transfers = TransferChecks(self.store.image, FEDERATION, self.coverage.count)
        self.spans = SpanChecks(self.coverage.count)
        self.cells: Sequence[Cell] = [self._make_cell(one) for one in plan.cells]
        self.checks = FederationChecks(self, config)
        self._probes = [
            Probe(self, number, self.store.addresses, str(seed), self.history)
            for number in range(plan.probes)
        ]

    def _make_cell(self, plan: CellPlan) -> Cell:
        world = World(plan.seed, plan.nodes, self._traced(plan.site), plan.faults, self.scheduler)
        world.actions = plan.requests
        world.movable_bursts = random.Random(f"{plan.seed}/movable bursts").randint(2, MOVABLE_BURSTS_MAX)
        world.spanning_bursts = random.Random(f"{plan.seed}/spanning bursts").randint(1, SPANNING_BURSTS_MAX)
        config = FederationConfig(FEDERATION, plan.name, self.plan.lease_s)
        standing = partial(self._on_standing, plan.name)
        witness = Witness(self._on_failed, standing, self.coverage.on_end, self._on_called, self._is_calm)
        return Cell(
            self,
            self.store.addresses,
            config,
            plan.site,
            world,
            Health(self.scheduler),
            witness,
            (self.transfers, self.spans),
        )

    def start(self) -> None:
        """Switch everything on."""
        self.store.start()
        for cell, plan in zip(self.cells, self.plan.cells, strict=True):
            self.scheduler.call_in(plan.begin_us, cell.world.start)
        for at_us, kind in self.plan.events:
            self.scheduler.call_in(at_us, partial(self._strike, at_us, kind))
        for probe in self._probes:
            probe.start(START_US + self.plan.calm_us)
        self._look()

    def meet(self) -> None:
        """Users of all cells want more than half of all nodes at once, and more than one cell has."""
        rng = random.Random(f"{self.seed}/meeting")
        cells = [cell for cell in self.cells if not cell.is_refused]
        sizes = [len(cell.world.names) for cell in cells]
        nodes = rng.randint(min(sum(sizes), max(*sizes, sum(sizes) // 2) + 1), sum(sizes))
        self.spans.meet(self.scheduler.at_us)
        for cell in cells:
            for _ in range(rng.randint(1, 2)):
                within_us = rng.randint(0, MEETING_WITHIN_US)
                cell.world.client.later(within_us, cell.world.client.submit_meeting, nodes, MEETING_US)

    # ---- names and times ----

    def new_name(self, address: str) -> str:
        """A name for the next process at this address."""
        self._starts[address] = self._starts.get(address, 0) + 1
        return f"{address}#{self._starts[address]}"

    def shorten(self, for_us: int) -> int:
        """So much time, or what is left until everything has to be mended."""
        return max(0, min(for_us, START_US + self.plan.calm_us - MENDED_US - self.scheduler.at_us))

    @property
    def now_us(self) -> int:
        """Microseconds since the run began."""
        return self.scheduler.at_us - START_US

    # ---- faults ----

    def _strike(self, at_us: int, kind: str) -> None:
        rng = random.Random(f"{self.seed}/{at_us}/{kind}")
        ACTIONS[kind](FederationFaults(self, rng))

    def note_fault(self, kind: str, what: str) -> None:
        """Count a fault that really happened."""
        self.own_faults += 1
        self.note(f"FAULT {kind} {what}")

    # ---- watching ----

    @property
    def events_hash(self) -> int:
        """Equal for equal runs."""
        return zlib.crc32(str([cell.world.events_hash for cell in self.cells]).encode(), self._hash)

    def note(self, text: str) -> None:
        """Add a line to the story of this run."""
        self._hash = zlib.crc32(f"{self.scheduler.at_us} {text}".encode(), self._hash)
        if self.trace is not None:
            self.trace(self.now_us, text)

    def _observe(self, kind: str, source: str, target: str, message: object) -> None:
        text = f"{kind} {source} {target} {type(message).__name__}"
        self._hash = zlib.crc32(f"{self.scheduler.at_us} {text}".encode(), self._hash)
        if self.trace is not None:
            self.trace(self.now_us, f"{kind} {source} -> {target} {message}")

    def _traced(self, cell: str) -> Trace | None:
        trace = self.trace
        return None if trace is None else lambda at_us, text: trace(at_us, f"{text} @{cell}")

    def _on_failed(self, part: Part, action: Action, error: KvError) -> None:
        self.coverage.on_failed(part, action, error)
        self.note(f"failed {part.address} {type(action).__name__} {type(error).__name__}: {error}")

    def _on_standing(self, cell: str, part: Part, standing: Standing) -> None:
        self.coverage.on_standing(cell, part, standing)
        self.note(f"standing {part.address} epoch {part.epoch} {standing.value}")

    def _on_called(self, part: Part, action: CellCall, answer: CellAnswer) -> None:
        self.transfers.on_called(action, answer)
        self.note(f"called {part.address} {action} {answer}")

    def _is_calm(self) -> bool:
        return self.now_us >= self.plan.calm_us

    def _look(self) -> None:
        self.scheduler.call_in(LOOK_US, self._look)
        self.checks.look()

    @property
    def paths(self) -> dict[str, int]:
        """Counts of rare paths."""
        elected = len(self.store.ensemble.elections) - 1
        return {**self.coverage.counts, "store elected another leader": elected}

    def why_unsettled(self) -> str:
        """The reason why it is not quiet; empty when it is."""
        for cell in self.cells:
            if why := cell.world.why_unsettled():
                return f"cell {cell.name}: {why}"
        return self.checks.unsettled()

    def final_check(self) -> None:
        """All is calm and done: was it done right?"""
        for cell in self.cells:
            cell.world.final_check()
        self.checks.at_end()
        self.transfers.at_end()
        self.spans.at_end(self.cells)
