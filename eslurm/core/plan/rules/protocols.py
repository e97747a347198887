"""The ports of the rules: what they look at in a job and in a booking, and what they ask the book of the future.

`Rules` knows neither the queue nor the schedule: whoever has these few things can be held against the policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eslurm.core.plan.rules.limits import Who
from eslurm.core.resources.timeline import Timeline
from eslurm.core.resources.usage import Steps
from eslurm.core.resources.vector import Vector


class Job(Who, Protocol):
    """What the rules look at in a job. `Pending` is one."""

    @property
    def time_limit_us(self) -> int: ...
    @property
    def beyond_us(self) -> int: ...
    @property
    def reservation(self) -> str: ...


class Booked(Protocol):
    """What a job holds for a time, at the latest until `until_us`; `spans` are (node number, amounts).

    Of an array, `tasks` of its tasks share it.
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


class Future(Protocol):
    """What the rules ask the book of the future."""

    def steps(self, resource: int) -> Steps:
        """The use of a resource of nodes, on all nodes together (sRS); to be read only, until a booking changes."""
        ...

    def wide_used(self, index: int) -> Timeline:
        """The use of a resource that belongs to no node."""
        ...
