"""Status queries to this cluster's controllers, without retries: no answer is an answer here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from eslurm.api.unix_client import Client

_TIMEOUT_S = 5.0


def find_answer(
    sockets: Path | Sequence[str], method: str, request: Message, timeout_s: float = _TIMEOUT_S
) -> Any:
    """The reply to one call that changes nothing; None when there is none in time."""
    with _client(sockets) as client:
        return _find(client, method, request, timeout_s)


def ping(sockets: Path | Sequence[str], timeout_s: float = _TIMEOUT_S) -> Any:
    """The PingReply of the controller that leads; None when it does not answer in time."""
    from eslurm.v1 import controller_pb2 as pb

    return find_answer(sockets, "Ping", pb.PingRequest(), timeout_s)


def ping_and_roles(sockets: Sequence[str]) -> tuple[Any, dict[str, str]]:
    """The PingReply, None without an answer in time; and by name the role of each linked controller: leader or standby."""
    from eslurm.v1 import controller_pb2 as pb

    # With one client: a silent socket is waited for only once.
    with _client(sockets) as client:
        reply = _find(client, "Ping", pb.PingRequest(), _TIMEOUT_S)
        if reply is None:
            return None, {}
        known = _find(client, "Controllers", pb.ControllersRequest(), _TIMEOUT_S)
    return reply, {} if known is None else {one.name: one.role for one in known.controllers}


def _client(sockets: Path | Sequence[str]) -> Client:
    from eslurm.api.unix_client import Client

    return Client(sockets, patience_s=0.0)


def _find(client: Client, method: str, request: Message, timeout_s: float) -> Any:
    from eslurm.api.methods import BY_NAME
    from eslurm.ports.api import ApiRefused, ApiUnreachable

    try:
        return client.call(BY_NAME[method], request, timeout_s)
    except (ApiRefused, ApiUnreachable):
        return None
