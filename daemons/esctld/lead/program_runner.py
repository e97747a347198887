"""The `ProgramRunner` of a controller's host: each program in a session of its own, started by the loop that waits for it.

Invariants: a program that another user could change is not started, and none inherits anything of this process but its user;
the program never waits for a reader; of its process group nothing is left running when its end is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess  # nosec B404 # a checked path, no shell
from collections.abc import Callable
from contextlib import suppress

from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import StepEnd
from eslurm.core.model.units import SECOND_US
from eslurm.ports.program_runner import CANCELLED, GRACE_US, REFUSED, TIME_LIMIT, Program
from eslurm.security.ownership import UnsafeFile, check_program
from eslurm.telemetry.clocks import wall_us
from eslurm.telemetry.kept_output import KEPT_BYTES, KeptOutput

log = logging.getLogger("esctld.programs")

_READ_BYTES = 64 * 1024
KILLED_S = 10.0
"""A process that lives so long after SIGKILL never ends: the kernel holds it."""
CLOSE_S = 0.5
"""From SIGTERM to SIGKILL when the leader stops: its successor waits."""

Done = Callable[[StepEnd], None]


class HostProgramRunner:
    """Keeps the ends of outputs in files of `directory`."""

    def __init__(self, directory: str, grace_us: int = GRACE_US) -> None:
        self._directory = directory
        self._grace_s = grace_us / SECOND_US
        self._runs: dict[PhaseKey, ProgramRun] = {}

    def start(self, key: PhaseKey, program: Program, done: Done) -> None:
        """See `ProgramRunner.start`."""

        def over(end: StepEnd) -> None:
            run = self._runs.pop(key)
            self._keep(key, run.output)
            done(end)

        try:
            self._runs[key] = ProgramRun(program, self._grace_s, over)
        except (UnsafeFile, OSError, ValueError) as error:
            text = f"{program.path} cannot be run: {error}"
            asyncio.get_running_loop().call_soon(done, StepEnd(1, cause=REFUSED, text=text))

    def end(self, key: PhaseKey) -> None:
        """See `ProgramRunner.end`."""
        run = self._runs.get(key)
        if run is not None:
            run.terminate(CANCELLED, "")

    async def close(self) -> None:
        """See `ProgramRunner.close`."""
        runs, self._runs = list(self._runs.values()), {}
        for run in runs:
            run.forget()
        await asyncio.gather(*[run.close() for run in runs])

    def _keep(self, key: PhaseKey, output: KeptOutput) -> None:
        try:
            output.write(self._directory, f"{key.job_id}.{key.attempt}.{key.phase}.{key.run}")
        except OSError as error:
            log.warning("the output of the %s of job %d is lost: %s", key.phase, key.job_id, error)


class ProgramRun:
    """One program that runs. `over` gets its end.

    Raises `UnsafeFile`, OSError and ValueError when it cannot be started.
    """

    def __init__(self, program: Program, grace_s: float, over: Done) -> None:
        self.output = KeptOutput()
        self._over: Done | None = over
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._cause = ""
        self._why = ""
        self._began_us = wall_us()
        self._gone = asyncio.Event()
        path = check_program(program.path)
        self._read_fd, write_fd = os.pipe()
        try:
            stdin = _readable(program.stdin)
        except BaseException:
            os.close(self._read_fd)
            os.close(write_fd)
            raise
        try:
            os.set_blocking(self._read_fd, False)
            self._process = subprocess.Popen(  # nosec B603 # the site's own program, by its checked path
                [path, *program.arguments],
                stdin=stdin,
                stdout=write_fd,
                stderr=write_fd,
                cwd="/",
                env=dict(program.environment),
                start_new_session=True,
                umask=0o022,
            )
        except BaseException:
            os.close(self._read_fd)
            raise
        finally:
            os.close(write_fd)
            os.close(stdin)
        self._pidfd = os.pidfd_open(self._process.pid)
        limit_s = program.limit_us / SECOND_US
        self._timer = self._loop.call_later(limit_s, self._beyond_limit, limit_s)
        self._loop.add_reader(self._read_fd, self._read)
        self._loop.add_reader(self._pidfd, self._ended)

    def terminate(self, cause: str, why: str) -> None:
        """SIGTERM now, SIGKILL after the grace; once."""
        if self._cause or self._gone.is_set():
            return
        self._cause, self._why = cause, why
        self._timer.cancel()
        self._signal(signal.SIGTERM)
        self._timer = self._loop.call_later(self._grace_s, self._kill)

    def forget(self) -> None:
        """Its end is not reported any more."""
        self._over = None

    async def close(self) -> None:
        """End it soon."""
        self.terminate(CANCELLED, "")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), CLOSE_S)
        if not self._gone.is_set():
            self._kill()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), CLOSE_S)
        if not self._gone.is_set():
            self._finish()

    def _beyond_limit(self, limit_s: float) -> None:
        self.terminate(TIME_LIMIT, f"it did not end within {limit_s:g} s")

    def _kill(self) -> None:
        self._timer.cancel()
        self._signal(signal.SIGKILL)
        self._timer = self._loop.call_later(KILLED_S, self._finish)

    def _signal(self, signum: int) -> None:
        # Its id is its own until it is waited for.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signum)

    def _ended(self) -> None:
        """The program is a zombie. What it has left in its process group ends with it."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # What a process that has left the session still writes is not waited for.
        for _ in range(KEPT_BYTES // 4096):
            if not self._read():
                break
        self._drop()
        self._gone.set()
        if self._over is not None:
            self._over(self._end())

    def _end(self) -> StepEnd:
        code = self._process.returncode
        if code is None:
            code, why = -signal.SIGKILL, "it cannot be killed"
        else:
            why = self._why
        is_bad = bool(code or self._cause)
        words = self.output.last_words() if is_bad else ""
        return StepEnd(
            max(code, 0),
            max(-code, 0),
            self._cause or "exited",
            ": ".join(filter(None, (why, words))),
            self._began_us,
            wall_us(),
        )

    def _read(self) -> bool:
        """Take what is there; False when that is nothing."""
        if self._read_fd < 0:
            return False
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._drop()
            return False
        self.output.add(data)
        return True

    def _drop(self) -> None:
        if self._read_fd >= 0:
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1


def _readable(data: bytes) -> int:
    """A descriptor from which this can be read, without a writer that would have to wait for the reader."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin")
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
