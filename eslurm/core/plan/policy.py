"""The planning port inside the core: what a policy is, and the workbench a cycle gives it.

A policy decides the order and the rules; placing, holding and accounting for work done are the
`Cycle`'s. Invariant: the scratch ledger always contains every placement made so far, so no
policy can give the same thing away twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, Protocol

import msgspec

from eslurm.core.plan.explain import NOT_EXAMINED, Why
from eslurm.core.plan.mapping import Placement, Shares, end_of, spans_in_slices
from eslurm.core.plan.need import Need, compile_need
from eslurm.core.plan.promise import Promise
from eslurm.core.plan.queue import Pending
from eslurm.core.plan.snapshot import Snapshot
from eslurm.core.resources.ledger import Ledger, Overdue


class PlanLimits(msgspec.Struct, frozen=True):
    """Bounds of one cycle.

    `tries_max` bounds the jobs tried behind the first blocked one, `searches_max` the promises
    searched anew; `slice_steps` is the work between two yields in units of about a microsecond;
    a hold past its end is expected back after `overdue_grace_us`; a promise is computed anew
    after `promise_refresh_us`.
    """

    placements_max: int = 1_000
    examined_max: int = 10_000
    tries_max: int = 1_000
    searches_max: int = 8
    slice_steps: int = 1_000
    overdue_grace_us: int = 30_000_000
    promise_refresh_us: int = 1_000_000


class Plan(msgspec.Struct, frozen=True):
    """What a cycle decided: starts in order, promises, and why the examined others wait."""

    generation: int
    made_us: int
    placements: tuple[Placement, ...]
    promises: tuple[Promise, ...]
    waiting: dict[int, Why]
    rest: Why
    examined: int

    def why(self, job_id: int) -> Why:
        """The reason a pending job was not placed; those not examined have one in common."""
        return self.waiting.get(job_id, self.rest)


class Policy(Protocol):
    """A rule for who starts when. It holds no state between cycles."""

    @property
    def name(self) -> str: ...

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """Places jobs on the cycle; yields whenever `cycle.spend` says so."""
        ...


# Costs in the unit of `PlanLimits.slice_steps`.
SKIP_STEPS: Final = 1
TRY_STEPS: Final = 20
SPAN_STEPS: Final = 4


class Cycle:
    """One run of a policy over one snapshot."""

    __slots__ = (
        "_emptied",
        "_needs",
        "_steps",
        "examined",
        "kept",
        "ledger",
        "limits",
        "overdue",
        "placements",
        "promises",
        "reach",
        "rest",
        "searches",
        "snapshot",
        "waiting",
    )

    def __init__(self, snapshot: Snapshot, limits: PlanLimits, kept: Iterable[Promise] = ()) -> None:
        self.snapshot = snapshot
        self.limits = limits
        self.kept = {promise.job_id: promise for promise in kept}
        self.ledger = snapshot.ledger.fork()
        self.overdue = Overdue(snapshot.now_us, limits.overdue_grace_us)
        self.placements: list[Placement] = []
        self.promises: list[Promise] = []
        self.waiting: dict[int, Why] = {}
        self.rest = NOT_EXAMINED
        self.examined = 0
        self.searches = 0
        self.reach = self._reachable()
        self._needs: dict[int, Need] = {}
        self._emptied: Ledger | None = None
        self._steps = 0

    @property
    def saturated(self) -> bool:
        """Whether no node of any partition that is up has a core free: nothing more can start."""
        return not self.ledger.open & self.reach

    @property
    def full(self) -> bool:
        """Whether the cycle has placed as many as it may."""
        return len(self.placements) >= self.limits.placements_max

    @property
    def exhausted(self) -> bool:
        """Whether the cycle has placed or examined as much as it may."""
        return self.full or self.examined >= self.limits.examined_max

    def spend(self, steps: int) -> bool:
        """Accounts for work done; true when it is time to yield."""
        self._steps += steps
        if self._steps < self.limits.slice_steps:
            return False
        self._steps = 0
        return True

    def need(self, shape: int, job: Pending) -> Need:
        """The compiled need of a shape of jobs."""
        found = self._needs.get(shape)
        if found is None:
            partition = self.snapshot.partitions[job.partition]
            found = compile_need(job.request, partition, self.ledger.topology, job.avoid)
            self._needs[shape] = found
        return found

    def emptied(self) -> Ledger:
        """The usable nodes with nothing held: what could be free at the very best."""
        if self._emptied is None:
            self._emptied = self.ledger.emptied()
        return self._emptied

    def members(self, partition: str) -> int:
        """The positions of a partition."""
        return self.ledger.topology.partitions.get(partition, 0)

    def take(self, job: Pending, need: Need, shares: Shares) -> Generator[None, None, Placement]:
        """Books one placement on the scratch ledger; yields between slices of a large one."""
        until_us = end_of(self.snapshot.now_us, job.time_limit_us)
        spans = yield from spans_in_slices(self.ledger.topology, need, shares)
        placement = Placement(job.job_id, spans, until_us)
        for span in spans:
            self.ledger.hold(span.node, span.amounts, until_us)
            if self.spend(SPAN_STEPS):
                yield
        self.placements.append(placement)
        return placement

    def finish(self) -> Plan:
        """The plan so far."""
        placed = {placement.job_id for placement in self.placements}
        promised = {promise.job_id for promise in self.promises}
        # A promise whose job was not reached this time stays as it was until its start.
        untouched = [
            promise
            for job_id, promise in self.kept.items()
            if job_id not in promised
            and job_id not in placed
            and job_id not in self.waiting
            and promise.start_us > self.snapshot.now_us
        ]
        return Plan(
            generation=self.snapshot.generation,
            made_us=self.snapshot.now_us,
            placements=tuple(self.placements),
            promises=(*self.promises, *untouched),
            waiting=self.waiting,
            rest=self.rest,
            examined=self.examined,
        )

    def _reachable(self) -> int:
        reach = 0
        for name, partition in self.snapshot.partitions.items():
            if partition.up:
                reach |= self.members(name)
        return reach
