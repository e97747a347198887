"""The ports of the rules: a job, a booking, and the resource profile as rules see them.

`Rules` knows neither the queue nor the schedule, only these protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eslurm.core.model.request import Request
from eslurm.core.plan.rules.limits import Who
from eslurm.core.resources.timeline import Timeline
from eslurm.core.resources.usage import Steps
from eslurm.core.resources.vector import Vector


class JobPart(Protocol):
    """One part of a job of several parts."""

    @property
    def request(self) -> Request: ...
    @property
    def partition(self) -> str: ...


class Job(Who, Protocol):
    """A job as the rules see it; `parts` is empty for a job of one part. `Pending` is one."""

    @property
    def time_limit_us(self) -> int: ...
    @property
    def beyond_us(self) -> int: ...
    @property
    def reservation(self) -> str: ...
    @property
    def parts(self) -> Sequence[JobPart]: ...


class Booked(Protocol):
    """The amounts that a job holds for a time, at the latest until `until_us`; `spans` are (node number, amounts).

    For an array, `tasks` of its tasks share it. `parts` are (part, node number, amounts) of a job that holds nodes for
    several parts, else empty: `spans` are then sums. `adds_nodes`: its nodes count, too.
    """

    @property
    def start_us(self) -> int: ...
    @property
    def stop_us(self) -> int: ...
    @property
    def until_us(self) -> int: ...
    @property
    def spans(self) -> Sequence[tuple[int, Vector]]: ...
    @property
    def wide(self) -> Vector: ...
    @property
    def tasks(self) -> int: ...
    @property
    def parts(self) -> Sequence[tuple[int, int, Vector]]: ...
    @property
    def adds_nodes(self) -> bool: ...


class Future(Protocol):
    """The queries of the rules to the resource profile."""

    def steps(self, resource: int) -> Steps:
        """The use of a node resource, on all nodes together (sRS); read-only, until a booking changes."""
        ...

    def wide_used(self, index: int) -> Timeline:
        """The use of a cluster-wide resource."""
        ...
