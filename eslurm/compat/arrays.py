"""Task numbers of job arrays: `0-15:2,20%4`.

Invariant: parsed ranges are ascending, disjoint, and `(first, last, step)` with `last` reached exactly.
"""

from __future__ import annotations

from itertools import pairwise

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    TaskRanges: TypeAlias = tuple[tuple[int, int, int], ...]

_WAY_OUT = "use e.g. {option} 0-15, 1,3,7, 0-30:2 or 0-99%10"


def parse_array(text: str, option: str = "--array") -> tuple[TaskRanges, int]:
    """(ranges, tasks that may run at once; 0: all). A task named twice counts once. Raises OptionError."""
    body, percent, limit_text = text.partition("%")
    limit = whole_number(limit_text, 9) if percent else 0
    if percent and limit <= 0:
        raise OptionError(option, text, "has a bad limit after '%'", f"use e.g. {option} {body or '0-99'}%10")
    parts = body.split(",")
    if len(parts) > limits.ARRAY_PARTS_MAX:
        raise OptionError(
            option, text, f"has more than {limits.ARRAY_PARTS_MAX} parts", "submit several arrays"
        )
    ranges = [_range(part, text, option) for part in parts]
    if task_count(ranges) > limits.ARRAY_TASKS_MAX:
        raise OptionError(
            option,
            text,
            f"means {task_count(ranges)} tasks, more than {limits.ARRAY_TASKS_MAX}",
            "submit several arrays",
        )
    found = _disjoint(ranges)
    listed = task_count(one for one in found if one[2] > 1)
    if listed > limits.ARRAY_STRIDED_MAX:
        why = f"means {listed} tasks with a step, more than {limits.ARRAY_STRIDED_MAX}"
        raise OptionError(option, text, why, "submit several arrays, or number the tasks without one")
    return found, limit


def _range(part: str, text: str, option: str) -> tuple[int, int, int]:
    span, colon, step_text = part.partition(":")
    low_text, dash, high_text = span.partition("-")
    low = whole_number(low_text, 10)
    high = whole_number(high_text, 10) if dash else low
    step = whole_number(step_text, 10) if colon else 1
    if low < 0 or high < 0 or step <= 0 or (colon and not dash):
        raise OptionError(option, text, "is not a list of task numbers", _WAY_OUT.format(option=option))
    if high > limits.ARRAY_TASK_MAX or low > limits.ARRAY_TASK_MAX:
        raise OptionError(
            option, text, f"has a task number above {limits.ARRAY_TASK_MAX}", "number the tasks from 0"
        )
    if high < low:
        raise OptionError(option, text, f"has '{part[:24]}' with its ends swapped", f"use {high}-{low}")
    last = low + (high - low) // step * step
    return low, last, step if last > low else 1


def _disjoint(ranges: list[tuple[int, int, int]]) -> TaskRanges:
    ranges.sort()
    if all(before[1] < after[0] for before, after in pairwise(ranges)):
        return tuple(ranges)
    # Overlapping or interleaved ranges are rare and bounded by limits.ARRAY_TASKS_MAX: list the tasks and fold anew.
    tasks = {task for low, high, step in ranges for task in range(low, high + 1, step)}
    return fold_tasks(sorted(tasks))


def fold_tasks(tasks: Sequence[int]) -> TaskRanges:
    """Ascending task numbers as ranges of constant step, of three tasks or of neighbours."""
    folded: list[tuple[int, int, int]] = []
    at = 0
    while at < len(tasks):
        first = tasks[at]
        step = tasks[at + 1] - first if at + 1 < len(tasks) else 1
        end = at
        while end + 1 < len(tasks) and tasks[end + 1] - tasks[end] == step:
            end += 1
        if end == at + 1 and step > 1:
            end = at
        folded.append((first, tasks[end], step if end > at else 1))
        at = end + 1
    return tuple(folded)


def task_count(ranges: Iterable[tuple[int, int, int]]) -> int:
    """Number of tasks in the ranges."""
    return sum((high - low) // step + 1 for low, high, step in ranges)


def format_array(ranges: Iterable[tuple[int, int, int]], limit: int = 0) -> str:
    """`0-14:2,20%4`: the text that `parse_array` reads."""
    parts = []
    for low, high, step in ranges:
        if low == high:
            parts.append(str(low))
        else:
            parts.append(f"{low}-{high}" if step == 1 else f"{low}-{high}:{step}")
    return ",".join(parts) + (f"%{limit}" if limit else "")
