"""Messages between the agent and its supervisor: frames of msgpack over one Unix socket.

A frame is a 4-byte big-endian length and one message. Messages are tagged arrays; fields are only ever appended, so that
an agent and a supervisor of neighbouring versions understand each other: the supervisor may be older than the agent,
because it survives an upgrade while steps run.
"""

from __future__ import annotations

import struct

import msgspec

from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.model.step_usage import StepUse
from eslurm.ports.step_runner import StepEndCause, StepOrder, StepOutcome, StepStarted

PROTOCOL_VERSION = 6
"""Since 2 the output of steps is sealed; since 3 a launch is what a controller has sealed, not a spec that any agent could
write (tag 11); since 4 launches of several parts and phases are understood (`AGENT_PROTOCOL`); since 5 attempts leave;
since 6 steps are measured.
"""
PARTS_SINCE = 4
VACATE_SINCE = 5
MEASURE_SINCE = 6
FRAME_BYTES_MAX = 16 * 1024 * 1024
HEADER = struct.Struct(">I")


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Opens a connection; the answer is `Welcome` and every unacknowledged outcome."""

    version: int


class Launch(msgspec.Struct, frozen=True, array_like=True, tag=19):
    request: int
    order: StepOrder


class Signal(msgspec.Struct, frozen=True, array_like=True, tag=12):
    request: int
    key: StepKey
    signum: int


class Terminate(msgspec.Struct, frozen=True, array_like=True, tag=13):
    request: int
    key: StepKey
    cause: StepEndCause
    grace_us: int


class ListSteps(msgspec.Struct, frozen=True, array_like=True, tag=14):
    request: int


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag=15):
    request: int
    keys: tuple[StepKey, ...]


class Contact(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Unanswered: a lost contact is made good by the next one. `at_us` as of `StepRunner.contact`."""

    nodes: tuple[int, ...]
    at_us: int | None = None


class Suspend(msgspec.Struct, frozen=True, array_like=True, tag=17):
    request: int
    key: StepKey
    resume: bool


class SetLimit(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """A limit that ends later than the present one needs the sealed command that sets it."""

    request: int
    key: StepKey
    time_limit_us: int
    credential: bytes = b""


class Vacate(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Unanswered, see `StepRunner.vacate`."""

    attempts: tuple[NodeAttempt, ...]


class Trust(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """The site has other keys now: a sealed `RingStatement`."""

    request: int
    ring: bytes


class Measure(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """See `StepRunner.measure`."""

    request: int
    attempt: NodeAttempt
    steps: tuple[int, ...]
    with_pids: bool


Request = (
    Hello
    | Launch
    | Signal
    | Terminate
    | ListSteps
    | Acknowledge
    | Contact
    | Suspend
    | SetLimit
    | Vacate
    | Trust
    | Measure
)


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """`instance` names the state directory, `pid` and `started_us` (wall) this run of the supervisor."""

    version: int
    instance: str
    boot_id: str
    pid: int
    started_us: int


class Launched(msgspec.Struct, frozen=True, array_like=True, tag=21):
    request: int
    state: StepStarted | StepOutcome


class Done(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Answers signal, terminate, suspend, set limit, acknowledge and trust."""

    request: int
    found: bool


class Listing(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """A part of the answer to `ListSteps`; the parts come in order, `last` closes it."""

    request: int
    steps: tuple[StepStarted | StepOutcome, ...]
    last: bool


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """`user`: no step of this user is ever started here."""

    request: int
    text: str
    user: bool = False


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """News, repeated on every new connection until acknowledged."""

    outcomes: tuple[StepOutcome, ...]


class Measured(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Answers `Measure`."""

    request: int
    uses: tuple[StepUse, ...]


Answer = Welcome | Launched | Done | Listing | Refused | Ended | Measured


class WireError(Exception):
    """The peer sent something that is no frame of this protocol; the connection is of no further use."""


_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: msgspec.Struct) -> bytes:
    """One message as a frame. Raises `WireError` when it exceeds `FRAME_BYTES_MAX` or holds what msgpack cannot."""
    try:
        body = _encoder.encode(message)
    except (OverflowError, TypeError, ValueError) as error:
        raise WireError(f"a message that cannot be encoded: {error}") from None
    if len(body) > FRAME_BYTES_MAX:
        raise WireError(f"a message of {len(body)} bytes exceeds the limit of {FRAME_BYTES_MAX}")
    return HEADER.pack(len(body)) + body


class FrameBuffer:
    """Cuts a byte stream into message bodies. Holds at most one frame and what arrived behind it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies completed by `data`. Raises `WireError` on an oversized frame."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, start)
            if length > FRAME_BYTES_MAX:
                raise WireError(f"a frame of {length} bytes exceeds the limit of {FRAME_BYTES_MAX}")
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[start + HEADER.size : end]))
            start = end
        if start:
            del buffer[:start]
        return bodies
