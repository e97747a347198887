"""`salloc`: `esalloc` under Slurm's name, with Slurm's options, variables and texts."""

from __future__ import annotations

import os

from escli.failures import CommandFailed
from escli.slurm import frame
from escli.slurm.sbatch import FAILED, adjust, from_environment, invalid, refused_as, to_words
from escli.user.allocated_command import Wish, run_allocated
from escli.user.esalloc import allocation_request, immediate_s
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.getopt import Parser
from eslurm.compat.slurm.salloc_options import OPPOSITES, VARIABLES
from eslurm.compat.slurm.salloc_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.options import Words
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

STOPS = True
COMMAND = "salloc"


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: its own command's."""
    words = to_words(from_environment(Parser(ROWS, stops=True), VARIABLES, COMMAND), OPPOSITES)
    for long in (own := to_words(given.found, OPPOSITES)).names():
        words.drop(OPPOSITES.get(long, ()))
    words.overlay(own)
    adjust(words, COMMAND)
    try:
        job = allocation_request(words, given.rest)
        wish = _wish(words, given.rest, context)
    except OptionError as error:
        raise invalid(error, (words,), COMMAND) from None
    job["wckey"] = words.text("wckey")
    with context.open_api() as api:
        try:
            return run_allocated(api, COMMAND, job, wish)
        except CommandFailed as failure:
            raise frame.Failed(FAILED[COMMAND] + refused_as(frame.trouble(failure))) from None


def _wish(words: Words, argv: list[str], context: Context) -> Wish:
    from eslurm.compat.signals import parse_signal

    kill = 0
    if words.has("kill-command"):
        kill = parse_signal(words.text("kill-command") or "TERM", words.spelling("kill-command"))
    is_named = any(os.environ.get(name) for name in frame.NAMED_BY)
    return Wish(
        argv,
        runs_command=not words.has("no-shell"),
        quiet=words.has("quiet"),
        bell=True if words.has("bell") else False if words.has("no-bell") else None,
        immediate_s=immediate_s(words),
        kill=kill,
        environ={"ESLURM_SOCKET": context.socket} if context.socket and not is_named else None,
    )
