"""From options to a job request: the content of `essubmit`'s call.

Errors that can be found without the cluster are refused here, so nothing is sent for them. The request is a plain mapping
in the shape of `wire.JOB_REQUEST`.
"""

from __future__ import annotations

from escli.option_table import PASSED
from escli.user.draft_resources import draft_resources, positive
from escli.wire_tables import JOB_REQUEST
from eslurm.compat.arrays import parse_array
from eslurm.compat.dependencies import dependency_fields, parse_dependencies
from eslurm.compat.durations import parse_time_limit
from eslurm.compat.environment import encode_environment
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.filenames import default_output
from eslurm.compat.moments import parse_moment
from eslurm.compat.request_checks import checked_arguments, checked_line, checked_path
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from escli.options import Words

_NICE_DEFAULT = 100
_GATEWAY_OPTIONS = (
    "gateways",
    "gateways-per-node",
    "gateway-file",
    "gateway-plugin",
    "gateway-env",
    "gateway-binary",
    "gateway-cleanup",
    "gateway-quiet",
    "gateway-debug",
    "gateway-inherit",
)
_RETRY_OPTIONS = ("retry-on", "grow-time", "max-time", "grow-mem", "max-mem")
_PASSED = tuple((long, long.replace("-", "_")) for long in PASSED)


class SubmitContext:
    """The submitting process's data, as values: the drafting itself reads no clock or file."""

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
    given: Words,
    script: bytes,
    name: str,
    arguments: Sequence[str],
    around: SubmitContext,
    parts: Sequence[Words] = (),
) -> dict[str, Any]:
    """The request for one job. `name` is the job's when no option names it. Raises OptionError.

    `parts` are each part's own options if there are several.
    """
    job: dict[str, Any] = {
        "name": _short_text(given, "job-name", name),
        **{field: _passed(given, long, field) for long, field in _PASSED if given.has(long)},
        "components": [_draft_part(own) for own in parts] or [draft_resources(given)],
        "script": script,
        "arguments": list(checked_arguments(arguments)),
        "environment": _environment(around),
        "work_dir": _work_dir(given, around.cwd),
        "umask": around.umask,
        "held": given.has("hold"),
    }
    if given.has("requeue") or given.has("no-requeue"):
        job["requeue"] = given.has("requeue")
    if given.has("mail-type") or given.has("mail-user"):
        _add_mail(job, given)
    _add_gateways(job, given)
    _add_times(job, given, around)
    _add_retries(job, given)
    _add_warning(job, given, around)
    _add_order(job, given)
    _add_files(job, given)
    return job


def _add_mail(job: dict[str, Any], given: Words) -> None:
    from eslurm.compat.slurm.mail_text import parse_mail_type, parse_mail_user

    if given.has("mail-type"):
        job["mail_type"] = parse_mail_type(given.text("mail-type"), given.spelling("mail-type"))
    if given.has("mail-user"):
        job["mail_user"] = parse_mail_user(given.text("mail-user"), given.spelling("mail-user"))


def _draft_part(own: Words) -> dict[str, Any]:
    partition = {"partition": _passed(own, "partition", "partition")} if own.has("partition") else {}
    return {**draft_resources(own), **partition}


def _add_gateways(job: dict[str, Any], given: Words) -> None:
    """Add the gateways between modules (X-50)."""
    asked = [long for long in _GATEWAY_OPTIONS if given.has(long)]
    if not asked:
        return
    if not given.has("gateways"):
        raise OptionError(
            given.spelling(asked[0]), given.text(asked[0]) or None, "needs gateways", "add e.g. --gateways 2"
        )
    from eslurm.compat import gateways

    gateway: dict[str, Any] = {
        "count": positive(given, "gateways", limits.GATEWAYS_MAX),
        **{word: given.has(f"gateway-{word}") for word in ("cleanup", "quiet", "debug")},
    }
    if given.has("gateway-inherit"):
        text, option = given.text("gateway-inherit"), given.spelling("gateway-inherit")
        gateway["apart"] = not gateways.parse_inherit(text, option)
    if given.has("gateways-per-node"):
        gateway["per_node"] = positive(given, "gateways-per-node", limits.GATEWAYS_PER_NODE_MAX)
    if given.has("gateway-plugin"):
        name, option = given.text("gateway-plugin"), given.spelling("gateway-plugin")
        gateway["plugin"] = gateways.checked_plugin(name, option)
    if given.has("gateway-env"):
        gateway["env"] = list(
            gateways.parse_gateway_env(given.text("gateway-env"), given.spelling("gateway-env"))
        )
    for long, field in (("gateway-file", "file"), ("gateway-binary", "binary")):
        if given.has(long):
            gateway[field] = gateways.checked_absolute(given.spelling(long), given.text(long))
    job["gateway"] = gateway


def _add_times(job: dict[str, Any], given: Words, around: SubmitContext) -> None:
    if given.has("time"):
        job["time_limit_s"] = parse_time_limit(given.text("time"), given.spelling("time"))
    if given.has("begin"):
        option, text = given.spelling("begin"), given.text("begin")
        begin_us = parse_moment(text, around.now_us, around.offset_s, option)
        job["begin_us"] = begin_us if begin_us > around.now_us else 0
    for long, field in (("start-at", "start_at_us"), ("deadline", "deadline_us")):
        if given.has(long):
            job[field] = _future(given, long, around)
    if job.get("start_at_us") and job.get("deadline_us", job["start_at_us"] + 1) <= job["start_at_us"]:
        raise OptionError(
            given.spelling("deadline"), given.text("deadline"), "is not after --start-at", "give a later one"
        )


