"""Failure switches: simulated failures of this process's nodes, their modes and ends.

Pure table. Invariant: a node without a switch behaves as always; a switch past its expiry is gone after the next `expire`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Mode(StrEnum):
    """Mode of a node's failure. Its steps go on: the agent fails, not the host."""

    DEAD = "dead"
    """No process listens: every list is refused at once."""
    SILENT = "silent"
    """Lists are taken and never acknowledged or answered."""
    SLOW = "slow"
    """Acknowledges, answers and reports, each late."""
    PARTITIONED = "partitioned"
    """Lists vanish; work under way goes on and is reported after the healing."""
    CUT_OUT = "cut-out"
    """One way: the node hears and does everything; what it says is lost, or told after the healing."""
    CUT_IN = "cut-in"
    """The other way: lists vanish; work under way is reported, and reports go up."""

    @property
    def is_off(self) -> bool:
        """Check whether the node relays nothing and gives no answers."""
        return self is not Mode.SLOW

    @property
    def is_mute(self) -> bool:
        """Check whether no message leaves the node."""
        return self not in (Mode.SLOW, Mode.CUT_IN)


class Switch(msgspec.Struct, frozen=True):
    """One node's failure. `until_us` is None for one that lasts until it is healed; `delay_us` counts if slow."""

    mode: Mode
    until_us: int | None = None
    delay_us: int = 0


class Switches:
    """The table, by node number. Times are of the caller's monotonic clock, in microseconds."""

    def __init__(self) -> None:
        self._by_node: dict[int, Switch] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    def find(self, node: int) -> Switch | None:
        """The node's failure; None when it has none."""
        return self._by_node.get(node)

    def is_off(self, node: int) -> bool:
        """Check whether this node has no part in relaying."""
        switch = self._by_node.get(node)
        return switch is not None and switch.mode.is_off

    def is_mute(self, node: int) -> bool:
        """Check whether no message leaves this node."""
        switch = self._by_node.get(node)
        return switch is not None and switch.mode.is_mute

    def delay_us(self, node: int) -> int:
        """Delay of a slow node; 0 for others."""
        switch = self._by_node.get(node)
        return switch.delay_us if switch is not None and switch.mode is Mode.SLOW else 0

    def set(self, nodes: Iterable[int], switch: Switch) -> None:
        """Let nodes fail; an earlier failure is replaced."""
        self._by_node.update(dict.fromkeys(nodes, switch))

    def heal(self, nodes: Iterable[int]) -> list[int]:
        """Remove the switches of these nodes; returns those that had one."""
        return [node for node in nodes if self._by_node.pop(node, None) is not None]

    def expire(self, now_us: int) -> list[int]:
        """Remove expired switches; returns the healed nodes."""
        return self.heal([node for node, switch in self._by_node.items() if _is_over(switch, now_us)])

    def next_expiry_us(self) -> int | None:
        """Time of the next expiry."""
        ends = (switch.until_us for switch in self._by_node.values())
        return min((end_us for end_us in ends if end_us is not None), default=None)

    def all(self) -> dict[int, Switch]:
        """Every switch that is set, by node."""
        return dict(self._by_node)


def _is_over(switch: Switch, now_us: int) -> bool:
    return switch.until_us is not None and switch.until_us <= now_us
