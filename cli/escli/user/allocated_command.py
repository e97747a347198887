"""The command of an allocation: asked for, granted, run on this host in the job's environment, and released at its end.

`esalloc` and `salloc` are this with their own options; what they say on standard error are Slurm's words, which clients
read.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys

from escli import exits
from escli.errors import Interrupted
from escli.failures import CommandFailed
from escli.interrupts import Interrupts
from escli.user.allocation import Allocation, Busy, Revoked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from escli.api import Api
    from escli.user.allocation import Keeper

BELL_AFTER_S = 10.0
"""Without an option for it the terminal's bell rings when the nodes were waited for so long."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that give back what was asked for."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_IGNORED = (signal.SIGINT, signal.SIGQUIT)
"""From a terminal the command gets them itself."""


class Wish:
    """The choices of one call. `bell`: None: by the time waited. `kill`: the signal for the command of a revoked allocation,
    0: none. `environ`: further variables for the command.
    """

    __slots__ = ("argv", "bell", "environ", "immediate_s", "kill", "quiet", "runs_command")

    def __init__(
        self,
        argv: Sequence[str],
        *,
        runs_command: bool = True,
        quiet: bool = False,
        bell: bool | None = None,
        immediate_s: float | None = None,
        kill: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.runs_command = runs_command
        self.quiet = quiet
        self.bell = bell
        self.immediate_s = immediate_s
        self.kill = kill
        self.environ = dict(environ or {})


def run_allocated(api: Api, command: str, job: Mapping[str, Any], wish: Wish) -> int:
    """The whole life of an allocation; returns the exit code, the command's own. Raises CommandFailed."""

    def told(text: str) -> None:
        if not wish.quiet:
            say(command, text)

    allocation = Allocation(api, told)
    with Interrupts(PENDING) as interrupts:
        if not obtain(
            *(command, allocation, job, interrupts),
            attended=wish.runs_command,
            immediate_s=wish.immediate_s,
        ):
            return exits.FAILED
        told(f"Granted job allocation {allocation.job_id}")
        if _rings(wish, allocation):
            sys.stdout.write("\a")
            sys.stdout.flush()
    if not wish.runs_command:
        return exits.OK
    keeper = allocation.keep()
    code = NOT_FOUND
    try:
        code = _run(command, wish, allocation, keeper, told)
    finally:
        if not keeper.has_ended:
            told(f"Relinquishing job allocation {allocation.job_id}")
        with contextlib.suppress(CommandFailed):
            # It has ended meanwhile, or ends by itself once this command is not heard of.
            allocation.release(code)
    return code


def obtain(
    command: str,
    allocation: Allocation,
    job: Mapping[str, Any],
    interrupts: Interrupts,
    *,
    attended: bool = True,
    immediate_s: float | None = None,
) -> bool:
    """Ask for it and wait for its nodes; False: it was not granted, and the reason is said. Raises CommandFailed."""
    try:
        allocation.ask(job, attended=attended)
        allocation.wait(interrupts, immediate_s)
    except Interrupted:
        say(command, f"Job allocation {allocation.job_id} has been revoked.")
        say(command, "Job aborted due to signal")
        return False
    except Busy:
        say(command, "error: Unable to allocate resources: Requested nodes are busy")
        return False
    except Revoked as revoked:
        say(command, f"error: Job allocation {revoked.job_id} has been revoked: {revoked.text}")
        return False
    return True


def say(command: str, text: str) -> None:
    """A line on standard error."""
    from escli import program

    program.warn(command, text)


def _rings(wish: Wish, allocation: Allocation) -> bool:
    wanted = allocation.waited_s >= BELL_AFTER_S if wish.bell is None else wish.bell
    return wanted and sys.stdout.isatty()


def default_shell(environ: Mapping[str, str]) -> str:
    """The user's shell: of the environment, else of the account."""
    named = environ.get("SHELL", "")
    if named:
        return named
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def _run(
    command: str, wish: Wish, allocation: Allocation, keeper: Keeper, told: Callable[[str], None]
) -> int:
    argv = wish.argv or (default_shell(os.environ),)
    environ = allocation.environment(os.environ, os.getcwd()) | wish.environ
    with _signals() as children:
        try:
            child = subprocess.Popen(argv, env=environ)  # nosec B603 # the user's own command, as the user
        except (FileNotFoundError, NotADirectoryError):
            say(command, f"error: _fork_command: Unable to find command {argv[0]!r}")
            return NOT_FOUND
        except OSError as error:
            say(command, f"error: Unable to exec command {argv[0]!r}: {error.strerror}")
            return NOT_EXECUTABLE
        children.append(child.pid)
        try:
            status = _until_ended(child, wish, allocation, keeper, told)
        finally:
            children.clear()
    return 128 - status if status < 0 else status


def _until_ended(
    child: subprocess.Popen[bytes],
    wish: Wish,
    allocation: Allocation,
    keeper: Keeper,
    told: Callable[[str], None],
) -> int:
    """Wait for the command; tell it when its allocation has ended before."""
    pidfd = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            selector.register(keeper.heard, selectors.EVENT_READ)
            while pidfd not in [key.fd for key, _ in selector.select()]:
                selector.unregister(keeper.heard)
                told(f"Job allocation {allocation.job_id} has been revoked.")
                number = wish.kill or (signal.SIGHUP if sys.stdin.isatty() else 0)
                if number:
                    child.send_signal(number)
    finally:
        os.close(pidfd)
    return child.wait()


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Pass signals on to the processes of the list, and outlive those that a terminal gives them as well."""
    children: list[int] = []

    def pass_on(signum: int, _frame: types.FrameType | None) -> None:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def nothing(_signum: int, _frame: types.FrameType | None) -> None:
        """Unlike an ignored signal a handled one has its default effect in the command."""

    before = {signum: signal.signal(signum, pass_on) for signum in _PASSED_ON}
    before |= {signum: signal.signal(signum, nothing) for signum in _IGNORED}
    try:
        yield children
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
