"""Comparison of requests: a job that asks for no more than another fits wherever the other would.

Invariant: "no more" never needs a node, an amount or a second that the other does not; an undecidable case counts as more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eslurm.core.model.features import terms
from eslurm.core.model.job import NO_LIMIT, JobSpec
from eslurm.core.model.request import Chunk, Request

_ALIKE = ("partition", "parts", "account", "qos", "reservation", "start_at_us", "begin_us", "deadline_us")


def asks_for_more(old: JobSpec, new: JobSpec) -> bool:
    """Check whether the new request asks for more than the old one, or for something else."""
    if any(getattr(old, name) != getattr(new, name) for name in _ALIKE):
        return True
    if old.time_limit_s != NO_LIMIT and not 0 < new.time_limit_s <= old.time_limit_s:
        return True
    if len(old.components) != len(new.components):
        return True
    return not all(_is_within(*pair) for pair in zip(new.components, old.components, strict=True))


def _is_within(new: Request, old: Request) -> bool:
    if new == old:
        return True
    return (
        bool(new.chunks) == bool(old.chunks)
        and (_chunks_within(new, old) if new.chunks else _tasks_within(new, old))
        and _no_more(new.wide, old.wide)
        and new.exclusive <= old.exclusive
        and set(new.include) <= set(old.include)
        and set(new.exclude) <= set(old.exclude)
        and set(terms(new.constraint)) <= set(terms(old.constraint))
        and new.place in ("free", old.place)
    )


def _tasks_within(new: Request, old: Request) -> bool:
    is_as_wide = (new.nodes_min, new.nodes_max) == (old.nodes_min, old.nodes_max)
    # With a higher maximum it takes more nodes where they are free, and so do the tasks of an array from each other.
    is_looser = 0 < new.nodes_min <= old.nodes_min and new.nodes_max == old.nodes_max
    # On fewer nodes there may be more tasks on each.
    is_as_dense = new.tasks * old.nodes_min <= old.tasks * new.nodes_min
    is_narrower = 0 < new.nodes_min <= new.nodes_max <= old.nodes_min == old.nodes_max and is_as_dense
    return (
        new.tasks <= old.tasks
        and (is_as_wide or is_looser or is_narrower)
        and new.tasks_per_node == old.tasks_per_node
        and new.cpus_per_task <= old.cpus_per_task
        and _less_memory(new.memory_per_node_mib, old.memory_per_node_mib)
        and _less_memory(new.memory_per_cpu_mib, old.memory_per_cpu_mib)
        and _no_more(new.per_node, old.per_node)
        and _no_more(new.per_task, old.per_task)
    )


def _chunks_within(new: Request, old: Request) -> bool:
    return len(new.chunks) == len(old.chunks) and all(
        _is_smaller(*pair) for pair in zip(new.chunks, old.chunks, strict=True)
    )


def _is_smaller(new: Chunk, old: Chunk) -> bool:
    return (
        new.count <= old.count
        and new.cores <= old.cores
        and _less_memory(new.memory_mib, old.memory_mib)
        and _no_more(new.resources, old.resources)
        and set(terms(new.constraint)) <= set(terms(old.constraint))
    )


def _less_memory(new_mib: int, old_mib: int) -> bool:
    """Compare memory; 0 is the partition's default, which is not known here."""
    return new_mib == old_mib or 0 < new_mib < old_mib


def _no_more(new: Iterable[tuple[str, int]], old: Iterable[tuple[str, int]]) -> bool:
    asked: Mapping[str, int] = dict(old)
    return all(items <= asked.get(name, 0) for name, items in new)
