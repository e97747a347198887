"""Ids of jobs, and the waiting tasks of an array as one text: `12_[3-9%4]`, `12_[0-8:2]`."""

from __future__ import annotations

import itertools

from eslurm.compat.arrays import parse_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def is_array(info: Any) -> bool:
    """Check whether the record stands for tasks of an array that have not begun."""
    ended = info.tasks_done + info.tasks_failed
    return bool(not info.HasField("array_task") and (info.array_tasks_left or info.tasks_running or ended))


def tasks_text(text: str) -> str:
    """The tasks as Slurm writes them: tasks at equal distances as one range with its step."""
    listed, percent, limit = text.partition("%")
    words = listed.split(",")
    if len(words) > 2 and all(word.isdecimal() for word in words):
        numbers = [int(word) for word in words]
        step = numbers[1] - numbers[0]
        if step > 1 and all(b - a == step for a, b in itertools.pairwise(numbers)):
            listed = f"{numbers[0]}-{numbers[-1]}:{step}"
    return listed + percent + limit


def task_numbers(text: str, most: int = 100_000) -> list[int]:
    """The numbers of the tasks of a text, at most so many."""
    found: list[int] = []
    ranges, _ = parse_array(text, "array")
    for first, last, step in ranges:
        found += range(first, last + 1, step)
        if len(found) >= most:
            return found[:most]
    return found


def job_label(info: Any) -> str:
    """`17`, `17_4`, `17_[5-9%4]`, `17+1`."""
    part = f"+{info.parts[0].part}" if len(info.parts) == 1 else "+0" if len(info.parts) > 1 else ""
    if info.HasField("array_task"):
        return f"{info.array_job_id}_{info.array_task}{part}"
    if info.array_tasks_left:
        return f"{info.job_id}_[{tasks_text(info.array_tasks_left)}]"
    return f"{info.job_id}{part}"
