"""Gateways of a job over several modules: the request, the stages of their start, what steps on nodes get (X-50..X-55).

The gateways of a job are its last part, whole nodes of the gateway modules. When all nodes of the attempt are prepared, the
daemons start on the gateways as the job's user, each tells its address, a helper on the job's first node writes the
routes, and the script starts.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

GATEWAY: Final = "gateway"
"""The kind of a module of gateways, the role of the hidden partition of their nodes, and that of a job's part on them."""
PARTITION: Final = "gateways"
"""The name of the hidden partition of all gateway nodes."""


class GatewayStage(enum.Enum):
    """The stage of the gateways of an attempt whose nodes are prepared."""

    DAEMONS = "DAEMONS"
    """The daemons start; each tells its address."""
    ROUTES = "ROUTES"
    """The helper on the first node writes the routes."""
    READY = "READY"
    """The script may start."""
    FAILED = "FAILED"
    """The helper on the first node writes the error file; then the attempt ends, and the job waits."""


TRANSITIONS: dict[GatewayStage, dict[GatewayStage, str]] = {
    GatewayStage.DAEMONS: {
        GatewayStage.ROUTES: "every daemon has told its address",
        GatewayStage.FAILED: "a daemon ended or told no address, or the limit is over",
    },
    GatewayStage.ROUTES: {
        GatewayStage.READY: "the helper has written the routes",
        GatewayStage.FAILED: "the helper failed, a daemon ended, or the limit is over",
    },
    GatewayStage.READY: {},
    GatewayStage.FAILED: {},
}
LIMITS_S: Final = {
    GatewayStage.DAEMONS: 300,
    GatewayStage.ROUTES: 60,
    GatewayStage.READY: 0,
    GatewayStage.FAILED: 10,
}
"""Seconds that each stage may take (X-52); 0: no limit. Nodes answer the launch itself within the limit of any launch."""
RETRY_S: Final = 600
"""A job whose gateways failed is eligible again so many seconds later (X-53)."""

ADDRESS_CHARS_MAX: Final = 64
"""An address is `ip:port` or `[ip]:port`, all printable ASCII."""
TEXT_CHARS_MAX: Final = 300


class GatewayRequest(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A job's request for gateways (X-50). The paths are absolute; empty: the site's daemon, and a file of the job's own.

    `env` are variables of the daemons besides the job's own.
    """

    count: int
    plugin: str = "plugin1"
    file: str = ""
    binary: str = ""
    env: tuple[tuple[str, str], ...] = ()
    per_node: int = 1
    cleanup: bool = False
    """Remove the file of routes when the job ends."""
    quiet: bool = False
    """Write no error file."""
    debug: bool = False
    """The daemons' error output goes to a file for each node."""
    apart: bool = False
    """Daemons get none of the variables that the job's user has brought, only those that the job has here, and `env`."""


class GatewayState(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The gateways of an attempt whose nodes are prepared.

    `revision` is that of the fact that began the stage: the stage's command is owed under it to `waiting`, the nodes that
    have not answered it.
    """

    stage: GatewayStage
    until_us: int = 0
    """Time by which the stage must be over; 0: no limit."""
    revision: int = 0
    waiting: frozenset[int] = frozenset()
    addresses: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """(gateway node, the address of each of its daemons)."""
    ended: tuple[tuple[int, str], ...] = ()
    """(gateway node, how a daemon of it ended) of daemons that ended although the attempt has not."""
    text: str = ""
    """Why the gateways failed."""


class GatewayStep(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Parameters of a gateway's or a helper's step besides the launch (`LaunchStep.gateway`), whose spec has the request.

    GATEWAY_STEP gets none of it, ROUTE_STEP all but `failed`, and ROUTE_ERROR_STEP `failed`, the text of the error file.
    """

    names: str = ""
    """The gateway nodes, folded, in the order of `addresses`."""
    addresses: tuple[tuple[str, ...], ...] = ()
    """Of each gateway the addresses of its daemons."""
    modules: tuple[tuple[str, str], ...] = ()
    """(module, folded list of the job's nodes in it), in the order of the job's nodes."""
    direct: tuple[tuple[str, str], ...] = ()
    """Pairs of these modules, each once, between which no gateway is needed."""
    failed: str = ""


def is_address(text: str) -> bool:
    """Check the form of a daemon's address. That it is one of its host is the node's matter."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or len(text) > ADDRESS_CHARS_MAX or not port.isascii() or not port.isdigit():
        return False
    is_plain = all(char in "0123456789abcdefABCDEF.:[]" for char in host)
    return is_plain and (":" not in host or (host[0], host[-1]) == ("[", "]")) and 0 < int(port) < 65536
