"""Permitted kinds of items on a link, by the roles of sender and receiver.

Invariant: an item that is not in the table ends the link. Items for the link itself (credits, byes) and sealed statements
of the site come from every member.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from eslurm.v1 import link_pb2

Kinds = Callable[[str, str], frozenset[str]]
"""The kinds that a link carries from a role to a role."""
STATEMENTS = frozenset({"key_ring", "revoked"})
"""Statements of the site, which a link table learns by itself."""
ALL = frozenset(link_pb2.Item.DESCRIPTOR.fields_by_name)
"""For processes that are no daemons: tests and benchmarks."""
_EVERYBODY = STATEMENTS | {"unsupported"}
_ANSWERS = frozenset({"broadcast_ack", "broadcast_reply"})
_TREE = frozenset({"broadcast", "book", "book_pull", "blob_request", "blob_chunk"})
_UP = frozenset({"report", "door_call", "book_pull", "blob_request"}) | _ANSWERS
_DOWN = frozenset({"broadcast", "book", "blob_chunk", "report_ack", "door_reply"})

_TABLE: dict[tuple[str, str], frozenset[str]] = {
    ("controller", "controller"): frozenset({"door_call", "door_reply", "standby_status"}),
    ("cell", "controller"): frozenset({"door_call", "door_reply"}),
    ("controller", "satellite"): _DOWN | {"satellite_ping"},
    ("controller", "agent"): _DOWN,
    ("satellite", "controller"): _UP | {"satellite_status"},
    ("satellite", "agent"): _DOWN | _ANSWERS,
    ("agent", "controller"): _UP,
    ("agent", "satellite"): _UP,
    ("agent", "agent"): _TREE | _ANSWERS,
}
"""By (sender, receiver). A login host speaks as an agent, of itself alone; a cell is the controller of another cluster."""


@cache
def allowed(sender: str, receiver: str) -> frozenset[str]:
    """The kinds that a link between these roles carries in this direction."""
    return _TABLE.get((_place(sender), _place(receiver)), frozenset()) | _EVERYBODY


def is_agent(role: str) -> bool:
    """Check whether a process of this role is an agent, of nodes or of a login host."""
    return role in ("agent", "login")


def _place(role: str) -> str:
    return "agent" if role == "login" else role
