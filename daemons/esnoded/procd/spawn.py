"""How one task becomes a process: a child becomes the step's user, and does all else as that user (`task`).

The child reports a failure, or by silence its success, through a pipe that the supervisor reads, so that a hung file system
stops that step alone. Descriptors are all close-on-exec, so nothing leaks into a task. A task of this process's own user
needs no such child.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Mapping
from typing import NoReturn

from eslurm.ports.step_runner import ResourceLimit, StepSpec
from esnoded.procd.task import FAILED, IGNORED_BY_PYTHON, SpawnError, run_program, spawn_own

HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
"""What `procd` has handlers for. Even a signal it does not care about is handled, not ignored: that would be
inherited by every task."""
_FAILURE_BYTES_MAX = 4096


def spawn_task(
    spec: StepSpec, env: Mapping[str, str], *, first: bool, pipes: tuple[int, int] | None, private: int = -1
) -> tuple[int, int]:
    """Start one task of a step in a session of its own; returns its pid and the pipe for its report, -1 when it certainly
    runs its program.

    `first` opens the output files in the spec's mode; later tasks always append, lest they erase what the first
    wrote. `pipes` are the write ends that replace the output files. `private` is a descriptor that the child has no use
    for. Raises `SpawnError`.
    """
    me = os.geteuid()
    if me == spec.uid and os.getegid() == spec.gid and not spec.limits and (me != 0 or not _regroups(spec)):
        return spawn_own(spec, env, first, pipes), -1
    if me not in (0, spec.uid):
        raise SpawnError(
            FAILED, f"cannot run as uid {spec.uid}: the node agent runs as uid {me}, not as root"
        )
    read_fd, write_fd = os.pipe()
    try:
        pid = fork(lambda: _become_task(spec, env, first, pipes, write_fd), private)
    except OSError as error:
        os.close(read_fd)
        raise SpawnError(FAILED, f"cannot create a process: {error.strerror}") from None
    finally:
        os.close(write_fd)
    return pid, read_fd


def _regroups(spec: StepSpec) -> bool:
    """Whether a task of root's has other groups than this process."""
    return bool(spec.groups) and {*spec.groups, spec.gid} != {*os.getgroups(), os.getegid()}


def fork(life: Callable[[], object], private: int = -1) -> int:
    """Fork a child whose whole life is `life`, and return its pid. It never returns into the caller's loop.

    Raises OSError. Signals are blocked in the child until `reset_signals`; `private` is closed in it.
    """
    # Until it has handlers of its own, a signal to the child would arrive through the parent's wake-up pipe.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                if private >= 0:
                    # A child that hangs does not keep the supervisor from hearing that `procd` is gone.
                    os.close(private)
                life()
            finally:
                os._exit(FAILED)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)


def reset_signals() -> None:
    """In a child: signals do what they do in any program."""
    signal.set_wakeup_fd(-1)
    for signum in (*IGNORED_BY_PYTHON, *HANDLED_SIGNALS):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _become_task(
    spec: StepSpec, env: Mapping[str, str], first: bool, pipes: tuple[int, int] | None, report_fd: int
) -> NoReturn:
    """The child's whole life between fork and exec."""
    code = FAILED
    try:
        try:
            reset_signals()
            os.setsid()
            _set_limits(spec.limits)
            set_ids(spec)
            run_program(spec, env, first, pipes)
        except SpawnError as error:
            code = error.exit_code
            os.write(report_fd, f"{code} {error.text}".encode()[:_FAILURE_BYTES_MAX])
        except Exception as error:
            os.write(report_fd, f"{code} cannot start the task: {error}".encode()[:_FAILURE_BYTES_MAX])
    finally:
        os._exit(code)


def _set_limits(limits: tuple[ResourceLimit, ...]) -> None:
    for limit in limits:
        number = getattr(resource, f"RLIMIT_{limit.name.upper()}", None)
        if number is None:
            raise SpawnError(FAILED, f"unknown resource limit {limit.name!r}")
        try:
            resource.setrlimit(number, (limit.soft, limit.hard))
        except (OSError, ValueError) as error:
            raise SpawnError(
                FAILED, f"cannot set limit {limit.name} to {limit.soft}:{limit.hard}: {error}"
            ) from None


def set_ids(spec: StepSpec) -> None:
    """In a child: become the step's user, for good. Raises `SpawnError`."""
    if os.geteuid() != 0:
        return
    try:
        os.setgroups(sorted({*spec.groups, spec.gid}))
        os.setresgid(spec.gid, spec.gid, spec.gid)
        os.setresuid(spec.uid, spec.uid, spec.uid)
    except OSError as error:
        raise SpawnError(FAILED, f"cannot become uid {spec.uid}, gid {spec.gid}: {error.strerror}") from None
    # An id of -1 leaves things as they are, without an error: no task runs as root by mistake.
    if os.getresuid() != (spec.uid,) * 3 or os.getresgid() != (spec.gid,) * 3:
        raise SpawnError(FAILED, f"cannot become uid {spec.uid}, gid {spec.gid}: the kernel did not do it")
