"""Common set-up of a daemon's process: event loop, signals, log lines, readiness.

Comes before gRPC is imported, which would write lines of its own beside them: one for each handshake that fails.
GRPC_VERBOSITY brings them back.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from eslurm.core.model.endpoint import split_endpoint
from eslurm.core.model.wording import quoted
from eslurm.security.account import Account, drop, find_account
from eslurm.security.ownership import UnsafeFile, make_own_directory
from eslurm.telemetry import logs, service_manager
from eslurm.telemetry.memory import keep_small

if TYPE_CHECKING:
    from argparse import ArgumentParser

EXIT_FAILED = 1
EXIT_CANNOT_START = 2
SHARED_DIRECTORY_MODE = 0o711
USER_HELP = "as root: the user that the daemon becomes; what it writes is then in a directory of its own in --state-dir"
LATER = (
    "concurrent.futures.thread",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "encodings.unicode_escape",
    "grp",
    "pwd",
    "uvloop",
)
"""Imported at their first use by others: where Python lies in root's own home, a daemon's user cannot."""


def add_process_options(parser: ArgumentParser, watched: str) -> None:
    """The options of what this module does, the same for every daemon. `watched`: the help of --metrics-listen."""
    parser.add_argument("--metrics-listen", type=listening, default="", metavar="HOST:PORT", help=watched)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop")
    parser.add_argument("--log-level", default="info", help="debug, info, warning or error")
    parser.add_argument("--log-format", default="text", help="text or json")
    parser.add_argument("--ready-fd", type=int, default=None, help="write the ready line to this descriptor")


def logging_to_stderr(level: str, form: str = "text") -> None:
    """One line per event on stderr, readable or as JSON (`logs.FORMS`). Raises SystemExit for an unknown level or form.

    Comes before gRPC is imported, which would write lines of its own beside them: one for each handshake that fails, told
    of or not. GRPC_VERBOSITY brings them back.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        sys.stderr.write(f"--log-level: {quoted(level)} is unknown: use debug, info, warning or error\n")
        raise SystemExit(EXIT_CANNOT_START)
    if form not in logs.FORMS:
        sys.stderr.write(f"--log-format: {quoted(form)} is unknown: use {' or '.join(logs.FORMS)}\n")
        raise SystemExit(EXIT_CANNOT_START)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logs.set_up(number, form)


def account_of(user: str) -> Account | None:
    """The user that a daemon is to be (`--user`), None for the one that it is. Exits with one clear line."""
    try:
        return find_account(user, is_needed=False)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_CANNOT_START) from None


def become(account: Account | None, home: Path, later: Iterable[str] = ()) -> None:
    """Give root up, for good, once what is imported `later` is there. Exits with one clear line when that cannot be."""
    if account is None:
        return
    for name in (*LATER, *later):
        importlib.import_module(name)
    try:
        drop(account)
        os.listdir(home)
    except OSError as error:
        sys.stderr.write(
            f"--user: uid {account.uid} cannot use {home}: {error.strerror}: let other users pass to it (chmod o+x)\n"
        )
        raise SystemExit(EXIT_CANNOT_START) from None


def own_directory(path: Path, *, is_shared: bool) -> Path:
    """The value of --state-dir, made when it is missing. Exits with one clear line when another user could change it.

    Others see nothing of it, or where it `is_shared` pass through to what they may use.
    """
    try:
        return Path(make_own_directory(path, SHARED_DIRECTORY_MODE if is_shared else 0o700))
    except UnsafeFile as error:
        sys.stderr.write(f"--state-dir: {error}\n")
    except OSError as error:
        sys.stderr.write(f"--state-dir: {path} cannot be used: {error.strerror}: name another one\n")
    raise SystemExit(EXIT_CANNOT_START)


def listening(text: str) -> str:
    """The value of --metrics-listen, looked at. Exits with one clear line when it is no address."""
    try:
        if text:
            split_endpoint(text)
    except ValueError as error:
        sys.stderr.write(f"--metrics-listen: {error}\n")
        raise SystemExit(EXIT_CANNOT_START) from None
    return text


def give_up(name: str, text: str, code: int = EXIT_CANNOT_START) -> NoReturn:
    """End the process of the daemon `name` with one line on stderr."""
    sys.stderr.write(f"{name}: {text}\n")
    raise SystemExit(code) from None


def announced(ready_fd: int | None) -> asyncio.Future[str]:
    """A future for the endpoint of a daemon, which is announced when it is set. Inside the running loop."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ready.add_done_callback(lambda done: announce(done.result(), ready_fd))
    return ready


def announce(endpoint: str, ready_fd: int | None) -> None:
    """Write `ready ENDPOINT` for the starter of this process: on `ready_fd`, else on stdout; and tell the service manager. A
    missing reader is no error.
    """
    service_manager.tell(service_manager.READY)
    line = f"ready {endpoint}\n".encode()
    if ready_fd is None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    with suppress(BrokenPipeError):
        os.write(ready_fd, line)
    os.close(ready_fd)


def stop_on_signals(stop: Callable[[], None]) -> None:
    """SIGTERM or SIGINT stops in good order; the second one at once."""
    loop = asyncio.get_running_loop()
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            os._exit(EXIT_FAILED)
        asked = True
        service_manager.tell(service_manager.STOPPING)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def add_user_option(parser: ArgumentParser) -> None:
    """`--user` of a daemon that may stay root's."""
    parser.add_argument("--user", default="", metavar="NAME|UID[:GID]", help=USER_HELP)


def raise_open_files() -> None:
    """Let this process have as many descriptors as it may: strangers' connections are not to use up its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_daemon(
    name: str, main: Callable[[], Coroutine[Any, Any, None]], loop: str, *, starts_jobs: bool = False
) -> None:
    """Run `main` to its end on the chosen loop. What cannot be is one clear line and a non-zero exit.

    `starts_jobs`: jobs inherit its limits, and a program that was written for 1,024 descriptors may break with more.
    """
    keep_small()
    if not starts_jobs:
        raise_open_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
            runner.run(_watched(main()))
    except KeyboardInterrupt:
        raise SystemExit(EXIT_FAILED) from None
    except OSError as error:
        logging.getLogger(name).error("cannot go on: %s", error)
        raise SystemExit(EXIT_CANNOT_START) from None


async def _watched(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` with signs of life for the service manager."""
    alive = asyncio.create_task(service_manager.keep_watchdog(), name="watchdog")
    try:
        await main
    finally:
        alive.cancel()


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
