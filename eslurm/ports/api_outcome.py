"""The outcome of a call of the API as both sides see it: its status, a refusal, silence.

Commands import this module before they do anything, so it imports nothing but `enum`. Invariant: statuses are gRPC's numbers
on every endpoint, so a caller need not know which one served it.
"""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


def status_of(number: int) -> Status:
    """The status with this number; UNKNOWN for a newer peer's number."""
    try:
        return Status(number)
    except ValueError:
        return Status.UNKNOWN


class ApiError(Exception):
    """A call is refused with a status and a sentence that names the thing, the value and the way out.

    `retry_after_s` above 0: the call had no effect and may be repeated after so many seconds.
    """

    def __init__(self, status: Status, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after_s = retry_after_s


class ApiRefused(Exception):
    """A client's error when the API answered with a refusal.

    `maybe_done` is true when an earlier try of the call was lost and may have taken effect.
    """

    def __init__(self, status: Status, text: str, *, maybe_done: bool = False) -> None:
        super().__init__(f"{text} ({status.name})")
        self.status = status
        self.text = text
        self.maybe_done = maybe_done


class ApiUnreachable(Exception):
    """A client's error when no API endpoint answered. The text names the endpoint and the way out.

    `maybe_done` is true when a call may have arrived and taken effect although no answer came back; `is_final` when a
    retry is useless as things are.
    """

    def __init__(self, text: str, *, maybe_done: bool = False, is_final: bool = False, why: str = "") -> None:
        super().__init__(text)
        self.why = why or text
        self.maybe_done = maybe_done
        self.is_final = is_final
