"""Errors, one line each, on this process's stderr."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")
_TEXT_CHARS_MAX = 500
_FRAMES_MAX = 20


def complain(text: str) -> None:
    """One line."""
    line = text.replace("\n", " ")
    os.write(2, f"esstepd: {line}\n".encode(errors="replace"))


def complain_of(what: str, error: BaseException) -> str:
    """An exception that is a fault of the program's own: one line with where it came from. Returns its short text."""
    # By hand: nothing is imported while something is wrong, the process may be out of descriptors.
    where: list[str] = []
    trace = error.__traceback__
    while trace is not None and len(where) < _FRAMES_MAX:
        code = trace.tb_frame.f_code
        where.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    text = f"internal error: {type(error).__name__}: {error}"[:_TEXT_CHARS_MAX]
    # It becomes part of outcomes, which are valid UTF-8.
    text = text.encode(errors="replace").decode()
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
