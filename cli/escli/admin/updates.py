"""`esctl update job ID key=value ...`: the words become one UpdateJob request.

Resources are changed as a whole: the present request as `essubmit`'s options, overlaid by the given ones, is read by the
code that reads a submission. Invariant: the controller applies it only if the job's request has not changed since.
"""

from __future__ import annotations

from escli import clock, exits
from escli.admin.overlay import RESOURCES, changed_resources
from escli.failures import CommandFailed
from escli.job_refs import by_part, job_refs
from eslurm.compat.dependencies import dependency_fields, parse_dependencies
from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, nearest, whole_number
from eslurm.compat.moments import parse_moment
from eslurm.compat.request_checks import checked_line, checked_path
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from escli.api import Api

    Setter: TypeAlias = Callable[[Any, str, str], None]

KNOWN = (
    "name, partition, time, end, priority, nice, begin, deadline, dependency, comment, wckey, account, qos, reservation, "
    f"arraylimit, output, error, input, chdir, "
    f"{', '.join(dict.fromkeys(RESOURCES.values()))}"
)


def job_update(api: Api, words: Sequence[str]) -> Any:
    """The request for `job 17 time=2:00:00`, or scontrol's `JobId=17 TimeLimit=2:00:00`; for the nodes of a running job
    a `ResizeJobRequest`. Raises OptionError.
    """
    from eslurm.v1 import controller_pb2 as pb

    job_text, pairs = _job_word(words)
    refs = job_refs([job_text], "update")
    if len(refs) != 1:
        raise OptionError(
            "update", job_text, "names several tasks", "update them one by one, or the whole array"
        )
    if not pairs:
        raise OptionError("update", job_text, "is to be changed in nothing", "use e.g. time=2:00:00")
    request = pb.UpdateJobRequest(job=refs[0])
    resources: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key.lower() in _OF_RUN or (key.lower() in _TIME and value[:1] in ("+", "-")):
            _set_run_time(api, request, value, key)
            continue
        _check_key(pair, key, equals)
        option = RESOURCES.get(key.lower())
        if option is not None:
            resources[option] = value, key
        else:
            _SETTERS[key.lower()](request, value, key)
    if resources:
        running = _set_resources(api, request, job_text, resources)
        if running is not None:
            if len(resources) < len(pairs):
                raise OptionError(
                    "update", pairs[0], "goes not with the nodes of a running job", "change them alone"
                )
            return running
    return request


def _set_run_time(api: Api, request: Any, value: str, key: str) -> None:
    """Set the time limit by the job's end (`end=WHEN`), or relative to the present one (`time=+1:00:00`)."""
    from eslurm.v1 import controller_pb2 as pb

    found = api.call("Jobs", pb.JobsRequest(jobs=[request.job], asked_too=True)).jobs
    if len(found) != 1:
        raise OptionError(
            key, value, "is for one job that waits or runs", "give the whole limit: time=2:00:00"
        )
    has_s, began_us = found[0].time_limit_s, found[0].started_us + found[0].paused_us
    if key.lower() in _OF_RUN:
        if not found[0].started_us:
            raise OptionError(key, value, "is for a running job", "use time= or deadline= for one that waits")
        limit_s = (parse_moment(value, clock.now_us(), clock.local_offset_s, key) - began_us) // 1_000_000
    elif not has_s:
        raise OptionError(key, value, "has nothing to add to: the job has no limit", "give the whole one")
    else:
        by_s = parse_time_limit(value[1:], key)
        limit_s = has_s + by_s if value[0] == "+" else has_s - by_s
    if not 0 < limit_s <= limits.TIME_LIMIT_MAX_S:
        raise OptionError(key, value, "leaves no time limit", "give a later one")
    request.time_limit_s = limit_s


