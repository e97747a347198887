"""Variants of one part of a job of several parts: the part as a job of its own, and put back among the others.

Gateways are the last part. Users do not change it by itself: only a shorter time helps where it is what waits longest.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eslurm.core.explain.alternatives import Alternative
from eslurm.core.model.job import JobSpec
from eslurm.core.model.parts import partition_of, user_parts
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
    components = (*spec.components[:part], varied.components[0], *spec.components[part + 1 :])
    parts = [PartSpec(partition_of(spec, number), one.role) for number, one in enumerate(spec.parts)]
    parts[part] = PartSpec(varied.partition, parts[part].role)
    return replace(varied, components=components, parts=tuple(parts), partition=parts[0].partition)


def named_with_part(one: Alternative, spec: JobSpec, part: int) -> Alternative:
    """An alternative of a part that says which, unless it concerns the whole job or the only part that users know."""
    if part < 0 or one.update.startswith(_OF_JOB) or user_parts(spec) == 1:
        return one
    return replace(one, text=f"part {part}: {one.text}", part=part)


def is_gateways(spec: JobSpec, part: int) -> bool:
    """Check whether the part is the job's gateways."""
    return part >= user_parts(spec)


def named_with_job(one: Alternative, job_id: int) -> Alternative:
    """An alternative of a job of a pack that says which."""
    return replace(one, text=f"job {job_id}: {one.text}", job_id=job_id)
