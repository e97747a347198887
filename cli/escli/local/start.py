"""Starting daemons and waiting until they are ready.

Invariant: a started daemon is recorded before anything else can go wrong, and one that does not come up is ended and shown
with the end of its log.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from escli.errors import ClusterError
from escli.interrupts import Interrupts
from escli.local import processes
from escli.local.layout import Layout
from escli.local.plan import Notify, Planned, Programs
from escli.local.processes import Identity
from escli.local.record import ClusterRecord, DaemonRecord

MARKER = "ESLURM_CLUSTER"
"""Environment variable that all daemons of a cluster carry, its value the cluster's name."""

_READY_FD = 3
_LOG_BYTES_MAX = 8 * 1024 * 1024
_TAIL_BYTES = 4096
_TAIL_LINES = 12
_END_GRACE_S = 3.0
# A signal that the shell made ignored for its background jobs must still reach the daemons.
_RESET_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT)


class Waiting(msgspec.Struct, frozen=True):
    """A started daemon that is not ready yet."""

    planned: Planned
    identity: Identity
    ready_fd: int
    pidfd: int
    began_s: float

    def close(self) -> None:
        """Close its descriptors; the daemon goes on."""
        os.close(self.ready_fd)
        os.close(self.pidfd)
        if self.planned.notify is not None:
            self.planned.notify.path.unlink(missing_ok=True)


def start_all(
    layout: Layout,
    record: ClusterRecord,
    group: Sequence[Planned],
    programs: Programs,
    interrupts: Interrupts,
    timeout_s: float,
    told: Callable[[str, float], None],
) -> ClusterRecord:
    """Start daemons side by side and wait until all are ready; `told` gets each with its seconds.

    Returns the record with them in it, which is also saved. Raises `ClusterError` when one of them ends or is not ready in
    time (those of `group` that did start go on running), `Interrupted` when asked to stop.
    """
    waiting: list[Waiting] = []
    try:
        for planned in group:
            one = _spawn(layout, planned, record.cluster, programs)
            waiting.append(one)
            daemon = DaemonRecord(
                planned.name, planned.kind, planned.listen, one.identity, time.time_ns() // 1000
            )
            record = record.with_daemon(daemon)
            layout.save(record)
        deadline_s = time.monotonic() + timeout_s
        while waiting:
            fds = [fd for one in waiting for fd in (one.ready_fd, one.pidfd)]
            ready = interrupts.wait(fds, deadline_s - time.monotonic())
            for one in list(waiting):
                if one.ready_fd in ready and os.read(one.ready_fd, 4096):
                    told(one.planned.name, time.monotonic() - one.began_s)
                    one.close()
                    waiting.remove(one)
                elif one.ready_fd in ready or one.pidfd in ready:
                    _raise_ended(layout, one)
            if time.monotonic() > deadline_s:
                _raise_late(layout, waiting[0], timeout_s)
    finally:
        for one in waiting:
            one.close()
    return record


def _spawn(layout: Layout, planned: Planned, cluster: str, programs: Programs) -> Waiting:
    """Start one daemon in a session of its own, its output in its log, its ready line in a pipe."""
    if planned.state_dir is not None:
        planned.state_dir.mkdir(mode=0o700, exist_ok=True)
    log = layout.log_of(planned.name)
    log.parent.mkdir(mode=0o700, exist_ok=True)
    _shorten(log)
    argv = [*programs[planned.kind], *planned.arguments]
    environ = os.environ | {MARKER: cluster, "PYTHONSAFEPATH": "1"}
    if planned.notify is None:
        argv += ["--ready-fd", str(_READY_FD)]
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    else:
        environ = _foreign(environ) | {"NOTIFY_SOCKET": str(planned.notify.path)}
        read_fd, write_fd = _listen(planned.notify), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    began_s = time.monotonic()
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            environ,
            file_actions=[
                # Ready first: its descriptor may have the number of one that is opened here.
                (os.POSIX_SPAWN_DUP2, write_fd, _READY_FD),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET_SIGNALS,
        )
    except OSError as error:
        os.close(read_fd)
        raise ClusterError(f"{planned.name}: {argv[0]} cannot be started: {error.strerror}") from None
    finally:
        os.close(write_fd)
    return Waiting(planned, processes.identify(pid), read_fd, os.pidfd_open(pid), began_s)


def _foreign(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that etcd takes for its options."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"
    }


def _listen(notify: Notify) -> int:
    """A socket for one word, in a directory where no other user may make or rename files. Raises `ClusterError`."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        notify.path.unlink(missing_ok=True)
        listening.bind(str(notify.path))
        os.chmod(notify.path, 0o600)
        if notify.uid:
            os.chown(notify.path, notify.uid, -1)
        return listening.detach()
    except OSError as error:
        listening.close()
        raise ClusterError(f"{notify.path}: {error.strerror}") from None


def _shorten(log: Path) -> None:
    """Move a log that has grown long aside; one earlier log is kept."""
    try:
        if log.stat().st_size > _LOG_BYTES_MAX:
            os.replace(log, log.with_suffix(".log.1"))
    except FileNotFoundError:
        return


def _raise_ended(layout: Layout, one: Waiting) -> None:
    name = one.planned.name
    # It may have closed its descriptors some time before its end.
    processes.end_all([one.identity], _END_GRACE_S, signum=0)
    log = layout.log_of(name)
    raise ClusterError(f"{name} ended before it was ready; the end of its log, {log}:", tail=log_tail(log))


def _raise_late(layout: Layout, one: Waiting, timeout_s: float) -> None:
    name = one.planned.name
    log = layout.log_of(name)
    raise ClusterError(
        f"{name} was not ready within {timeout_s:g} s (--timeout gives it more); the end of its log, {log}:",
        tail=log_tail(log),
    )


def log_tail(log: Path, lines: int = _TAIL_LINES) -> list[str]:
    """The last lines of a log, control characters made visible."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return ["".join(map(_visible, line)) for line in text.splitlines()[-lines:]]


def _visible(char: str) -> str:
    return char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode("ascii")
