"""`esctl update job ID key=value ...`: the words become one UpdateJob request."""

from __future__ import annotations

from escli import clock
from escli.esqueue import job_refs
from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, nearest, whole_number
from eslurm.compat.moments import parse_moment
from eslurm.compat.nodecounts import parse_node_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    Setter: TypeAlias = Callable[[Any, str, str], None]

_NUMBER_MAX = 2**31 - 1


def job_update(words: Sequence[str]) -> Any:
    """The request for `job 17 time=2:00:00`, or scontrol's `JobId=17 TimeLimit=2:00:00`. Raises OptionError."""
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
    for pair in pairs:
        key, equals, value = pair.partition("=")
        setter = _SETTERS.get(key.lower())
        if setter is None:
            near = nearest(key.lower(), _SETTERS)
            known = (
                "name, partition, time, priority, nice, begin, deadline, comment, nodes, arraylimit, account, qos, "
                "reservation, constraint"
            )
            raise OptionError(
                "update",
                pair,
                "cannot be updated",
                f"did you mean {near}?" if near else f"use one of {known}",
            )
        if not equals:
            raise OptionError(key, pair, "has no value", f"use {key}=VALUE")
        setter(request, value, key)
    return request


def _job_word(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    if words and words[0].lower().startswith("jobid="):
        return words[0].partition("=")[2], words[1:]
    if len(words) >= 2 and words[0].lower() == "job":
        return words[1], words[2:]
    shown = words[0] if words else ""
    raise OptionError("update", shown, "names no job", "use e.g. esctl update job 17 time=2:00:00")


def _number(value: str, key: str, largest: int = _NUMBER_MAX) -> int:
    number = whole_number(value, 10)
    if not 0 <= number <= largest:
        raise OptionError(key, value, f"is not a number from 0 to {largest}", f"use e.g. {key}=10")
    return number


def _text(value: str, key: str) -> str:
    if not value or not value.isprintable() or len(value) > 1024:
        raise OptionError(key, value, "is not a short text on one line", f"use e.g. {key}=word")
    return value


def _set_name(request: Any, value: str, key: str) -> None:
    request.name = _text(value, key)


def _set_partition(request: Any, value: str, key: str) -> None:
    request.partition = _text(value, key)


def _set_comment(request: Any, value: str, key: str) -> None:
    request.comment = _text(value, key) if value else ""


def _set_time(request: Any, value: str, key: str) -> None:
    request.time_limit_s = parse_time_limit(value, key)


def _set_priority(request: Any, value: str, key: str) -> None:
    request.priority = _number(value, key, 2**32 - 1)


def _set_begin(request: Any, value: str, key: str) -> None:
    request.begin_us = parse_moment(value, clock.now_us(), clock.local_offset_s, key)


def _set_nodes(request: Any, value: str, key: str) -> None:
    request.nodes_min, request.nodes_max = parse_node_count(value, key)


def _set_nice(request: Any, value: str, key: str) -> None:
    below = value.startswith("-")
    number = _number(value[1:] if below else value, key)
    request.nice = -number if below else number


def _set_deadline(request: Any, value: str, key: str) -> None:
    request.deadline_us = parse_moment(value, clock.now_us(), clock.local_offset_s, key) if value else 0


def _word(field: str) -> Setter:
    def set_word(request: Any, value: str, key: str) -> None:
        setattr(request, field, _text(value, key) if value else "")

    return set_word


def _set_array_limit(request: Any, value: str, key: str) -> None:
    request.array_limit = _number(value, key)


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
    "nodes": _set_nodes,
    "numnodes": _set_nodes,
    "nice": _set_nice,
    "deadline": _set_deadline,
    "account": _word("account"),
    "qos": _word("qos"),
    "reservation": _word("reservation"),
    "reservationname": _word("reservation"),
    "constraint": _word("constraint"),
    "features": _word("constraint"),
    "arraylimit": _set_array_limit,
    "arraytaskthrottle": _set_array_limit,
}
