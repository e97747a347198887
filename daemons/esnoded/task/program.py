"""One process of a step, as the step's user: what it is to run, directory, output files, the program.

In a child that has become the user, or in this process for its own user; nothing here needs a right of root's. A user's
mistake is a `SpawnError` with the exit code a shell would give, never a crash.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable, Mapping
from typing import NoReturn

import msgspec

from eslurm.compat.cpu_binding import without_binding
from eslurm.compat.environment import PMI_FD
from eslurm.compat.resource_limits import without_limits
from eslurm.core.model.mpi import PMI, PMIX
from eslurm.ports.step_checks import spec_problem
from eslurm.ports.step_runner import StepSpec
from esnoded.task.cpu_binding import BindingFailed, bind_task, is_asked
from esnoded.task.epilog import EpilogFailed, run_task_epilog
from esnoded.task.pmix import PmixFailed, join_pmix
from esnoded.task.prolog import PrologFailed, run_task_prolog
from esnoded.task.resource_limits import limit_child, limits_of_children, set_limits
from esnoded.task.terminal import open_terminal

STEP_MARKER = "ESLURM_STEP_KEY"
"""Every process of a step inherits this variable: it finds those that left the step's session."""
_NOT_FOUND = 127
_CANNOT_RUN = 126
FAILED = 1
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
IGNORED_BY_PYTHON = frozenset((signal.SIGPIPE, signal.SIGXFSZ))
"""Signals that `procd` ignores, as any Python program does; tasks do not."""


