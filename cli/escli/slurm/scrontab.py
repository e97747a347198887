"""`scrontab`: shows, replaces, edits and removes a user's crontab, which the controller keeps."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.admin.crontabs import read_text
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.small_options import SCRONTAB as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.api import Api
    from escli.options import Words
    from escli.slurm.frame import Context
    from eslurm.compat.script import Directive
    from eslurm.compat.slurm.getopt import Options

__all__ = ["ROWS", "run"]

_HELP = """# Edit this file to introduce tasks to be run by the controller, one for each line: minute, hour, day of
# month, month, day of week, command. Options of sbatch for the line below stand in lines like
#SCRON_ --time=10
"""
_EDITORS = ("VISUAL", "EDITOR")
_EDITOR = "vi"


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    actions = [one for one in ("e", "l", "r") if given.has(one)]
    if len(actions) > 1 or (actions and given.rest) or len(given.rest) > 1:
        raise frame.Failed("scrontab: error: Only one of -e, -l, -r or a file may be given")
    user = given.last("u")
    with context.open_api() as api:
        if actions == ["l"]:
            return _list(api, user)
        if actions == ["r"]:
            return _remove(api, user)
        if user and user not in (frame.user_name(), str(os.getuid())):
            raise frame.Failed(
                f"scrontab: error: -u {user} goes with -l and -r: a crontab is set by its own user"
            )
        if actions == ["e"] or (not given.rest and sys.stdin.isatty()):
            return _edit(api)
        return _set(api, read_text(given.rest[0] if given.rest else "-"))


def _list(api: Api, user: str) -> int:
    from escli.user.crontab import crontab_of

    reply = crontab_of(api, user)
    if not reply.text:
        raise frame.Failed(f"no crontab for {reply.user}")
    sys.stdout.write(reply.text)
    return exits.OK


def _remove(api: Api, user: str) -> int:
    from escli.user.crontab import remove_crontab

    remove_crontab(api, user)
    return exits.OK


def _set(api: Api, text: str) -> int:
    from escli.user.crontab import set_crontab

    try:
        set_crontab(api, text, _options_of)
    except OptionError as error:
        raise frame.Failed("scrontab: error: There is a problem with your crontab", str(error)) from None
    return exits.OK


def _options_of(directives: Sequence[Directive]) -> Words:
    from escli.slurm.sbatch import words_of

    return words_of(directives)


def _edit(api: Api) -> int:
    """Edit a copy of the crontab until it is accepted, or given up."""
    import tempfile

    from escli.user.crontab import crontab_of

    before = crontab_of(api, "").text
    # In a directory of the caller's alone: editors write files beside theirs.
    with tempfile.TemporaryDirectory(prefix="scrontab-") as directory:
        path = os.path.join(directory, "crontab")
        with open(path, "w", encoding="utf-8") as file:
            file.write(before or _HELP.replace("#SCRON_", "#  SCRON"))
        while True:
            _run_editor(path)
            text = read_text(path)
            if text == before or (not before and not _has_lines(text)):
                frame.print_line("no changes made to crontab")
                return exits.OK
            try:
                return _set(api, text)
            except (frame.Failed, CommandFailed) as failure:
                lines = failure.lines if isinstance(failure, frame.Failed) else (failure.text,)
                if not _asks_again(lines):
                    raise frame.Failed("scrontab: error: the crontab is not changed") from None


def _has_lines(text: str) -> bool:
    return any(row.strip() and not row.lstrip().startswith("#") for row in text.split("\n"))


def _run_editor(path: str) -> None:
    import shlex
    import subprocess  # nosec B404 # the editor that the caller has chosen

    editor = next((os.environ[name] for name in _EDITORS if os.environ.get(name)), _EDITOR)
    try:
        done = subprocess.run([*shlex.split(editor), path], check=False)  # nosec B603 # the caller's own, with the caller's rights
    except (OSError, ValueError) as error:
        raise frame.Failed(f"scrontab: error: the editor {editor} cannot be run: {error}") from None
    if done.returncode:
        raise frame.Failed(f"scrontab: error: the editor {editor} ended with exit code {done.returncode}")


def _asks_again(lines: Sequence[str]) -> bool:
    for line in lines:
        frame.print_error(line)
    if not sys.stdin.isatty():
        return False
    sys.stdout.write("Do you want to retry the same edit? (y/n) ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
