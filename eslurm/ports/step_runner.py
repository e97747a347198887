"""The port through which a node agent runs job steps, and its vocabulary.

A runner owns the processes of a step: it starts them, keeps their time limit and kill grace, and remembers their ends.
Invariant: for one `StepKey` at most one set of processes is ever started, and a `StepOutcome` is durable before it is
delivered and kept until it is acknowledged.

Outcomes are delivered at least once, through the `StepOutcomeSink` of the adapter; after a reconnect every unacknowledged
outcome is delivered again. Consumers recognise repeats by key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec

from eslurm.core.model.step_input import StepInput, TerminalSize
from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.model.step_usage import StepUse


class StepEndCause(StrEnum):
    """Cause of a step's end."""

    EXITED = "exited"
    """All its tasks ran to their own end."""
    SIGNALLED = "signalled"
    """A signal ended it: its own fault, or a cancellation."""
    TIME_LIMIT = "time_limit"
    ORPHANED = "orphaned"
    """No contact with the controller for longer than the step allows."""
    LOST = "lost"
    """The supervisor died or the node was rebooted with the step running: its exit status is unknown."""
    OUT_OF_MEMORY = "oom"
    """Processes of it were killed because its job used all memory that it may; `text` says how much that is."""
    SPAWN_FAILED = "spawn_failed"
    """It could not be started; `text` says why."""


EXIT_CODE_MAX = 255
SIGNAL_MAX = 64
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=EXIT_CODE_MAX)]
SignalNumber = Annotated[int, msgspec.Meta(ge=0, le=SIGNAL_MAX)]


INPUT_DONE = -1
MPI_STREAM = 3
"""Number of the stream that a task's MPI library writes."""


class OutputEndpoint(msgspec.Struct, frozen=True, array_like=True):
    """Destination of an interactive step's output.

    `host` is a numeric address, never a name or a path. The key that seals the stream (`security.step_stream`) is derived
    from `cookie`, 32 bytes that only this step's command and its supervisors know.
    """

    host: str
    port: int
    cookie: bytes


class OutputHello(msgspec.Struct, frozen=True, array_like=True):
    """First frame on an output connection: its sender. Frames are msgpack, sealed with the cookie.

    `input_bytes` may be sent to it as input (`InputFrame`) before it grants more; 0: none of its tasks reads any. `mpi` is
    the interface to MPI libraries for which its tasks have a socket.

    One that `resumes` connects again when a connection is cut. The command answers the hello of each connection by an
    `InputFrame` that acknowledges. On a later one `received` is the number of frames that have come before, and output goes
    on behind the acknowledged frame, once the `nonce` of that answer was sent back: a hello may be an old one.
    """

    key: StepKey
    node_name: str
    tasks: int
    input_bytes: int = 0
    mpi: str = ""
    resumes: bool = False
    received: int = 0


NONCE_BYTES = 16


class OutputFrame(msgspec.Struct, frozen=True, array_like=True):
    """Every later frame: bytes of one stream of one task, or its end.

    `task` is the global rank. `stream` is 1 (stdout), 2 (stderr) or `MPI_STREAM`; on `eof` that stream is complete.
    `exit_status` is given once per task, with stream 0: the exit code, or the negated signal number. `input_bytes`, with
    stream 0 and of no task, are those that may have been sent as input since the step began, `INPUT_DONE`: no task
    reads any more. `is_last`: no frame follows. A frame of no task is acknowledged at once.

    Frames with an `ack`, the number of frames that have come from the command, or with a `nonce` are not counted themselves.
    """

    node: int
    task: int
    stream: int
    data: bytes = b""
    eof: bool = False
    exit_status: int | None = None
    input_bytes: int | None = None
    is_last: bool = False
    ack: int | None = None
    nonce: bytes = b""


class InputFrame(msgspec.Struct, frozen=True, array_like=True):
    """A frame of the other direction: bytes for the standard input of the tasks that take it, and with `eof` their end.

    The first one is empty: it proves the cookie before any data is taken. `size` is the new one of a task's terminal. With
    `mpi_rank` the data is for the MPI library of this task.

    A frame with an `ack`, the number of frames of output that the command has shown, is nothing else, and not counted. Of
    one that answers the hello of a later connection the `nonce` is to be sent back.
    """

    data: bytes = b""
    eof: bool = False
    size: TerminalSize | None = None
    mpi_rank: int | None = None
    ack: int | None = None
    nonce: bytes = b""


class StepWarning(msgspec.Struct, frozen=True, array_like=True):
    """Actions `before_us` before a step's time limit; at once when the limit is no longer than that (C-40).

    `signum` (0: none) goes to the first task's own process with `to_first_only`, else to everything of the attempt on this
    node but that process: a shell that does not expect the signal dies of it. `script` (a path, empty: none) runs beside
    the step, as its user, in its directory, with its environment and ESLURM_SECONDS_LEFT; its output goes to the step's
    error output, and its end has no effect on the step.
    """

    before_us: int
    signum: int = 0
    to_first_only: bool = False
    script: str = ""