class SpawnError(Exception):
    """A task could not be started; `exit_code` is what a shell would report."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text


class Program(msgspec.Struct, frozen=True):
    """A task of rank `local` on its node; `make` builds its step. Or with `seconds_left` the script that warns of the end.

    `mark` is the value of `STEP_MARKER`. `pipes`, in an order of `task.streams`, are the write ends that replace the output
    files and the read end that replaces the input file, or the socket over which a terminal's other end goes, and the socket
    of the task's MPI library. The first task opens the output files in the step's mode; later ones always append, lest they
    erase what the first wrote. `prolog` is the site's program that runs before it, for `limit_s` at most. With `ended`, pid
    and wait status of a task that is over, it is the site's program `epilog` after that task.
    """

    make: Callable[[int], StepSpec]
    mark: str
    local: int
    pipes: tuple[int, ...] | None = None
    seconds_left: int | None = None
    prolog: str = ""
    limit_s: float = 0.0
    epilog: str = ""
    ended: tuple[int, int] = (0, 0)

    @property
    def is_waited_for(self) -> bool:
        """Check whether a process of its own has to run something before or around it."""
        has_terminal = self.pipes is not None and _is_socket(self.pipes[0])
        return bool(self.prolog or self.epilog) or has_terminal

    def _descriptors(self, mpi: str) -> tuple[int, tuple[int, ...] | None]:
        """The socket of the MPI library (-1: none), and those of the streams."""
        if not mpi or not self.pipes:
            return -1, self.pipes
        return (self.pipes[0], self.pipes[1:]) if mpi == PMIX else (self.pipes[-1], self.pipes[:-1])

    def run(self) -> NoReturn:
        """Become the program, in a child that is the step's user already. Raises `SpawnError`, OSError, ValueError."""
        spec = self._spec()
        os.umask(spec.umask)
        if self.epilog:
            self._run_epilog(spec)
        _enter_directory(spec.cwd)
        library, pipes = self._descriptors(spec.mpi)
        streams = _open_streams(spec, self._is_first, pipes, [])
        env = without_binding(spec.env)
        if self.seconds_left is None:
            try:
                env |= bind_task(spec, self.local, streams[2])
            except BindingFailed as error:
                raise SpawnError(FAILED, str(error)) from None
        if self.prolog:
            # By its mark the supervisor finds the processes of a step.
            try:
                env = run_task_prolog(self.prolog, env, *streams[1:], self.limit_s, STEP_MARKER)
            except PrologFailed as error:
                raise SpawnError(FAILED, str(error)) from None
        if library >= 0 and spec.mpi == PMIX:
            try:
                env = join_pmix(spec, self.local, library, env)
            except PmixFailed as error:
                raise SpawnError(FAILED, str(error)) from None
        program = _find_program(spec.argv[0], env)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        _pass_library(library, spec.mpi)
        set_limits(spec.env)
        try:
            os.execve(program, spec.argv, without_limits(env))  # nosec B606 # the task itself, as its user
        except OSError as error:
            raise _exec_error(program, error) from None

    def spawn(self) -> int:
        """The pid of a task of this process's own user, which is not copied for it: a fork costs 2 ms more. 0: a task that
        asks for CPUs binds itself, so it needs a copy.

        Working directory and umask, which `posix_spawn` cannot set, are this process's for that moment: it has one thread
        and never depends on them. Raises `SpawnError`, OSError, ValueError.
        """
        spec = self._spec()
        if is_asked(spec):
            return 0
        opened: list[int] = []
        mask = os.umask(spec.umask)
        try:
            _enter_directory(spec.cwd)
            library, pipes = self._descriptors(spec.mpi)
            streams = _open_streams(spec, self._is_first, pipes, opened)
            program = _find_program(spec.argv[0], spec.env)
            # In this process it is closed when the task has been started, which is next.
            _pass_library(library, spec.mpi)
            try:
                with limits_of_children(spec.env):
                    pid = os.posix_spawn(
                        program,
                        spec.argv,
                        without_binding(without_limits(spec.env)),
                        file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(streams)],
                        setsid=True,
                        setsigmask=(),
                        setsigdef=IGNORED_BY_PYTHON,
                    )
                limit_child(pid, spec.env)
                return pid
            except OSError as error:
                raise _exec_error(program, error) from None
            except ValueError as error:
                raise SpawnError(_CANNOT_RUN, f"cannot run {program}: {error}") from None
        finally:
            for fd in opened:
                os.close(fd)
            os.umask(mask)
            os.chdir("/")

    def _run_epilog(self, spec: StepSpec) -> NoReturn:
        """Run the epilog in the place of a program. Raises `SpawnError`, OSError."""
        try:
            _enter_directory(spec.cwd)
        except SpawnError:
            # The task may have removed it.
            os.chdir("/")
        pid, status = self.ended
        code = os.waitstatus_to_exitcode(status)
        told = {
            "SLURM_SCRIPT_CONTEXT": "epilog_task",
            "SLURM_TASK_PID": str(pid),
            "ESLURM_TASK_EXIT_CODE": f"{max(0, code)}:{max(0, -code)}",
        }
        try:
            run_task_epilog(self.epilog, {**spec.env, **told}, self.limit_s)
        except EpilogFailed as error:
            raise SpawnError(FAILED, str(error)) from None
        os._exit(0)

    @property
    def _is_first(self) -> bool:
        return self.local == 0 and self.seconds_left is None

    def _spec(self) -> StepSpec:
        spec = self.make(self.local)
        if problem := spec_problem(spec):
            raise SpawnError(FAILED, problem)
        # First: of a process's variables only so many are read (`procfs.marker_of`).
        env = {STEP_MARKER: self.mark} | spec.env
        env |= {
            "ESLURM_PROCID": str(spec.first_task + self.local),
            "ESLURM_LOCALID": str(self.local),
            STEP_MARKER: self.mark,
        }
        library, _ = self._descriptors(spec.mpi)
        if library >= 0 and spec.mpi == PMI:
            # Its number may be any but that of a standard stream.
            env[PMI_FD] = str(library)
        if self.seconds_left is None:
            return msgspec.structs.replace(spec, env=env)
        assert spec.warning is not None
        return msgspec.structs.replace(
            spec,
            argv=(spec.warning.script,),
            env=env | {"ESLURM_SECONDS_LEFT": str(self.seconds_left)},
            stdin="/dev/null",
            stdout=spec.stderr or spec.stdout,
            stderr="",
            open_mode="append",
        )


