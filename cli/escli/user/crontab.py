"""A crontab as the controller's request: each line is a job with the environment of cron, not of the shell that sets it."""

from __future__ import annotations

import os

from escli import clock
from escli.user.draft import SubmitContext, draft_job
from eslurm.compat.crontab_file import read_crontab
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words
    from eslurm.compat.crontab_file import CronEntry
    from eslurm.compat.script import Directive

_PATH = "/usr/bin:/bin"
_SHELL = "/bin/sh"
_LOCAL = ("export", "export-file", "propagate", "wait", "test-only")
"""Options about the shell that submits, which a crontab has not."""


def set_crontab(api: Api, text: str, options_of: Callable[[Sequence[Directive]], Words]) -> Any:
    """Replace the caller's crontab; the reply. Raises OptionError naming the line, or CommandFailed."""
    from eslurm.v1 import controller_pb2 as pb

    if text and not text.endswith("\n"):
        text += "\n"
    request = pb.SetCrontabRequest(text=text)
    base = plain_environment()
    for entry in read_crontab(text):
        request.jobs.add(
            line=entry.line, first=entry.first, schedule=entry.schedule, job=_job(entry, base, options_of)
        )
    return api.call("SetCrontab", request, request_id=os.urandom(16))


def remove_crontab(api: Api, user: str) -> Any:
    """Remove the crontab of the user (empty: the caller); the reply."""
    from eslurm.v1 import controller_pb2 as pb

    return api.call("SetCrontab", pb.SetCrontabRequest(user=user), request_id=os.urandom(16))


def crontab_of(api: Api, user: str) -> Any:
    """The crontab of the user (empty: the caller)."""
    from eslurm.v1 import controller_pb2 as pb

    return api.call("Crontab", pb.CrontabRequest(user=user))


def _job(
    entry: CronEntry, base: Mapping[str, str], options_of: Callable[[Sequence[Directive]], Words]
) -> Any:
    from escli.wire import encode
    from escli.wire_tables import JOB_REQUEST
    from eslurm.v1 import controller_pb2 as pb

    words = options_of(entry.directives)
    for long in _LOCAL:
        if words.has(long):
            option = _in_line(entry, words.spelling(long))
            raise OptionError(option, None, "means nothing in a crontab", "set NAME=value there")
    around = SubmitContext(
        cwd=base["HOME"],
        host=os.uname().nodename,
        umask=0o022,
        now_us=clock.now_us(),
        offset_s=clock.local_offset_s,
        environment={**base, **entry.settings},
    )
    script = f"#!/bin/sh\n# A line of a crontab.\n{entry.command}\n".encode("utf-8", "surrogateescape")
    name = os.path.basename(entry.command.split(maxsplit=1)[0]) or "cron"
    try:
        job = draft_job(words, script, name, (), around)
    except OptionError as error:
        raise error.renamed(_in_line(entry, error.option)) from None
    return pb.JobRequest.FromString(encode(job, JOB_REQUEST))


def _in_line(entry: CronEntry, option: str) -> str:
    """The option with the line that it is in, if its spelling does not say so."""
    return option if "line " in option else f"line {entry.first}: {option}"


def plain_environment() -> dict[str, str]:
    """Variables of a command that cron runs: few, and the same wherever the crontab is set."""
    import pwd

    try:
        entry = pwd.getpwuid(os.getuid())
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:
        name, home = str(os.getuid()), "/"
    return {"HOME": home, "LOGNAME": name, "USER": name, "SHELL": _SHELL, "PATH": _PATH}
