"""Invariants of a federation seen from outside: by what the store holds, and by what each cell shows its users.

Each violation raises `CheckFailed`. A cell or a store that is in trouble, or was a moment ago, is asked nothing (`health`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from eslurm.core.federation.summaries import WRITE_US
from eslurm.core.federation.values import Keys, Reader, name_in
from eslurm.core.federation.view import CellState, CellView
from eslurm.core.model.federation import Alive, CellRecord, FederationConfig
from eslurm.core.model.units import SECOND_US
from eslurm.lab.kv.linearizable import Call, is_linearizable
from eslurm.lab.sim.bare_process import Ground
from eslurm.lab.sim.federation.cell import Cell
from eslurm.lab.sim.federation.coverage import FederationCoverage
from eslurm.lab.sim.federation.health import Health
from eslurm.lab.sim.kv_ensemble import EXPIRY_LATE_MAX_US
from eslurm.lab.sim.kv_hosts import KvHosts
from eslurm.lab.sim.violation import require

LOOK_US: Final = 500_000
NOTICE_US: Final = SECOND_US
"""From the end of a lease, or the first word of a cell, to all others."""
AGE_US: Final = WRITE_US + 3 * SECOND_US
"""The oldest summary of a sound cell."""


class Watched(Ground, Protocol):
    """The federation, as its checks see it."""

    store: KvHosts
    store_health: Health
    cells: Sequence[Cell]
    coverage: FederationCoverage
    history: list[Call]


class FederationChecks:
    """Looks at everything again and again."""

    def __init__(self, world: Watched, config: FederationConfig) -> None:
        self.looks = 0
        self._world = world
        self._keys = Keys(config.name)
        self._lease_us = int(config.lease_s * SECOND_US)
        self._records = Reader(CellRecord, self._keys.cells)
        self._alive = Reader(Alive, self._keys.alive)
        self._seen = 0
        self._numbers: dict[int, str] = {}
        self._members: dict[str, CellRecord] = {}
        self._epochs: dict[str, int] = {}
        self._voice_us: dict[int, int] = {}

    def look(self) -> None:
        """All that can be said now."""
        self.looks += 1
        self._look_at_store()
        now_us = self._world.scheduler.at_us
        for number, cell in enumerate(self._world.cells):
            if self._has_voice(cell):
                self._voice_us[number] = now_us
        for cell in self._world.cells:
            part = cell.part
            if part is None or not part.is_at_work:
                continue
            view = part.view()
            require(not view.unreadable, f"cell {cell.name} cannot read {view.unreadable}")
            for seen in view.cells:
                if seen.name != cell.name:
                    silent = seen.state is CellState.SILENT
                    self._world.coverage.on_shown(cell.name, seen.name, is_silent=silent)
            if self._is_sound(cell):
                self._judge(cell, {one.name: one for one in view.cells})

    def unsettled(self) -> str:
        """Why not every cell sees every other one; empty: it does."""
        for cell in self._world.cells:
            part = cell.part
            if part is None or not part.is_at_work:
                return f"no controller of cell {cell.name} takes part"
            if cell.is_refused:
                continue
            shown = {one.name: one.state for one in part.view().cells}
            for other in self._world.cells:
                if not other.is_refused and shown.get(other.name) is not CellState.ALIVE:
                    standing = part.participant.membership.standing.value
                    return f"cell {cell.name} ({standing}) shows {other.name} as {shown.get(other.name)}"
        return ""

    def at_end(self) -> None:
        """All is calm: what is left to be said."""
        names = {cell.name for cell in self._world.cells}
        require(self._members.keys() == names, f"records of {sorted(self._members)}, cells {sorted(names)}")
        for name in names:
            sites = [cell for cell in self._world.cells if cell.name == name and not cell.is_refused]
            require(len(sites) == 1, f"{len(sites)} sites have the name {name}")
            require(self._members[name].ring == sites[0].ring, f"the record of {name} is another site's")
        require(
            is_linearizable(self._world.history), f"the history is not linearizable: {self._world.history}"
        )

    # ---- the store ----

    def _look_at_store(self) -> None:
        image = self._world.store.image
        if image.revision == self._seen:
            return
        self._seen = image.revision
        page = image.list(self._keys.cells, "", 0, 1_000)
        for entry in page.entries:
            if not name_in(self._keys.cells, entry.key):
                continue
            record = self._records.read_entry(entry)
            require(isinstance(record, CellRecord), f"{entry.key} holds {record}")
            assert isinstance(record, CellRecord)
            before = self._members.setdefault(record.name, record)
            require(
                before.ring == record.ring,
                f"the name {record.name} of {before.ring!r} is {record.ring!r}'s now",
            )
            require(
                before.number == record.number,
                f"cell {record.name} had number {before.number} and has {record.number}",
            )
            other = self._numbers.setdefault(record.number, record.name)
            require(other == record.name, f"cells {other} and {record.name} both have number {record.number}")
        for entry in image.list(self._keys.alive, "", 0, 1_000).entries:
            alive = self._alive.read_entry(entry)
            require(isinstance(alive, Alive), f"{entry.key} holds {alive}")
            assert isinstance(alive, Alive)
            epoch = self._epochs.get(entry.key, 0)
            require(
                alive.epoch >= epoch,
                f"{entry.key} says that epoch {alive.epoch} leads, after epoch {epoch} had said so",
            )
            self._epochs[entry.key] = alive.epoch

    # ---- what cells show ----

    def _has_voice(self, cell: Cell) -> bool:
        """Check whether some controller of the cell can say that it is alive."""
        network, servers = self._world.network, self._world.store.addresses
        return any(
            part.is_at_work and any(network.reaches(part.address, server) for server in servers)
            for part in cell.parts.values()
        )

    def _is_sound(self, cell: Cell) -> bool:
        return self._world.store_health.is_ready and cell.health.is_ready and not cell.is_refused

    def _judge(self, observer: Cell, shown: dict[str, CellView]) -> None:
        now_us = self._world.scheduler.at_us
        for number, cell in enumerate(self._world.cells):
            if cell.is_refused or self._is_contested(cell):
                continue
            seen = shown.get(cell.name)
            part = cell.part
            if self._is_sound(cell) and part is not None and part.is_at_work:
                require(
                    seen is not None and seen.state is CellState.ALIVE,
                    f"cell {observer.name} shows the sound cell {cell.name} as "
                    f"{seen.state.value if seen is not None else 'nothing'}: {seen.problem if seen else ''}",
                )
                assert seen is not None
                require(
                    seen.age_us is not None and seen.age_us <= AGE_US,
                    f"cell {observer.name} heard of the sound cell {cell.name} last {seen.age_us} us ago",
                )
            voice_us = max(self._voice_us.get(number, 0), cell.health.touched_us)
            limit_us = self._lease_us + EXPIRY_LATE_MAX_US + NOTICE_US + LOOK_US
            if seen is not None and now_us - voice_us > limit_us:
                require(
                    seen.state is not CellState.ALIVE,
                    f"cell {observer.name} shows {cell.name} as alive, "
                    f"{(now_us - voice_us) / SECOND_US:.1f} s after its last word",
                )

    def _is_contested(self, cell: Cell) -> bool:
        """Check whether another site claims the name: which of them shows itself depends on who came first."""
        return sum(other.name == cell.name for other in self._world.cells) > 1
