"""Parts of a job: the ids and the partition of each (D-02).

A job of n parts takes n consecutive ids at its submission, its own first: commands accept each of them, and part 1 of job 17
is `17+1`, or 18. A task of an array takes one id.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.model.gateways import GATEWAY
from eslurm.core.model.job import Attempt, Job, JobSpec, Span


def ids_taken(spec: JobSpec) -> int:
    """Number of consecutive ids that a submission takes."""
    return user_parts(spec)


def user_parts(spec: JobSpec) -> int:
    """Number of the parts that users name: all but the gateways, which are the last part."""
    is_last_hidden = bool(spec.parts) and spec.parts[-1].role == GATEWAY
    return len(spec.components) - is_last_hidden


def gateway_nodes(spec: JobSpec, attempt: Attempt) -> list[int]:
    """The gateways of an attempt of a job that has some, in their order."""
    last = len(spec.components) - 1
    return [span.node for span in attempt.spans if span.component == last]


def user_spans(spec: JobSpec, attempt: Attempt) -> Sequence[Span]:
    """Nodes and cores that the parts that users name hold, or have held."""
    if spec.gateway is None:
        return attempt.spans
    count = user_parts(spec)
    return [span for span in attempt.spans if span.component < count]


def part_ids(job: Job) -> range:
    """The ids of the parts after the first one; empty for most jobs."""
    if len(job.spec.components) == 1 or job.array_task >= 0:
        return range(0)
    return range(job.job_id + 1, job.job_id + user_parts(job.spec))


def partition_of(spec: JobSpec, part: int) -> str:
    """The partition of one part."""
    return (spec.parts[part].partition if spec.parts else "") or spec.partition


def partitions_of(spec: JobSpec) -> tuple[str, ...]:
    """The partitions of all parts, each once."""
    if not spec.parts:
        return (spec.partition,)
    return tuple(dict.fromkeys([part.partition or spec.partition for part in spec.parts]))


def part_text(spec: JobSpec, part: int, text: str) -> str:
    """A refusal of one part; a job of one part needs no number."""
    count = user_parts(spec)
    if part == count:
        return f"gateways: {text}"
    return text if count == 1 else f"part {part}: {text}"


def spans_by_part(spec: JobSpec, attempt: Attempt) -> list[list[Span]]:
    """Nodes and cores that each part holds, or has held."""
    found: list[list[Span]] = [[] for _ in spec.components]
    for span in attempt.spans:
        found[span.component].append(span)
    return found
