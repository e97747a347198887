"""Daemons forked from one process that has imported them: tests start hundreds, and most of a start is imports.

`Forks` is the test's side. Run as a program this file is the process that forks: it has one thread, no event loop and no
gRPC before a fork; the child runs `python -m DAEMON` from there on. Invariant: it ends with the process that started it.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PRELOADED = ("eslurm.store.engines", "esctld.daemon", "essatd.daemon", "esnoded.daemon")
DAEMONS = ("esctld", "essatd", "esnoded")
REQUEST_BYTES_MAX = 1 << 18
READ_AT_IMPORT = ("GRPC_", "PYTHON")
"""Variables that count when Python or gRPC starts: a daemon that is to have others than here is no fork."""


class Forked:
    """A forked daemon; its methods are those of `subprocess.Popen`."""

    def __init__(self, pid: int, forks: Forks) -> None:
        self.pid = pid
        self._forks = forks
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended."""
        if self._code is None:
            self._code = self._forks.ended(self.pid, timeout)
        if self._code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._code

    def send_signal(self, number: int) -> None:
        """Signal it, if it runs."""
        if self._code is None:
            self._code = self._forks.ended(self.pid, 0.0)
        if self._code is None:
            os.kill(self.pid, number)


class Forks:
    """The process that forks daemons of the sources in `root`, with `path` as PYTHONPATH."""

    def __init__(self, root: Path, path: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        # No descriptor a daemon: each test has to leave as many open as it found.
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._env = os.environ | {"PYTHONPATH": path}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=root,
                env={"GRPC_VERBOSITY": "NONE"} | self._env,
            )

    def takes(self, words: Sequence[str], env: Mapping[str, str]) -> bool:
        """Check that a fork of this process is what `python -m` with these words would be."""
        return (
            words[0] in DAEMONS
            # How much its processes share is measured.
            and "--each" not in words
            and _at_import(env) == _at_import(self._env)
        )

    def start(self, words: Sequence[str], env: Mapping[str, str], ready: int, log: int) -> Forked:
        """Start a daemon: `ready` becomes its --ready-fd, `log` its output."""
        request = json.dumps([list(words), dict(env)]).encode()
        with self._lock:
            socket.send_fds(self._control, [request], [ready, log])
            while (pid := self._hear()) is None:
                pass
            self._codes.pop(pid, None)
        return Forked(pid, self)

    def ended(self, pid: int, timeout_s: float | None) -> int | None:
        """The exit status of a daemon, once it has ended; None if it has not in time."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while pid not in self._codes:
                left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
                if not select.select([self._control], [], [], left_s)[0]:
                    return None
                self._hear()
            return self._codes.pop(pid)

    def _hear(self) -> int | None:
        """The pid of what was forked; None for word of an end, which is noted."""
        said = json.loads(self._control.recv(64))
        if said[0] == "forked":
            return int(said[1])
        self._codes[said[1]] = said[2]
        return None

    def end(self) -> None:
        """End the process; what it has forked goes on."""
        self._control.close()
        self.process.wait()


def _at_import(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT)}


# ---- the process that forks ----


def serve(control: socket.socket) -> list[str]:
    """Fork as asked. Returns in each child, with what it is to run; ends when nobody can ask any more."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # The terminal's interrupt is for the tests, which end their daemons.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        if wake in select.select([control, wake], [], [])[0]:
            os.read(wake, 4096)
            _reap(control)
            continue
        request, descriptors, _flags, _address = socket.recv_fds(control, REQUEST_BYTES_MAX, 2)
        if not request:
            os._exit(0)
        ready, log = descriptors
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(wake)
            os.close(waker)
            control.close()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            words, env = json.loads(request)
            os.environ.clear()
            os.environ.update(env)
            return [*words, "--ready-fd", str(ready)]
        os.close(ready)
        os.close(log)
        control.send(json.dumps(["forked", pid]).encode())


def _reap(control: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            control.send(json.dumps(["ended", found[0], os.waitstatus_to_exitcode(found[1])]).encode())


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
