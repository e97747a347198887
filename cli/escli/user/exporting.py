"""The environment variables that a job, or a step, gets of the process that asks for it (`--export`)."""

from __future__ import annotations

import os

from eslurm.compat.environment import describes_a_job
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BARE_PATH = "/usr/local/bin:/usr/bin:/bin"


def exported(choice: str, environ: Mapping[str, str], option: str = "--export") -> dict[str, str]:
    """The job's variables for `ALL`, `NONE`, or a list of `NAME`, `NAME=VALUE` and `ALL`. Raises OptionError.

    Variables that describe a surrounding job are never exported. A NAME that is not set is left out, as
    sbatch does.
    """
    chosen: dict[str, str] = {}
    items = _split(choice, option)
    if choice.upper() == "NONE" or "ALL" not in (item.upper() for item in items):
        chosen |= login_variables()
    for item in items:
        name, equals, value = item.partition("=")
        if equals:
            _check_name(name, choice, option)
            chosen[name] = value
        elif item.upper() == "ALL":
            chosen |= {key: text for key, text in environ.items() if not describes_a_job(key)}
        elif item.upper() != "NONE":
            _check_name(name, choice, option)
            if name in environ:
                chosen[name] = environ[name]
    return chosen


def login_variables() -> dict[str, str]:
    """The standard variables for programs even when nothing is exported."""
    import pwd

    variables = {"PATH": _BARE_PATH, "SHELL": "/bin/sh"}
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return variables  # A uid without a passwd entry, as in many containers.
    return variables | {
        "HOME": entry.pw_dir,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
        "USER": entry.pw_name,
    }


def _check_name(name: str, choice: str, option: str) -> None:
    if not name or name[0].isdigit() or not name.replace("_", "a").isalnum() or not name.isascii():
        raise OptionError(
            option, choice, "names no variable", "use e.g. ALL, NONE, PATH,DEBUG=1 or ALL,DEBUG=1"
        )


def _split(choice: str, option: str) -> list[str]:
    """Split at commas outside quotes; quotes go."""
    items: list[str] = []
    item: list[str] = []
    quote = ""
    for char in choice:
        if quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "," and not quote:
            items.append("".join(item))
            item = []
        else:
            item.append(char)
    if quote:
        raise OptionError(option, choice, "has an open quote", f"close it with {quote}")
    return [*items, "".join(item)]
