"""A job's resources, from the options to the request: tasks on nodes, or chunks; devices, features, licences (C-16, C-17).

`--gpus` and the other GPU options become amounts on each node or with each task, a type becomes a feature that the nodes
must have: the core knows one form only. Invariant: a contradiction on any cluster is refused here.
"""

from __future__ import annotations

from eslurm.compat.constraints import parse_constraint
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.gres import GPU, parse_gpus, parse_gres, typed
from eslurm.compat.hostlist import expand
from eslurm.compat.licenses import parse_licenses
from eslurm.compat.nodecounts import parse_node_count
from eslurm.compat.request_checks import checked_line, checked_nodes
from eslurm.compat.rset import parse_rset
from eslurm.compat.sizes import parse_memory
from eslurm.core.model import request_limits as limits
from eslurm.core.model.features import both

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from escli.options import Words

GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task")
WITHOUT_RSET = (
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "mem",
    "mem-per-cpu",
    "gres",
    *GPU_OPTIONS,
)


def draft_resources(given: Words) -> dict[str, Any]:
    """The resources of the job, or of one of its parts. Raises OptionError."""
    if given.has("rset"):
        return _chunks(given)
    nodes_min, nodes_max = (0, 0)
    if given.has("nodes"):
        nodes_min, nodes_max = parse_node_count(given.text("nodes"), given.spelling("nodes"))
    tasks_per_node = positive(given, "ntasks-per-node")
    tasks = positive(given, "ntasks")
    request: dict[str, Any] = {
        "tasks": tasks or max(1, nodes_min) * max(1, tasks_per_node),
        "cpus_per_task": positive(given, "cpus-per-task") or 1,
        "nodes_min": nodes_min,
        "nodes_max": nodes_max,
        "tasks_per_node": tasks_per_node,
        "exclusive": _exclusive(given),
        "include": _node_names(given, "nodelist"),
        "exclude": _node_names(given, "exclude"),
    }
    _check_shape(given, request, tasks)
    _add_memory(request, given)
    _add_for_job(request, given, _add_devices(request, given, tasks))
    return request


def claim_amounts(given: Words) -> dict[str, Any]:
    """The claim of a step to resources of its job besides cores, as fields of a `StepClaim`. Raises OptionError."""
    nodes = positive(given, "nodes")
    tasks = positive(given, "ntasks")
    # `--mem 0` is all memory that the job has: nothing that other steps do not have.
    request: dict[str, Any] = {"exclusive": True, "tasks": tasks or max(1, nodes)}
    request |= {"nodes_min": nodes, "nodes_max": nodes}
    _exclusive(given)
    _add_memory(request, given)
    _add_devices(request, given, tasks)
    return {
        "memory_mib": request.get("memory_per_node_mib", 0),
        "memory_per_cpu_mib": request.get("memory_per_cpu_mib", 0),
        "per_node": request["per_node"],
        "per_task": request["per_task"],
    }


def _chunks(given: Words) -> dict[str, Any]:
    """`--rset` in place of the options for tasks, cores, memory and devices."""
    for long in WITHOUT_RSET:
        if given.has(long):
            raise OptionError(
                given.spelling(long),
                given.text(long),
                "excludes --rset",
                "say it in the chunks, or leave out --rset",
            )
    parsed = parse_rset(given.text("rset"), given.spelling("rset"))
    request: dict[str, Any] = {
        "tasks": sum(chunk.count for chunk in parsed.chunks),
        "cpus_per_task": parsed.chunks[0].cores,
        "exclusive": parsed.exclusive or _exclusive(given),
        "include": _node_names(given, "nodelist"),
        "exclude": _node_names(given, "exclude"),
        "place": parsed.place,
        "chunks": [
            {
                "count": chunk.count,
                "cores": chunk.cores,
                "memory_mib": chunk.memory_mib,
                "resources": _amounts(chunk.resources),
                "constraint": chunk.constraint,
            }
            for chunk in parsed.chunks
        ],
    }
    _check_names(given, request)
    _add_for_job(request, given, parsed.constraint)
    return request


