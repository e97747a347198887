"""`esctl`: show and change jobs, nodes, partitions, satellites and the configuration; hand over."""

from __future__ import annotations

import os
import time

from escli import changes, exits, program
from escli.admin import audit, broadcasts, doctor, log_export, policies, shares, show, tree_report
from escli.api import Api
from escli.as_json import to_json
from escli.job_refs import job_refs, split_jobs
from escli.open_api import open_api
from escli.user import controllers, plan_table, satellites, why
from eslurm.compat.errors import OptionError, nearest
from eslurm.compat.hostlist import expand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from escli.options import Words

    Action: TypeAlias = Callable[[Api, list[str], Words], int]

COMMAND = "esctl"
_NODES_MAX_NAMED = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _control, argv)


def _control(given: Words) -> int:
    if not given.rest:
        raise OptionError("ACTION", None, "is missing", f"use one of {', '.join(ACTIONS)}")
    word, *words = given.rest
    action = ACTIONS.get(word.lower())
    if action is None:
        near = nearest(word.lower(), tuple(ACTIONS))
        way_out = f"did you mean {near}?" if near else f"use one of {', '.join(ACTIONS)}"
        raise OptionError("ACTION", word, "is not an action", way_out)
    with open_api(given, COMMAND) as api:
        return action(api, words, given)


