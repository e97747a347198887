"""Messages between the supervisor and `procd`: one a packet over a SOCK_SEQPACKET pair.

One request is unanswered at a time, and each has one answer; `Exited` and `Drained` come between. A body that is too long
for a packet comes as a sealed memory file. Invariant: a message that is too long or unreadable is a `BadMessage`, and does
not affect the next one.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

import msgspec

from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.ports.step_checks import TASKS_MAX
from eslurm.ports.step_runner import StepOrder, StepOutcome
from esnoded.procd.options import Options

BODY_BYTES_MAX = 20 * 1024 * 1024
"""More than a frame of an agent."""
STEPS_MAX = 16_384
"""Steps that are admitted at a time."""
_PACKET_BYTES_MAX = 32 * 1024
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * 4)
_INLINE, _IN_FILE = b"\0", b"\1"
# Numbers: operators of `enum` would be a tenth of what a message costs.
_CLOEXEC, _NOW = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_RIGHTS = int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS)
_KINDS = {stat.S_IFIFO: "p", stat.S_IFSOCK: "s"}
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

Usage: TypeAlias = tuple[float, float, int]
"""CPU seconds as the user and in the kernel, and the most memory (KiB), of a collected process: as `wait4` says it."""
Signum = Annotated[int, msgspec.Meta(ge=1, le=64)]


class Admit(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """May the step be started?"""

    order: StepOrder


class Spawn(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Start a task of an admitted step, once, with its pipes and sockets (`task.streams`). The answer is `Spawned`.

    With `ended`, pid and wait status of that task, run the site's program that follows it, once. With `seconds_left`, and
    without pipes, run the script that warns of the step's time limit.
    """

    key: StepKey
    local: Annotated[int, msgspec.Meta(ge=0, lt=TASKS_MAX)]
    ended: tuple[int, int] | None = None
    seconds_left: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Connect to the step's listener; the socket that comes with it hears the result (`stepd.connect`)."""

    key: StepKey


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """Signals to send to a step, in this order.

    `first` is its first task's own process, `around` all but that one, `step` all. `thorough` also reaches what has a
    session of its own and a parent that lives: it goes by the step's mark, for which the environment of every process of the
    node has to be looked at. Without it they end with their parents.
    """

    key: StepKey
    signums: Annotated[tuple[Signum, ...], msgspec.Meta(max_length=4)]
    reach: Literal["step", "thorough", "first", "around"] = "step"


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag=5):
    deliveries: Annotated[tuple[Delivery, ...], msgspec.Meta(max_length=4 * STEPS_MAX)]


class Over(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Forget steps, and kill what is left of them. It has no answer."""

    keys: Annotated[tuple[StepKey, ...], msgspec.Meta(max_length=STEPS_MAX)]


class Trust(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The site has other keys now: a sealed `RingStatement`."""

    ring: bytes


class Refresh(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """An agent has come: look at what root has changed. The answer is `Refreshed`."""


class Settled(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Outcomes left behind by a predecessor are in the journal."""


class Vacate(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Attempts have left their node: what their steps there shared is let go."""

    attempts: tuple[NodeAttempt, ...]


class Spawned(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The new process; with it comes the pipe in which it says why it could not run its program, if that can be."""

    pid: int


class Done(msgspec.Struct, frozen=True, array_like=True, tag=22):
    pass


class Refreshed(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """`ring` are the site's keys, sealed; `left_behind`: outcomes that a supervisor of a version before 0.2 still owed."""

    options: Options
    ring: bytes
    left_behind: tuple[StepOutcome, ...] = ()


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """`exit_code` is what a shell would report of a task that does not start; `user`: no step of this user ever starts."""

    text: str
    exit_code: int = 1
    user: bool = False


class Exited(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """A task is over and its group was killed; `Drained` follows unless nothing is left of that. `used`: by each process."""

    pid: int
    wait_status: int
    used: tuple[Usage, ...]
    is_drained: bool


class Drained(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The last process of a killed group was collected."""

    pid: int
    used: tuple[Usage, ...]


Request = Admit | Spawn | Connect | Deliver | Over | Trust | Refresh | Settled | Vacate
Event = Exited | Drained
Answer = Spawned | Done | Refreshed | Refused
Told = Answer | Event

_encode = msgspec.msgpack.Encoder().encode
_M = TypeVar("_M")


class BadMessage(Exception):
    """No message of this conversation; its descriptors are closed."""


class Channel(Generic[_M]):
    """One end of the pair, which receives messages that `decoder` reads."""

    def __init__(self, end: socket.socket, decoder: msgspec.msgpack.Decoder[_M]) -> None:
        self._end = end
        self._decoder = decoder

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: msgspec.Struct, fds: Sequence[int] = ()) -> None:
        """Blocks until the other end has room. Raises OSError, ValueError."""
        body = _encode(message)
        if len(body) < _PACKET_BYTES_MAX:
            if fds:
                socket.send_fds(self._end, [_INLINE + body], fds)
            else:
                self._end.send(_INLINE + body)
            return
        file = os.memfd_create("procd", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(file, "wb", closefd=False) as writer:
                writer.write(body)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            socket.send_fds(self._end, [_IN_FILE], (file, *fds))
        finally:
            os.close(file)

    def receive(self, *, wait: bool = True) -> tuple[_M, list[int]]:
        """The next message and the descriptors that came with it, which are the caller's to close.

        Raises `BadMessage`, BlockingIOError, EOFError once the other end is gone.
        """
        how = _CLOEXEC if wait else _NOW
        try:
            # By hand: `socket.recv_fds` loses the flags, and what is inherited would leak into tasks.
            packet, rest, flags, _ = self._end.recvmsg(_PACKET_BYTES_MAX, _ANCILLARY_BYTES, how)
        except ConnectionError:
            raise EOFError from None
        fds = _descriptors(rest)
        if not packet:
            close_all(fds)
            raise EOFError
        try:
            if flags & _CUT:
                raise BadMessage("it is too long, or has too many descriptors")
            body = packet[1:]
            if packet[:1] == _IN_FILE:
                body = _read_sealed(fds)
            return self._decoder.decode(body), fds
        except (BadMessage, OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            close_all(fds)
            raise BadMessage(f"a message that cannot be read: {error}") from None


def _descriptors(rest: Iterable[tuple[int, int, bytes]]) -> list[int]:
    return [
        int.from_bytes(data[at : at + 4], sys.byteorder)
        for level, kind, data in rest
        if (level, kind) == _RIGHTS
        for at in range(0, len(data) - 3, 4)
    ]


def kinds_of(fds: Sequence[int]) -> str:
    """A letter for each descriptor: `p` a pipe, `s` a socket, `?` anything else. Raises OSError."""
    return "".join(_KINDS.get(stat.S_IFMT(os.fstat(fd).st_mode), "?") for fd in fds)


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)


def _read_sealed(fds: list[int]) -> bytes:
    """The content of the first descriptor, a sealed memory file that cannot change any more; closes it."""
    if not fds:
        raise BadMessage("its body is missing")
    # Of anything but a memory file this is an error: nothing else is read here.
    if fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise BadMessage("its body is not sealed")
    size = os.fstat(fds[0]).st_size
    if size > BODY_BYTES_MAX:
        raise BadMessage(f"{size} bytes exceed the limit of {BODY_BYTES_MAX}")
    body = os.pread(fds[0], size, 0)
    os.close(fds.pop(0))
    return body
