"""`python -m esnoded.stepd`: become the step supervisor of a state directory, detached from whoever asked.

The process that was started returns 0 as soon as a supervisor serves the directory, be it this
one or another that was faster; the supervisor itself is its child, in a session of its own.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable

from eslurm.security.ownership import UnsafeFile
from eslurm.security.site_keys import SiteKeyError
from eslurm.telemetry.clocks import wall_us
from esnoded.stepd import procfs, roundup
from esnoded.stepd.gate import Gate
from esnoded.stepd.guard import complain
from esnoded.stepd.journal import Finished, Journal
from esnoded.stepd.place import Place, SupervisorStatus
from esnoded.stepd.recovery import end_lost_steps, forget_predecessor, settle_predecessor
from esnoded.stepd.server import Server
from esnoded.stepd.spawn import IGNORED_BY_PYTHON, make_launchpad
from esnoded.stepd.table import StepTable
from esnoded.stepd.timers import Timers
from esnoded.stepd.wire import PROTOCOL_VERSION, Welcome

_LOCK_PATIENCE_S = 5.0
_LOCK_INTERVAL_S = 0.02
_LOG_BYTES_MAX = 1024 * 1024
_READY = b"1"


def serve(place: Place, make_gate: Callable[[Place, Journal], Gate], ready_fd: int) -> None:
    """Be the supervisor: 1. settle the past 2. listen 3. say so 4. serve until stopped or long idle
    5. leave no process behind."""
    boot_id, started_us = procfs.read_boot_id(), wall_us()
    instance = place.instance()
    procfs.become_subreaper()
    procfs.hide()
    journal = Journal(place.journal, boot_id)
    past = journal.contents
    lost = end_lost_steps(past.unfinished.values(), instance, boot_id, started_us)
    lost += settle_predecessor(place, boot_id, started_us)
    for outcome in lost:
        journal.add(Finished(outcome))
    journal.commit()
    forget_predecessor(place)
    gate = make_gate(place, journal)

    timers, selector = Timers(), selectors.DefaultSelector()
    outcomes = [*past.outcomes.values(), *lost]
    table = StepTable(make_launchpad(), journal, timers, selector, instance, outcomes)
    listener = place.listen()
    pid = os.getpid()
    welcome = Welcome(PROTOCOL_VERSION, instance, boot_id, pid, started_us)
    server = Server(table, gate, timers, selector, listener, welcome)
    place.write_status(SupervisorStatus(pid, procfs.start_ticks_of(pid), boot_id, instance, started_us))
    # What exists now lives as long as the process: keep the collector, and forked children, from touching it.
    gc.collect()
    gc.freeze()
    os.write(ready_fd, _READY)
    os.close(ready_fd)
    server.run()
    # A step is over when its tasks are: what they left running elsewhere would be nobody's once we are gone.
    left = roundup.end_all(instance, adopter=pid)
    if left:
        complain(f"processes of steps that did not end: {' '.join(map(str, left))}")
    journal.close()
    place.remove_status()


def _lock_or_yield(place: Place) -> bool:
    """Whether this process is to be the supervisor; a predecessor that is just dying is waited for."""
    give_up_s = time.monotonic() + _LOCK_PATIENCE_S
    while place.try_lock() is None:
        if place.find_supervisor() is not None:
            return False
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{place.lock} is held, but no supervisor serves {place.directory}")
        time.sleep(_LOCK_INTERVAL_S)
    return True


def _detach(place: Place) -> None:
    """Leave the session, the directory and the descriptors of whoever started this."""
    os.setsid()
    # Whoever started this may have been a thread that blocks signals, or a shell that has its background jobs ignore some:
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


def main(arguments: list[str], make_gate: Callable[[Place, Journal], Gate] = Gate) -> int:
    """Start a supervisor in the background. Returns 0 when one serves the directory, 1 when none could be started.

    The argument is the agent's state directory; all else is in the file that `launcher` has written there.
    """
    if len(arguments) != 1:
        os.write(2, b"usage: python -m esnoded.stepd STATE_DIR\n")
        return 2
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
            serve(place, make_gate, write_fd)
        except (SiteKeyError, OSError, ValueError) as error:
            complain(str(error))
            return 1
    else:
        os.write(write_fd, _READY)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
