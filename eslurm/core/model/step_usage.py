"""The use of a live step: as one node measures it, and of all its nodes together.

Amounts are kept by tasks: a task is its process and all that descends from it. Merging is a sum and the extremes, so the
order of the nodes decides nothing but which of two equal extremes is named: the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

STEPS_MEASURED_MAX: Final = 16
"""Steps that one question is about."""
NODES_MEASURED_MAX: Final = 1_024
"""Nodes that one question goes to."""
PIDS_TOLD_MAX: Final = 256
"""Processes that a node names in an answer, of all steps that it is about."""
MEASURED_BYTES_MAX: Final = 8_192
"""A node's answer; a longer one is an error of its agent."""


class Amount(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one kind: the sum over all tasks, and the task that uses most and the one that uses least, by their ranks."""

    total: int = 0
    most: int = 0
    most_task: int = 0
    least: int = 0
    least_task: int = 0


class StepUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node's measurement of its tasks of a step. Fields are only ever appended.

    `memory_kib` and `virtual_kib` are a task's present use, or the largest that one of its processes has had if that is
    more. `faults` are page faults that took the disk. `is_partial`: it has more processes than are looked at.

    `local_ranks` are parallel to `pids`: the rank on this node of a task's own process, -1 of any other. `first_task` is the
    rank of the node's first task.
    """

    step: int
    tasks: int
    cpu_us: Amount = Amount()
    memory_kib: Amount = Amount()
    virtual_kib: Amount = Amount()
    faults: Amount = Amount()
    pids: tuple[int, ...] = ()
    is_partial: bool = False
    local_ranks: tuple[int, ...] = ()
    first_task: int = 0


class Measured(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Payload of an ok answer to `protocol.Measure`: the steps that have living tasks on the node."""

    uses: tuple[StepUse, ...] = ()


class PlacedAmount(msgspec.Struct, frozen=True):
    """An amount of all nodes; the extremes with the number of their node (-1: none has answered)."""

    total: int = 0
    most: int = 0
    most_task: int = 0
    most_node: int = -1
    least: int = 0
    least_task: int = 0
    least_node: int = -1


class StepUsage(msgspec.Struct, frozen=True):
    """A step's use on all nodes that have measured it."""

    step: int
    nodes: tuple[int, ...]
    tasks: int
    cpu_us: PlacedAmount
    memory_kib: PlacedAmount
    virtual_kib: PlacedAmount
    faults: PlacedAmount
    named: tuple[tuple[int, StepUse], ...] = ()
    """(node, its measurement) of nodes that have named processes."""
    is_partial: bool = False


_decoder = msgspec.msgpack.Decoder(Measured)


def amount_of(values: Sequence[tuple[int, int]]) -> Amount:
    """The amount of tasks, each (rank, value); of none it is zero."""
    if not values:
        return Amount()
    most = max(values, key=lambda one: one[1])
    least = min(values, key=lambda one: one[1])
    return Amount(sum(value for _, value in values), most[1], most[0], least[1], least[0])


def read_measured(payload: bytes) -> Measured | None:
    """A node's answer; None when it is too long or cannot be read."""
    if len(payload) > MEASURED_BYTES_MAX:
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def merged(uses: Sequence[tuple[int, StepUse]]) -> StepUsage:
    """One step's use, from (node, its measurement) of at least one node."""
    return StepUsage(
        step=uses[0][1].step,
        nodes=tuple(node for node, _ in uses),
        tasks=sum(use.tasks for _, use in uses),
        cpu_us=_placed(uses, lambda use: use.cpu_us),
        memory_kib=_placed(uses, lambda use: use.memory_kib),
        virtual_kib=_placed(uses, lambda use: use.virtual_kib),
        faults=_placed(uses, lambda use: use.faults),
        named=tuple((node, use) for node, use in uses if use.pids),
        is_partial=any(use.is_partial for _, use in uses),
    )


def _placed(uses: Iterable[tuple[int, StepUse]], kind: Callable[[StepUse], Amount]) -> PlacedAmount:
    amounts = [(node, kind(use)) for node, use in uses if use.tasks]
    if not amounts:
        return PlacedAmount()
    most_node, most = max(amounts, key=lambda one: one[1].most)
    least_node, least = min(amounts, key=lambda one: one[1].least)
    return PlacedAmount(
        sum(amount.total for _, amount in amounts),
        *(most.most, most.most_task, most_node),
        *(least.least, least.least_task, least_node),
    )
