"""The model's assumptions about networks, resource managers and messages, each with its source.

Two presets: `PAPER`, the Slurm-like system of the first source document, and `OURS`, this one. Invariant: every
number that the curves depend on is here, marked with its source in the inventory or as an assumption.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

ALIVE, REFUSED, SILENT = 0, 1, 2
"""The answer to a connection to a node: service, an error at once, or nothing at all until a time-out."""


class Rescue(Enum):
    """The way in which a parent reaches the nodes below a child that is dead (E-31)."""

    ONE_BY_ONE = "one by one"
    """It gives the subtree up and calls each of its nodes itself, one after the other (X-15)."""
    NEXT_HEAD = "next head"
    """It sends the rest of the list to the next node in it, and so on until one answers."""
    AT_ONCE = "all at once"
    """It gives the subtree up and calls all its nodes itself, as many at a time as it has threads."""
    ADOPT = "adopt"
    """It sends to the dead child's own children at once, as the same tree has them (E-21)."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A network and the resource manager on it. All times are seconds of one sender or receiver.

    A process makes its sends one after the other, and then takes in the replies one after the other.
    """

    name: str
    latency_s: float
    """One way between any two nodes."""
    dial_s: float
    """Opening a connection, before the message can leave."""
    send_s: float
    """Serial work of a sender for each child: start a thread, sign, pack."""
    send_node_s: float
    """The same for each node named in the list that goes with it."""
    leg_s: float
    """`send_s` of the controller itself, which has more to do and to lock."""
    hop_s: float
    """Serial work of a receiver before it sends on: accept, verify, unpack."""
    merge_s: float
    """Serial work of a parent for each reply."""
    merge_node_s: float
    """The same for each node in the reply."""
    construct_node_s: float
    """Arranging the list at a root, for each node (E-25)."""
    threads: int
    """Sends of one process that may be open at a time."""
    frees_on_ack: bool
    """A send is closed once it is acknowledged; else only when the whole subtree has answered."""
    tries: int
    """Connections that are tried before a node is taken for dead."""
    silent_s: float
    """Cost of one try when nothing comes back. When it is refused, a round trip."""
    rescue: Rescue
    rechecks: int = 0
    """Suspects that a root looks at again at a time, each once, before they are reported dead; 0: none are."""
    recheck_delay_s: float = 0.0
    """Time that a node gets after a refusal before the second look."""
    poll_s: float = 10.0
    """The period in which nodes look at a shared board (pull); the default lets the FP-Tree be the least (E-65)."""
    read_s: float = 20e-6
    """Serial work of the board for each node that looks."""

    def lost_s(self, state: int) -> float:
        """Cost of finding that a node refuses or is silent."""
        return self.tries * (self.silent_s if state == SILENT else 2 * self.latency_s)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of broadcast (E-06)."""

    name: str
    bulk_s: float
    """Serial work of a sender for each child on account of the message's size."""
    act_s: float
    """Work of each node before it answers."""


PAPER: Final = System(
    name="paper",
    latency_s=50e-6,  # assumption: TCP over a fast interconnect
    dial_s=150e-6,  # assumption: one round trip and the accepting thread's start
    send_s=1e-3,  # 0.1 ms between thread starts; the rest, a signed credential, is an assumption
    send_node_s=1e-6,  # assumption: packing a host list
    leg_s=5.4e-3,  # 22.3 min more CPU time for 246,500 more satellite tasks (E-67, E-68)
    hop_s=2e-3,  # assumption: accept, check the credential, unpack
    merge_s=0.2e-3,  # assumption
    merge_node_s=20e-6,  # replies list every node; picked with E-69 in view, see docs/results/curves.md
    construct_node_s=0.1e-6,  # measured here, in Python; theirs is unknown
    threads=50,  # per request
    frees_on_ack=False,  # a thread waits for its branch
    tries=3,  # E-33
    silent_s=2.0,  # Slurm's default time-out for opening a TCP connection
    rescue=Rescue.ONE_BY_ONE,  # X-15, and delay grows with descendants (E-31); it also gives the published sizes
)
PAPER_WIDTH: Final = 50
PAPER_ROOT_WIDTH: Final = 200
"""A satellite's first level (X-03); a controller without satellites has `PAPER_WIDTH`."""
MESSAGE_TIMEOUT_S: Final = 10.0

OURS: Final = System(
    name="ours",
    latency_s=50e-6,  # the same network
    dial_s=0.0,  # links are kept
    send_s=0.15e-3,  # a call costs 0.3 ms for both ends (measured, Python)
    send_node_s=0.5e-6,  # measured, order of magnitude
    leg_s=0.15e-3,  # a satellite is a child like any other
    hop_s=0.35e-3,  # receive 0.15 ms, verify the signature; measured, order of magnitude
    merge_s=0.15e-3,
    merge_node_s=2e-6,  # measured, order of magnitude
    construct_node_s=0.1e-6,  # measured
    threads=1024,  # `Tuning.max_unacknowledged`
    frees_on_ack=True,
    tries=1,
    silent_s=0.25,  # `Tuning.ack_floor_us`
    rescue=Rescue.ADOPT,
    rechecks=1024,  # they share the cap on unacknowledged sends
    recheck_delay_s=0.05,  # `Tuning.recheck_delay_us`
    poll_s=1.0,
)
OUR_WIDTH: Final = 16
OURS_PLAIN: Final = msgspec.structs.replace(OURS, tries=3, rescue=Rescue.NEXT_HEAD, rechecks=0)
"""The comparators on our transport: three tries of 0.25 s, then the next node (E-33)."""

LOAD: Final = Message(name="job load", bulk_s=0.5e-3, act_s=0.1)  # assumption: script, environment, prologue
TERMINATE: Final = Message(name="job terminate", bulk_s=0.0, act_s=0.02)  # assumption: signal and wait
HEARTBEAT: Final = Message(name="heartbeat", bulk_s=0.0, act_s=0.5e-3)  # assumption


def satellites_for(nodes: int) -> int:
    """One for each 5,000 nodes (E-69), at least the two of the 4K-node experiment (E-62)."""
    return max(2, -(-nodes // 5000))


def budget_s(nodes: int, root_width: int = PAPER_ROOT_WIDTH, width: int = PAPER_WIDTH) -> float:
    """Time after which the paper's own code gives up a relayed broadcast (X-13)."""
    return (2 * (nodes / root_width + 1) / width + 1 + 5) * MESSAGE_TIMEOUT_S
