"""Checks of users' texts: one set for commands and API, which so refuse with the same words.

Invariant: a check raises `OptionError` that names the option, the value and the way out, or returns its value unchanged.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.core.model import request_limits as limits
from eslurm.core.model.values import is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def checked_line(option: str, text: str, chars_max: int = limits.NAME_CHARS_MAX) -> str:
    """Check a short text on one line, without control characters: it is shown in tables and logs."""
    why = ""
    if len(text) > chars_max:
        why = f"is longer than {chars_max} characters"
    elif not text.isprintable():
        why = "holds control characters"
    if why:
        raise OptionError(option, text, why, "use a short text on one line")
    return text


def checked_path(option: str, name: str) -> str:
    """Check a file name, or a pattern of one."""
    if len(name) > limits.PATH_CHARS_MAX:
        way_out = "use a shorter name"
        raise OptionError(option, name, f"is longer than {limits.PATH_CHARS_MAX} characters", way_out)
    if "\0" in name:
        raise OptionError(option, name, "contains a NUL character", "remove it")
    if not is_utf8(name):
        raise OptionError(option, name, "is not UTF-8 text", "use another name")
    return name


def checked_arguments(arguments: Sequence[str]) -> Sequence[str]:
    """Check the arguments of a script or of a step's command."""
    if len(arguments) > limits.ARGUMENTS_MAX:
        raise OptionError(
            "arguments",
            arguments[0],
            f"and the rest are {len(arguments)}, more than {limits.ARGUMENTS_MAX}",
            "pass them in a file",
        )
    total = 0
    for argument in arguments:
        if not is_utf8(argument):
            way_out = "rename the file, or pass it another way"
            raise OptionError("argument", argument, "is not UTF-8 text", way_out)
        if "\0" in argument:
            raise OptionError("argument", argument, "contains a NUL character", "remove it")
        size_bytes = len(argument.encode())
        if size_bytes > limits.ARGUMENT_BYTES_MAX:
            why = f"is longer than {limits.ARGUMENT_BYTES_MAX} bytes"
            raise OptionError("argument", argument, why, "pass it in a file")
        total += size_bytes + 1
    if total > limits.ARGUMENTS_BYTES_MAX:
        raise OptionError(
            "arguments",
            arguments[0],
            f"and the rest are longer than {limits.ARGUMENTS_BYTES_MAX} bytes",
            "pass them in a file",
        )
    return arguments


def checked_nodes(option: str, names: Sequence[str]) -> Sequence[str]:
    """Check the names of requested or excluded nodes."""
    if len(names) > limits.NODES_NAMED_MAX:
        why = f"and the rest are {len(names)} nodes, more than {limits.NODES_NAMED_MAX}"
        raise OptionError(option, names[0], why, "describe them by --constraint")
    for name in names:
        checked_line(option, name, limits.NODE_NAME_CHARS_MAX)
    return names
