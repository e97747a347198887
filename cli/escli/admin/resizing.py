"""`esctl update job ID nodes=-2`: the nodes of a running job change in place."""

from __future__ import annotations

import os

from escli import exits, program
from escli.as_json import to_json
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from escli.api import Api

_SIGNS = ("+", "-")


def is_relative(resources: Mapping[str, tuple[str, str]]) -> bool:
    """Check whether a word says more or fewer nodes, which only a running job can have."""
    return any(
        option in ("nodes", "nodelist") and value[:1] in _SIGNS for option, (value, _) in resources.items()
    )


def resize_request(job: Any, resources: Mapping[str, tuple[str, str]]) -> Any:
    """The request for `nodes=-2`, `nodes=4`, `nodelist=cn[1-4]` or `nodelist=-cn4`. Raises OptionError."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.ResizeJobRequest(job=job)
    if len(resources) > 1:
        other = next(key for option, (_, key) in resources.items() if option != "nodes")
        raise OptionError(other, None, "goes not with nodes= of a running job", "give one of them")
    ((option, (value, key)),) = resources.items()
    sign, rest = (value[:1], value[1:]) if value[:1] in _SIGNS else ("", value)
    if option == "nodes":
        count = whole_number(rest, 10)
        if not 0 < count <= limits.COUNT_MAX:
            raise OptionError(
                key, value, "is not a number of nodes for a running job", f"use e.g. {key}=-2 or {key}=4"
            )
        if sign:
            request.by_nodes = -count if sign == "-" else count
        else:
            request.to_nodes = count
        return request
    if option != "nodelist":
        raise OptionError(key, value, "stays as it is while the job runs", "change its nodes= alone")
    (request.without if sign == "-" else request.nodes).extend(expand(rest, key, limits.NODES_NAMED_MAX))
    return request


def resize(api: Api, request: Any, *, as_json: bool) -> int:
    """Make the call and say what comes of it."""
    reply = api.call("ResizeJob", request, request_id=os.urandom(16))
    program.say(to_json(reply) if as_json else resized(reply, dry_run=request.dry_run))
    return exits.OK


def resized(reply: Any, *, dry_run: bool) -> str:
    """`job 17: 4 nodes, 16 cpus -> 2 nodes, 8 cpus`, and what is still waited for."""
    lines = [f"job {reply.job_id}: {_amounts(reply.before)}"]
    if reply.after != reply.before:
        lines[0] += f" -> {_amounts(reply.after)}"
    if reply.leaving:
        verb = "would be" if dry_run else "are"
        lines.append(f"{verb} given back, and free when nothing of the job is left there: {reply.leaving}")
    if reply.steps:
        lines.append(f"steps with tasks there, which are ended: {', '.join(map(str, reply.steps))}")
    return "\n".join(lines)


def _amounts(one: Any) -> str:
    return f"{one.nodes} node{'' if one.nodes == 1 else 's'}, {one.cpus} cpus"
