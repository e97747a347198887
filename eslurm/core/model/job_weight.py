"""Weight of a waiting job in its user's quota of waiting jobs: 1, and more for a large record.

Invariant: a function of the spec alone. An array counts as one record, whatever its number of tasks: a task gets a record
of its own only when it starts.
"""

from __future__ import annotations

from eslurm.core.model.job import JobSpec

UNIT_BYTES = 16 * 1024
_NAME_BYTES = 64
_RANGE_BYTES = 128


def held_bytes(spec: JobSpec) -> int:
    """Size of the record's parts that grow with the request: arguments, node names, array ranges, dependencies."""
    size_bytes = _NAME_BYTES * len(spec.dependencies)
    if spec.arguments:
        size_bytes += sum(map(len, spec.arguments)) + _NAME_BYTES * len(spec.arguments)
    for request in spec.components:
        for names in (request.include, request.exclude):
            if names:
                size_bytes += sum(map(len, names)) + _NAME_BYTES * len(names)
    if spec.array is not None:
        size_bytes += _RANGE_BYTES * len(spec.array.tasks)
    return size_bytes


def weight(spec: JobSpec) -> int:
    """1 for an ordinary job, 1 more for each 16 KiB of the above."""
    return 1 + held_bytes(spec) // UNIT_BYTES