def _job_word(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    if words and words[0].lower().startswith("jobid="):
        return words[0].partition("=")[2], words[1:]
    if len(words) >= 2 and words[0].lower() == "job":
        return words[1], words[2:]
    if words and words[0][:1].isdecimal():
        return words[0], words[1:]
    shown = words[0] if words else None
    raise OptionError("update", shown, "names no job", "use e.g. esctl update job 17 time=2:00:00")


def _check_key(pair: str, key: str, equals: str) -> None:
    keys = {**_SETTERS, **RESOURCES}
    if key.lower() not in keys:
        near = nearest(key.lower(), keys)
        way_out = f"did you mean {near}?" if near else f"use one of {KNOWN}"
        raise OptionError("update", pair, "cannot be updated", way_out)
    if not equals:
        raise OptionError(key, pair, "has no value", f"use {key}=VALUE")


def _set_resources(api: Api, request: Any, job_text: str, resources: Mapping[str, tuple[str, str]]) -> Any:
    """Set the whole request of a waiting job; of a running one, whose nodes change, the request for that is returned."""
    from escli.admin.resizing import is_relative, resize_request
    from eslurm.v1 import controller_pb2 as pb

    if is_relative(resources):
        return resize_request(request.job, resources)
    asking = pb.JobsRequest(jobs=[request.job], finished_too=True, asked_too=True)
    found = list(api.call("Jobs", asking).jobs)
    if request.job.HasField("task"):
        found = [one for one in found if one.array_task == request.job.task] or found
    else:
        found = [one for one in found if one.job_id == request.job.job_id or one.parts]
    if not found:
        raise CommandFailed(exits.FAILED, f"job {job_text} does not exist or has ended long ago: see esacct")
    asked, state = found[0].asked, found[0].state
    if state in ("RUNNING", "SUSPENDED") and not found[0].parts and resources.keys() <= {"nodes", "nodelist"}:
        return resize_request(request.job, resources)
    if found[0].parts:
        asked = _asked_of_part(by_part(found[:1], [request.job]), job_text)
    if not asked and state != "PENDING":
        raise CommandFailed(exits.FAILED, f"job {job_text} is {state}: only waiting jobs can be changed")
    if not asked:
        raise CommandFailed(
            exits.FAILED,
            f"job {job_text} asks for what options cannot say: cancel it and submit it again",
        )
    request.request.CopyFrom(pb.ResourceRequest(**changed_resources(asked, resources)))
    request.was.extend(asked)
    return None


def _asked_of_part(found: Sequence[Any], job_text: str) -> Sequence[str]:
    """The request of the named part. Of a job without a part nothing: the controller refuses it and says why."""
    if not found:
        raise CommandFailed(exits.FAILED, f"job {job_text}: it has no such part: see esctl show job")
    if len(found[0].parts) > 1:
        text = f"job {job_text} has {len(found[0].parts)} parts: say which one is to be changed, like {job_text}+1"
        raise CommandFailed(exits.FAILED, text)
    asked: Sequence[str] = found[0].parts[0].asked
    return asked


def _number(value: str, key: str, largest: int = limits.COUNT_MAX) -> int:
    number = whole_number(value, 10)
    if not 0 <= number <= largest:
        raise OptionError(key, value, f"is not a number from 0 to {largest}", f"use e.g. {key}=10")
    return number


def _text(value: str, key: str, chars_max: int = limits.NAME_CHARS_MAX) -> str:
    if not value:
        raise OptionError(key, None, "is empty", f"use e.g. {key}=word")
    return checked_line(key, value, chars_max)


def _set_name(request: Any, value: str, key: str) -> None:
    request.name = _text(value, key)


def _set_partition(request: Any, value: str, key: str) -> None:
    request.partition = _text(value, key, limits.PARTITION_CHARS_MAX)


def _set_comment(request: Any, value: str, key: str) -> None:
    request.comment = _text(value, key, limits.COMMENT_CHARS_MAX) if value else ""


def _set_time(request: Any, value: str, key: str) -> None:
    request.time_limit_s = parse_time_limit(value, key)


def _set_priority(request: Any, value: str, key: str) -> None:
    request.priority = _number(value, key, limits.PRIORITY_MAX)


def _set_begin(request: Any, value: str, key: str) -> None:
    request.begin_us = parse_moment(value, clock.now_us(), clock.local_offset_s, key)


def _set_nice(request: Any, value: str, key: str) -> None:
    below = value.startswith("-")
    number = _number(value[1:] if below else value, key, limits.NICE_MAX)
    request.nice = -number if below else number


def _set_deadline(request: Any, value: str, key: str) -> None:
    request.deadline_us = parse_moment(value, clock.now_us(), clock.local_offset_s, key) if value else 0


def _set_dependency(request: Any, value: str, key: str) -> None:
    conditions, request.dependencies.any = parse_dependencies(value, key) if value else ((), False)
    # Present even when it is empty: then the job waits for no other one.
    request.dependencies.SetInParent()
    for condition in conditions:
        request.dependencies.all.add(**dependency_fields(condition))


def _word(field: str) -> Setter:
    def set_word(request: Any, value: str, key: str) -> None:
        setattr(request, field, _text(value, key) if value else "")

    return set_word


def _path(field: str) -> Setter:
    def set_path(request: Any, value: str, key: str) -> None:
        setattr(request, field, checked_path(key, value) if value else "")

    return set_path


def _set_work_dir(request: Any, value: str, key: str) -> None:
    if not value.startswith("/"):
        raise OptionError(key, value, "is no absolute path", f"use e.g. {key}=/home/ada/runs")
    request.work_dir = checked_path(key, value)


def _set_array_limit(request: Any, value: str, key: str) -> None:
    request.array_limit = _number(value, key)


_OF_RUN = ("end", "endtime")
_TIME = ("time", "timelimit")
_SETTERS: Mapping[str, Setter] = {
    "name": _set_name,
    "jobname": _set_name,
    "partition": _set_partition,
    "comment": _set_comment,
    "time": _set_time,
    "timelimit": _set_time,
    "priority": _set_priority,
    "begin": _set_begin,
    "starttime": _set_begin,
    "eligibletime": _set_begin,
    "nice": _set_nice,
    "deadline": _set_deadline,
    "dependency": _set_dependency,
    "account": _word("account"),
    "qos": _word("qos"),
    "reservation": _word("reservation"),
    "reservationname": _word("reservation"),
    "wckey": _word("wckey"),
    "output": _path("output"),
    "stdout": _path("output"),
    "error": _path("error"),
    "stderr": _path("error"),
    "input": _path("input"),
    "stdin": _path("input"),
    "chdir": _set_work_dir,
    "workdir": _set_work_dir,
    "arraylimit": _set_array_limit,
    "arraytaskthrottle": _set_array_limit,
}
