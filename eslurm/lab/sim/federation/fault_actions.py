"""Single faults of a federation, by their names in a plan: of the store's members, of the network between cells, of cells.

Each picks its victim by its own generator and mends itself in time, or when the calm begins. Invariant: a fault that
lasts is entered as trouble of the store or of a cell, so the checks expect nothing of a part in trouble.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.bare_process import Ground
from eslurm.lab.sim.federation.cell import Cell
from eslurm.lab.sim.federation.health import Health
from eslurm.lab.sim.kv_hosts import KvHosts
from eslurm.lab.sim.network import Trouble

CLOCK_US = 600 * SECOND_US
LOST_SHARE = 0.6
"""Of the answers to changes, while answers are lost."""


class Struck(Ground, Protocol):
    """The federation, as faults see it."""

    store: KvHosts
    store_health: Health
    cells: Sequence[Cell]

    def note_fault(self, kind: str, what: str) -> None: ...

    def shorten(self, for_us: int) -> int: ...


class FederationFaults:
    """One event of a plan: its federation, and its luck."""

    def __init__(self, world: Struck, rng: random.Random) -> None:
        self._world = world
        self._random = rng

    # ---- the store ----

    def crash_member(self) -> None:
        """One server of the store dies and is started again."""
        self._crash(self._random.choice(sorted(self._world.store.servers) or [-1]))

    def crash_store_leader(self) -> None:
        """The leader of the servers dies: no change is made until there is another one."""
        leader = self._world.store.ensemble.leader
        if leader is not None:
            self._crash(leader.index)

    def crash_majority(self) -> None:
        """Two servers die: reads and changes stop."""
        for index in self._random.sample(range(len(self._world.store.addresses)), 2):
            self._crash(index)

    def pause_member(self) -> None:
        """A server stands still, and goes on with what it knew."""
        servers = self._world.store.servers
        if servers:
            server = servers[self._random.choice(sorted(servers))]
            for_us = self._for_us(2, 20)
            if server.is_paused:
                return
            self._sicken("pause_member", server.address, for_us, lambda: None)
            server.pause(for_us)

    def cut_member(self) -> None:
        """A server is cut off from the others and from all cells, one way or both."""
        address = self._random.choice(self._world.store.addresses)
        trouble = self._draw_cut()
        self._world.network.trouble(address, trouble)
        self._sicken("cut_member", address, self._for_us(3, 25), lambda: self._world.network.relieve(address))

    def slow_store(self) -> None:
        """Each change takes up to seconds."""
        ensemble = self._world.store.ensemble
        ensemble.is_slow = True

        def mend() -> None:
            ensemble.is_slow = False

        self._sicken("slow_store", "", self._for_us(3, 20), mend)

    def lag_member(self) -> None:
        """A server shows what is committed up to seconds later, and what it has not shown may be compacted."""
        lags, index = self._world.store.ensemble.lags, self._random.randrange(3)
        lags.add(index)
        for_us = self._for_us(5, 30)
        self._sicken("lag_member", str(index), for_us, lambda: lags.discard(index))
        for _ in range(self._random.choice((0, 1, 3))):
            self._world.scheduler.call_in(int(self._random.random() * for_us), self.compact)

    def fill_store(self) -> None:
        """The store's quota is reached."""
        ensemble = self._world.store.ensemble
        ensemble.is_full = True

        def mend() -> None:
            ensemble.is_full = False

        self._sicken("fill_store", "", self._for_us(3, 30), mend)

    def lose_answers(self) -> None:
        """Changes are made and their callers do not hear of it."""
        servers = list(self._world.store.servers.values())
        for server in servers:
            server.answers_lost = LOST_SHARE

        def mend() -> None:
            for server in servers:
                server.answers_lost = 0.0

        self._sicken("lose_answers", "", self._for_us(3, 15), mend)

    def compact(self) -> None:
        """An administrator compacts everything: watchers that are behind have to list anew."""
        image = self._world.store.image
        self._world.note_fault("compact", str(image.revision))
        image.compact(image.revision)

    # ---- cells and their network ----

    def cut_cell(self) -> None:
        """A cell does not reach the store, one way or both, while its own network is well."""
        self._cut(self._random.choice(self._world.cells), self._draw_cut(), 3, 40)

    def cut_cell_and_compact(self) -> None:
        """A cell misses so much that it has to list anew."""
        self._cut(self._random.choice(self._world.cells), Trouble(cuts_out=True, cuts_in=True), 8, 30)
        self._world.scheduler.call_in(self._for_us(4, 8), self.compact)

    def break_links(self) -> None:
        """Some connections to the store end, or all."""
        broken = self._world.network.break_links(self._random.choice((0.3, 1.0)))
        self._world.note_fault("break_store_links", str(broken))
        for cell in self._world.cells:
            cell.health.on_trouble(0)

    def crash_leader(self) -> None:
        """The leader of a cell dies; it may have standbys."""
        controller = self._random.choice(self._world.cells).world.controller
        if controller is not None:
            controller.seat.crash("by a fault of the federation")

    def pause_leader(self) -> None:
        """The leader of a cell stands still and goes on with what it knew."""
        controller = self._random.choice(self._world.cells).world.controller
        if controller is not None:
            controller.seat.pause("by a fault of the federation")

    def hand_over(self) -> None:
        """The leader of a cell ends in good order."""
        controller = self._random.choice(self._world.cells).world.controller
        if controller is not None:
            self._world.note_fault("hand_over", controller.address)
            controller.hand_over()

    def cell_away(self) -> None:
        """A whole cell is gone for a while: no controller of it is started."""
        self._take_away(self._random.choice(self._world.cells), self._for_us(10, 45))

    def miss_a_death(self) -> None:
        """A cell goes away while another does not reach the store, which has to learn it from what is listed no more."""
        away, blind = self._random.sample(list(self._world.cells), 2)
        self._take_away(away, self._for_us(50, 60))
        self._cut(blind, Trouble(cuts_out=True, cuts_in=True), 12, 16)

    def wrong_clock(self) -> None:
        """All clocks of a cell are wrong by ten minutes for a while."""
        cell = self._random.choice(self._world.cells)
        error_us = self._random.choice((-CLOCK_US, CLOCK_US))
        self._world.note_fault("wrong_clock", f"{cell.name} by {error_us // SECOND_US} s")
        self._shift(cell, error_us)
        self._world.scheduler.call_in(self._for_us(10, 60), lambda: self._shift(cell, -error_us))

    # ---- within ----

    def _take_away(self, cell: Cell, for_us: int) -> None:
        until_us = self._world.scheduler.at_us + for_us
        self._world.note_fault("cell_away", f"{cell.name} for {for_us / SECOND_US:.0f} s")
        cell.health.begin_trouble()

        def keep_down() -> None:
            for seat in cell.world.seats:
                seat.leave()
            if self._world.scheduler.at_us < until_us:
                self._world.scheduler.call_in(50_000, keep_down)
                return
            for seat in cell.world.seats:
                seat.start()
            cell.health.end_trouble()

        keep_down()

    def _shift(self, cell: Cell, by_us: int) -> None:
        for seat in cell.world.seats:
            seat.skew_us += by_us
        for host in cell.world.hosts:
            host.skew_us += by_us

    def _cut(self, cell: Cell, trouble: Trouble, least_s: float, most_s: float) -> None:
        network = self._world.network
        self._world.note_fault("cut_cell", f"{cell.name} out={trouble.cuts_out} in={trouble.cuts_in}")
        for address in cell.addresses:
            network.trouble(address, trouble)
        cell.health.begin_trouble()

        def mend() -> None:
            for address in cell.addresses:
                network.relieve(address)
            cell.health.end_trouble()

        self._world.scheduler.call_in(self._for_us(least_s, most_s), mend)

    def _crash(self, index: int) -> None:
        store = self._world.store
        if store.crash(index):
            self._sicken("crash_member", str(index), self._for_us(1, 20), lambda: store.start_member(index))

    def _sicken(self, kind: str, what: str, for_us: int, mend: Callable[[], None]) -> None:
        """The store is in trouble for a while."""
        self._world.note_fault(kind, what)
        health = self._world.store_health
        health.begin_trouble()

        def well() -> None:
            mend()
            health.end_trouble()

        self._world.scheduler.call_in(for_us, well)

    def _draw_cut(self) -> Trouble:
        cuts_out = self._random.random() < 0.67
        return Trouble(cuts_out=cuts_out, cuts_in=not cuts_out or self._random.random() < 0.5)

    def _for_us(self, least_s: float, most_s: float) -> int:
        """A time that is over before the calm."""
        return self._world.shorten(int(self._random.uniform(least_s, most_s) * SECOND_US))


ACTIONS: dict[str, Callable[[FederationFaults], None]] = {
    name: action
    for name, action in vars(FederationFaults).items()
    if callable(action) and not name.startswith("_")
}
"""By name, in the order above."""
