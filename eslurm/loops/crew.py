"""The processes of the workers: on this machine's cores, or one for each core of the surrounding job by `esrun`.

`Local` replaces workers that end before the loop does, up to a bound; in a job they are the step's, which ends with its
tasks.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from itertools import count
from typing import Protocol

from eslurm.loops.cores import WORKER_VARIABLE
from eslurm.loops.frames import COOKIE_BYTES, COOKIE_VARIABLE
from eslurm.loops.server import Server

__all__ = ["Crew", "CrewError", "Local", "Step", "cores_here", "cores_of_job", "crew_of", "listen_host"]

END_S = 5.0
"""Patience with processes that have been told to end."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""A worker has one core: libraries must not start a thread for each core of the host."""
_GROUP = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")
_WORKER = (sys.executable, "-P", "-m", "eslurm.loops.worker")


class CrewError(Exception):
    """Workers could not be started, or all have ended before the loop."""


class Crew(Protocol):
    """Processes of one loop."""

    workers: int

    def start(self, server: Server) -> None:
        """Start the workers. Raises CrewError, OSError."""

    def replace(self, server: Server) -> bool:
        """Start a worker for one that has ended; False when there will be none."""

    def is_alive(self) -> bool:
        """A process may still connect, or is connected."""

    def end(self, *, kill: bool) -> None:
        """Wait for the processes, which have been told to end; with `kill` end them now."""


class Local:
    """Workers on this machine, each with one end of a socket pair: no other process can connect."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._cookie = b""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers: dict[int, subprocess.Popen[bytes]] = {}
        """By number: one that ended has left its number to the next."""
        self._replacements = max(2 * workers, 8)

    def start(self, server: Server) -> None:
        """Start the workers. Raises OSError."""
        for _ in range(self.workers):
            self._start_one(server)

    def replace(self, server: Server) -> bool:
        """Start a worker for one that has ended, a bounded number of times."""
        if not self._replacements:
            return False
        self._replacements -= 1
        self._processes = [each for each in self._processes if each.poll() is None]
        self._start_one(server)
        return True

    def is_alive(self) -> bool:
        """A process is there."""
        return any(each.poll() is None for each in self._processes)

    def end(self, *, kill: bool) -> None:
        """Reap all processes."""
        end_all(self._processes, kill=kill)

    def _start_one(self, server: Server) -> None:
        ours, theirs = socket.socketpair()
        number = next(at for at in count() if at not in self._numbers or self._numbers[at].poll() is not None)
        with theirs:
            try:
                process = subprocess.Popen(  # nosec B603 # this interpreter and this library
                    [*_WORKER, "--fd", str(theirs.fileno())],
                    env=environment_of(server.cookie) | {WORKER_VARIABLE: str(number)},
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                )
            except OSError:
                ours.close()
                raise
        self._processes.append(process)
        self._numbers[number] = process
        server.adopt(ours)


class Step:
    """Workers as a step of the surrounding job, over all its nodes."""

    def __init__(self, workers: int, environ: Mapping[str, str]) -> None:
        self.workers = workers
        self._environ = environ
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, server: Server) -> None:
        """Listen where the job's nodes can connect, and start the step. Raises CrewError, OSError."""
        command = "esrun" if "ESLURM_JOB_ID" in self._environ else "srun"
        found = shutil.which(command)
        if found is None:
            raise CrewError(
                f"{command} is not in PATH: give workers= and launch='local' to stay on this node"
            )
        host, port = server.listen(listen_host(self._environ))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        words = [found, "-n", str(self.workers), "-c", "1", *_WORKER, "--connect", address]
        environment = environment_of(server.cookie)
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)  # nosec B603 # the user's esrun
        self._processes.append(process)

    def replace(self, server: Server) -> bool:
        """A step starts no task twice."""
        return False

    def is_alive(self) -> bool:
        """The step has not ended."""
        return any(each.poll() is None for each in self._processes)

    def end(self, *, kill: bool) -> None:
        """Reap the step's command, which ends the tasks when it is told to."""
        end_all(self._processes, kill=kill)


def crew_of(launch: str, workers: int | None, environ: Mapping[str, str]) -> Crew:
    """The crew for `launch`: `local`, `job`, or `auto`, which is `job` within a job. Raises CrewError."""
    cores = cores_of_job(environ)
    if launch == "auto":
        launch = "job" if cores else "local"
    if launch == "job":
        if not cores:
            raise CrewError(
                "this process is in no job: SLURM_JOB_CPUS_PER_NODE is not set; give launch='local'"
            )
        return Step(workers or cores, environ)
    if launch != "local":
        raise CrewError(f"no launch {launch!r}: use auto, local or job")
    return Local(workers or cores_here())


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def cores_of_job(environ: Mapping[str, str]) -> int:
    """Cores of the surrounding job on all its nodes, from the form `4(x2),2`; 0 outside a job."""
    text = environ.get("SLURM_JOB_CPUS_PER_NODE", "")
    if "SLURM_JOB_ID" not in environ or not text:
        return 0
    found = [_GROUP.fullmatch(group) for group in text.split(",")]
    return sum(int(group[1]) * int(group[2] or 1) for group in found if group is not None)


def listen_host(environ: Mapping[str, str]) -> str:
    """The numeric address at which the job's nodes reach this process, chosen as `esrun` does.

    ESLURM_STEP_HOST when set. Else loopback, when this node's name is not the machine's (its node is a virtual one, and
    so are the others); else the address of the machine's name.
    """
    chosen = environ.get("ESLURM_STEP_HOST", "")
    machine = os.uname().nodename
    node = environ.get("SLURMD_NODENAME", "")
    if chosen or node.partition(".")[0] != machine.partition(".")[0]:
        return chosen or "127.0.0.1"
    try:
        return socket.gethostbyname(machine)
    except OSError:
        return "127.0.0.1"


def environment_of(cookie: bytes) -> dict[str, str]:
    """A worker's environment. Other users cannot read it, as they cannot read its memory."""
    assert len(cookie) == COOKIE_BYTES
    return dict.fromkeys(_ONE_THREAD, "1") | dict(os.environ) | {COOKIE_VARIABLE: cookie.hex()}


def end_all(processes: list[subprocess.Popen[bytes]], *, kill: bool) -> None:
    """Reap processes: they end by themselves, by SIGTERM, at last by SIGKILL."""
    for process in processes:
        if kill and process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    processes.clear()
