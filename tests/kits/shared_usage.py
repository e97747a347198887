"""Cells that publish given usage and count that of the others."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from eslurm.core.federation.usage import OtherUsage, SharedUsage, UsageReading
from eslurm.core.federation.usage_sheet import sheet_of
from eslurm.core.plan.cycle.fair_tree import Association
from eslurm.core.plan.slices import exhaust
from tests.kits.federation import Controller, Network

HALF_LIFE_S = 604_800
WALL_US = 1_700_000_000_000_000
Usage = dict[Association, float]


class Sharing(Controller):
    """A controller with `fair_share = "sum"`. Its clock is `skew_us` ahead, its usage `uses` at any time."""

    def __init__(
        self,
        net: Network,
        name: str,
        uses: Usage,
        *,
        epoch: int = 1,
        skew_us: int = 0,
        half_life_s: int = HALF_LIFE_S,
    ) -> None:
        super().__init__(name, epoch, fair_share="sum")
        self.net = net
        self.uses = uses
        self.half_life_s = half_life_s
        self.skew_us = skew_us
        self.trusted: Callable[[str], bool] = lambda _: True
        self._inputs = msgspec.structs.replace(self._inputs, wall_us=self.wall_us)
        net.controllers.append(self)

    def wall_us(self) -> int:
        """The time of day here."""
        return WALL_US + self.net.now_us + self.skew_us

    def _read_usage(self) -> UsageReading:
        yield
        return (yield from sheet_of(self.uses, self.wall_us(), self.half_life_s))

    @property
    def shared(self) -> SharedUsage:
        """Its machine."""
        assert self.usage is not None
        return self.usage

    def summed(self) -> Usage:
        """Usage in the other cells as of now."""
        return exhaust(self.shared.summed(self.net.now_us, self.half_life_s, self.trusted))

    def words(self) -> dict[str, OtherUsage]:
        """The words of the other cells."""
        found = exhaust(self.shared.words(self.net.now_us, self.half_life_s, self.trusted))
        return {one.cell: one for one in found}
