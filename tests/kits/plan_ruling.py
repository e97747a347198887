"""A small world for tests of rules: nodes, a future that adds up bookings, jobs with owners."""

from __future__ import annotations

import msgspec

from eslurm.core.model.accounts import KINDS, Policy, kind_of
from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_request
from eslurm.core.plan.rules.constraints import JobRules, Rules
from eslurm.core.plan.rules.limits import Consumer, Items
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US, Timeline
from eslurm.core.resources.usage import Steps, Used, steps_of
from eslurm.core.resources.vector import Vector
from eslurm.core.resources.windows import Calendar

HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US


class Stay(msgspec.Struct, frozen=True):
    """A job's booking, as constraints see it."""

    start_us: int
    stop_us: int
    spans: tuple[tuple[int, Vector], ...]
    wide: Vector = ()
    tasks: int = 1
    parts: tuple[tuple[int, int, Vector], ...] = ()
    adds_nodes: bool = True

    @property
    def until_us(self) -> int:
        return self.stop_us


class Future:
    """The sums of what is booked; there is always room."""

    def __init__(self, topology: Topology) -> None:
        self.lines = [Timeline(10**12) for _ in topology.resources]
        self.wide_lines = [Timeline(total) for total in topology.wide_totals]

    def steps(self, resource: int) -> Steps:
        return steps_of(self.lines[resource])

    def wide_used(self, index: int) -> Timeline:
        return self.wide_lines[index].copy()

    def book(self, stay: Stay) -> None:
        for _, amounts in stay.spans:
            for index, amount in enumerate(amounts):
                if amount:
                    self.lines[index].increment(stay.start_us, stay.stop_us, amount)
        for index, amount in enumerate(stay.wide):
            if amount:
                self.wide_lines[index].increment(stay.start_us, stay.stop_us, amount)


class World:
    """`nodes` equal nodes of 16 cores, the last `gpu_nodes` of them with 4 GPUs, and 10 licences."""

    def __init__(
        self,
        *policies: Policy,
        nodes: int = 100,
        gpu_nodes: int = 8,
        now_us: int = 0,
        calendar: Calendar | None = None,
    ) -> None:
        views = [
            NodeView(
                number,
                f"n{number:03d}",
                (16, 65_536, 4 if number >= nodes - gpu_nodes else 0),
                partitions=("main",),
                features=("gpunode",) if number >= nodes - gpu_nodes else (),
            )
            for number in range(nodes)
        ]
        self.topology = Topology(views, resources=(Resource("gpu"), Resource("matlab", wide_total=10)))
        self.future = Future(self.topology)
        named: dict[str, dict[str, Policy]] = {kind: {} for kind in KINDS}
        for policy in policies:
            named[kind_of(policy)][policy.name] = policy
        self.rules = Rules(named, self.topology, self.future, now_us=now_us, calendar=calendar)

    def need(self, cores: int = 1, gpus: int = 0, licences: int = 0, **request: int) -> CompiledRequest:
        asked = Request(
            tasks=cores,
            wide=(("matlab", licences),) if licences else (),
            per_node=(("gpu", gpus),) if gpus else (),
            **request,  # type: ignore[arg-type]
        )
        return compile_request(asked, PartitionView("main"), self.topology)

    def of(self, job: Pending, cores: int = 1, gpus: int = 0, licences: int = 0) -> JobRules:
        return self.rules.of(job, self.need(cores, gpus, licences))

    def book(self, job: Pending, start_us: int, stop_us: int, amounts: Vector, wide: Vector = ()) -> Stay:
        stay = Stay(start_us, stop_us, ((0, amounts),), wide)
        self.future.book(stay)
        self.rules.book(job, stay)
        return stay


def job(user: str = "ada", *, hours: float = 1, groups: tuple[str, ...] = ("100",), **fields: str) -> Pending:
    """A job of one user; `hours` of 0: without a time limit."""
    return Pending(
        1, Request(), "main", time_limit_us=int(hours * HOUR_US), user=user, groups=groups, **fields
    )


def earliest(rules: JobRules, duration_us: int, from_us: int = 0, until_us: int = INFINITY_US) -> int | None:
    """The first instant all constraints agree on."""
    at_us, content = from_us, 0
    while content < len(rules.constraints):
        for constraint in rules.constraints:
            found_us = constraint.earliest(duration_us, at_us, until_us)
            if found_us is None:
                return None
            content = content + 1 if found_us == at_us else 1
            at_us = found_us
    return at_us


def used_by(rules: JobRules, consumer: Consumer) -> Used | None:
    """The amounts that a consumer uses, as the limit on its items counts them."""
    return next(
        (one.used for one in rules.constraints if isinstance(one, Items) and one.ask.consumer == consumer),
        None,
    )
