"""Actions of `esctl` on a running job. Inside the job they need no job id."""

from __future__ import annotations

import os

from escli import changes, exits, program
from escli.as_json import to_json
from escli.job_refs import job_refs
from eslurm.compat.dependencies import dependency_fields, parse_dependencies
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from escli.api import Api
    from escli.options import Words


def finish_part(api: Api, words: list[str], given: Words) -> int:
    """`esctl finish-part 17+1 [--kill] [--dry-run]`, inside job 17: `esctl finish-part +1`."""
    from eslurm.v1 import controller_pb2 as pb

    if not words:
        raise OptionError("finish-part", None, "needs a part", "use e.g. esctl finish-part 17+1")
    program.no_more_words(words[1:])
    word = words[0].lower().removeprefix("jobid=")
    text = own_job("finish-part", os.environ) + word if word.startswith("+") else word
    refs = job_refs([text], "finish-part")
    if len(refs) > 1:
        raise OptionError("finish-part", words[0], "names several tasks", "name one part of one of them")
    request = pb.FinishPartRequest(job=refs[0], kill=given.has("kill"), dry_run=given.has("dry-run"))
    reply = api.call("FinishPart", request, request_id=os.urandom(16))
    program.say(to_json(reply) if given.has("json") else _given_back(reply, dry_run=request.dry_run))
    return exits.OK


def set_dependency(api: Api, words: list[str], given: Words) -> int:
    """`esctl set-dependency 42 afterok:17 [--dry-run]`; without a text the job waits for no other one."""
    from eslurm.v1 import controller_pb2 as pb

    if not words:
        raise OptionError(
            "set-dependency", None, "needs a job", "use e.g. esctl set-dependency 42 afterok:17"
        )
    program.no_more_words(words[2:])
    refs = job_refs([words[0].lower().removeprefix("jobid=")], "set-dependency")
    if len(refs) > 1:
        raise OptionError("set-dependency", words[0], "names several tasks", "name the whole array")
    request = pb.UpdateJobRequest(job=refs[0], dry_run=given.has("dry-run"))
    text = words[1] if len(words) > 1 else ""
    conditions, request.dependencies.any = parse_dependencies(text, "set-dependency") if text else ((), False)
    request.dependencies.SetInParent()
    for condition in conditions:
        request.dependencies.all.add(**dependency_fields(condition))
    before = "" if given.has("json") else _waits_for(api, refs[0])
    reply = api.call("UpdateJob", request, request_id=os.urandom(16))
    code = changes.report("esctl", reply, as_json=given.has("json"))
    if code == exits.OK and not given.has("json"):
        after = text if request.dry_run else _waits_for(api, refs[0])
        verb = "would wait" if request.dry_run else "waits"
        program.say(f"job {words[0]} {verb} for {after or 'no job'} (before: {before or 'no job'})")
    return code


def _waits_for(api: Api, ref: Any) -> str:
    """The dependencies of a job, as the controller shows them."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Jobs", pb.JobsRequest(jobs=[ref], finished_too=True))
    return next((str(info.dependencies) for info in reply.jobs), "")


def own_job(action: str, environ: Mapping[str, str]) -> str:
    """The id of the job that this process belongs to. Raises OptionError."""
    text = environ.get("ESLURM_JOB_ID", "") or environ.get("SLURM_JOB_ID", "")
    if not text:
        raise OptionError(action, None, "is not inside a job", "name the job")
    return text


def _given_back(reply: Any, *, dry_run: bool) -> str:
    """`part 1 of job 17 is given back: 4 nodes, 16 cpus -> 2 nodes, 8 cpus`, and what is still waited for."""
    lines = [
        f"part {reply.part} of job {reply.job_id} {'would be' if dry_run else 'is'} given back: "
        f"{_amounts(reply.before)} -> {_amounts(reply.after)}"
    ]
    if reply.steps:
        steps = ", ".join(map(str, reply.steps))
        lines.append(f"steps that get SIGKILL: {steps}")
    if reply.leaving:
        lines.append(f"free when nothing of the job is left there: {reply.leaving}")
    if reply.busy:
        lines.append(f"free when its steps there have ended: its share of {reply.busy}")
    return "\n".join(lines)


def _amounts(one: Any) -> str:
    return f"{one.nodes} node{'' if one.nodes == 1 else 's'}, {one.cpus} cpus"
