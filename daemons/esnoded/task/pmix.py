"""PMIx for the tasks of a node: the first task's process starts the node's server, and each gets the variables by which its
library finds it (ADR 43).

All of it runs as the step's user. The server is a process of the step, in a session of its own: it outlives the first task.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    # The server, which imports this, starts with Python's library alone.
    from eslurm.ports.step_runner import StepSpec

MODULE = "esnoded.task.pmix_server"
VARIABLES = "eslurm-pmix"
"""Name of the text that holds the variables."""
_LIMIT_S = 60
_TEXT_BYTES_MAX = 64 * 1024


class PmixFailed(Exception):
    """The task cannot be one of an MPI program; the text says why."""


def join_pmix(spec: StepSpec, local: int, library: int, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of the task with this local rank, with its place in the MPI program. Raises `PmixFailed`."""
    from esnoded.task.pmi_client import PmiClient, decode_variables, get_text

    try:
        if local == 0:
            text = _start_server(spec, library, env)
        else:
            with socket.socket(fileno=os.dup(library)) as connection:
                connection.settimeout(_LIMIT_S)
                text = get_text(PmiClient(connection), VARIABLES)
    except (OSError, ValueError) as error:
        raise PmixFailed(f"no PMIx server on node {spec.node_name}: {error}") from None
    if not text:
        raise PmixFailed(f"no PMIx server on node {spec.node_name}: it has ended")
    return {**env, **decode_variables(text), "PMIX_RANK": str(spec.first_task + local)}


def _start_server(spec: StepSpec, library: int, env: Mapping[str, str]) -> bytes:
    """Start the node's server, and wait for the variables that it tells. Raises OSError."""
    read_fd, write_fd = os.pipe()
    words = (str(library), str(write_fd), str(spec.first_task), str(spec.tasks), spec.node_name)
    argv = (sys.executable, "-P", "-m", MODULE, *words)
    own = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
    if path := os.environ.get("PYTHONPATH"):
        own["PYTHONPATH"] = path
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            # Not the task's child: its program would find one that it has not started.
            if not os.fork():
                os.set_inheritable(library, True)
                os.set_inheritable(write_fd, True)
                null = os.open(os.devnull, os.O_RDWR)
                for target in range(3):
                    os.dup2(null, target)
                os.execve(sys.executable, argv, own)  # nosec B606 # our own program, as the user
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write_fd)
    text = b""
    try:
        poller = select.poll()
        poller.register(read_fd, select.POLLIN)
        while len(text) < _TEXT_BYTES_MAX:
            if not poller.poll(_LIMIT_S * 1000):
                raise TimeoutError(f"it was not ready within {_LIMIT_S} s")
            data = os.read(read_fd, _TEXT_BYTES_MAX)
            if not data:
                break
            text += data
    finally:
        os.close(read_fd)
    return text