def _pass_library(fd: int, mpi: str) -> None:
    if fd >= 0 and mpi == PMI:
        os.set_inheritable(fd, True)


def _is_socket(fd: int) -> bool:
    return stat.S_ISSOCK(os.fstat(fd).st_mode)


def _enter_directory(path: str) -> None:
    try:
        os.chdir(path)
    except (OSError, ValueError) as error:
        raise SpawnError(FAILED, f"cannot change to directory {path}: {_reason(error)}") from None


def _open_streams(
    spec: StepSpec, first: bool, pipes: tuple[int, ...] | None, opened: list[int]
) -> tuple[int, int, int]:
    """Descriptors for stdin, stdout and stderr; those opened here are added to `opened`.

    Output is always in append mode: tasks share files, and a log that is truncated stays readable.
    """

    def open_one(path: str, flags: int, purpose: str) -> int:
        try:
            # Not blocking: a FIFO without a reader must not hang the step.
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK, 0o666)
        except (OSError, ValueError) as error:
            raise SpawnError(FAILED, f"cannot open {purpose} file {path}: {_reason(error)}") from None
        os.set_blocking(fd, True)
        opened.append(fd)
        return fd

    if pipes is not None and len(pipes) == 1:
        return _open_terminal(spec, pipes[0], opened)
    stdin = pipes[2] if pipes is not None and len(pipes) > 2 else open_one(spec.stdin, os.O_RDONLY, "input")
    if pipes is not None and not (spec.key.is_gateway and spec.stderr):
        return stdin, pipes[0], pipes[1]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if first and spec.open_mode == "truncate":
        flags |= os.O_TRUNC
    if pipes is not None:
        # A daemon's first line is its address; what else it says may have a file.
        return stdin, pipes[0], open_one(spec.stderr, flags, "log")
    stdout = open_one(spec.stdout, flags, "output")
    if spec.stderr in ("", spec.stdout):
        return stdin, stdout, stdout
    return stdin, stdout, open_one(spec.stderr, flags, "error output")


def _open_terminal(spec: StepSpec, channel_fd: int, opened: list[int]) -> tuple[int, int, int]:
    size = spec.input.terminal if spec.input is not None else None
    try:
        fd = open_terminal(channel_fd, size or (0, 0))
    except OSError as error:
        raise SpawnError(FAILED, f"cannot open a terminal: {_reason(error)}") from None
    opened.append(fd)
    return fd, fd, fd


def _find_program(name: str, env: Mapping[str, str]) -> str:
    """The path to run for `argv[0]`, searched in PATH when it holds no slash, as `execvp` would."""
    if "/" in name:
        return name
    found_unusable = False
    for directory in env.get("PATH", _DEFAULT_PATH).split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            found_unusable = True
    if found_unusable:
        raise SpawnError(_CANNOT_RUN, f"{name}: permission denied")
    raise SpawnError(_NOT_FOUND, f"{name}: command not found")


def _exec_error(program: str, error: OSError) -> SpawnError:
    if error.errno == errno.ENOENT:
        if not os.path.exists(program):
            return SpawnError(_NOT_FOUND, f"{program}: no such file")
        return SpawnError(_CANNOT_RUN, f"{program}: its interpreter (#! line or loader) does not exist")
    if error.errno == errno.ENOEXEC:
        return SpawnError(_CANNOT_RUN, f"{program}: not a program (does a script begin with a #! line?)")
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return SpawnError(FAILED, f"cannot create a process: {error.strerror}")
    return SpawnError(_CANNOT_RUN, f"{program}: {_reason(error)}")


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    return (text or str(error)).lower()
