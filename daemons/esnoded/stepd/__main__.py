"""`python -m esnoded.stepd`: become the step supervisor of a state directory, detached from the starter.

The started process returns 0 as soon as a supervisor serves the directory, be it this one or another that was faster; the
supervisor itself is its child, in a session of its own.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import msgspec

from eslurm.ports.step_runner import StepOrder, StepSpec
from eslurm.security.account import Account
from eslurm.security.ownership import UnsafeFile
from eslurm.security.site_keys import SiteKeyError
from eslurm.telemetry.clocks import wall_us
from esnoded.procd import groups, procfs, roundup, wire
from esnoded.procd.launches import Launches
from esnoded.procd.log import complain, complain_of
from esnoded.procd.options import Options, read_options
from esnoded.procd.request_checks import RequestChecks
from esnoded.procd.scripts import Scripts
from esnoded.procd.server import Procd
from esnoded.stepd.earlier import find_predecessor, take_over
from esnoded.stepd.place import Place, SupervisorStatus
from esnoded.stepd.wire import PROTOCOL_VERSION, Welcome
from esnoded.task.program import IGNORED_BY_PYTHON

_LOCK_PATIENCE_S = 15.0
"""A predecessor that is dying ends all that it has started first."""
_LOCK_INTERVAL_S = 0.02
_LOG_BYTES_MAX = 1024 * 1024
_FDS_MAX = 1 << 30
_READY = b"1"


def make_checks(place: Place, launches: Launches) -> RequestChecks:
    """The checks of requests to start steps. Raises `SiteKeyError`, OSError, `OptionError`."""
    scripts = Scripts(place.scripts, spares_homes=place.predecessor_lives())
    return RequestChecks(place.options, place.ring, scripts, launches)


def start(
    place: Place,
    ready_fd: int,
    make_checks: Callable[[Place, Launches], RequestChecks],
    read_spec: Callable[[StepOrder], StepSpec] | None,
) -> None:
    """Fork the supervisor, and be its `procd`: 1. end what an earlier one has left 2. listen 3. fork 4. serve 5. leave no
    process behind."""
    boot_id, started_us, pid = procfs.read_boot_id(), wall_us(), os.getpid()
    instance = place.instance()
    options = read_options(place.options)
    account = Account(options.uid, options.gid) if os.geteuid() == 0 and options.uid > 0 else None
    procfs.become_subreaper()
    if os.geteuid() == 0:
        procfs.hide()
    launches = Launches(place.launches, boot_id)
    take_over(place, launches, boot_id)
    base = _make_groups(place, instance, options, account)
    survivors = roundup.end_all(instance, launches.leaders)
    launches.leaders.clear()
    launches.rewrite()
    place.prepare_served(account)
    left_behind = find_predecessor(place, boot_id)
    checks = make_checks(place, launches)
    listener = place.listen()
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    welcome = Welcome(PROTOCOL_VERSION, instance, boot_id, pid, started_us)
    # What exists now lives as long as the process: keep the collector, and forked children, from touching it.
    gc.collect()
    gc.freeze()
    server_pid = os.fork()
    if server_pid == 0:
        ours.close()
        _serve(place, its, listener, welcome, survivors, account, ready_fd, read_spec, base)
    for end in (its, listener):
        end.close()
    os.close(ready_fd)
    launches.began(server_pid, procfs.start_ticks_of(server_pid))
    ticks = procfs.start_ticks_of(pid)
    place.write_status(
        SupervisorStatus(pid, ticks, boot_id, instance, started_us, server_pid, PROTOCOL_VERSION)
    )
    channel: wire.Channel[wire.Request] = wire.Channel(ours, msgspec.msgpack.Decoder(wire.Request))
    Procd(channel, checks, launches, instance, server_pid, left_behind, base).run()
    if base and not groups.end_all(base):
        complain(f"processes of steps that did not end are in {base}")
    # A step is over when its tasks are: their daemons would be unowned after this process ends.
    left = roundup.end_all(instance, adopter=pid)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if left:
        complain(f"processes of steps that did not end: {' '.join(map(str, left))}")
    place.remove_status()


def _make_groups(place: Place, instance: str, options: Options, account: Account | None) -> str:
    """End what is in the groups of an earlier supervisor, and make the directory of this one's; empty: steps have none.

    Raises OSError where root requires them.
    """
    try:
        if (former := place.read_groups()) and not groups.end_all(former):
            complain(f"processes of earlier steps did not end: {former}")
        place.write_groups("")
        if options.containment == "none":
            return ""
        base = groups.delegate(f"eslurm-{instance}", account)
        place.write_groups(base)
    except OSError as error:
        if options.containment == "required":
            raise
        complain(f"jobs are not contained by control groups: {error}")
        return ""
    with suppress(OSError):
        groups.write("/proc/self/oom_score_adj", str(groups.PROTECTED))
    return base


def _serve(
    place: Place,
    end: socket.socket,
    listener: socket.socket,
    welcome: Welcome,
    survivors: list[int],
    account: Account | None,
    ready_fd: int,
    read_spec: Callable[[StepOrder], StepSpec] | None,
    base: str,
) -> NoReturn:
    """The child's whole life."""
    code = 1
    try:
        # Here and not at the top: `procd` does without.
        from esnoded.stepd.supervisor import serve

        serve(place.journal, end, listener, welcome, survivors, account, ready_fd, read_spec, base)
        code = 0
    except (OSError, ValueError) as error:
        complain(str(error))
    except Exception as error:
        complain_of("the supervisor", error)
    finally:
        os._exit(code)


