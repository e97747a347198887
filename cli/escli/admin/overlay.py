"""Changed resources of a waiting job: its original options, overlaid by the given ones.

A given option replaces those that it excludes; one without a value is removed. Invariant: the result is what `essubmit`
would send for the same options.
"""

from __future__ import annotations

from escli.options import Words
from escli.user.draft_resources import GPU_OPTIONS, WITHOUT_RSET, draft_resources
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.gres import GPU, parse_gres
from eslurm.compat.rset import PLACES
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeAlias

    Given: TypeAlias = Mapping[str, tuple[str, str]]

_CPUS = "numcpus"
_PLACE = "place"
RESOURCES: Mapping[str, str] = {
    "nodes": "nodes",
    "numnodes": "nodes",
    "reqnodes": "nodes",
    "minnodes": "nodes",
    "ntasks": "ntasks",
    "numtasks": "ntasks",
    "ntasks-per-node": "ntasks-per-node",
    "taskspernode": "ntasks-per-node",
    "cpus-per-task": "cpus-per-task",
    "cpuspertask": "cpus-per-task",
    "mem": "mem",
    "memory": "mem",
    "minmemorynode": "mem",
    "mem-per-cpu": "mem-per-cpu",
    "minmemorycpu": "mem-per-cpu",
    "gres": "gres",
    "trespernode": "gres",
    "gpus": "gpus",
    "gpus-per-node": "gpus-per-node",
    "gpus-per-task": "gpus-per-task",
    "licenses": "licenses",
    "constraint": "constraint",
    "features": "constraint",
    "rset": "rset",
    "place": _PLACE,
    "exclusive": "exclusive",
    "nodelist": "nodelist",
    "reqnodelist": "nodelist",
    "exclude": "exclude",
    "excnodelist": "exclude",
    "numcpus": _CPUS,
}
"""The words of `esctl update`, scontrol's among them, by what they change; `numcpus` is the cores of all tasks."""
_INSTEAD: Mapping[str, tuple[str, ...]] = {
    "mem": ("mem-per-cpu",),
    "mem-per-cpu": ("mem",),
    "rset": (*WITHOUT_RSET, "exclusive"),
    "gres": ("gpus-per-node",),
    **dict.fromkeys(GPU_OPTIONS, GPU_OPTIONS),
}
_FLAGS: Mapping[str, bool] = {
    "yes": True,
    "true": True,
    "1": True,
    "no": False,
    "false": False,
    "0": False,
    "": False,
}


def changed_resources(asked: Iterable[str], given: Given) -> dict[str, Any]:
    """The component of a job with options `asked` (`option=value`), overlaid by `given` (value, key), in the shape of
    `wire.JOB_REQUEST`. Raises OptionError.
    """
    options = {option: value for option, _, value in (word.partition("=") for word in asked)}
    spellings: dict[str, str] = {}
    for option, (value, _) in given.items():
        _make_way(options, option, value)
    for option, (value, key) in given.items():
        if option in (_CPUS, _PLACE, "exclusive"):
            continue
        spellings[option] = key
        if value:
            options[option] = value
    if "exclusive" in given:
        _set_exclusive(options, *given["exclusive"])
    if _PLACE in given:
        _set_place(options, *given[_PLACE])
    if _CPUS in given:
        _set_cpus(options, spellings, *given[_CPUS])
    words = Words()
    for option, value in options.items():
        words.put(option, "" if option == "exclusive" else value, spellings.get(option, f"--{option}"))
    request = draft_resources(words)
    if request["tasks"] > limits.COUNT_MAX:
        option = "rset" if "rset" in options else "ntasks"
        raise OptionError(
            option, str(request["tasks"]), f"are more tasks than {limits.COUNT_MAX}", "ask for fewer"
        )
    return request


def _make_way(options: dict[str, str], option: str, value: str) -> None:
    """Remove the option's old value, and the options that it excludes."""
    names = {name for name, _, _ in parse_gres(value, option)} if option == "gres" and value else set()
    others = _INSTEAD.get(option, ()) if value or option in ("gres", *GPU_OPTIONS) else ()
    for other in (*others, *(GPU_OPTIONS if GPU in names else ())):
        options.pop(other, None)
    if option in GPU_OPTIONS and "gres" in options:
        kept = [one for one in options["gres"].split(",") if one.partition(":")[0] != GPU]
        options["gres"] = ",".join(kept)
        if not kept:
            del options["gres"]
    if option != "exclusive":
        options.pop(option, None)


def _set_exclusive(options: dict[str, str], value: str, key: str) -> None:
    is_set = _FLAGS.get(value.lower())
    if is_set is None:
        raise OptionError(key, value, "is neither yes nor no", f"use {key}=yes or {key}=no")
    options.pop("exclusive", None)
    if "rset" in options:
        chunks, place = _apart(options["rset"])
        kept = [word for word in place if word not in ("excl", "exclusive", "shared")]
        options["rset"] = _together(chunks, kept)
    if is_set:
        options["exclusive"] = "yes"


def _set_place(options: dict[str, str], value: str, key: str) -> None:
    if "rset" not in options:
        raise OptionError(key, value, "is for jobs of chunks", "ask for chunks: rset=8:ncpus=2,place=scatter")
    words = value.split(":") if value else []
    wrong = [word for word in words if word not in (*PLACES, "excl", "exclusive", "shared")]
    if wrong:
        raise OptionError(
            key, value, f"is no placement at '{wrong[0]}'", "use free, pack or scatter, and excl or shared"
        )
    chunks, place = _apart(options["rset"])
    if not {"excl", "exclusive", "shared"} & set(words):
        words += [word for word in place if word not in PLACES]
    options["rset"] = _together(chunks, words)


def _apart(rset: str) -> tuple[list[str], list[str]]:
    """The parts between commas without the placement, and its words."""
    parts = rset.split(",")
    place = [part.removeprefix("place=") for part in parts if part.startswith("place=")]
    return [part for part in parts if not part.startswith("place=")], [
        w for one in place for w in one.split(":")
    ]


def _together(parts: list[str], place: list[str]) -> str:
    return ",".join([*parts, f"place={':'.join(place)}"] if place else parts)


def _set_cpus(options: dict[str, str], spellings: dict[str, str], value: str, key: str) -> None:
    """Set the total number of cores, by the number of tasks."""
    number = whole_number(value, 10)
    each = whole_number(options.get("cpus-per-task", "1"), 10)
    if not 0 < number <= limits.COUNT_MAX or each < 1 or number % each:
        why = (
            f"is no multiple of {each} cores a task"
            if number > 0 and each > 1
            else "is not a number from 1 on"
        )
        raise OptionError(key, value, why, "use ntasks= and cpus-per-task=")
    spellings["ntasks"] = key
    options["ntasks"] = str(number // each)
