"""What every daemon does with its process: event loop, signals, log lines, the word that it is ready."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eslurm.security.ownership import UnsafeFile, make_own_directory
from eslurm.telemetry import logs
from eslurm.telemetry.exposition import address
from eslurm.telemetry.memory import keep_small

if TYPE_CHECKING:
    from argparse import ArgumentParser

EXIT_FAILED = 1
EXIT_CANNOT_START = 2


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
        sys.stderr.write(f"--log-level: '{level}' is unknown: use debug, info, warning or error\n")
        raise SystemExit(EXIT_CANNOT_START)
    if form not in logs.FORMS:
        sys.stderr.write(f"--log-format: '{form}' is unknown: use {' or '.join(logs.FORMS)}\n")
        raise SystemExit(EXIT_CANNOT_START)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logs.set_up(number, form)


def own_directory(path: Path, mode: int = 0o700) -> Path:
    """The value of --state-dir, made when it is missing. Exits with one clear line when another user could change it."""
    try:
        return Path(make_own_directory(path, mode))
    except UnsafeFile as error:
        sys.stderr.write(f"--state-dir: {error}\n")
    except OSError as error:
        sys.stderr.write(f"--state-dir: {path} cannot be used: {error.strerror}: name another one\n")
    raise SystemExit(EXIT_CANNOT_START)


def listening(text: str) -> str:
    """The value of --metrics-listen, looked at. Exits with one clear line when it is no address."""
    try:
        if text:
            address(text)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_CANNOT_START) from None
    return text


def announce(endpoint: str, ready_fd: int | None) -> None:
    """Say `ready ENDPOINT` to whoever started this process: on `ready_fd`, else on stdout. Nobody has to listen."""
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
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


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
            runner.run(main())
    except KeyboardInterrupt:
        raise SystemExit(EXIT_FAILED) from None
    except OSError as error:
        logging.getLogger(name).error("cannot go on: %s", error)
        raise SystemExit(EXIT_CANNOT_START) from None


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
