"""From options to a job request: what `essubmit` sends for what was written.

Everything that can be known to be wrong without the cluster is refused here, so nothing is sent for it.
The request is a plain mapping in the shape of `wire.JOB_REQUEST`.
"""

from __future__ import annotations

from eslurm.compat.arrays import parse_array
from eslurm.compat.dependencies import parse_dependencies
from eslurm.compat.durations import parse_time_limit
from eslurm.compat.environment import encode_environment
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.filenames import default_output
from eslurm.compat.hostlist import expand
from eslurm.compat.moments import parse_moment
from eslurm.compat.nodecounts import parse_node_count
from eslurm.compat.sizes import parse_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from escli.options import Words

_COUNT_MAX = 2**31 - 1
_TEXT_CHARS_MAX = 1024
_PATH_CHARS_MAX = 4096
_ARGUMENTS_BYTES_MAX = 1024 * 1024
_ENVIRONMENT_BYTES_MAX = 2 * 1024 * 1024


class Surroundings:
    """What a submission takes from the process it comes from, as values: the drafting itself reads no clock or file."""

    __slots__ = ("cwd", "environment", "host", "now_us", "offset_s", "umask")

    def __init__(
        self,
        *,
        cwd: str,
        host: str,
        umask: int,
        now_us: int,
        offset_s: Callable[[int], int],
        environment: Mapping[str, str],
    ) -> None:
        self.cwd = cwd
        self.host = host
        self.umask = umask
        self.now_us = now_us
        self.offset_s = offset_s
        self.environment = environment


def draft_job(
    given: Words, script: bytes, name: str, arguments: Sequence[str], around: Surroundings
) -> dict[str, Any]:
    """The request for one job. `name` is the job's when no option names it. Raises OptionError."""
    job: dict[str, Any] = {
        "name": _short_text(given, "job-name", name),
        "partition": _short_text(given, "partition"),
        "account": _short_text(given, "account"),
        "comment": _short_text(given, "comment"),
        "components": [_resources(given)],
        "script": script,
        "arguments": _checked_arguments(arguments),
        "environment": _environment(around),
        "work_dir": _work_dir(given, around.cwd),
        "umask": around.umask,
        "held": given.has("hold"),
    }
    if given.has("requeue") or given.has("no-requeue"):
        job["requeue"] = given.has("requeue")
    _add_times(job, given, around)
    _add_order(job, given)
    _add_files(job, given)
    return job


def _resources(given: Words) -> dict[str, Any]:
    nodes_min, nodes_max = (0, 0)
    if given.has("nodes"):
        nodes_min, nodes_max = parse_node_count(given.text("nodes"), given.spelling("nodes"))
    tasks_per_node = _count(given, "ntasks-per-node")
    tasks = _count(given, "ntasks")
    request: dict[str, Any] = {
        "tasks": tasks or max(1, nodes_min) * max(1, tasks_per_node),
        "cpus_per_task": _count(given, "cpus-per-task") or 1,
        "nodes_min": nodes_min,
        "nodes_max": nodes_max,
        "tasks_per_node": tasks_per_node,
        "exclusive": _exclusive(given),
        "include": _node_names(given, "nodelist"),
        "exclude": _node_names(given, "exclude"),
    }
    _check_shape(given, request, tasks)
    _add_memory(request, given)
    return request


def _check_shape(given: Words, request: Mapping[str, Any], tasks: int) -> None:
    """Refuse what contradicts itself on any cluster."""
    if tasks and tasks < request["nodes_min"]:
        raise OptionError(
            given.spelling("ntasks"),
            str(tasks),
            f"tasks cannot fill {request['nodes_min']} nodes",
            f"use -n {request['nodes_min']} or more, or -N {tasks}",
        )
    room = request["nodes_max"] * request["tasks_per_node"]
    if tasks and room and tasks > room:
        raise OptionError(
            given.spelling("ntasks"),
            str(tasks),
            f"tasks do not fit: {request['nodes_max']} nodes of {request['tasks_per_node']} tasks hold {room}",
            f"use -n {room} or less, or more nodes",
        )
    both = sorted(set(request["include"]) & set(request["exclude"]))
    if both:
        raise OptionError(
            given.spelling("exclude"), both[0], "is also in --nodelist", "name it in one of them"
        )
    if request["nodes_max"] and len(request["include"]) > request["nodes_max"]:
        raise OptionError(
            given.spelling("nodelist"),
            given.text("nodelist"),
            f"names more than {request['nodes_max']} nodes",
            f"use -N {len(request['include'])} or name fewer",
        )


def _add_memory(request: dict[str, Any], given: Words) -> None:
    per_cpu = given.has("mem-per-cpu")
    if given.has("mem") and per_cpu:
        raise OptionError(
            given.spelling("mem-per-cpu"), given.text("mem-per-cpu"), "excludes --mem", "give one of them"
        )
    if per_cpu:
        request["memory_per_cpu_mib"] = parse_memory(given.text("mem-per-cpu"), given.spelling("mem-per-cpu"))
    elif given.has("mem"):
        mib = parse_memory(given.text("mem"), given.spelling("mem"))
        if not mib and not request["exclusive"]:
            raise OptionError(
                given.spelling("mem"),
                given.text("mem"),
                "is all memory of a node",
                "add --exclusive, or name an amount",
            )
        request["memory_per_node_mib"] = mib


