"""`esalloc`: nodes without a script; a command on this host, in the job's environment, whose end gives them back."""

from __future__ import annotations

import os

from escli import clock, program
from escli.open_api import open_api
from escli.user.allocated_command import Wish, run_allocated
from escli.user.draft import SubmitContext, draft_job
from eslurm.compat.durations import parse_delay
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.options import Words

COMMAND = "esalloc"
INTERACTIVE = "interactive"
"""Name of a job whose command is a shell."""
_OPPOSITES = {"mem": ("mem-per-cpu",), "mem-per-cpu": ("mem",), "bell": ("no-bell",), "no-bell": ("bell",)}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _run, argv, options_end_at_first_word=True, excludes=_OPPOSITES)


def _run(given: Words) -> int:
    if given.has("no-shell") and given.rest:
        raise OptionError("--no-shell", given.rest[0], "is a command beside it", "give one of them")
    job = allocation_request(given, given.rest)
    wish = Wish(
        given.rest,
        runs_command=not given.has("no-shell"),
        quiet=given.has("quiet"),
        bell=True if given.has("bell") else False if given.has("no-bell") else None,
        immediate_s=immediate_s(given),
        kill=_kill(given),
        environ={"ESLURM_SOCKET": given.text("socket")} if given.has("socket") else None,
    )
    with open_api(given, COMMAND) as api:
        return run_allocated(api, COMMAND, job, wish)


def allocation_request(given: Words, argv: Sequence[str]) -> dict[str, Any]:
    """The request for an allocation with these options, whose command this is. Raises OptionError."""
    name = os.path.basename(argv[0]) if argv else INTERACTIVE
    umask = os.umask(0o077)
    os.umask(umask)
    around = SubmitContext(
        cwd=os.getcwd(),
        host=os.uname().nodename,
        umask=umask,
        now_us=clock.now_us(),
        offset_s=clock.local_offset_s,
        environment={},
    )
    job = draft_job(given, b"", name, (), around)
    for field in ("output", "error", "input", "truncate_output"):
        job.pop(field, None)
    return job


def immediate_s(given: Words) -> float | None:
    """The seconds of `--immediate` (1 without a value); None: it waits for as long as it takes. Raises OptionError."""
    if not given.has("immediate"):
        return None
    text = given.text("immediate")
    return float(parse_delay(text, given.spelling("immediate"))) if text else 1.0


def _kill(given: Words) -> int:
    from eslurm.compat.signals import parse_signal

    if not given.has("kill-command"):
        return 0
    return parse_signal(given.text("kill-command") or "TERM", given.spelling("kill-command"))