def _add_retries(job: dict[str, Any], given: Words) -> None:
    """Add the retries by the server."""
    asked = [long for long in _RETRY_OPTIONS if given.has(long)]
    if not asked:
        return
    from eslurm.compat import retries
    from eslurm.compat.sizes import parse_memory

    causes: tuple[str, ...] = ()
    if given.has("retry-on"):
        option = given.spelling("retry-on")
        causes, job["retries_max"] = retries.parse_retry_on(given.text("retry-on"), option)
        job["retry_on"] = list(causes)
    for long in asked:
        option, needed = given.spelling(long), retries.NEEDED.get(f"--{long}", "")
        if needed and needed not in causes:
            way_out = f"use e.g. {retries.RETRY_ON}={needed}:2"
            raise OptionError(option, given.text(long), f"needs {retries.RETRY_ON} with {needed}", way_out)
    for long, field in (("grow-time", "grow_time_percent"), ("grow-mem", "grow_memory_percent")):
        if given.has(long):
            job[field] = retries.parse_factor(given.text(long), given.spelling(long))
    for long, field, parse in (
        ("max-time", "max_time_s", parse_time_limit),
        ("max-mem", "max_memory_mib", parse_memory),
    ):
        if given.has(long):
            option, text = given.spelling(long), given.text(long)
            job[field] = parse(text, option)
            if not job[field]:
                raise OptionError(option, text, "is no bound", "leave it out, or give an amount above 0")


def _add_warning(job: dict[str, Any], given: Words, around: SubmitContext) -> None:
    """Add the actions before the time limit (C-40)."""
    if given.has("signal"):
        from eslurm.compat.signals import parse_warning

        signal, before_s, batch_only = parse_warning(given.text("signal"), given.spelling("signal"))
        job["warn_signal"], job["warn_before_s"], job["warn_batch_only"] = signal, before_s, batch_only
    if given.has("warn-script"):
        from eslurm.compat.signals import BEFORE_DEFAULT_S

        job["warn_script"] = _path(given, "warn-script", around.cwd)
        job.setdefault("warn_before_s", BEFORE_DEFAULT_S)


def _path(given: Words, long: str, cwd: str) -> str:
    name = given.text(long)
    if not name.strip():
        raise OptionError(given.spelling(long), name, "is not a file name", f"use e.g. --{long} save.sh")
    return checked_path(given.spelling(long), name if name.startswith("/") else f"{cwd.rstrip('/')}/{name}")


def _future(given: Words, long: str, around: SubmitContext) -> int:
    option, text = given.spelling(long), given.text(long)
    at_us = parse_moment(text, around.now_us, around.offset_s, option)
    if at_us <= around.now_us:
        raise OptionError(option, text, "has passed already", f"use e.g. --{long} now+2hours")
    return at_us


def _add_order(job: dict[str, Any], given: Words) -> None:
    if given.has("priority"):
        job["priority"] = _priority(given)
    if given.has("nice"):
        job["nice"] = _nice(given)
    if given.has("dependency"):
        conditions, is_any = parse_dependencies(given.text("dependency"), given.spelling("dependency"))
        job["dependencies"] = [dependency_fields(condition) for condition in conditions]
        job["dependency_any"] = is_any
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
    return checked_path(given.spelling(long), name)


def _work_dir(given: Words, cwd: str) -> str:
    chosen = given.text("chdir")
    if given.has("chdir") and not chosen:
        raise OptionError(
            given.spelling("chdir"), chosen, "is not a directory", "use e.g. --chdir /scratch/run1"
        )
    if chosen and not chosen.startswith("/"):
        chosen = f"{cwd.rstrip('/')}/{chosen}"
    return checked_path(given.spelling("chdir"), chosen or cwd)


def _passed(given: Words, long: str, field: str) -> str | int | bool:
    """The option's value in the form of the request's field."""
    match JOB_REQUEST[field][1]:
        case "bool":
            return True
        case "int":
            return positive(given, long)
        case _:
            return _short_text(given, long, chars_max=limits.LINE_CHARS_MAX.get(field, limits.NAME_CHARS_MAX))


def _short_text(given: Words, long: str, default: str = "", chars_max: int = limits.NAME_CHARS_MAX) -> str:
    text = given.text(long, default)
    if given.has(long) and not text and long != "comment":
        raise OptionError(given.spelling(long), None, "is empty", "use a short text on one line")
    return checked_line(given.spelling(long), text, chars_max)


def _priority(given: Words) -> int:
    text = given.text("priority")
    number = whole_number(text, 10)
    if not 0 <= number <= limits.PRIORITY_MAX:
        raise OptionError(
            given.spelling("priority"),
            text,
            f"is not a number from 0 to {limits.PRIORITY_MAX}",
            "use e.g. --priority 100",
        )
    return number


def _nice(given: Words) -> int:
    text = given.text("nice") or str(_NICE_DEFAULT)
    number = whole_number(text.removeprefix("-").removeprefix("+"), 10)
    if not 0 <= number <= limits.NICE_MAX:
        raise OptionError(
            given.spelling("nice"),
            text,
            f"is not a number from -{limits.NICE_MAX} to {limits.NICE_MAX}",
            "use --nice=100",
        )
    return -number if text.startswith("-") else number


def _environment(around: SubmitContext) -> bytes:
    variables = dict(around.environment)
    for prefix in ("SLURM", "ESLURM"):
        variables[f"{prefix}_SUBMIT_DIR"] = around.cwd
        variables[f"{prefix}_SUBMIT_HOST"] = around.host
    blob = encode_environment(variables)
    if len(blob) > limits.ENVIRONMENT_BYTES_MAX:
        raise OptionError(
            "--export",
            "ALL",
            f"gives an environment of more than {limits.ENVIRONMENT_BYTES_MAX} bytes",
            "export less, e.g. --export NONE or --export PATH,HOME",
        )
    return blob