def _ping(api: Api, words: list[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words)
    began_s = time.perf_counter()
    reply = api.call("Ping", pb.PingRequest(), 5.0)
    taken_ms = (time.perf_counter() - began_s) * 1000
    program.say(to_json(reply) if given.has("json") else show.ping(reply, api.path, taken_ms))
    return exits.OK


def _show(api: Api, words: list[str], given: Words) -> int:
    if not words:
        raise OptionError("show", None, "needs to know what", f"use one of {', '.join(show.SUBJECTS)}")
    subject = words[0].lower().rstrip("s") if words[0].lower() not in show.SUBJECTS else words[0].lower()
    if subject not in show.SUBJECTS:
        near = nearest(subject, show.SUBJECTS)
        way_out = f"did you mean {near}?" if near else f"use one of {', '.join(show.SUBJECTS)}"
        raise OptionError("show", words[0], "is nothing to show", way_out)
    program.say(show.SUBJECTS[subject](api, words[1:], given.has("json")))
    return exits.OK


def _hold(api: Api, words: list[str], given: Words) -> int:
    return _hold_or_release(api, words, given, "hold")


def _release(api: Api, words: list[str], given: Words) -> int:
    return _hold_or_release(api, words, given, "release")


def _hold_or_release(api: Api, words: list[str], given: Words, action: str) -> int:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.HoldRequest(jobs=_jobs(words, action), release=action == "release")
    return _change(api, "Hold", request, given)


def _requeue(api: Api, words: list[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.RequeueRequest(jobs=_jobs(words, "requeue"), hold=given.has("hold"))
    return _change(api, "Requeue", request, given)


def _jobs(words: Sequence[str], action: str) -> list[Any]:
    parts = [part for word in words for part in split_jobs(word.lower().removeprefix("jobid="))]
    if not parts:
        raise OptionError(action, None, "needs a job", f"use e.g. esctl {action} 17")
    return job_refs(parts, action)


def _update(api: Api, words: list[str], given: Words) -> int:
    # The options of essubmit and what reads them, for this action alone.
    from escli.admin.updates import job_update

    request = job_update(api, words)
    if request.DESCRIPTOR.name == "ResizeJobRequest":
        from escli.admin.resizing import resize

        request.dry_run = given.has("dry-run")
        return resize(api, request, as_json=given.has("json"))
    return _change(api, "UpdateJob", request, given)


def _finish_part(api: Api, words: list[str], given: Words) -> int:
    from escli.user.inside import finish_part

    return finish_part(api, words, given)


def _set_dependency(api: Api, words: list[str], given: Words) -> int:
    from escli.user.inside import set_dependency

    return set_dependency(api, words, given)


def _move_starts(api: Api, words: list[str], given: Words) -> int:
    from escli.user.moves import move_starts

    return move_starts(api, words, given)


def _extend(api: Api, words: list[str], given: Words) -> int:
    from escli.user.moves import extend

    return extend(api, words, given)


def _drain(api: Api, words: list[str], given: Words) -> int:
    return _nodes(api, words, given, "drain")


def _suspend(api: Api, words: list[str], given: Words) -> int:
    return _suspend_or_resume(api, words, given, "suspend")


def _resume(api: Api, words: list[str], given: Words) -> int:
    """Resume suspended jobs, or drained nodes: a job is a number."""
    if words and all(word.lower().removeprefix("jobid=")[:1].isdecimal() for word in words):
        return _suspend_or_resume(api, words, given, "resume")
    return _nodes(api, words, given, "resume")


def _suspend_or_resume(api: Api, words: list[str], given: Words, action: str) -> int:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.SuspendRequest(jobs=_jobs(words, action), resume=action == "resume")
    return _change(api, "Suspend", request, given)


def _down(api: Api, words: list[str], given: Words) -> int:
    return _nodes(api, words, given, "lost")


def _nodes(api: Api, words: list[str], given: Words, action: str) -> int:
    from eslurm.v1 import controller_pb2 as pb

    spoken = "down" if action == "lost" else action
    names: list[str] = []
    reason = ""
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.lower() == "reason":
            reason = value
        else:
            names.extend(expand(word, spoken, _NODES_MAX_NAMED))
    if not names:
        raise OptionError(spoken, None, "needs nodes", f"use e.g. esctl {spoken} cn[001-004]")
    if action == "drain" and not reason.strip():
        raise OptionError(
            "reason", None, "is missing", f"say why: esctl drain {words[0]} reason='new memory'"
        )
    return _change(
        api, "UpdateNodes", pb.UpdateNodesRequest(names=names, action=action, reason=reason), given
    )


def _token(api: Api, words: list[str], given: Words) -> int:
    from escli.admin.tokens import token

    return token(api, words, given)


def _node(api: Api, words: list[str], given: Words) -> int:
    from escli.admin.nodes import node

    return node(api, words, given)


def _top(api: Api, words: list[str], given: Words) -> int:
    """`esctl top JOB ...`: the first one is first in the end."""
    from eslurm.v1 import controller_pb2 as pb

    code = exits.OK
    for ref in reversed(_jobs(words, "top")):
        code = max(code, _change(api, "TopJob", pb.TopJobRequest(job=ref), given))
    return code


def _partition(api: Api, words: list[str], given: Words) -> int:
    """`esctl partition up|down|drain|inactive NAME ...`."""
    from eslurm.core.model.partition import STATES
    from eslurm.v1 import controller_pb2 as pb

    actions = [one.lower() for one in STATES]
    if not words or words[0].lower() not in actions:
        shown = words[0] if words else None
        raise OptionError(
            "partition",
            shown,
            "is not an action" if words else "needs an action",
            f"use one of {', '.join(actions)}",
        )
    names = [name for word in words[1:] for name in word.split(",") if name]
    if not names:
        raise OptionError(
            f"partition {words[0]}", None, "needs partitions", f"use e.g. esctl partition {words[0]} short"
        )
    return _change(
        api, "UpdatePartitions", pb.UpdatePartitionsRequest(names=names, state=words[0].upper()), given
    )


def _crontab(api: Api, words: list[str], given: Words) -> int:
    from escli.admin.crontabs import crontab

    return crontab(api, words, given)


def _script(api: Api, words: list[str], given: Words) -> int:
    from escli.admin.scripts import script

    return script(api, words, given)


def _federation(api: Api, words: list[str], given: Words) -> int:
    from escli.admin import federation

    return federation.control(api, words, given)


def _reconfigure(api: Api, words: list[str], given: Words) -> int:
    from escli.admin.reconfigure import reconfigure

    return reconfigure(api, words, given)


def _change(api: Api, method: str, request: Any, given: Words) -> int:
    reply = api.call(method, request, request_id=os.urandom(16))
    return changes.report(COMMAND, reply, as_json=given.has("json"), nothing="nothing changed")


ACTIONS: Mapping[str, Action] = {
    "show": _show,
    "update": _update,
    "hold": _hold,
    "release": _release,
    "requeue": _requeue,
    "suspend": _suspend,
    "finish-part": _finish_part,
    "set-dependency": _set_dependency,
    "move-starts": _move_starts,
    "extend": _extend,
    "drain": _drain,
    "resume": _resume,
    "down": _down,
    "satellite": satellites.control,
    "takeover": controllers.takeover,
    "reconfigure": _reconfigure,
    "broadcast": broadcasts.broadcast,
    "tree": tree_report.tree,
    "log": log_export.control,
    "audit": audit.audit,
    "shares": shares.shares,
    "priority": shares.priority,
    "doctor": doctor.check,
    "why": why.why,
    "plan": plan_table.plan,
    **dict(policies.actions()),
    "load": policies.load,
    "ping": _ping,
    "token": _token,
    "node": _node,
    "script": _script,
    "crontab": _crontab,
    "partition": _partition,
    "top": _top,
    "federation": _federation,
}
