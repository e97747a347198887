"""Launches of releases whose `JobLaunch` had fields of its own instead of the job's spec: in spools and sealed commands.

Invariant: what is of this release is decoded once and nothing else is looked at; what is of neither raises
`msgspec.ValidationError`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from eslurm.core.model.job import JobSpec
from eslurm.core.model.protocol import Command, JobLaunch
from eslurm.core.model.request import Request

T = TypeVar("T")

_FIELDS: Final = (
    *("job_id", "attempt", "name", "user", "partition", "groups", "node_names", "node_count", "script_hash"),
    *("environment_hash", "work_dir", "tasks", "cpus_per_task", "arguments", "output", "error", "input"),
    *("append_output", "umask", "time_limit_s", "kill_grace_s", "orphan_timeout_s", "array_job_id"),
    *("array_task", "array_count", "array_min", "array_max", "restarts", "account", "qos", "reservation"),
    *("warn_signal", "warn_before_s", "warn_batch_only", "warn_script", "devices", "trace"),
)
_REQUIRED = _FIELDS.index("arguments")
_PLACES = {"prepare": 1, "start": 3, "launch_step": 12, 5: 4}
"""Index of the launch in a command's body and in the spool's `Prepared`, by their tags."""
_COMMAND_BODY = 8
_commands = msgspec.msgpack.Decoder(Command)


def decode_command(body: bytes) -> Command:
    """The command in a sealed body. Raises as a decoder does."""
    return decode(_commands, body)


def decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    """A command, or a record of the agent's spool, of this release or an earlier one. Raises as the decoder does."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        found = msgspec.msgpack.decode(data)
        if not _bring_forward(found):
            raise
        return msgspec.convert(found, decoder.type)


def _bring_forward(found: Any) -> bool:
    """Give the launch in a command or record the form of this release. False: there is none of an earlier one."""
    if isinstance(found, list) and len(found) > _COMMAND_BODY and isinstance(found[_COMMAND_BODY], list):
        found = found[_COMMAND_BODY]
    if not (isinstance(found, list) and found and isinstance(found[0], str | int)):
        return False
    place = _PLACES.get(found[0], len(found))
    launch = found[place] if place < len(found) else None
    if not isinstance(launch, list) or len(launch) < _REQUIRED:
        return False
    values = dict(zip(_FIELDS, launch, strict=False))
    values["components"] = [_as_array(Request, {"cpus_per_task": values["cpus_per_task"]})]
    values["spec"] = _as_array(JobSpec, values)
    found[place] = _as_array(JobLaunch, values)
    return True


def _as_array(kind: type[msgspec.Struct], values: dict[str, Any]) -> list[Any]:
    """A struct's fields in order, with defaults for those that are not there."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return [values.get(name, default) for name, default in defaults.items()]
