"""A worker's core, as the batch system may lend it (R-01..R-07): one line to the node's agent, one answer.

A worker that gets no more work leaves its core to others, and takes it back before it computes again. Invariant: without
`essubmit --cooperate`, outside of a job, and whenever the agent does not answer, nothing is said and the loop goes on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

__all__ = ["WORKER_VARIABLE", "Core", "worker_of"]

WORKER_VARIABLE = "LOOPS_WORKER"
"""Number of a local worker on its machine; in a job its SLURM_LOCALID."""
COORDINATOR = 4_095
"""The number under which the coordinator reports the work that is left: it has no core of its own to lend."""
PATIENCE_S = 10.0
WAIT_S = 300
LOOK_EVERY_S = 1.0
LOOKS_A_SECOND = 8.0
AGAIN_S = 0.5
"""An agent that is being replaced is asked again after so long."""
_ANSWER_BYTES_MAX = 65_536


class Core:
    """The core of one process, by its number among those of the job on this node."""

    def __init__(self, environ: Mapping[str, str], worker: int) -> None:
        self._path = environ.get("ESLURM_JOB_SOCKET", "")
        self._job = environ.get("ESLURM_JOB_ID", "")
        self._node = environ.get("ESLURM_NODENAME", "")
        self._worker = worker
        self._is_idle = self._was_lent = False
        self._looked = 0.0
        # The agent takes a bounded number of lines a second from all processes of a user.
        cores = environ.get("SLURM_CPUS_ON_NODE", "")
        self._every_s = max(LOOK_EVERY_S, int(cores) / LOOKS_A_SECOND if cores.isdecimal() else 0.0)
        self.is_off = not (self._path and self._job.isdecimal())
        """True once it is known that nothing is said."""

    def take(self) -> None:
        """Use the core from now on; waits until the batch system has given it back."""
        self._is_idle = False
        while not self.is_off:
            found = self._report(f"idle=0 wait={WAIT_S}", WAIT_S)
            if found and int(found["excluded"]) <= int(found["idle"]):
                return
            if not found:
                if not self._was_lent:
                    # No agent has ever answered it: nothing of it can be lent.
                    return
                time.sleep(AGAIN_S)

    def leave(self) -> None:
        """Leave the core to others until `take`."""
        if not self._is_idle:
            self._is_idle = True
            self._was_lent = bool(self._report("idle=1")) or self._was_lent

    def is_asked(self) -> bool:
        """Look now and then whether a waiting job would use the core."""
        now = time.monotonic()
        if self.is_off or self._is_idle or now - self._looked < self._every_s:
            return False
        self._looked = now
        return int(self._report("").get("asked", "0")) > 0

    def tell(self, remaining_s: float) -> None:
        """Say how much work is left in the loop, in seconds of one core, now and then."""
        now = time.monotonic()
        if not self.is_off and now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self._report(f"remaining={int(remaining_s)}")

    def _report(self, words: str, wait_s: float = 0.0) -> dict[str, str]:
        """The answer's values; none when there is no cooperation (any more)."""
        if self.is_off:
            return {}
        node = f" node={self._node}" if self._node else ""
        line = f"report job={self._job}{node} worker={self._worker} {words}".rstrip()
        try:
            found = _asked(self._path, line, PATIENCE_S + wait_s)
        except (OSError, ValueError):
            # The agent is being replaced, or refuses: what was said before holds.
            return {}
        self.is_off = found.get("level", "off") == "off"
        return found


def worker_of(environ: Mapping[str, str]) -> int:
    """The number of a worker among those on its node."""
    text = environ.get(WORKER_VARIABLE) or environ.get("SLURM_LOCALID") or "0"
    return min(int(text), COORDINATOR - 1) if text.isdecimal() else 0


def _asked(path: str, line: str, patience_s: float) -> dict[str, str]:
    """The answer to one line. Raises OSError, ValueError for a refusal."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        connection.connect(os.fsencode(path))
        connection.sendall(line.encode("ascii") + b"\n")
        said = b""
        while not said.endswith((b"\nok\n",)) and not said.startswith(b"error "):
            data = connection.recv(_ANSWER_BYTES_MAX)
            if not data or len(said) > _ANSWER_BYTES_MAX:
                raise ConnectionError("the agent has closed")
            said += data
    if said.startswith(b"error "):
        raise ValueError(said.decode("utf-8", "replace"))
    pairs = [text.partition("=") for text in said.decode("utf-8", "replace").splitlines()]
    return {key: value for key, _, value in pairs}
