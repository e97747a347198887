"""An agent that root has started gives root up; what it needs root for is kept by a small process beside it.

1. `prepare` makes the agent's own directory in the state directory. 2. `split` forks the keeper, before anything that
speaks with the network is imported. 3. `security.account.drop` makes this process the agent's user, for good.

The keeper starts the step supervisor when it is not there, connects to it, and hands the connection over: it reads one byte
at a time and nothing else. Invariants: the supervisor's socket can be reached by root alone; no file of the agent's is
opened by root under a name that the agent can change. When the agent ends, the keeper does.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from eslurm.security.account import Account
from eslurm.security.home import make_home
from esnoded.stepd.connect import receive_connection
from esnoded.stepd.launcher import Connect, SupervisorUnavailable

AGENT = "agent"
"""The agent's directory in the state directory: spool, sockets, identity."""
SPOOL = "agent.spool"
COPIED = ("identity.key", "membership")
"""The agent's identity, as `eslurm up` and `eslurm keys` have put it there; the agent has a copy."""
LINKED = ("door.sock", "chaos.sock")
"""Sockets at their former paths, for commands and for jobs of earlier versions."""
_SUPERVISOR, _PREDECESSOR = b"s", b"p"
_FOUND = b"+"
_TEXT_BYTES_MAX = 2_000


def prepare(state_dir: Path, account: Account) -> Path:
    """The agent's directory, with what root has put into the state directory for it. Raises OSError, ValueError."""
    return make_home(state_dir, AGENT, account, moved=(SPOOL,), copied=COPIED, linked=LINKED)


class Keeper:
    """The agent's end. `connect` and `connect_predecessor` block."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()

    def connect(self) -> socket.socket:
        """A connection to the supervisor. Raises `SupervisorUnavailable`."""
        return self._ask(_SUPERVISOR)

    def connect_predecessor(self) -> socket.socket:
        """A connection to the supervisor of an earlier version, which starts nothing. Raises `SupervisorUnavailable`."""
        return self._ask(_PREDECESSOR)

    def _ask(self, what: bytes) -> socket.socket:
        with self._lock:
            try:
                self._control.send(what)
                answer, connection = receive_connection(self._control, _TEXT_BYTES_MAX)
            except OSError as error:
                raise SupervisorUnavailable(f"the keeper has gone: {error}") from None
        if answer == _FOUND and connection is not None:
            return connection
        if not answer:
            # Without it a supervisor that ends is not restarted: the agent's starter restarts both.
            os.write(2, b"esnoded: the keeper has ended, and the agent with it: start it again\n")
            os._exit(1)
        raise SupervisorUnavailable(answer.decode(errors="replace"))


def split(connect: Connect, predecessor: Callable[[], Connect | None], ready_fd: int | None) -> Keeper:
    """Fork the keeper; returns in the agent. Raises OSError."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() > 0:
        its.close()
        return Keeper(ours)
    code = 1
    try:
        ours.close()
        os.setsid()
        os.chdir("/")
        null = os.open("/dev/null", os.O_RDWR)
        for target in (0, 1):
            os.dup2(null, target)
        # The agent's ready line, and its end, go to its starter.
        os.close(null)
        if ready_fd is not None:
            os.close(ready_fd)
        _serve(its, connect, predecessor)
        code = 0
    finally:
        os._exit(code)


def _serve(control: socket.socket, connect: Connect, predecessor: Callable[[], Connect | None]) -> None:
    while request := control.recv(1):
        try:
            if request == _SUPERVISOR:
                found = connect()
            elif request == _PREDECESSOR:
                found = _filtered(predecessor)
            else:
                raise SupervisorUnavailable("no such request")
        except (OSError, SupervisorUnavailable) as error:
            control.send(str(error).encode(errors="replace")[:_TEXT_BYTES_MAX] or b"-")
            continue
        with found:
            socket.send_fds(control, [_FOUND], [found.fileno()])


def _filtered(predecessor: Callable[[], Connect | None]) -> socket.socket:
    from esnoded.stepd.drain import drain

    connect = predecessor()
    if connect is None:
        raise SupervisorUnavailable("the step supervisor of an earlier version has ended")
    found = connect()
    ours, its = socket.socketpair()
    # It ends with either side, without a waiter.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        try:
            ours.close()
            drain(its, found)
        finally:
            os._exit(0)
    found.close()
    its.close()
    return ours
