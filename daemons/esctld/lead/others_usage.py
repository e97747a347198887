"""Usage in the other cells of the federation, for fair share: trusted cells' words, by this cell's half-life."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from eslurm.core.federation.usage import OtherUsage
from eslurm.core.plan.cycle.fair_tree import Association
from eslurm.core.plan.slices import exhaust

if TYPE_CHECKING:
    from esctld.lead.federation import Federation
    from eslurm.core.state.view import View


class OthersUsage:
    """Give `summed` to what ranks jobs. `is_trusted` says of which cells words count; the half-life is that of `view`."""

    def __init__(self, federation: Federation, view: View, is_trusted: Callable[[str], bool]) -> None:
        self._federation = federation
        self._view = view
        self._is_trusted = is_trusted

    def summed(self) -> Generator[None, None, Mapping[Association, float]]:
        """Usage by (account, user) as of now, in slices."""
        # A part that begins anew has other machines.
        usage = self._federation.usage
        if usage is None:
            return {}
        return (yield from usage.summed(self._federation.now_us(), self._half_life_s, self._is_trusted))

    def words(self) -> list[OtherUsage]:
        """The other cells' words, by name, and why some of them do not count."""
        usage = self._federation.usage
        if usage is None:
            return []
        return exhaust(usage.words(self._federation.now_us(), self._half_life_s, self._is_trusted))

    @property
    def _half_life_s(self) -> int:
        return self._view.config.priority.half_life_s
