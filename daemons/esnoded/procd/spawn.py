"""A child becomes the user that a credential names; all else it does as that user (`esnoded.task`).

The child reports a failure, or by silence its success, through a descriptor that the supervisor reads, so that a hung file
system stops that step alone. Descriptors are all close-on-exec, so nothing leaks into a task. A task of this process's own
user needs no such child.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from eslurm.core.model.job import Principal
from eslurm.ports.step_runner import StepSpec
from eslurm.security.keyring import leave_session_keyring
from esnoded.procd import groups, procfs, rooms
from esnoded.task.connect import connect
from esnoded.task.program import FAILED, IGNORED_BY_PYTHON, Program, SpawnError

HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
"""Signals handled by `procd`. Even an unused one is handled, not ignored: every task would inherit that."""
_FAILURE_BYTES_MAX = 4096


class Bounds(NamedTuple):
    """The control group (empty: none) and the room (-1: none) that a child enters.

    With `renounces` no program that it runs gains rights.
    """

    group: str = ""
    room: int = -1
    renounces: bool = False


UNBOUND = Bounds()


def spawn_task(
    user: Principal, program: Program, private: int = -1, bounds: Bounds = UNBOUND
) -> tuple[int, int]:
    """Start one process of a step in a session of its own; returns its pid and the pipe for its report, -1 when it certainly
    runs its program. `private` is a descriptor that the child has no use for. Raises `SpawnError`, OSError, ValueError.
    """
    me = (os.geteuid(), os.getegid())
    is_own = me[0] != 0 or not user.groups or {*user.groups, user.gid} == {*os.getgroups(), me[1]}
    is_plain = not (program.is_waited_for or bounds.group or bounds.room >= 0)
    if me == (user.uid, user.gid) and is_own and is_plain and (pid := program.spawn()):
        return pid, -1
    if me[0] not in (0, user.uid):
        text = f"cannot run as uid {user.uid}: the node agent runs as uid {me[0]}, not as root"
        raise SpawnError(FAILED, text)
    read_fd, write_fd = os.pipe()
    try:
        return _fork(user, program.run, write_fd, private, bounds), read_fd
    except OSError as error:
        os.close(read_fd)
        raise SpawnError(FAILED, f"cannot create a process: {error.strerror}") from None
    finally:
        os.close(write_fd)


def spawn_connector(user: Principal, make: Callable[[int], StepSpec], channel_fd: int) -> int:
    """Start the child that connects to the listener of the step that `make` builds; returns its pid. Raises OSError."""
    return _fork(user, lambda: connect(make, channel_fd), channel_fd)


def _fork(
    user: Principal, life: Callable[[], object], report_fd: int, private: int = -1, bounds: Bounds = UNBOUND
) -> int:
    """Fork a child whose whole life is `life`, as the user, and return its pid. Raises OSError."""
    # Until it has handlers of its own, a signal to the child would arrive through the parent's wake-up pipe.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    try:
        return os.fork() or _live(user, life, report_fd, private, bounds)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)


def _live(
    user: Principal, life: Callable[[], object], report_fd: int, private: int, bounds: Bounds
) -> NoReturn:
    """The child: it never returns into its parent's loop."""
    code = FAILED
    try:
        if private >= 0:
            # A child that hangs does not keep the supervisor from hearing that `procd` is gone.
            os.close(private)
        signal.set_wakeup_fd(-1)
        for signum in (*IGNORED_BY_PYTHON, *HANDLED_SIGNALS):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        if bounds.group:
            groups.enter(bounds.group)
        if bounds.room >= 0:
            rooms.enter(bounds.room)
        if os.geteuid() == 0:
            _become(user)
            if bounds.renounces and user.uid:
                procfs.renounce()
        life()
        code = 0
    except Exception as error:
        if isinstance(error, SpawnError):
            code = error.exit_code
        os.write(report_fd, f"{code} {error}".encode(errors="replace")[:_FAILURE_BYTES_MAX])
    finally:
        os._exit(code)


def _become(user: Principal) -> None:
    """Be this user, for good, and hold none of root's keys. Raises `SpawnError`."""
    uid, gid = user.uid, user.gid
    try:
        leave_session_keyring()
        os.setgroups(sorted({*user.groups, gid}))
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        # Whatever `fs.suid_dumpable` says: until it runs its program it has what root had open.
        procfs.hide()
    except (OSError, OverflowError) as error:
        raise SpawnError(FAILED, f"cannot become uid {uid}, gid {gid}: {error}") from None
    # An id of -1 leaves things as they are, without an error: no task runs as root by mistake.
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3:
        raise SpawnError(FAILED, f"cannot become uid {uid}, gid {gid}: the kernel did not do it")
