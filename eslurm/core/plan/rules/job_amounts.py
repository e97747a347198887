"""Amounts of jobs as the rules count them: resources of nodes, the number of nodes, cluster-wide resources.

A job of several parts has amounts as a whole, and for each of its partitions those of the parts there. Invariant: a node
counts once in each of these sums, whatever parts share it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from eslurm.core.plan.placement import joint
from eslurm.core.plan.placement.compiled_request import CompiledRequest, amounts_of, joined
from eslurm.core.plan.placement.protocols import Assignment, JointAssignment
from eslurm.core.plan.rules.protocols import Booked, Job
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, add, padded

EXPECTED_MAX: Final = 1_024

Split: TypeAlias = tuple[tuple[str, Vector], ...]
"""Amounts of a job of several parts by partition; empty: one part."""


class JobAmounts:
    """Amounts by column: the topology's resources of nodes, nodes, its cluster-wide resources."""

    __slots__ = ("_expected", "_split", "_topology", "_wide", "_width")

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._width = len(topology.resources)
        self._wide = len(topology.wide)
        self._expected: dict[int, tuple[CompiledRequest, Vector]] = {}
        self._split: dict[int, tuple[CompiledRequest, Split]] = {}

    def expected(self, need: CompiledRequest) -> Vector:
        """Expected amounts of a job, before its nodes are known; cached by identity of the request."""
        known = self._expected.get(id(need))
        if known is None or known[0] is not need:
            if len(self._expected) >= EXPECTED_MAX:
                self._expected.clear()
            known = self._expected[id(need)] = need, self._expected_anew(need)
        return known[1]

    def expected_split(self, job: Job, need: CompiledRequest) -> Split:
        """The same of the parts in each partition, in the order of their first parts."""
        known = self._split.get(id(need))
        if known is None or known[0] is not need:
            if len(self._split) >= EXPECTED_MAX:
                self._split.clear()
            members: dict[str, list[CompiledRequest]] = {}
            for one, part in zip(need.members, job.parts, strict=True):
                members.setdefault(part.partition, []).append(one)
            split = tuple([(name, self._expected_anew(joined(own))) for name, own in members.items()])
            known = self._split[id(need)] = need, split
        return known[1]

    def assigned(self, need: CompiledRequest, chosen: Assignment, expected: Vector) -> Vector:
        """Amounts of an assignment, at least the expected ones; cluster-wide resources are as expected."""
        width, totals = self._width, self._topology.totals if need.exclusive else None
        sums: Vector = ()
        for position, amounts, _ in chosen:
            each = amounts if totals is None else totals[position]
            sums = add(sums, each) if sums else each
        if len(sums) < width:
            sums = padded(sums, width)
        return tuple(map(max, (*sums, len(chosen), *expected[width + 1 :]), expected))

    def assigned_split(
        self, job: Job, need: CompiledRequest, chosen: JointAssignment, expected: Split
    ) -> Split:
        """The same of the parts in each partition."""
        members: dict[str, list[Assignment]] = {}
        for own, part in zip(chosen.members, job.parts, strict=True):
            members.setdefault(part.partition, []).append(own)
        return tuple(
            [(name, self.assigned(need, JointAssignment(members[name]), before)) for name, before in expected]
        )

    def booked(self, booking: Booked) -> Vector:
        """Amounts of a booking. Tasks of an array are on one node each, and each counts it."""
        spans, wide, tasks = booking.spans, booking.wide, booking.tasks
        sums: Vector = ()
        for _, amounts in spans:
            sums = add(sums, amounts) if sums else amounts
        if len(sums) < self._width:
            sums = padded(sums, self._width)
        if len(wide) < self._wide:
            wide = padded(wide, self._wide)
        nodes = tasks if tasks > 1 else len(spans) if booking.adds_nodes else 0
        return (*sums, nodes, *wide)

    def booked_split(self, job: Job, booking: Booked) -> dict[str, Vector]:
        """The same of the parts in each partition."""
        names = partitions_of(job)
        none: Vector = (0,) * len(self._topology.wide)
        sums: dict[str, Vector] = dict.fromkeys(names, (0,) * self._width)
        nodes: dict[str, set[int]] = {name: set() for name in names}
        wide: dict[str, Vector] = dict.fromkeys(names, none)
        for part, node, amounts in booking.parts or [(0, *span) for span in booking.spans]:
            name = job.parts[part].partition
            sums[name] = add(sums[name], padded(amounts, self._width))
            if booking.adds_nodes:
                nodes[name].add(node)
        if any(booking.wide):
            for one in job.parts:
                own = amounts_of(one.request.wide, self._topology.wide)
                wide[one.partition] = add(wide[one.partition], own or none)
        return {name: (*sums[name], len(nodes[name]), *wide[name]) for name in names}

    def _expected_anew(self, need: CompiledRequest) -> Vector:
        nodes = joint.nodes_floor(need.members) if need.members else need.nodes_floor
        amounts = padded(need.expected, self._width)
        return (*amounts, nodes, *padded(need.wide, len(self._topology.wide)))


def partitions_of(job: Job) -> tuple[str, ...]:
    """The partitions of the parts of a job, each once; empty for a job of one part."""
    return tuple(dict.fromkeys([part.partition for part in job.parts]))