def _add_for_job(request: dict[str, Any], given: Words, constraint: str) -> None:
    """Add features of all nodes, besides `constraint`, and cluster-wide resources."""
    if given.has("constraint"):
        asked = parse_constraint(given.text("constraint"), given.spelling("constraint"))
        constraint = both(constraint, asked)
    request["constraint"] = constraint
    if given.has("module"):
        request["module"] = checked_line(given.spelling("module"), given.text("module"))
    if given.has("licenses"):
        request["wide"] = _amounts(parse_licenses(given.text("licenses"), given.spelling("licenses")))


def _add_devices(request: dict[str, Any], given: Words, tasks: int) -> str:
    """Add GPUs and other resources of nodes: on each node, or with each task. Returns the features of their types."""
    gres = parse_gres(given.text("gres"), given.spelling("gres")) if given.has("gres") else ()
    constraint = ""
    for name, kind, _ in gres:
        constraint = both(constraint, typed(name, kind))
    per_node = [(name, count) for name, _, count in gres]
    asking = [long for long in GPU_OPTIONS if given.has(long)]
    if asking and (len(asking) > 1 or any(name == GPU for name, _ in per_node)):
        other = f"--{asking[1]}" if len(asking) > 1 else "--gres"
        raise OptionError(
            given.spelling(asking[0]), given.text(asking[0]), f"excludes {other}", "give one of them"
        )
    per_task: list[tuple[str, int]] = []
    if asking:
        kind, count = parse_gpus(given.text(asking[0]), given.spelling(asking[0]))
        constraint = both(constraint, typed(GPU, kind))
        if asking[0] == "gpus-per-task":
            per_task.append((GPU, count))
        elif asking[0] == "gpus-per-node":
            per_node.append((GPU, count))
        else:
            _spread_gpus(request, given, count, tasks, per_node, per_task)
    request["per_node"] = _amounts(per_node)
    request["per_task"] = _amounts(per_task)
    return constraint


def _spread_gpus(
    request: Mapping[str, Any],
    given: Words,
    count: int,
    tasks: int,
    per_node: list[tuple[str, int]],
    per_task: list[tuple[str, int]],
) -> None:
    """Spread `--gpus N`, which is for the whole job, evenly over its nodes or its tasks."""
    option, text = given.spelling("gpus"), given.text("gpus")
    nodes = request["nodes_min"]
    if nodes != request["nodes_max"]:
        raise OptionError(option, text, "cannot be shared out over a range of nodes", "use --gpus-per-node")
    if nodes and count % nodes:
        raise OptionError(
            option,
            text,
            f"cannot be shared out evenly over {nodes} nodes",
            "use --gpus-per-node or --gpus-per-task",
        )
    if nodes:
        per_node.append((GPU, count // nodes))
        return
    sharing = tasks or request["tasks"]
    if count % sharing:
        raise OptionError(
            option,
            text,
            f"cannot be shared out evenly over {sharing} tasks",
            "use --gpus-per-task, or chunks: --rset",
        )
    per_task.append((GPU, count // sharing))


def _amounts(named: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "items": items} for name, items in named]


def _check_shape(given: Words, request: Mapping[str, Any], tasks: int) -> None:
    """Refuse contradictions on any cluster."""
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
    _check_names(given, request)
    if request["nodes_max"] and len(request["include"]) > request["nodes_max"]:
        raise OptionError(
            given.spelling("nodelist"),
            given.text("nodelist"),
            f"names more than {request['nodes_max']} nodes",
            f"use -N {len(request['include'])} or name fewer",
        )


def _check_names(given: Words, request: Mapping[str, Any]) -> None:
    twice = sorted(set(request["include"]) & set(request["exclude"]))
    if twice:
        raise OptionError(
            given.spelling("exclude"), twice[0], "is also in --nodelist", "name it in one of them"
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


def positive(given: Words, long: str, most: int = limits.COUNT_MAX) -> int:
    """A positive number up to `most`, or 0 when the option was not given."""
    if not given.has(long):
        return 0
    text = given.text(long)
    number = whole_number(text, 10)
    if not 0 < number <= most:
        bound = "on" if most == limits.COUNT_MAX else f"to {most}"
        raise OptionError(
            given.spelling(long), text, f"is not a number from 1 {bound}", f"use e.g. --{long} 4"
        )
    return number


def _node_names(given: Words, long: str) -> list[str]:
    if not given.has(long):
        return []
    names = list(dict.fromkeys(expand(given.text(long), given.spelling(long), limits.NODES_NAMED_MAX)))
    return list(checked_nodes(given.spelling(long), names))
