"""`esctl move-starts` and `esctl extend`: a workflow changes its own times; both say before and after."""

from __future__ import annotations

import os

from escli import clock, exits, program
from escli.as_json import to_json
from escli.job_refs import job_refs
from escli.user.inside import own_job
from eslurm.compat.durations import format_duration, parse_time_limit
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.moments import parse_moment
from eslurm.core.model.dates import format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_PATIENCE_S = 70.0
"""The controller answers after 60 s at the latest, whether the planner has decided or not."""


def move_starts(api: Api, words: list[str], given: Words) -> int:
    """`esctl move-starts 17 [--earlier-by TIME | --to WHEN] [--dry-run]`."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.MovePackRequest(job=_job("move-starts", words), dry_run=given.has("dry-run"))
    _one_of("--earlier-by", given)
    if given.has("earlier-by"):
        request.earlier_s = _seconds("earlier-by", given)
    if given.has("to"):
        request.to_us = parse_moment(given.text("to"), clock.now_us(), clock.local_offset_s, "--to")
    reply = api.call("MovePack", request, _PATIENCE_S, request_id=os.urandom(16))
    program.say(to_json(reply) if given.has("json") else _moved(reply, dry_run=request.dry_run))
    return exits.OK if reply.earlier_us else exits.FAILED


def extend(api: Api, words: list[str], given: Words) -> int:
    """`esctl extend 17 --by TIME | --to TIME [--dry-run]`."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.ExtendJobRequest(job=_job("extend", words), dry_run=given.has("dry-run"))
    _one_of("--by", given)
    if given.has("by"):
        request.by_s = _seconds("by", given)
    elif given.has("to"):
        request.to_s = _seconds("to", given)
    else:
        raise OptionError("extend", None, "needs a time", "use e.g. esctl extend 17 --by 0:30:00")
    reply = api.call("ExtendJob", request, _PATIENCE_S, request_id=os.urandom(16))
    program.say(to_json(reply) if given.has("json") else _extended(reply, dry_run=request.dry_run))
    return exits.OK if reply.after_s > reply.before_s else exits.FAILED


def _job(action: str, words: list[str]) -> Any:
    """The one job that is named, or the one that this process belongs to."""
    program.no_more_words(words[1:])
    word = words[0].lower().removeprefix("jobid=") if words else own_job(action, os.environ)
    refs = job_refs([word], action)
    if len(refs) > 1:
        raise OptionError(action, word, "names several tasks", "name one of them")
    return refs[0]


def _one_of(option: str, given: Words) -> None:
    if given.has(option.removeprefix("--")) and given.has("to"):
        raise OptionError(
            option, given.text(option.removeprefix("--")), "goes with no --to", "give one of them"
        )


def _seconds(name: str, given: Words) -> int:
    """A length of time: a number of seconds, h:m:s or d-h:m:s, as `--delay` takes it."""
    text, option = given.text(name), f"--{name}"
    seconds = whole_number(text, 10)
    if seconds < 0 and text.count(":") == 2:
        seconds = parse_time_limit(text, option)
    if seconds <= 0:
        raise OptionError(
            option, text, "is no length of time (seconds, h:m:s or d-h:m:s)", f"use e.g. {option} 0:30:00"
        )
    return seconds


def _moved(reply: Any, *, dry_run: bool) -> str:
    """One line for the pack, and one for each job that is to start."""
    lines = [f"pack {reply.pack_id}: {_answer(reply, dry_run=dry_run, changed=bool(reply.earlier_us))}"]
    for one in reply.starts:
        before = format_moment(one.before_us, clock.local_offset_s)
        after = format_moment(one.after_us, clock.local_offset_s)
        lines.append(
            f"job {one.job_id}: {before} -> {after}" if after != before else f"job {one.job_id}: {before}"
        )
    return "\n".join(lines)


def _extended(reply: Any, *, dry_run: bool) -> str:
    answer = _answer(reply, dry_run=dry_run, changed=reply.after_s > reply.before_s)
    before, after = format_duration(reply.before_s), format_duration(reply.after_s)
    until = format_moment(reply.until_after_us, clock.local_offset_s)
    return f"job {reply.job_id}: {answer}\ntime limit {before} -> {after}, until {until}"


def _answer(reply: Any, *, dry_run: bool, changed: bool) -> str:
    if reply.open:
        return "not decided yet: the planner has the wish, see esctl show job"
    if not changed:
        return f"not changed: {reply.text}"
    return f"would be {reply.text}" if dry_run else str(reply.text)
