"""Dependencies of a job: `afterok:12:13,after:10+5,singleton`. All conditions must hold."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.jobrefs import JOB_ID_MAX
from eslurm.core.model import request_limits as limits

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")
_WAY_OUT = "use e.g. {option} afterok:12:13,singleton"


def parse_dependencies(text: str, option: str = "--dependency") -> tuple[tuple[str, int, int], ...]:
    """The conditions as (kind, job id, delay in seconds); `singleton` has job id 0.

    `after:10+5` is five minutes after job 10 began. Repeated conditions count once. Raises OptionError.
    """
    if "?" in text:
        raise OptionError(
            option,
            text,
            "uses '?' (any of them), which is not supported",
            "join conditions that must all hold with ','",
        )
    conditions: dict[tuple[str, int, int], None] = {}
    for part in text.split(","):
        kind, *targets = part.split(":")
        _check_kind(kind.lower(), targets, text, option)
        if not targets:
            conditions["singleton", 0, 0] = None
        for target in targets:
            job_id, delay_s = _target(kind.lower(), target, text, option)
            conditions[kind.lower(), job_id, delay_s] = None
            if len(conditions) > limits.DEPENDENCIES_MAX:
                raise OptionError(
                    option, text, f"has more than {limits.DEPENDENCIES_MAX} conditions", "name fewer jobs"
                )
    return tuple(conditions)


def _check_kind(kind: str, targets: list[str], text: str, option: str) -> None:
    if kind not in KINDS:
        if whole_number(kind) >= 0:
            raise OptionError(
                option, text, "names no kind of dependency", f"use e.g. {option} afterany:{kind[:10]}"
            )
        raise OptionError(
            option,
            text,
            f"has '{kind[:24]}' which is not one of {', '.join(KINDS)}",
            _WAY_OUT.format(option=option),
        )
    if kind == "singleton" and targets:
        raise OptionError(option, text, "names jobs after 'singleton'", f"use {option} singleton")
    if kind != "singleton" and not targets:
        raise OptionError(option, text, f"names no job after '{kind}'", f"use e.g. {option} {kind}:12")


def _target(kind: str, target: str, text: str, option: str) -> tuple[int, int]:
    job_text, plus, minutes_text = target.partition("+")
    if "_" in job_text and whole_number(job_text.partition("_")[0]) > 0:
        raise OptionError(
            option,
            text,
            "waits for one task of an array, which is not supported yet",
            "wait for the whole array, or task by task with aftercorr",
        )
    job_id = whole_number(job_text, 10)
    if not 0 < job_id <= JOB_ID_MAX:
        raise OptionError(
            option, text, f"has '{target[:24]}' which is not a job id", _WAY_OUT.format(option=option)
        )
    if not plus:
        return job_id, 0
    minutes = whole_number(minutes_text, 9)
    if kind != "after":
        raise OptionError(
            option, text, f"has a delay after '{kind}'", f"only 'after' takes one: after:{job_id}+5"
        )
    if not 0 <= minutes <= limits.DEPENDENCY_DELAY_MAX_S // 60:
        raise OptionError(
            option, text, "has a delay that is no number of minutes", f"use e.g. after:{job_id}+5"
        )
    return job_id, minutes * 60


def format_dependencies(conditions: tuple[tuple[str, int, int], ...]) -> str:
    """`afterok:12,after:10+5,singleton`: the text that `parse_dependencies` reads."""
    parts = []
    for kind, job_id, delay_s in conditions:
        if kind == "singleton":
            parts.append(kind)
        else:
            parts.append(f"{kind}:{job_id}" + (f"+{delay_s // 60}" if delay_s else ""))
    return ",".join(parts)
