"""The port between an API endpoint and its service: the caller, the answer, and the status of a refusal.

Commands import this module, so it imports nothing heavy. Invariant: statuses are gRPC's numbers on every endpoint, so a
caller need not know which one served it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from eslurm.core.model.job import Principal


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


class Caller(NamedTuple):
    """The caller and its way in. `deadline_us` is the time left at arrival; `via` is socket, agent, login, token or cell.

    `request_id` is empty or 16 bytes. `retry` says that an earlier try of the same call may have arrived. `host` is the
    host whose API socket took the call, as its daemon reports it; empty: the controller's, or a remote client's. `token`
    is the id of the caller's token; empty on other ways in. `peer` is the origin of the call for logs: an address, a node;
    empty: this host. `cell` is the other cell of the federation whose link brought the call; empty: none did.
    """

    principal: Principal
    request_id: bytes
    retry: bool
    deadline_us: int | None
    via: str
    host: str = ""
    token: str = ""
    peer: str = ""
    cell: str = ""


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


class ApiService(Protocol):
    """The one service behind all API endpoints."""

    async def call(self, method: Any, request: Any, caller: Caller) -> Any:
        """Answer one call. `method` is an entry of the method table, `request` its request message.

        Returns the reply message, or its encoded bytes where the service keeps them encoded. Raises `ApiError`. May be
        cancelled at any `await` (deadline, lost client): parts that must not be lost half-way are shielded inside.
        """
        ...


class Answered(NamedTuple):
    """The reply: encoded when `status` is OK, else the reason and the time of a retry."""

    status: Status
    text: str
    reply: bytes
    retry_after_s: float = 0.0


class Answerer(Protocol):
    """The server of an API endpoint's calls: the interceptor on the controller, a forwarder on a node."""

    async def answer(self, method: Any, payload: bytes, caller: Caller) -> Answered:
        """Answer one call, never raise (except when cancelled). `payload` is the encoded request."""
        ...
