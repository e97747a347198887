"""This project's use of gRPC: channel and server options, limits, addresses.

Invariant: both ends of a link are built from these values, so keepalive times agree and message sizes match.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final

import msgspec

from eslurm.core.model.endpoint import split_endpoint

CONTROL_FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
CONTROL_ITEM_BYTES_MAX: Final = 3 * 1024 * 1024
# Several items share a frame up to here; a larger item travels alone.
FRAME_BYTES_TARGET: Final = 512 * 1024
BULK_CHUNK_BYTES_MAX: Final = 256 * 1024
# A chunk's data plus its hash and numbers.
BULK_ITEM_BYTES_MAX: Final = BULK_CHUNK_BYTES_MAX + 4096
DOOR_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
SOCKETS_MIN: Final = 8

_KEEPALIVE_MS: Final = 20_000
_KEEPALIVE_TIMEOUT_MS: Final = 5_000
_HANDSHAKE_MS: Final = 5_000
"""For what comes before the first call: TLS, and the settings of HTTP/2."""
_IDLE_MS: Final = 60_000
_STREAMS_MAX: Final = 256
_METADATA_BYTES_MAX: Final = 16 * 1024

Options = list[tuple[str, int | str]]


class LinkSettings(msgspec.Struct, frozen=True):
    """Bounds of every link. A link whose control queue exceeds either bound is closed: the peer does not keep up."""

    connect_timeout_s: float = 1.5
    hello_timeout_s: float = 2.0
    close_grace_s: float = 1.0
    queue_items_max: int = 65_536
    queue_bytes_max: int = 32 * 1024 * 1024
    bulk_window_bytes: int = 1024 * 1024
    bulk_open_timeout_s: float = 5.0
    links_max: int = 4096
    agents_max: int = 0
    """Links from agents that a server accepts (0: any number); more are refused with a retry time, one every
    `line_pace_s`.
    """
    line_pace_s: float = 0.004
    line_max_s: float = 5.0


class TableSettings(msgspec.Struct, frozen=True):
    """Bounds of a link table. Dialled links above `cached_max` that were quiet for `idle_s` are closed, oldest first; at
    `dialled_max` a dial waits for `room_wait_s` until one of them is idle, then it is refused. Accepted links of agents
    above `parked_above` (0: any number is kept) are closed as soon as they are idle for `parked_quiet_s`. A link is never
    closed while an answer is awaited on it.
    """

    cached_max: int = 256
    dialled_max: int = 1024
    room_wait_s: float = 1.0
    idle_s: float = 60.0
    dials_max: int = 32
    backoff_first_s: float = 0.2
    backoff_max_s: float = 5.0
    backoff_entries_max: int = 65_536
    parked_above: int = 0
    parked_quiet_s: float = 0.05


class SocketBudget(msgspec.Struct, frozen=True):
    """A process's budget of sockets: the bounds of its relay, its table, its link server and gRPC.

    `sends_max` bounds the unacknowledged sends: a child's time-out begins with its send, so a send without a socket had
    better wait before that.
    """

    table: TableSettings
    links: LinkSettings
    connections_max: int
    sends_max: int


def socket_budget(sockets_max: int) -> SocketBudget:
    """The budget for `sockets_max`, which is four times the width of the process's trees.

    Five eighths are for links that it dials (the children of two trees, and those it adopts), three for agents that dial
    it; half of the latter may stay while they are idle, the others end after their exchange. Raises ValueError when there
    is no room for a tree.
    """
    if sockets_max < SOCKETS_MIN:
        raise ValueError(f"{sockets_max} sockets are too few: at least {SOCKETS_MIN}")
    width = sockets_max // 4
    accepted = sockets_max * 3 // 8
    dialled = sockets_max - accepted - 2
    table = TableSettings(
        cached_max=2 * width,
        dialled_max=dialled,
        idle_s=0.25,
        dials_max=max(4, min(32, width)),
        parked_above=accepted // 2,
    )
    return SocketBudget(table, LinkSettings(agents_max=accepted - 1), accepted, max(4, dialled - width))


def link_channel_options() -> Options:
    """For a dialled link: one channel, one peer, one life; the table redials, not gRPC."""
    return [
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", CONTROL_FRAME_BYTES_MAX),
        ("grpc.max_send_message_length", CONTROL_FRAME_BYTES_MAX),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # `min` doubles as gRPC's own connect timeout and must stay above ours.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 3_000),
        ("grpc.max_reconnect_backoff_ms", 3_000),
    ]


def door_channel_options() -> Options:
    """For a remote client of the controller."""
    return [
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", DOOR_MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", DOOR_MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1_500),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]


def server_options(
    message_bytes_max: int = CONTROL_FRAME_BYTES_MAX,
    connections_max: int = 1024,
    *,
    shares_port: bool = False,
) -> Options:
    """For a server of links, and of the API when `message_bytes_max` is its limit.

    Connections beyond `connections_max` are closed as soon as they are accepted.
    """
    return [
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.max_concurrent_streams", _STREAMS_MAX),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        # Else strangers' data raises the window of each of their streams before anything is read.
        ("grpc.http2.bdp_probe", 0),
        # Two processes on one port would each get half of the connections.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_receive_message_length", message_bytes_max),
        # What strangers send is bounded; what remote clients asked for they get, a long queue, too.
        ("grpc.max_send_message_length", DOOR_MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
        # The default of 2 strikes would end links whose peers ping as agreed above.
        ("grpc.http2.max_ping_strikes", 0),
    ]


_ANY_HOST = ("0.0.0.0", "::")  # nosec B104 # recognised, not bound


def reachable(endpoint: str) -> str:
    """The endpoint for other hosts: a wildcard address is replaced by the host's name."""
    host, port = split_endpoint(endpoint)
    return f"{socket.gethostname()}:{port}" if host in _ANY_HOST else endpoint


def is_loopback(host: str) -> bool:
    """Check whether an address (or `localhost`) cannot leave this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def grpc_target(endpoint: str) -> str:
    """The endpoint as a numeric gRPC target, so that gRPC starts no resolver of its own.

    Raises ValueError for a malformed endpoint, OSError when the name cannot be resolved.
    """
    host, port = split_endpoint(endpoint)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        address = ipaddress.ip_address(found[0][4][0])
    if address.version == 6:
        return f"ipv6:[{address}]:{port}"
    return f"ipv4:{address}:{port}"
