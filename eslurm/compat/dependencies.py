"""Dependencies of a job: `afterok:12:13,after:10+5,singleton` (all must be met) or `afterok:12?afterok:13` (any of them)."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, quoted, whole_number
from eslurm.compat.jobrefs import JOB_ID_MAX
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Condition: TypeAlias = tuple[str, int, int, int, int]

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")
REFUSED = {
    "afterburstbuffer": "waits for a burst buffer, and there are none here",
    "burst_buffer": "waits for a burst buffer, and there are none here",
    "expand": "lets a job grow by another one, which is not supported",
}
NO_TASK = NO_PART = -1
_WAY_OUT = "use e.g. {option} afterok:12:13,singleton"


def parse_dependencies(text: str, option: str = "--dependency") -> tuple[tuple[Condition, ...], bool]:
    """The conditions as (kind, job id, delay in seconds, task, part), and whether any of them is enough.

    `singleton` has job id 0; task and part are -1 for the whole job. `after:10+5` is five minutes after job 10 began,
    `afterok:17_4` a task of an array, `afterok:17+2` a part of a job; a job id alone is `afterany`. Repeated conditions
    count once. Raises OptionError.
    """
    is_any = "?" in text
    if is_any and "," in text:
        raise OptionError(
            option, text, "mixes ',' (all of them) with '?' (any of them)", "use only one of them in a list"
        )
    conditions: dict[Condition, None] = {}
    for part in text.split("?" if is_any else ","):
        kind, *targets = part.split(":")
        kind = kind.lower()
        if kind[:1].isdecimal():
            kind, targets = "afterany", [kind, *targets]
        _check_kind(kind, targets, text, option)
        if not targets:
            conditions["singleton", 0, 0, NO_TASK, NO_PART] = None
        for target in targets:
            conditions[(kind, *_target(kind, target, text, option))] = None
            if len(conditions) > limits.DEPENDENCIES_MAX:
                raise OptionError(
                    option, text, f"has more than {limits.DEPENDENCIES_MAX} conditions", "name fewer jobs"
                )
    return tuple(conditions), is_any and len(conditions) > 1


def _check_kind(kind: str, targets: list[str], text: str, option: str) -> None:
    if kind in REFUSED:
        raise OptionError(option, text, REFUSED[kind], _WAY_OUT.format(option=option))
    if kind not in KINDS:
        raise OptionError(
            option,
            text,
            f"has {quoted(kind[:24])} which is not one of {', '.join(KINDS)}",
            _WAY_OUT.format(option=option),
        )
    if kind == "singleton" and targets:
        raise OptionError(option, text, "names jobs after 'singleton'", f"use {option} singleton")
    if kind != "singleton" and not targets:
        raise OptionError(option, text, f"names no job after '{kind}'", f"use e.g. {option} {kind}:12")


def _target(kind: str, target: str, text: str, option: str) -> tuple[int, int, int, int]:
    """(job id, delay in seconds, task, part)."""
    job_text, plus, plus_text = target.partition("+")
    job_text, underscore, task_text = job_text.partition("_")
    job_id = whole_number(job_text, 10)
    if not 0 < job_id <= JOB_ID_MAX:
        raise OptionError(
            option, text, f"has '{target[:24]}' which is not a job id", _WAY_OUT.format(option=option)
        )
    task = NO_TASK
    if underscore and task_text != "*":
        task = whole_number(task_text, 10)
        if not 0 <= task <= limits.ARRAY_TASK_MAX:
            raise OptionError(
                option,
                text,
                f"has '{target[:24]}' which is not a task of an array",
                f"use e.g. {kind}:{job_id}_4",
            )
    if not plus:
        return job_id, 0, task, NO_PART
    number = whole_number(plus_text, 9)
    if kind == "after":
        if not 0 <= number <= limits.DEPENDENCY_DELAY_MAX_S // 60:
            raise OptionError(
                option, text, "has a delay that is no number of minutes", f"use e.g. after:{job_id}+5"
            )
        return job_id, number * 60, task, NO_PART
    if number < 0:
        raise OptionError(
            option,
            text,
            f"has '{target[:24]}' which is not a part of a job",
            f"use e.g. {kind}:{job_id}+1, or after:{job_id}+5 for 5 minutes after its start",
        )
    return job_id, 0, task, number


def dependency_fields(condition: Condition) -> dict[str, str | int]:
    """A condition as the fields of a `Dependency` message."""
    kind, job_id, delay_s, task, part = condition
    found: dict[str, str | int] = {"kind": kind, "job_id": job_id, "delay_s": delay_s}
    if task >= 0:
        found["task"] = task
    if part >= 0:
        found["part"] = part
    return found


def format_condition(condition: Condition) -> str:
    """One condition: `afterok:17_4`."""
    kind, job_id, delay_s, task, part = condition
    if kind == "singleton":
        return kind
    named = f"{kind}:{job_id}" + (f"_{task}" if task >= 0 else "")
    return named + (f"+{delay_s // 60}" if delay_s else f"+{part}" if part >= 0 else "")
