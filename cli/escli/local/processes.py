"""Identity of processes, and their end.

Invariant: a process is named by pid, start time and boot, never by pid alone, so one that took over a recycled pid is
neither counted as running nor signalled. Everything comes from /proc and pidfds.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec

KILL_WAIT_S = 5.0
_FOREVER_S = 1e9
_SLICE_S = 0.5


class Identity(msgspec.Struct, frozen=True):
    """Permanent identity of one process: `start_ticks` is its start in clock ticks since the boot `boot_id`."""

    pid: int
    start_ticks: int
    boot_id: str


class Usage(NamedTuple):
    """Age and memory of a living process. `rss_mib` is resident memory, shared pages included."""

    uptime_s: float
    rss_mib: float


def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def identify(pid: int) -> Identity:
    """The identity of a process that exists. Raises ProcessLookupError."""
    found = _stat(pid)
    if found is None:
        raise ProcessLookupError(f"no process {pid}")
    return Identity(pid, found[1], boot_id())


def _stat(pid: int) -> tuple[str, int] | None:
    """(state letter, start time in ticks) of a process, zombies included."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold blanks and parentheses.
    fields = line[line.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[19])


def is_alive(identity: Identity) -> bool:
    """Check whether this very process runs; one that has ended and only waits to be reaped does not."""
    found = _stat(identity.pid)
    if found is None or found[1] != identity.start_ticks or found[0] in "ZX":
        return False
    return identity.boot_id == boot_id()


def is_stopped(identity: Identity) -> bool:
    """Check whether this very process is there and was stopped by a signal."""
    found = _stat(identity.pid)
    return found is not None and found[0] == "T" and is_alive(identity)


def signal_one(identity: Identity, signum: int) -> bool:
    """Signal this very process; false when it does not run."""
    pidfd = open_pidfd(identity)
    if pidfd is None:
        return False
    try:
        send(pidfd, signum)
    finally:
        os.close(pidfd)
    return True


def usage_of(identity: Identity) -> Usage | None:
    """Its age and memory; None when it does not run."""
    if not is_alive(identity):
        return None
    try:
        with open(f"/proc/{identity.pid}/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None
    since_boot_s = identity.start_ticks / os.sysconf("SC_CLK_TCK")
    uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s
    return Usage(max(0.0, uptime_s), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor of this very process, None when it does not run. The caller closes it."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # The descriptor is of the pid's present owner: only with it can the identity be checked.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def send(pidfd: int, signum: int) -> None:
    """Signal a process; one that is gone is no error."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signum)


def reap(pid: int) -> None:
    """Forget an ended process if it is a child of this one."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def end_all(
    identities: Iterable[Identity],
    grace_s: float,
    *,
    signum: int = signal.SIGTERM,
    hurry: Callable[[], bool] = lambda: False,
) -> list[Identity]:
    """Signal processes, wait `grace_s` for their end, then SIGKILL; returns those that still run.

    `hurry` is called from time to time and ends the grace when true.
    """
    with _opened(identities) as watched:
        for pidfd in watched:
            send(pidfd, signum)
            # One that was stopped hears of it only when it goes on.
            send(pidfd, signal.SIGCONT)
        left = _wait(watched, grace_s, hurry)
        for pidfd in left:
            send(pidfd, signal.SIGKILL)
        left = _wait(left, KILL_WAIT_S, lambda: False)
        for identity in watched.values():
            reap(identity.pid)
        return list(left.values())


def wait_all(identities: Iterable[Identity], timeout_s: float = _FOREVER_S) -> list[Identity]:
    """Wait for processes to end; returns those that still run after `timeout_s`."""
    with _opened(identities) as watched:
        return list(_wait(watched, timeout_s, lambda: False).values())


@contextmanager
def _opened(identities: Iterable[Identity]) -> Iterator[dict[int, Identity]]:
    watched: dict[int, Identity] = {}
    try:
        for identity in identities:
            pidfd = open_pidfd(identity)
            if pidfd is not None:
                watched[pidfd] = identity
            else:
                reap(identity.pid)
        yield watched
    finally:
        for pidfd in watched:
            os.close(pidfd)


def _wait(watched: dict[int, Identity], timeout_s: float, hurry: Callable[[], bool]) -> dict[int, Identity]:
    """The processes of `watched` that have not ended in time."""
    left = dict(watched)
    poller = select.poll()
    for pidfd in left:
        poller.register(pidfd, select.POLLIN)
    deadline_s = time.monotonic() + timeout_s
    while left and not hurry():
        wait_s = min(deadline_s - time.monotonic(), _SLICE_S)
        if wait_s < 0:
            break
        for pidfd, _ in poller.poll(wait_s * 1000):
            poller.unregister(pidfd)
            del left[pidfd]
    return left


def marked(variable: str, prefixes: Sequence[str]) -> list[Identity]:
    """Processes of this user whose environment has `variable` with a value that begins with one of `prefixes`.

    A value ends with NUL there, so a prefix that ends with NUL is a whole value.
    """
    if not prefixes:
        return []
    heads = tuple(f"{variable}={prefix}".encode() for prefix in prefixes)
    found = []
    uid, me = os.geteuid(), os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != uid:
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                entries = file.read().split(b"\0")
            if any((entry + b"\0").startswith(heads) for entry in entries):
                identity = identify(int(name))
                if is_alive(identity):
                    found.append(identity)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
