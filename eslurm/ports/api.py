"""The port between an API endpoint and its service: the caller, the answer, and the outcomes of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eslurm.ports.api_outcome import ApiError as ApiError
from eslurm.ports.api_outcome import ApiRefused as ApiRefused
from eslurm.ports.api_outcome import ApiUnreachable as ApiUnreachable
from eslurm.ports.api_outcome import Status as Status
from eslurm.ports.api_outcome import status_of as status_of

if TYPE_CHECKING:
    from eslurm.core.model.job import Principal


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
