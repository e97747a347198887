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
_OF_REQUEST: Final = ("mem-per-cpu", "constraint")
"""Those that each part of a job has for itself."""


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
        if option in forced:
            continue
        if option in _OF_REQUEST:
            spec = _with_requests(spec, option, value, is_forced=False)
        elif not _is_said(spec, option):
            spec = _with(spec, option, value)
    for option, value in forced.items():
        spec = _with(spec, option, value, is_forced=True)
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
    said: Mapping[str, object] = {
        "time": spec.time_limit_s,
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "nice": spec.nice,
        "requeue": not spec.requeue,
    }
    return bool(said.get(option))


def _with(spec: JobSpec, option: str, value: str, *, is_forced: bool = False) -> JobSpec:
    if option == "time":
        return replace(spec, time_limit_s=int(value))
    if option == "nice":
        return replace(spec, nice=int(value))
    if option == "requeue":
        return replace(spec, requeue=value == "yes")
    if option == "partition":
        parts = tuple([replace(part, partition="") for part in spec.parts]) if is_forced else spec.parts
        return replace(spec, partition=value, parts=parts)
    if option == "account":
        return replace(spec, account=value)
    if option == "qos":
        return replace(spec, qos=value)
    return _with_requests(spec, option, value, is_forced=is_forced)


def _with_requests(spec: JobSpec, option: str, value: str, *, is_forced: bool) -> JobSpec:
    """The option in each part's request: everywhere, or only where the part says nothing itself."""
    return replace(
        spec,
        components=tuple(
            [
                _requesting(request, option, value) if is_forced or not _asks(request, option) else request
                for request in spec.components
            ]
        ),
    )


def _asks(request: Request, option: str) -> bool:
    if option == "constraint":
        return bool(request.constraint)
    return bool(request.memory_per_cpu_mib or request.memory_per_node_mib or request.chunks)


def _requesting(request: Request, option: str, value: str) -> Request:
    if option == "constraint":
        return replace(request, constraint=value)
    if option == "mem-per-cpu" and not request.chunks:
        return replace(request, memory_per_cpu_mib=int(value), memory_per_node_mib=0)
    return request
