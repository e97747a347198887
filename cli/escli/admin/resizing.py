"""`esctl update job ID nodes=+2`: the nodes of a running job change in place."""

from __future__ import annotations

import os

from escli import clock, exits, program
from escli.as_json import to_json
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.core.model import request_limits as limits
from eslurm.core.model.dates import format_moment

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
    """The request for `nodes=+2`, `nodes=4`, `nodelist=cn[1-4]` or `nodelist=-cn4`. Raises OptionError."""
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
                key,
                value,
                "is not a number of nodes for a running job",
                f"use e.g. {key}=+2, {key}=-2 or {key}=4",
            )
        if sign:
            request.by_nodes = -count if sign == "-" else count
        else:
            request.to_nodes = count
        return request
    if option != "nodelist":
        raise OptionError(key, value, "stays as it is while the job runs", "change its nodes= alone")
    if sign == "+":
        raise OptionError(key, value, "adds nodes by name to unnamed ones", f"name all: {key}=cn[1-4]")
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
    if reply.withdrawn:
        lines.append(f"growth {reply.withdrawn} {'would be' if dry_run else 'is'} withdrawn")
    if reply.leaving:
        verb = "would be" if dry_run else "are"
        lines.append(f"{verb} given back, and free when nothing of the job is left there: {reply.leaving}")
    if reply.steps:
        lines.append(f"steps with tasks there, which are ended: {', '.join(map(str, reply.steps))}")
    if reply.more:
        lines.append(_growth(reply, dry_run=dry_run))
    return "\n".join(lines)


def _growth(reply: Any, *, dry_run: bool) -> str:
    """`growth 57, 2 nodes more: planned for 2026-11-28T14:05:00 (eswhy 57)`, or the nodes that have joined."""
    count = f"{reply.more} node{'' if reply.more == 1 else 's'} more"
    if dry_run:
        return f"would ask for {count}"
    what = f"growth {reply.growth_id}, {count}"
    if reply.state != "PENDING":
        return f"{what}: {reply.reason or reply.state.lower()}"
    if reply.planned_start_us:
        return f"{what}: planned for {format_moment(reply.planned_start_us, clock.local_offset_s)} (eswhy {reply.job_id})"
    return f"{what}: {reply.reason} (eswhy {reply.job_id})"


def _amounts(one: Any) -> str:
    return f"{one.nodes} node{'' if one.nodes == 1 else 's'}, {one.cpus} cpus"
