"""The site's program before each task of a step: it runs as the task's user, in the task's process group.

Each line that it prints may change the task's environment (`export NAME=value`, `unset NAME`), or goes to the task's output
(`print TEXT`); other lines mean nothing. Invariant: its output is bounded, and so is its time.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Mapping

OUTPUT_BYTES_MAX = 64 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PrologFailed(Exception):
    """The task is not to be started; the text says why."""


def run_task_prolog(
    path: str, env: Mapping[str, str], stdout: int, stderr: int, limit_s: float, fixed: str
) -> dict[str, str]:
    """The environment of the task after its prolog, which cannot change `fixed`. Raises `PrologFailed`, OSError."""
    deadline_s = time.monotonic() + limit_s
    variables = {**env, "SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURM_TASK_PID": str(os.getpid())}
    read_fd, write_fd = os.pipe()
    stdin = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate((stdin, write_fd, stderr))]
        pid = os.posix_spawn(path, (path,), variables, file_actions=actions)
        os.close(write_fd)
        write_fd = -1
        output, code = _finish(path, pid, read_fd, deadline_s)
    except OSError as error:
        raise PrologFailed(f"task prolog {path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        for fd in (stdin, read_fd, write_fd):
            if fd >= 0:
                os.close(fd)
    if code:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise PrologFailed(f"task prolog {path} failed: {how}")
    return _obey(output, env, stdout, fixed)


def _finish(path: str, pid: int, read_fd: int, deadline_s: float) -> tuple[bytes, int]:
    """Its output, and its exit code or the negated signal."""
    output = b""
    pidfd = os.pidfd_open(pid)
    try:
        while _is_ready(read_fd, deadline_s, path) and (data := os.read(read_fd, OUTPUT_BYTES_MAX)):
            output += data
            if len(output) > OUTPUT_BYTES_MAX:
                raise PrologFailed(f"task prolog {path} prints more than {OUTPUT_BYTES_MAX} bytes")
        _is_ready(pidfd, deadline_s, path)
    except PrologFailed:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(pidfd)
    return output, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _is_ready(fd: int, deadline_s: float, path: str) -> bool:
    """Wait until the descriptor is ready. Raises `PrologFailed` at the deadline."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    if not poller.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
        raise PrologFailed(f"task prolog {path} did not end in time")
    return True


def _obey(output: bytes, env: Mapping[str, str], stdout: int, fixed: str) -> dict[str, str]:
    changed = dict(env)
    for line in output.decode("utf-8", "surrogateescape").splitlines():
        verb, _, rest = line.partition(" ")
        if verb == "export":
            name, equals, value = rest.partition("=")
            if equals and _may_change(name, fixed) and "\0" not in value:
                changed[name] = value
        elif verb == "unset" and _may_change(rest, fixed):
            changed.pop(rest, None)
        elif verb == "print":
            os.write(stdout, f"{rest}\n".encode("utf-8", "surrogateescape"))
    return changed


def _may_change(name: str, fixed: str) -> bool:
    return _NAME.fullmatch(name) is not None and name != fixed
