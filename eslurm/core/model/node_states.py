"""The states of a node, and every legal move between them. Flags (drain, maint, fail) are apart from states."""

from __future__ import annotations

import enum


class NodeState(enum.Enum):
    """UNKNOWN: configured, never registered since the controller's epoch. LOST: given up, its attempts too."""

    UNKNOWN = "UNKNOWN"
    UP = "UP"
    UNREACHABLE = "UNREACHABLE"
    LOST = "LOST"


TRANSITIONS: dict[NodeState, dict[NodeState, str]] = {
    NodeState.UNKNOWN: {
        NodeState.UP: "registered",
        NodeState.LOST: "declared lost, or silent for node_lost_after_s",
    },
    NodeState.UP: {
        NodeState.UP: "registered again",
        NodeState.UNREACHABLE: "missed two heartbeats",
        NodeState.LOST: "declared lost by an administrator",
        NodeState.UNKNOWN: "a new controller epoch: it must register again",
    },
    NodeState.UNREACHABLE: {
        NodeState.UP: "answered again, or registered",
        NodeState.LOST: "silent for node_lost_after_s, or declared lost by an administrator",
        NodeState.UNKNOWN: "a new controller epoch: it must register again",
    },
    NodeState.LOST: {NodeState.UP: "registered"},
}
