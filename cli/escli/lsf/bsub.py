"""`bsub`: options of the command line and of `#BSUB` lines become one submission; the script is read from standard input."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.api import SUBMIT
from escli.options import Words
from escli.slurm.frame import Failed, check_supported, warn
from escli.user.draft import draft_job
from escli.user.submit_context import submit_context
from escli.wire import decode, encode
from escli.wire_tables import SUBMIT_REPLY, SUBMIT_REQUEST
from eslurm.compat.lsf.environment import submitted_variables
from eslurm.compat.lsf.options import BSUB, parse
from eslurm.compat.lsf.request import read_request
from eslurm.compat.script import check_script, read_directives
from eslurm.core.model.request_limits import NAME_CHARS_MAX, SCRIPT_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = BSUB
_TIMEOUT_S = 60.0


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: with -K the job's own."""
    script, name = _script(given.rest)
    directives = [] if given.rest else _directives(script)
    settings = [*directives, *((row.long, value, spelling) for row, value, spelling in given.found)]
    today = time.localtime()
    with context.open_api() as api:
        request = read_request(
            settings,
            name,
            os.environ,
            lambda wanted: _latest(api, wanted),
            (today.tm_year, today.tm_mon, today.tm_mday),
        )
        words = Words()
        for long, (value, spelling) in request.options.items():
            words.put(long, value, spelling)
        around = submit_context(words)
        queue = words.text("partition")
        around.environment = {
            **around.environment,
            **submitted_variables(os.getcwd(), around.host, queue),
        }
        check_script(script, name)
        job = draft_job(words, script, name, (), around)
        job["truncate_output"] = words.text("open-mode") == "truncate"
        encoded = encode({"jobs": [job], "test_only": False}, SUBMIT_REQUEST)
        reply = decode(api.send(SUBMIT, encoded, _TIMEOUT_S, os.urandom(16)), SUBMIT_REPLY)
        for warning in reply["warnings"]:
            warn(context.command, f"warning: {warning}")
        job_id = int(reply["job_ids"][0])
        where = f"queue <{queue}>" if queue else f"default queue <{_queue_of(api, job_id)}>"
        sys.stdout.write(f"Job <{job_id}> is submitted to {where}.\n")
        if not request.is_waited_for:
            return exits.OK
        return _wait(api, job_id, context.command)


def _wait(api: Any, job_id: int, command: str) -> int:
    from escli.user.waiting import wait_for_jobs
    from eslurm.v1 import controller_pb2 as pb

    sys.stdout.flush()
    sys.stderr.write("<<Waiting for dispatch ...>>\n")
    code = wait_for_jobs(api, [job_id], command, quiet=True)
    if code == exits.INTERRUPTED:
        return code
    sys.stderr.write("<<Job is finished>>\n")
    infos = api.call("Jobs", pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)], finished_too=True)).jobs
    codes = [128 + one.exit_signal if one.exit_signal else one.exit_code & 0xFF for one in infos]
    return max(codes, default=0) or code


def _queue_of(api: Any, job_id: int) -> str:
    """The partition that the controller has chosen."""
    from eslurm.v1 import controller_pb2 as pb

    infos = api.call("Jobs", pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)], finished_too=True)).jobs
    return next((str(one.partition) for one in infos if one.partition), "normal")


def _latest(api: Any, name: str) -> int:
    """The id of the user's latest job of this name; 0: there is none."""
    from eslurm.v1 import controller_pb2 as pb

    infos = api.call("Jobs", pb.JobsRequest(name=name, finished_too=True)).jobs
    return max((one.array_job_id or one.job_id for one in infos if one.uid == os.getuid()), default=0)


def _directives(script: bytes) -> list[tuple[str, str, str]]:
    """The options of `#BSUB` lines, with their places in messages."""
    found: list[tuple[str, str, str]] = []
    for line in read_directives(script, ("#BSUB",)):
        where = f"#BSUB line {line.line}: "
        options = parse(ROWS, line.words, where)
        if options.rest:
            raise Failed(f"{where}{options.rest[0]} is no option")
        check_supported(options.found)
        found += [(row.long, value, spelling) for row, value, spelling in options.found]
    return found


def _script(rest: Sequence[str]) -> tuple[bytes, str]:
    """The script, and the job's name by it: the words of a command, as LSF joins them, or standard input."""
    if rest:
        command = " ".join(rest)
        if not command.strip():
            raise Failed("the command is empty: write e.g. bsub -n 4 ./program")
        return f"#!/bin/sh\n{command}\n".encode("utf-8", "surrogateescape"), _name(command)
    script = sys.stdin.buffer.read(SCRIPT_BYTES_MAX + 1)
    if not script.startswith(b"#!"):
        script = b"#!/bin/sh\n" + script
    lines = (line.strip() for line in script.split(b"\n"))
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    return script, _name(first.decode("utf-8", "replace"))


def _name(text: str) -> str:
    """A job's name made of its command."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line[:NAME_CHARS_MAX].strip().replace("[", "(").replace("]", ")") or "job"