class StepSpec(msgspec.Struct, frozen=True, array_like=True):
    """Input of a runner to start a step, with the environment of one of its tasks.

    `argv[0]` is the program: a path (a batch script is a file that the runner has written) or a name looked up in the
    environment's PATH. Output paths are already expanded and relative to `cwd`; an empty `stderr` follows `stdout`;
    `endpoint`, when set, replaces both. `time_limit_us` and `orphan_timeout_us` are durations on CLOCK_BOOTTIME, 0 means
    none; no `warning` is given without a time limit. `first_task` is the global rank of the first task here.

    A batch step without `tasks` is that of an allocation: no process is ever started for it, and it runs until it is ended.
    """

    key: StepKey
    node_name: str
    uid: int
    gid: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    groups: tuple[int, ...] = ()
    stdin: str = "/dev/null"
    stdout: str = "/dev/null"
    stderr: str = ""
    open_mode: Literal["append", "truncate"] = "truncate"
    endpoint: OutputEndpoint | None = None
    umask: int = 0o022
    time_limit_us: int = 0
    kill_grace_us: int = 30_000_000
    orphan_timeout_us: int = 0
    tasks: int = 1
    first_task: int = 0
    warning: StepWarning | None = None
    input: StepInput | None = None
    """Of a step with an `endpoint`: the tasks that read what its command passes on. The others read `stdin`."""
    cores: int = 0
    """Cores that its job has on the node."""
    memory_mib: int = 0
    """Memory that its job may use on the node, 0: any."""
    mpi: str = ""
    """Of a step with an `endpoint`: the interface to MPI libraries that its command serves (`core.model.mpi`)."""
    own_memory_mib: int = 0
    """Memory that the step itself may use on the node, within its job's; 0: all of that."""


class StepOrder(msgspec.Struct, frozen=True, array_like=True):
    """An agent's order to its host to start a step. Fields are only ever appended.

    `credential` is the controller's sealed command, which names the user and the processes; `script` and `environment` are
    those that it names by hash; `door` is the socket at which the job's commands reach the controller. `contact_us` is the
    node's last contact as of `StepRunner.contact`, 0: there was none; None: from an agent that does not send it. `end` is
    the exit code and signal of the job's script, for its epilog. `job_socket` is the socket of the line protocol.
    """

    key: StepKey
    credential: bytes
    script: bytes = b""
    environment: bytes = b""
    door: str = ""
    contact_us: int | None = None
    end: tuple[ExitCode, SignalNumber] | None = None
    job_socket: str = ""


class StepStarted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A live step. `at_us` is wall time in microseconds UTC; `pid` is its first task, 0 before it exists.

    `ready` are the first lines of its tasks, of a step of gateways: it has started when all of them are there.
    """

    key: StepKey
    at_us: int
    pid: int
    ready: tuple[str, ...] = ()


class StepOutcome(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The end of a step: a fact, kept until acknowledged. Fields are only ever appended.

    `exit_code` is the highest of its tasks, `signal` the first that killed one of them (0: none). A step that could not be
    started has a shell's code: 127 (not found), 126 (found, but cannot be run), 1 (anything else). Times are wall
    microseconds UTC; `max_rss_kib` is the largest single process, and never reads below the supervisor's own size (a
    property of exec).
    """

    key: StepKey
    exit_code: int
    signal: int
    cause: StepEndCause
    text: str = ""
    started_us: int = 0
    ended_us: int = 0
    user_cpu_us: int = 0
    system_cpu_us: int = 0
    max_rss_kib: int = 0


StepState = StepStarted | StepOutcome
StepOutcomeSink = Callable[[StepOutcome], None]


class StepRunnerError(Exception):
    """The runner cannot take the request: it is closed, full, or refused it. Nothing was started."""


class UserRefused(StepRunnerError):
    """The site's settings forbid steps of this user: a retry changes nothing."""


Order = TypeVar("Order", contravariant=True)


class StepRunner(Protocol[Order]):
    """Starts, signals and remembers steps. Every method may be repeated without harm.

    An agent orders by credential (`StepOrder`); a simulation, which needs no proofs, by `StepSpec`.
    """

    async def launch(self, order: Order) -> StepState:
        """Start a step, once per key, and return as soon as its processes run or could not be started.

        A key that is live or whose outcome is unacknowledged is answered with its present state. Raises `StepRunnerError`
        when the runner is full or closed, `UserRefused` when it is not for this user.
        """
        ...

    async def signal(self, key: StepKey, signum: int) -> bool:
        """Send `signum` to all processes of a step; False when the step is not live."""
        ...

    async def terminate(self, key: StepKey, cause: StepEndCause, grace_us: int) -> bool:
        """End a step: SIGCONT and SIGTERM now, SIGKILL after `grace_us`; False when it is not live.

        A second call may shorten the grace but never lengthens it; the first cause is kept.
        """
        ...

    async def suspend(self, key: StepKey, resume: bool = False) -> bool:
        """Suspend all processes of a step, or resume them; False when it is not live.

        A suspension does not count towards its time limit. A step that is ending is not suspended.
        """
        ...

    async def set_limit(self, key: StepKey, time_limit_us: int, credential: bytes = b"") -> bool:
        """Set the step's time limit, counted from its start; 0: none. False when it is not live.

        A runner that requires proof of a longer limit takes the controller's sealed command as `credential`.

        Its warning moves with it, and is given again if its time comes again.
        """
        ...

    async def list_steps(self) -> Sequence[StepState]:
        """All live steps and all unacknowledged outcomes, ordered by key."""
        ...

    async def acknowledge(self, keys: Collection[StepKey]) -> None:
        """Forget these outcomes; unknown and live keys are ignored."""
        ...

    async def contact(self, nodes: Collection[int] = (), at_us: int | None = None) -> None:
        """Note that the controller has heard these nodes (empty: all) at `at_us`, microseconds of CLOCK_BOOTTIME; None:
        just now. It never takes a later contact back.
        """
        ...

    async def measure(
        self, attempt: NodeAttempt, steps: Collection[int], *, with_pids: bool = False
    ) -> Sequence[StepUse]:
        """Measure the live ones of these steps of an attempt, and with `with_pids` name their processes.

        Raises `StepRunnerError` when the runner cannot say.
        """
        ...

    async def vacate(self, attempts: Collection[NodeAttempt]) -> None:
        """Note that these attempts have left their node: no step of theirs lives or comes. What those shared is let go."""
        ...
