"""`esctl script JOB`: the script of a job of the caller's (operators: of any), on standard output or in a file.

Invariant: the file is made new, or is a plain file of the caller's: what is written through no link reaches nothing else.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

from escli import exits, program
from escli.failures import CommandFailed
from escli.job_refs import job_refs
from eslurm.compat.errors import OptionError, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.api import Api
    from escli.options import Words


def script(api: Api, words: Sequence[str], given: Words) -> int:
    """`esctl script 17 [--output FILE]`."""
    if len(words) != 1:
        raise OptionError("script", " ".join(words), "names no single job", "use e.g. esctl script 17")
    text = fetched(api, words[0])
    path = given.text("output")
    if not path:
        print_bytes(text)
        return exits.OK
    write(path, text)
    program.say(f"{path}: the script of job {words[0]}")
    return exits.OK


def fetched(api: Api, job: str) -> bytes:
    """The script of the job. Raises OptionError or CommandFailed."""
    from eslurm.v1 import controller_pb2 as pb

    refs = job_refs([job.lower().removeprefix("jobid=")], "script")
    if len(refs) != 1:
        raise OptionError("script", job, "names several tasks", "they have one script: name the array")
    reply = api.call("JobScript", pb.JobScriptRequest(job=refs[0]))
    return bytes(reply.script)


def print_bytes(text: bytes) -> None:
    """Write the script as it is on standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def write(path: str, text: bytes) -> None:
    """Write a file that its owner alone reads. Raises CommandFailed."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            _check_own(path, os.fstat(fd))
            os.ftruncate(fd, 0)
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(text)
        finally:
            os.close(fd)
    except OSError as error:
        raise CommandFailed(exits.FAILED, f"{quoted(path)} cannot be written: {error.strerror}") from None


def _check_own(path: str, found: os.stat_result) -> None:
    """Check that the file is one that the caller alone has: another user's would keep it or be changed by it."""
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        text = f"{quoted(path)} is there, and is no plain file of yours: name another file"
        raise CommandFailed(exits.FAILED, text)
