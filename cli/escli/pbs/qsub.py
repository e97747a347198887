"""`qsub`: options of the command line and of `#PBS` lines become one submission."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.api import SUBMIT
from escli.options import Words
from escli.slurm.frame import Failed, check_supported, warn
from escli.user.draft import draft_job
from escli.user.submit_context import submit_context
from escli.wire import decode, encode
from escli.wire_tables import SUBMIT_REPLY, SUBMIT_REQUEST
from eslurm.compat.pbs.options import QSUB
from eslurm.compat.pbs.request import prepared, read_request, variables
from eslurm.compat.script import check_script, read_directives
from eslurm.compat.slurm.getopt import Parser
from eslurm.core.model.request_limits import SCRIPT_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = QSUB
_TIMEOUT_S = 60.0


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    script, name = _script(given.rest)
    cwd = os.getcwd()
    request = read_request([*_directives(script), *_settings(given)], name, cwd)
    words = Words()
    for long, (value, spelling) in request.options.items():
        words.put(long, value, spelling)
    around = submit_context(words)
    around.environment = {**around.environment, **variables(request, cwd, around.host, os.environ)}
    around.umask = request.umask if request.umask >= 0 else around.umask
    words.put("chdir", os.path.expanduser("~"), "-d")
    made = prepared(script, request)
    check_script(made, name)
    job = draft_job(words, made, name, (), around)
    job["truncate_output"] = True
    encoded = encode({"jobs": [job], "test_only": False}, SUBMIT_REQUEST)
    with context.open_api() as api:
        reply = decode(api.send(SUBMIT, encoded, _TIMEOUT_S, os.urandom(16)), SUBMIT_REPLY)
        for warning in reply["warnings"]:
            warn(context.command, f"warning: {warning}")
        job_id = int(reply["job_ids"][0])
        if not request.is_quiet:
            sys.stdout.write(f"{job_id}{'[]' if words.has('array') else ''}\n")
        if not request.is_waited_for:
            return exits.OK
        from escli.user.waiting import wait_for_jobs

        sys.stdout.flush()
        return wait_for_jobs(api, [job_id], context.command, quiet=True)


def _settings(given: Options) -> list[tuple[str, str, str]]:
    return [(row.long, value, spelling) for row, value, spelling in given.found]


def _directives(script: bytes) -> list[tuple[str, str, str]]:
    """The options of `#PBS` lines, with their places in messages."""
    found: list[tuple[str, str, str]] = []
    parser = Parser(ROWS)
    for line in read_directives(script, ("#PBS",)):
        where = f"#PBS line {line.line}: "
        options = parser.parse(line.words, where)
        if options.rest:
            raise Failed(f"{where}{options.rest[0]} is no option", code=exits.USAGE)
        check_supported(options.found)
        found += _settings(options)
    return found


def _script(rest: Sequence[str]) -> tuple[bytes, str]:
    """The script, and the job's name by it."""
    if len(rest) > 1:
        raise Failed(f"{rest[1]}: a script takes no arguments: give it variables with -v", code=exits.USAGE)
    if not rest or rest[0] == "-":
        return sys.stdin.buffer.read(SCRIPT_BYTES_MAX + 1), "STDIN"
    try:
        with open(rest[0], "rb") as file:
            return file.read(SCRIPT_BYTES_MAX + 1), os.path.basename(rest[0])
    except OSError as error:
        raise Failed(f"script file {rest[0]} cannot be loaded: {error.strerror}", code=exits.USAGE) from None
