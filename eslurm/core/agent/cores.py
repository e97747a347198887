"""The cores of one attempt on its node, as its application and the controller speak of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Cores:
    """Idle cores and remaining work by reporting process; what the controller has excluded, and asks for.

    `told` is the latest report that went up, at `told_us`.
    """

    idle: dict[int, int] = field(default_factory=dict)
    remaining_s: dict[int, int] = field(default_factory=dict)
    excluded: int = 0
    revision: int = 0
    asked: int = 0
    asked_until_us: int = 0
    rejects: bool = False
    told: tuple[int, int, int, bool] | None = None
    told_us: int = 0

    @property
    def idle_sum(self) -> int:
        """All idle cores of the attempt here."""
        return sum(self.idle.values())
