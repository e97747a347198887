"""The check of a node with a fault: a program of the site that says, by its exit code, whether the fault is over.

It runs as the agent's user, in a session of its own. Invariant: a check that does not end in time has failed, and nothing of
its session is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess  # nosec B404 # a checked path, no shell
from contextlib import suppress

from eslurm.compat.environment import PHASE_PATH
from eslurm.security.ownership import UnsafeFile, check_program

_READ_BYTES = 4096
_READS_MAX = 16
"""Reads of what is left in the pipe when the check has ended: what has left the session may fill it for ever."""
_KEPT_BYTES = 400


async def run_check(program: str, node_name: str, limit_s: float) -> str:
    """Run it once; returns the reason why it has not passed, empty when it has."""
    output = _Output()
    try:
        process = _start(program, node_name, output.write_fd)
    except (UnsafeFile, OSError) as error:
        return f"it cannot be run: {error}"
    else:
        output.follow()
        why = await _wait(process, limit_s)
    finally:
        output.close()
    words = output.words()
    return f"{why}: {words}" if why and words else why


def _start(program: str, node_name: str, output_fd: int) -> subprocess.Popen[bytes]:
    """Start the check. Raises `UnsafeFile`, OSError.

    Not by the loop: uvloop forks, and gRPC's handlers then end the child by SIGSEGV now and then.
    """
    return subprocess.Popen(  # nosec B603 # the site's own program, by its checked path
        [check_program(program)],
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
        loop.remove_reader(pidfd)
        os.close(pidfd)
        code = process.wait()
    return late or (f"exit code {code}" if code > 0 else f"ended by signal {-code}" if code else "")


class _Output:
    """The last bytes that come through a pipe."""

    def __init__(self) -> None:
        self._kept = bytearray()
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
        del self._kept[:-_KEPT_BYTES]
        return True
