"""Errors, one line each, on this process's stderr."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from traceback import walk_tb
from typing import ParamSpec

P = ParamSpec("P")
_TEXT_CHARS_MAX = 500
_FRAMES_MAX = 20


def complain(text: str) -> None:
    """One line, in which a user's text moves no cursor."""
    line = "".join([one if one.isprintable() else " " for one in text])
    os.write(2, f"esstepd: {line}\n".encode(errors="replace"))


def complain_of(what: str, error: BaseException) -> str:
    """An exception that is a fault of the program's own: one line with where it came from. Returns its short text."""
    # Not formatted by the library, which opens files for it: the process may be out of descriptors.
    frames = [*islice(walk_tb(error.__traceback__), _FRAMES_MAX)]
    where = [
        f"{os.path.basename(one.f_code.co_filename)}:{line} {one.f_code.co_name}" for one, line in frames
    ]
    # It becomes part of outcomes, which are valid UTF-8.
    text = (
        f"internal error: {type(error).__name__}: {error}"[:_TEXT_CHARS_MAX].encode(errors="replace").decode()
    )
    complain(f"{what}: {text} ({' < '.join(reversed(where))})")
    return text


def survive(what: str, call: Callable[P, object], *args: P.args, **more: P.kwargs) -> bool:
    """Call; returns whether it succeeded, and logs a failure."""
    try:
        call(*args, **more)
    except Exception as error:
        complain_of(what, error)
        return False
    return True
