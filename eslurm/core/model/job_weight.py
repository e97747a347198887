"""Weight of a waiting job in its user's quota of waiting jobs: 1, and more for a large record.

Invariant: a function of the spec alone. An array counts as one record, whatever its number of tasks: a task gets a record
of its own only when it starts.
"""

from __future__ import annotations

from eslurm.core.model.job import JobSpec
from eslurm.core.model.request import Request

UNIT_BYTES = 16 * 1024
_NAME_BYTES = 64
_RANGE_BYTES = 128
_PART_BYTES = 512


def held_bytes(spec: JobSpec) -> int:
    """Size of what grows with the request: arguments, node names, array ranges, dependencies, more parts, gateways."""
    size_bytes = _NAME_BYTES * len(spec.dependencies)
    if spec.arguments:
        size_bytes += sum(map(len, spec.arguments)) + _NAME_BYTES * len(spec.arguments)
    if len(spec.components) > 1:
        size_bytes += sum(map(_part_bytes, spec.components[1:]))
    for request in spec.components:
        for names in (request.include, request.exclude):
            if names:
                size_bytes += sum(map(len, names)) + _NAME_BYTES * len(names)
    if spec.gateway is not None:
        asked = spec.gateway
        size_bytes += len(asked.file) + len(asked.binary)
        size_bytes += sum([_NAME_BYTES + len(name) + len(value) for name, value in asked.env])
    if spec.array is not None:
        size_bytes += _RANGE_BYTES * len(spec.array.tasks)
    return size_bytes


def _part_bytes(request: Request) -> int:
    """Size of one part's request besides its node names."""
    named = len(request.wide) + len(request.per_node) + len(request.per_task)
    of_chunks = sum(len(chunk.constraint) + _NAME_BYTES * len(chunk.resources) for chunk in request.chunks)
    return _PART_BYTES + len(request.constraint) + _NAME_BYTES * named + of_chunks


def weight(spec: JobSpec) -> int:
    """1 for an ordinary job, 1 more for each 16 KiB of the above."""
    return 1 + held_bytes(spec) // UNIT_BYTES
