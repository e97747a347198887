"""Checks of a node: programs of the site that say, by their exit code, whether a fault is over or the node is well.

Each runs as the agent's user, in a session of its own. Invariant: a check that does not end in time has failed, and nothing
of its session is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess  # nosec B404 # a checked path, no shell
from collections.abc import Sequence
from contextlib import suppress

from eslurm.compat.environment import PHASE_PATH
from eslurm.core.model.node_health import bounded_text
from eslurm.security.ownership import UnsafeFile, check_program
from esnoded.health_options import HealthCheck
from esnoded.procd.procfs import all_processes, kill_exactly

_READ_BYTES = 4096
_READS_MAX = 16
"""Reads of what is left in the pipe when the check has ended: what has left the session may fill it for ever."""
_KEPT_BYTES = 400
_FIRST_BYTES = 4096
_BY_CODE = "exit code"
_SWEEPS_MAX = 8


async def run_check(program: str, node_name: str, limit_s: float) -> str:
    """Run it once; returns the reason why it has not passed, empty when it has."""
    output = _Output(kept_last=_KEPT_BYTES)
    why = await _run((program,), node_name, limit_s, output)
    words = output.words()
    return f"{why}: {words}" if why and words else why


async def run_health_check(check: HealthCheck, node_name: str) -> str | None:
    """Run a health check once; returns the first line that it has written if it has failed, or how it failed."""
    output = _Output(kept_first=_FIRST_BYTES)
    why = await _run(check.argv, node_name, check.limit_s, output)
    if not why:
        return None
    line = output.first_line()
    if line and not why.startswith(_BY_CODE):
        line = f"{why}: {line}"
    return bounded_text(line or why)


async def _run(argv: Sequence[str], node_name: str, limit_s: float, output: _Output) -> str:
    """Run a check once; returns the reason why it has not passed, empty when it has."""
    try:
        process = _start(argv, node_name, output.write_fd)
    except (UnsafeFile, OSError, ValueError) as error:
        return f"it cannot be run: {error}"
    else:
        output.follow()
        return await _wait(process, limit_s)
    finally:
        output.close()


def _start(argv: Sequence[str], node_name: str, output_fd: int) -> subprocess.Popen[bytes]:
    """Start the check. Raises `UnsafeFile`, OSError, ValueError.

    Not by the loop: uvloop forks, and gRPC's handlers then end the child by SIGSEGV now and then.
    """
    return subprocess.Popen(  # nosec B603 # the site's own program, by its checked path
        [check_program(argv[0]), *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=output_fd,
        stderr=output_fd,
        cwd="/",
        env={"PATH": PHASE_PATH, "SLURMD_NODENAME": node_name, "ESLURM_NODENAME": node_name},
        start_new_session=True,
    )


async def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str:
    """Wait for the end and remove what is left of the session; returns the reason why the check has not passed."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, ended.set)
    late = ""
    try:
        async with asyncio.timeout(limit_s):
            await ended.wait()
    except TimeoutError:
        late = f"it did not end within {limit_s:g} s"
    finally:
        # Ended or not: what it has left in its session ends with it. Its id is its own until it is waited for.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await ended.wait()
        # Groups of its own that it has made in its session.
        await asyncio.shield(asyncio.to_thread(_end_session, process.pid))
        loop.remove_reader(pidfd)
        os.close(pidfd)
        code = process.wait()
    return late or (f"{_BY_CODE} {code}" if code > 0 else f"ended by signal {-code}" if code else "")


def _end_session(session: int) -> None:
    """End what is left of a session whose leader has not been waited for. Processes may fork meanwhile."""
    for _ in range(_SWEEPS_MAX):
        left = [one for one in all_processes() if one.session == session and one.state != "Z"]
        if not left:
            return
        for process in left:
            kill_exactly(process, signal.SIGKILL)


class _Output:
    """The last bytes that come through a pipe, or the first ones."""

    def __init__(self, *, kept_last: int = 0, kept_first: int = 0) -> None:
        self._kept = bytearray()
        self._kept_last, self._kept_first = kept_last, kept_first
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)

    def follow(self) -> None:
        """Read what comes; the other end is the program's alone."""
        os.close(self.write_fd)
        self.write_fd = -1
        asyncio.get_running_loop().add_reader(self._read_fd, self._read)

    def close(self) -> None:
        """Read what is there, and close the pipe."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
        asyncio.get_running_loop().remove_reader(self._read_fd)
        for _ in range(_READS_MAX):
            if not self._read():
                break
        os.close(self._read_fd)

    def words(self) -> str:
        """The text on one line."""
        return " ".join(self._kept.decode(errors="replace").split())

    def first_line(self) -> str:
        """The first line that is not blank."""
        lines = (line.strip() for line in self._kept.decode(errors="replace").splitlines())
        return next((line for line in lines if line), "")

    def _read(self) -> bool:
        """Take what is there; False when that is nothing."""
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._read_fd)
            return False
        self._kept += data
        if self._kept_first:
            del self._kept[self._kept_first :]
        else:
            del self._kept[: -self._kept_last]
        return True
