"""The check of a node with a fault: a program of the site that says, by its exit code, whether the fault is over.

It runs as the agent's user, in a session of its own. Invariant: a check that does not end in time has failed, and nothing of
its session is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from eslurm.compat.environment import PHASE_PATH
from eslurm.security.ownership import UnsafeFile, check_program

_READ_BYTES = 4096
_KEPT_BYTES = 400


async def run_check(program: str, node_name: str, limit_s: float) -> str:
    """Run it once; returns the reason why it has not passed, empty when it has."""
    try:
        process = await asyncio.create_subprocess_exec(
            check_program(program),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd="/",
            env={"PATH": PHASE_PATH, "SLURMD_NODENAME": node_name, "ESLURM_NODENAME": node_name},
            start_new_session=True,
        )
    except (UnsafeFile, OSError) as error:
        return f"it cannot be run: {error}"
    kept = bytearray()
    reading = asyncio.create_task(_read(process, kept))
    why = ""
    try:
        async with asyncio.timeout(limit_s):
            code = await process.wait()
        why = f"exit code {code}" if code > 0 else f"ended by signal {-code}" if code else ""
    except TimeoutError:
        why = f"it did not end within {limit_s:g} s"
    finally:
        # Ended or not: what it has left in its session ends with it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        # What has left the session may hold the pipe for ever.
        _, pending = await asyncio.wait([reading], timeout=1.0)
        for task in pending:
            task.cancel()
    words = " ".join(kept.decode(errors="replace").split())
    return f"{why}: {words}" if why and words else why


async def _read(process: asyncio.subprocess.Process, kept: bytearray) -> None:
    assert process.stdout is not None
    while data := await process.stdout.read(_READ_BYTES):
        kept += data
        del kept[:-_KEPT_BYTES]
