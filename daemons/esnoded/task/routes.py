"""The helper of a job's gateways on its first node: it writes the file of routes, or the file that says why there are none.

A process of the job's user, never root's: the file system may hang, and a site's plug-in is foreign code. Plug-ins are entry
points of the group `eslurm.routes` (`ByNumbers`) or `eslurm.routes_by_name` (`ByNames`). Invariants: a file appears whole
under its name or not at all, and no link is followed; a plug-in that raises, chooses wrongly, ends its process or does not
end is one line of error output. With `cleanup` the helper stays until it is ended, and removes the file.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NoReturn

import msgspec

from eslurm.compat.filenames import error_file, routes_file
from eslurm.compat.routes import PLUGINS, RouteError, RoutePlugin, route_lines
from eslurm.core.model.gateways import LIMITS_S, GatewayStage
from eslurm.core.model.wording import printable_line
from esnoded.task.errand import Errand

BY_NUMBERS, BY_NAMES = "eslurm.routes", "eslurm.routes_by_name"
LIMIT_S: Final = LIMITS_S[GatewayStage.ROUTES] - 10
"""Seconds for plug-in and file; the controller waits longer, so it hears the reason."""
_TEXT_BYTES_MAX: Final = 2_048
_STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DONE = b"+"


def main(argv: Sequence[str]) -> int:
    """Do the errand; the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_STOPS, signal.SIGCHLD))
    try:
        errand = msgspec.json.decode("".join(argv), type=Errand)
        if errand.is_failure:
            path = error_file(errand.job_id, errand.work_dir)
            lines = (f"job {errand.job_id}: its gateways failed: {printable_line(errand.step.failed)}\n",)
            _write_within(path, lambda: lines, LIMITS_S[GatewayStage.FAILED] - 2)
            return 0
        path = routes_file(errand.job_id, errand.file, errand.work_dir)
        own = _write_within(path, lambda: route_lines(errand.step, find_plugin(errand.plugin)), LIMIT_S)
        if errand.cleanup:
            print(path, flush=True)  # noqa: T201 # its supervisor reads that the file is there
            signal.sigwait(_STOPS)
            _remove_own(path, own)
    except (RouteError, OSError, msgspec.MsgspecError) as error:
        print(printable_line(str(error)), file=sys.stderr, flush=True)  # noqa: T201 # its supervisor reports the reason
        return 1
    return 0


def find_plugin(name: str) -> RoutePlugin:
    """Find a plug-in of this release or of the site. Raises `RouteError`."""
    if name in PLUGINS:
        return PLUGINS[name]
    for group in (BY_NUMBERS, BY_NAMES):
        for found in entry_points(group=group):
            if found.name == name:
                choose = _load(found)
                return (
                    RoutePlugin(name, choose, None)
                    if group == BY_NUMBERS
                    else RoutePlugin(name, None, choose)
                )
    raise RouteError(f"--gateway-plugin: there is no {name[:64]!r}: use one of {', '.join(PLUGINS)}")


def _load(point: EntryPoint) -> Callable[..., int]:
    try:
        choose = point.load()
    except Exception as error:
        raise RouteError(
            f"route plug-in {point.name!r} failed: {type(error).__name__}: {error}"[:400]
        ) from error
    if not callable(choose):
        raise RouteError(f"route plug-in {point.name!r} is no function")
    found: Callable[..., int] = choose
    return found


def _write_within(path: str, make: Callable[[], Iterable[str]], limit_s: float) -> tuple[int, int]:
    """Write the lines in a child, which a plug-in may end or let hang; the file's (device, inode). Raises `RouteError`."""
    directory, name = os.path.split(path)
    fresh = os.path.join(directory, f".{name}.{os.urandom(6).hex()}")
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read_fd)
        _child(path, fresh, make, write_fd)
    os.close(write_fd)
    try:
        code = _wait(pid, limit_s, os.path.basename(path))
        told = os.read(read_fd, _TEXT_BYTES_MAX)
    except RouteError as error:
        # Said first: the file system may be what hangs.
        print(printable_line(str(error)), file=sys.stderr, flush=True)  # noqa: T201
        _remove(fresh)
        raise SystemExit(1) from None
    finally:
        os.close(read_fd)
    if told.startswith(_DONE):
        device, inode = told[1:].split()
        return int(device), int(inode)
    _remove(fresh)
    if not told:
        raise RouteError(f"the route plug-in ended its process ({_how(code)})")
    raise RouteError(told.decode(errors="replace"))


def _child(path: str, fresh: str, make: Callable[[], Iterable[str]], told_fd: int) -> NoReturn:
    code, told = 1, b"it was interrupted"
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Words of a plug-in are no words of the helper's.
        os.dup2(2, 1)
        _check_target(path)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(fd, "w", encoding="utf-8", buffering=1 << 20) as file:
            file.writelines(make())
            file.flush()
            status = os.fstat(fd)
        os.rename(fresh, path)
        code, told = 0, _DONE + f"{status.st_dev} {status.st_ino}".encode()
    except RouteError as error:
        told = str(error).encode(errors="replace")
    except OSError as error:
        told = f"cannot write {path}: {(error.strerror or str(error)).lower()}".encode(errors="replace")
    except BaseException as error:
        told = f"the route plug-in failed: {type(error).__name__}: {error}".encode(errors="replace")
    finally:
        os.write(told_fd, told[:_TEXT_BYTES_MAX])
        os._exit(code)


def _check_target(path: str) -> None:
    """Raises `RouteError` where the name is that of a device or anything else that no file is to replace, OSError."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise RouteError(f"cannot write {path}: it exists and is no file")


def _wait(pid: int, limit_s: float, what: str) -> int:
    """The exit code of the child, or its negated signal. Raises `RouteError` when it takes too long or is not wanted."""
    deadline_s = time.monotonic() + limit_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        got = signal.sigtimedwait((*_STOPS, signal.SIGCHLD), max(0.0, deadline_s - time.monotonic()))
        if got is None or got.si_signo in _STOPS:
            os.kill(pid, signal.SIGKILL)
            raise RouteError(
                f"{what} was not written within {limit_s:g} s: its plug-in or its file system hangs"
                if got is None
                else f"{what} was not written: the helper was ended"
            )


def _remove_own(path: str, own: tuple[int, int]) -> None:
    """Remove the file that the helper has written, not one that has taken its name since."""
    with suppress(OSError):
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == own:
            os.unlink(path)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
