"""Index of what the steps of each job take of its resources, and of the steps that wait for their turn.

Invariant: it is a pure function of the steps' records (`replay.state_check` compares). A step takes what its claim says on
each node that still holds its tasks; a step without a claim takes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from eslurm.core.model.amounts import Vector
from eslurm.core.model.step import Step, StepState

Place = tuple[int, int]
"""(component, node)."""
Device = tuple[int, int]
"""(index of a resource, number of the device)."""


class Taken:
    """The amounts that steps take of one part of a job on one node: amounts by resource, and numbered devices."""

    __slots__ = ("amounts", "devices", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.amounts: list[int] = []
        self.devices: set[Device] = set()

    def add(self, amounts: Vector, devices: Sequence[Device], sign: int) -> None:
        """Add what a step takes, or with sign -1 what it has taken."""
        self.steps += sign
        self.amounts += [0] * (len(amounts) - len(self.amounts))
        for index, amount in enumerate(amounts):
            self.amounts[index] += sign * amount
        if sign > 0:
            self.devices.update(devices)
        else:
            self.devices.difference_update(devices)

    def of(self, index: int) -> int:
        """The amount of one resource."""
        return self.amounts[index] if index < len(self.amounts) else 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Taken)
            and (self.steps, self.devices) == (other.steps, other.devices)
            and all(self.of(at) == other.of(at) for at in range(max(len(self.amounts), len(other.amounts))))
        )

    __hash__ = None  # type: ignore[assignment]


class StepUse:
    """`taken` is what steps take, by job and place; `waiting` are steps that wait, by job in order of arrival."""

    def __init__(self) -> None:
        self.taken: dict[int, dict[Place, Taken]] = {}
        self.waiting: dict[int, list[int]] = {}
        self.due: dict[int, None] = {}
        """Jobs of which the first step that waits may have its turn: the reactor's."""

    def add(self, step: Step) -> None:
        """Count a step's record."""
        self._count(step, 1)
        if step.state is StepState.WAITING:
            insort(self.waiting.setdefault(step.job_id, []), step.step)

    def remove(self, step: Step) -> None:
        """Undo `add`."""
        self._count(step, -1)
        if step.state is StepState.WAITING:
            waiting = self.waiting[step.job_id]
            del waiting[bisect_left(waiting, step.step)]
            if not waiting:
                del self.waiting[step.job_id]
                self.due.pop(step.job_id, None)

    def _count(self, step: Step, sign: int) -> None:
        if not step.holding:
            return
        places = self.taken.setdefault(step.job_id, {})
        for place, amounts, devices in taken_by(step):
            taken = places.get(place)
            if taken is None:
                taken = places[place] = Taken()
            taken.add(amounts, devices, sign)
            if not taken.steps:
                del places[place]
        if not places:
            del self.taken[step.job_id]


def taken_by(step: Step) -> Iterator[tuple[Place, Vector, list[Device]]]:
    """The amounts and devices that a step takes on each node that it holds."""
    launch = step.launch
    for (node, _), amounts in zip(launch.layout, launch.takes, strict=False):
        if node in step.holding:
            devices = [
                (index, number) for at, index, numbers in launch.devices if at == node for number in numbers
            ]
            yield (launch.component, node), amounts, devices
