"""Jobs and tasks as the commands name them: `17,18_[3,5],19+1,20@beta`."""

from __future__ import annotations

from eslurm.compat.jobrefs import NO_PART, NO_TASK, parse_job_refs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


def split_jobs(text: str) -> list[str]:
    """Split `17,18_[3,5],19` at the commas outside brackets."""
    words: list[str] = []
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            words.append(text[start:at])
            start = at + 1
    return [*words, text[start:]]


def job_refs(words: Sequence[str], option: str) -> list[Any]:
    """The JobRef messages that these words name. Raises OptionError."""
    from eslurm.v1 import controller_pb2 as pb

    return [
        pb.JobRef(
            job_id=job_id,
            task=None if task == NO_TASK else task,
            part=None if part == NO_PART else part,
            cell=cell,
        )
        for word in words
        for job_id, task, part, cell in parse_job_refs(word, option)
    ]


def by_part(records: Iterable[Any], refs: Sequence[Any], *, each: bool = False) -> list[Any]:
    """Jobs or attempts as they are shown: those of which `refs` name parts, or with `each` all, as one record a part.

    A record of one part has that part alone in `parts`.
    """
    found: list[Any] = []
    for record in records:
        chosen = _parts_named(record, refs) if record.parts else set()
        if not record.parts or not (each or chosen):
            found.append(record)
            continue
        found += [_of_part(record, part) for part in record.parts if part.part in chosen or not chosen]
    return found


def label_of_part(record: Any) -> str:
    """`+1` behind the label of a record of one part."""
    return f"+{record.parts[0].part}" if len(record.parts) == 1 else ""


def _parts_named(record: Any, refs: Sequence[Any]) -> set[int]:
    """The numbers of the parts that the references name; empty when one of them names the whole job."""
    job_id = record.array_job_id or record.job_id
    found: set[int] = set()
    for ref in refs:
        if not job_id <= ref.job_id < job_id + len(record.parts) and ref.job_id != record.job_id:
            continue
        if ref.HasField("task") and not (record.HasField("array_task") and record.array_task == ref.task):
            continue
        if ref.HasField("part"):
            found.add(ref.part)
        elif ref.job_id in (job_id, record.job_id):
            return set()
        else:
            found.add(ref.job_id - job_id)
    return found


def _of_part(record: Any, part: Any) -> Any:
    one = type(record)()
    one.CopyFrom(record)
    del one.parts[:]
    one.parts.add().CopyFrom(part)
    for name in (
        "partition",
        "nodes",
        "tasks",
        "cpus",
        "memory_mib",
        "node_names",
        "resources",
        "constraint",
    ):
        if name in one.DESCRIPTOR.fields_by_name:
            setattr(one, name, getattr(part, name))
    if part.ended_us:
        one.ended_us = part.ended_us
    return one