def _exclusive(given: Words) -> bool:
    kind = given.text("exclusive")
    if kind:
        raise OptionError(
            given.spelling("exclusive"), kind, "is a kind that is not supported", "use --exclusive alone"
        )
    return given.has("exclusive")


def _add_times(job: dict[str, Any], given: Words, around: Surroundings) -> None:
    if given.has("time"):
        job["time_limit_s"] = parse_time_limit(given.text("time"), given.spelling("time"))
    if given.has("begin"):
        option, text = given.spelling("begin"), given.text("begin")
        begin_us = parse_moment(text, around.now_us, around.offset_s, option)
        job["begin_us"] = begin_us if begin_us > around.now_us else 0


def _add_order(job: dict[str, Any], given: Words) -> None:
    if given.has("priority"):
        job["priority"] = _priority(given)
    if given.has("dependency"):
        conditions = parse_dependencies(given.text("dependency"), given.spelling("dependency"))
        job["dependencies"] = [
            {"kind": kind, "job_id": job_id, "delay_s": delay_s} for kind, job_id, delay_s in conditions
        ]
    if given.has("array"):
        ranges, limit = parse_array(given.text("array"), given.spelling("array"))
        job["array"] = [{"first": first, "last": last, "step": step} for first, last, step in ranges]
        job["array_limit"] = limit


def _add_files(job: dict[str, Any], given: Words) -> None:
    job["output"] = _file_name(given, "output") or default_output("array" in job)
    job["error"] = _file_name(given, "error")
    job["input"] = _file_name(given, "input")
    mode = given.text("open-mode", "append")
    if mode not in ("append", "a", "truncate", "t"):
        raise OptionError(
            given.spelling("open-mode"), mode, "is not a way to open files", "use append or truncate"
        )
    job["truncate_output"] = mode.startswith("t")


def _file_name(given: Words, long: str) -> str:
    name = given.text(long)
    if given.has(long) and not name.strip():
        raise OptionError(given.spelling(long), name, "is not a file name", f"use e.g. --{long} run-%j.txt")
    return _checked_path(name, given.spelling(long))


def _work_dir(given: Words, cwd: str) -> str:
    chosen = given.text("chdir")
    if given.has("chdir") and not chosen:
        raise OptionError(given.spelling("chdir"), "", "is not a directory", "use e.g. --chdir /scratch/run1")
    if chosen and not chosen.startswith("/"):
        chosen = f"{cwd.rstrip('/')}/{chosen}"
    return _checked_path(chosen or cwd, given.spelling("chdir"))


def _checked_path(name: str, option: str) -> str:
    if len(name) > _PATH_CHARS_MAX:
        raise OptionError(option, name, f"is longer than {_PATH_CHARS_MAX} characters", "use a shorter name")
    if not _is_utf8(name):
        raise OptionError(option, name, "is not UTF-8 text", "use another name")
    return name


def _short_text(given: Words, long: str, default: str = "") -> str:
    text = given.text(long, default)
    why = ""
    if given.has(long) and not text and long != "comment":
        why = "is empty"
    elif len(text) > _TEXT_CHARS_MAX:
        why = f"is longer than {_TEXT_CHARS_MAX} characters"
    elif not text.isprintable():
        why = "holds control characters"
    if why:
        raise OptionError(given.spelling(long), text, why, "use a short text on one line")
    return text


def _count(given: Words, long: str) -> int:
    """A positive number, or 0 when the option was not given."""
    if not given.has(long):
        return 0
    text = given.text(long)
    number = whole_number(text, 10)
    if not 0 < number <= _COUNT_MAX:
        raise OptionError(given.spelling(long), text, "is not a number from 1 on", f"use e.g. --{long} 4")
    return number


def _priority(given: Words) -> int:
    text = given.text("priority")
    number = whole_number(text, 10)
    if not 0 <= number < 2**32:
        raise OptionError(
            given.spelling("priority"),
            text,
            f"is not a number from 0 to {2**32 - 1}",
            "use e.g. --priority 100",
        )
    return number


def _node_names(given: Words, long: str) -> list[str]:
    if not given.has(long):
        return []
    return list(dict.fromkeys(expand(given.text(long), given.spelling(long))))


def _checked_arguments(arguments: Sequence[str]) -> list[str]:
    size = sum(len(argument.encode("utf-8", "surrogateescape")) + 1 for argument in arguments)
    if size > _ARGUMENTS_BYTES_MAX:
        raise OptionError(
            "arguments",
            arguments[0],
            f"and the rest are longer than {_ARGUMENTS_BYTES_MAX} bytes",
            "pass them in a file",
        )
    for argument in arguments:
        if not _is_utf8(argument):
            raise OptionError(
                "argument", argument, "is not UTF-8 text", "rename the file, or pass it another way"
            )
    return list(arguments)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _environment(around: Surroundings) -> bytes:
    variables = dict(around.environment)
    for prefix in ("SLURM", "ESLURM"):
        variables[f"{prefix}_SUBMIT_DIR"] = around.cwd
        variables[f"{prefix}_SUBMIT_HOST"] = around.host
    blob = encode_environment(variables)
    if len(blob) > _ENVIRONMENT_BYTES_MAX:
        raise OptionError(
            "--export",
            "ALL",
            f"gives an environment of more than {_ENVIRONMENT_BYTES_MAX} bytes",
            "export less, e.g. --export NONE or --export PATH,HOME",
        )
    return blob
