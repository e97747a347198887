"""The time that a world has to come to rest after its last fault."""

from __future__ import annotations

from typing import Final

from eslurm.core.model.units import SECOND_US

RECOVERY_MAX_US: Final = 300 * SECOND_US
GATEWAYS_MAX_US: Final = (600 + 4 * (300 + 60 + 10)) * SECOND_US
"""So much longer where there are gateways: starts of them reach their limits one after another, and jobs wait for 10 min."""


class Patience:
    """Ask it at each look. Where there are gateways the time begins anew whenever fewer jobs are left than ever before.

    Jobs that depend on each other wait for gateways one after another, so their waits add up.
    """

    def __init__(self, now_us: int, *, has_gateways: bool) -> None:
        self.limit_us = RECOVERY_MAX_US + (GATEWAYS_MAX_US if has_gateways else 0)
        self._has_gateways = has_gateways
        self._deadline_us = now_us + self.limit_us
        self._fewest: int | None = None

    def check(self, now_us: int, left: int, why: str) -> None:
        """Raise AssertionError when `why` has kept the world from rest for too long; `left` jobs have not ended."""
        if self._fewest is None or left < self._fewest:
            if self._has_gateways and self._fewest is not None:
                self._deadline_us = now_us + self.limit_us
            self._fewest = left
        if now_us >= self._deadline_us:
            raise AssertionError(f"no recovery within {self.limit_us // SECOND_US} s: {why}")
