"""Jobs and tasks as the commands name them: `17,18_[3,5],19+1`."""

from __future__ import annotations

from eslurm.compat.jobrefs import NO_PART, NO_TASK, parse_job_refs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
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
            job_id=job_id, task=None if task == NO_TASK else task, part=None if part == NO_PART else part
        )
        for word in words
        for job_id, task, part in parse_job_refs(word, option)
    ]
