"""The site's program after each task of a step: it runs as the task's user, within its step.

A child of `procd` has become the user and waits for the program here. Invariant: its output is bounded, and so is its time;
nothing that it does changes how its task ended.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping

KEPT_BYTES = 4 * 1024
_READ_BYTES = 64 * 1024
_WORDS_CHARS = 400


class EpilogFailed(Exception):
    """The text says how, with the end of the output."""


def run_task_epilog(path: str, env: Mapping[str, str], limit_s: float) -> None:
    """Run the program for `limit_s` at most; of its output the end is kept. Raises `EpilogFailed`.

    SIGTERM, which ends the tasks of a step, leaves it alone: it may clean up behind them until SIGKILL.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline_s = time.monotonic() + limit_s
    read_fd, write_fd = os.pipe()
    stdin = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate((stdin, write_fd, write_fd))]
        pid = os.posix_spawn(path, (path,), env, file_actions=actions)
        os.close(write_fd)
        write_fd = -1
        kept, is_late = _watch(pid, read_fd, deadline_s)
    except OSError as error:
        raise EpilogFailed(f"task epilog {path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        for fd in (stdin, read_fd, write_fd):
            if fd >= 0:
                os.close(fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if is_late:
        raise EpilogFailed(_with_words(f"task epilog {path} did not end in time", kept))
    if code:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise EpilogFailed(_with_words(f"task epilog {path} failed: {how}", kept))


def _watch(pid: int, read_fd: int, deadline_s: float) -> tuple[bytes, bool]:
    """The end of its output once it has ended, and whether it was killed at its limit."""
    pidfd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(read_fd, select.POLLIN)
    kept = b""
    try:
        while True:
            left_s = deadline_s - time.monotonic()
            ready = [fd for fd, _ in poller.poll(max(0.0, left_s) * 1000)] if left_s > 0 else []
            if not ready:
                os.kill(pid, signal.SIGKILL)
                return kept, True
            if read_fd in ready:
                data = os.read(read_fd, _READ_BYTES)
                kept = (kept + data)[-KEPT_BYTES:]
                if not data:
                    poller.unregister(read_fd)
            elif pidfd in ready:
                return kept, False
    finally:
        os.close(pidfd)


def _with_words(text: str, kept: bytes) -> str:
    words = " ".join(kept.decode(errors="replace").split())[-_WORDS_CHARS:]
    return f"{text}: {words}" if words else text
