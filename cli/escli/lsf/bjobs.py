"""`bjobs`: jobs in LSF's tables, or in fields of one's choice."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.job_refs import job_refs
from escli.lsf.launch import FAILED
from eslurm.compat.lsf import status
from eslurm.compat.lsf.options import BJOBS
from eslurm.compat.lsf.request import job_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = BJOBS
_STATES = {"r": status.RUN, "p": status.WAIT, "s": status.STOPPED, "d": status.OVER}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: 255 when a named job is not known."""
    from eslurm.v1 import controller_pb2 as pb

    chosen = status.Chosen(given.last("o")) if given.has("o") else None
    named = [(word, job_refs([job_of(word, "JOB")], "JOB")) for word in given.rest if word != "0"]
    refs = [ref for _, several in named for ref in several]
    has_ended = bool(named) or given.has("a") or given.has("d")
    request = pb.JobsRequest(
        jobs=refs, name=given.last("J"), partition=given.last("q"), finished_too=has_ended
    )
    with context.open_api() as api:
        reply = api.call("Jobs", request)
    rows = status.rows_of([one for one in reply.jobs if not one.grows])
    code = exits.OK
    for word, several in named:
        if not any(_is(row, ref) for row in rows for ref in several):
            sys.stderr.write(f"Job <{word}> is not found\n")
            code = FAILED
    rows = [row for row in rows if _is_wanted(row, given, refs)]
    if not rows:
        if not named:
            sys.stderr.write(f"No {'' if has_ended else 'unfinished '}job found\n")
        return code
    _show(rows, chosen, given, reply.now_us)
    return code


def _is_wanted(row: status.Row, given: Options, refs: Sequence[Any]) -> bool:
    info = row.info
    if refs:
        return any(_is(row, ref) for ref in refs)
    user, state = given.last("u"), status.state_of(info)
    if user != "all" and (info.user != user if user else info.uid != os.getuid()):
        return False
    wanted = [one for letter, states in _STATES.items() if given.has(letter) for one in states]
    return state in wanted if wanted else given.has("a") or state not in status.OVER


def _is(row: status.Row, ref: Any) -> bool:
    if not ref.HasField("task"):
        return bool(ref.job_id in (row.info.job_id, row.job_id))
    return bool(row.job_id == ref.job_id and row.task == ref.task)


def _show(rows: Sequence[status.Row], chosen: status.Chosen | None, given: Options, now_us: int) -> None:
    has_head = not given.has("noheader")
    if chosen is None:
        table = status.wide if given.has("w") else status.plain
        sys.stdout.write("".join(table(rows, _moment, has_head=has_head)))
        return
    cells = [chosen.cells(row, now_us, _moment) for row in rows]
    if given.has("json"):
        import json

        records = [
            dict(zip(chosen.heads, ["" if one == "-" else one for one in line], strict=True))
            for line in cells
        ]
        text = json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}, indent=2)
        sys.stdout.write(f"{text}\n")
        return
    lines = ([chosen.heads] if has_head else []) + cells
    sys.stdout.write("".join(chosen.line(line) for line in lines))


def _moment(us: int) -> str:
    return time.strftime("%b %e %H:%M", time.localtime(us // 1_000_000))
