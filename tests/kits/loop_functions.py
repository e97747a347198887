"""Functions that workers of loops import in their own processes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

IMPORTS: list[int] = []


def square(index: int) -> int:
    return index * index


def scaled(index: int, factor: int) -> int:
    return index * factor


def squares(span: range) -> list[int]:
    return [index * index for index in span]


def too_few(span: range) -> list[int]:
    return [0] * (len(span) - 1)


def fails_at_seven(index: int) -> int:
    if index == 7:
        raise ValueError("seven is not to be had")
    return index


def fails_once(index: int, directory: str) -> int:
    """Fail at 7 for the first time."""
    if index == 7 and leaves_mark(directory, "failed"):
        raise ValueError("not yet")
    return index


def dies_once(index: int, directory: str) -> int:
    """Kill the process at every tenth index, each once."""
    if index % 10 == 3 and leaves_mark(directory, str(index)):
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def dies(index: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return index


def cannot_travel(index: int) -> object:
    return lambda: index


def exits(index: int) -> int:
    sys.exit(3)


def cookie(index: int) -> str | None:
    return os.environ.get("LOOPS_COOKIE")


def waits_for(index: int, path: str) -> int:
    """Wait until something is written into a named pipe."""
    return len(Path(path).read_bytes())


def leaves_mark(directory: str, name: str) -> bool:
    """Make an empty file; False when it was there."""
    try:
        os.close(os.open(Path(directory, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
