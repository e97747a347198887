"""Acts of another user of the host, in a copy of this process that has become that user."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.kits.commands import become_user


def spawn(work: Path, body: Callable[[], str]) -> tuple[int, int]:
    """Let the stranger do something in a child: its pid, and where what it returns can be read."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_fd)
        return pid, read_fd
    text = "nothing was said"
    try:
        os.close(read_fd)
        with open(os.devnull, "wb") as null:
            become_user(work, null, null)
        text = body()
    except BaseException:
        text = traceback.format_exc()
    finally:
        os.write(write_fd, text.encode()[-4_000:])
        os._exit(0)


def finish(pid: int, read_fd: int) -> str:
    """The result of the body, once its process has ended."""
    with open(read_fd) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def as_stranger(work: Path, body: Callable[[], str]) -> str:
    """Both at once."""
    return finish(*spawn(work, body))
