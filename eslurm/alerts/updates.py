"""Updates of alert sources, and a node's name from an alert's labels.

Names are as the source wrote them: the receiver knows which of them are nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

LABEL_CHARS_MAX = 255
"""Longer than any host name: such a label's value names no node."""


Alert: TypeAlias = tuple[str, str]
"""One firing alert: its identity within its source, and the node its label names."""

PushedAlert: TypeAlias = tuple[str, str, int]
"""The same for an alert that was reported once, and when (microseconds UTC) it is over unless reported again."""


class Firing(msgspec.Struct, frozen=True):
    """All alerts that fire at a source now; earlier ones that are not among these are over."""

    source: str
    alerts: tuple[Alert, ...]


class Changed(msgspec.Struct, frozen=True):
    """Alerts of a source that began (or continue), and the keys of ended ones; the rest is as before."""

    source: str
    firing: tuple[PushedAlert, ...]
    resolved: tuple[str, ...]


AlertUpdate: TypeAlias = Firing | Changed

OnAlerts: TypeAlias = Callable[[AlertUpdate], None]
"""Called on the event loop; must not block."""


def find_node(labels: Mapping[str, str], node_label: str) -> str | None:
    """The node of an alert, or None. A port is dropped: the label `instance` is host:port."""
    value = labels.get(node_label, "")
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if colon and port.isascii() and port.isdigit() and (bracketed or ":" not in host):
        value = host
    value = value.removeprefix("[").removesuffix("]")
    return value if 0 < len(value) <= LABEL_CHARS_MAX else None