def _lock_or_yield(place: Place) -> bool:
    """Check whether this process is to be the supervisor; a predecessor that is just dying is waited for."""
    give_up_s = time.monotonic() + _LOCK_PATIENCE_S
    while place.try_lock() is None:
        if place.find_supervisor() is not None:
            return False
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{place.lock} is held, but no supervisor serves {place.directory}")
        time.sleep(_LOCK_INTERVAL_S)
    return True


def _detach(place: Place) -> None:
    """Leave the session, the directory and the descriptors of the starter."""
    os.setsid()
    # The starter may have been a thread that blocks signals, or a shell that has its background jobs ignore some:
    # every task would inherit it.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for signum in signal.valid_signals() - IGNORED_BY_PYTHON:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    os.chdir("/")
    os.umask(0o077)
    null_fd = os.open("/dev/null", os.O_RDWR)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log_fd = os.open(place.log, flags, 0o600)
    if os.fstat(log_fd).st_size > _LOG_BYTES_MAX:
        os.ftruncate(log_fd, 0)
    for target, fd in enumerate((null_fd, log_fd, log_fd)):
        os.dup2(fd, target)
    os.close(null_fd)
    os.close(log_fd)


def main(
    arguments: list[str],
    make_checks: Callable[[Place, Launches], RequestChecks] = make_checks,
    read_spec: Callable[[StepOrder], StepSpec] | None = None,
) -> int:
    """Start a supervisor in the background. Returns 0 when one serves the directory, 1 when none could be started.

    The argument is the agent's state directory; all else is in the file that `launcher` has written there.
    """
    if len(arguments) != 1:
        os.write(2, b"usage: python -m esnoded.stepd STATE_DIR\n")
        return 2
    # Whatever the starter has left open and inheritable would come to every task.
    os.closerange(3, _FDS_MAX)
    place = Place(arguments[0])
    try:
        place.prepare()
    except UnsafeFile as error:
        os.write(2, f"{error}\n".encode())
        return 1
    read_fd, write_fd = os.pipe()
    if os.fork() > 0:
        os.close(write_fd)
        return 0 if os.read(read_fd, 1) == _READY else 1
    os.close(read_fd)
    _detach(place)
    if _lock_or_yield(place):
        try:
            start(place, write_fd, make_checks, read_spec)
        except (SiteKeyError, OSError, ValueError, msgspec.MsgspecError) as error:
            complain(str(error))
            return 1
    else:
        os.write(write_fd, _READY)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
