"""Variants of one part of a job of several parts: the part as a job of its own, and put back among the others."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eslurm.core.explain.alternatives import Alternative
from eslurm.core.model.job import JobSpec
from eslurm.core.model.parts import partition_of
from eslurm.core.model.request import PartSpec

_OF_JOB: Final = ("time=", "reservation=")
"""Updates that concern all parts."""


def only_part(spec: JobSpec, part: int) -> JobSpec:
    """One part as a job of one part; `spec` itself where it has no others."""
    return replace(spec, components=(spec.components[part],), parts=(), partition=partition_of(spec, part))


def with_part(spec: JobSpec, part: int, varied: JobSpec) -> JobSpec:
    """`varied`, made of `only_part`, with the other parts of `spec`; a job of one part (-1) is varied as it is."""
    if part < 0:
        return varied
    partitions = [partition_of(spec, number) for number in range(len(spec.components))]
    partitions[part] = varied.partition
    components = (*spec.components[:part], varied.components[0], *spec.components[part + 1 :])
    return replace(
        varied, components=components, parts=tuple(map(PartSpec, partitions)), partition=partitions[0]
    )


def named_with_part(one: Alternative, part: int) -> Alternative:
    """An alternative of a part that says which, unless it concerns the whole job."""
    if one.update.startswith(_OF_JOB):
        return one
    return replace(one, text=f"part {part}: {one.text}", part=part)
