"""Defaults and force values (C-29): filled into a job that gives no value, or in place of its value.

Of several records the most specific wins: user, then group, then system; among groups the job's primary one first, and a
record for a name before one for each. Any force value wins over any default. Invariant: applying the result again changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.accounts import EVERYONE, Defaults
from eslurm.core.model.job import JobSpec
from eslurm.core.model.request import Request

OPTIONS: Final = ("time", "partition", "account", "qos", "mem-per-cpu", "constraint", "nice", "requeue")
"""The options of `essubmit` that may have a default. Values are stored in one form: seconds, MiB, numbers, yes or no."""


def with_defaults(spec: JobSpec, records: Iterable[Defaults]) -> JobSpec:
    """The job with missing options filled in, and forced ones overwritten.

    A job without `--nice` has 0, one without `--no-requeue` is requeued: a default counts there too.
    """
    chain = sorted((rank, record) for record in records if (rank := _rank(record, spec)) is not None)
    defaults: dict[str, str] = {}
    forced: dict[str, str] = {}
    for _, record in chain:
        for option, value in record.values:
            defaults.setdefault(option, value)
        for option, value in record.forced:
            forced.setdefault(option, value)
    for option, value in defaults.items():
        if option not in forced and not _is_said(spec, option):
            spec = _with(spec, option, value)
    for option, value in forced.items():
        spec = _with(spec, option, value)
    return spec


def _rank(record: Defaults, spec: JobSpec) -> tuple[int, int, str] | None:
    """Precedence of a record, the lowest first; None: not for this job."""
    each = record.consumer == EVERYONE
    if record.kind == "user":
        return (0, each, record.name) if each or record.consumer == spec.user.name else None
    if record.kind == "group":
        groups = tuple(dict.fromkeys(str(gid) for gid in (spec.user.gid, *spec.user.groups)))
        if each:
            return (1, len(groups), record.name)
        return (1, groups.index(record.consumer), record.name) if record.consumer in groups else None
    return (2, 0, record.name)


def _is_said(spec: JobSpec, option: str) -> bool:
    request = spec.components[0]
    said: Mapping[str, object] = {
        "time": spec.time_limit_s,
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "mem-per-cpu": request.memory_per_cpu_mib or request.memory_per_node_mib or request.chunks,
        "constraint": request.constraint,
        "nice": spec.nice,
        "requeue": not spec.requeue,
    }
    return bool(said.get(option))


def _with(spec: JobSpec, option: str, value: str) -> JobSpec:
    if option == "time":
        return replace(spec, time_limit_s=int(value))
    if option == "nice":
        return replace(spec, nice=int(value))
    if option == "requeue":
        return replace(spec, requeue=value == "yes")
    if option == "partition":
        return replace(spec, partition=value)
    if option == "account":
        return replace(spec, account=value)
    if option == "qos":
        return replace(spec, qos=value)
    return replace(spec, components=tuple(_requesting(request, option, value) for request in spec.components))


def _requesting(request: Request, option: str, value: str) -> Request:
    if option == "constraint":
        return replace(request, constraint=value)
    if option == "mem-per-cpu" and not request.chunks:
        return replace(request, memory_per_cpu_mib=int(value), memory_per_node_mib=0)
    return request
