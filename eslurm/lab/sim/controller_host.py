"""A controller's place: its name, its host's wall clock, its way to the store, and the process that sits there now.

Invariant: one process sits there at a time; a standby that wins the lead and a leader that hands it over are the same
program going on in another role, with no link left of the role before.
"""

from __future__ import annotations

from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim.controller import Controller
from eslurm.lab.sim.standby import Standby
from eslurm.lab.sim.world_view import WorldView

PAUSE_MAX_S = 20.0


class ControllerHost:
    """One of the controllers of the cluster. `skew_us` is how far the wall clock of its host is before the true time."""

    def __init__(self, world: WorldView, index: int, skew_us: int) -> None:
        self.world = world
        self.name = f"c{index}"
        self.address = f"controller{index}"
        self.skew_us = skew_us
        self.is_cut_off = False
        self.process: Standby | Controller | None = None
        self.has_begun = False
        """The program on this host has led or could have led: from then on what it reads is not watched."""

    @property
    def wall_us(self) -> int:
        """The wall clock of the host."""
        return self.world.scheduler.at_us + self.skew_us

    @property
    def reaches_store(self) -> bool:
        """Check whether the store answers from there."""
        return not self.is_cut_off and not self.world.store_is_out

    @property
    def leader(self) -> Controller | None:
        """The process, if it leads or thinks so."""
        return self.process if isinstance(self.process, Controller) else None

    # ---- roles ----

    def start(self) -> None:
        """The program is started: it begins as a standby."""
        if self.process is None:
            self.has_begun = False
            self.stand_by()

    def stand_by(self) -> None:
        """Wait for the lead."""
        self._sit(Standby(self.world, self))

    def lead(self, state: State, epoch: int) -> None:
        """It won the lead, and this is the state where the log stands."""
        self.world.checks.on_lead(epoch, self.name, state)
        self._sit(Controller(self.world, self, state, epoch))

    def _sit(self, process: Standby | Controller) -> None:
        self.leave()
        self.process = process
        self.world.network.attach(process)
        process.start()

    def leave(self) -> None:
        """Remove the process from the host."""
        process, self.process = self.process, None
        if process is not None:
            process.alive = False
            if isinstance(process, Controller):
                self.world.parts.on_gone(process)
            self.world.network.detach(process)
            self.world.disk.crash(self.world.owner, process.name)

    # ---- ends ----

    def crash(self, when: str) -> None:
        """The process dies; what it was writing is torn."""
        if self.process is not None:
            role = "controller" if self.leader is not None else "standby"
            self.world.note_fault(f"crash_{role}", f"{self.name} {when}")
            self.end()

    def end(self) -> None:
        """The process ends, by itself or not, and is started again after a while."""
        self.leave()
        self.world.scheduler.call_in(self.world.restart_delay_us(), self.start)

    def pause(self, when: str) -> None:
        """Stop the process for a while; it then continues with its old state."""
        if self.process is not None and not self.process.is_paused:
            for_s = self.world.random.choice((1.5, 4.0, PAUSE_MAX_S)) * self.world.random.uniform(0.5, 1.0)
            self.world.note_fault("pause", f"{self.process.name} {when} for {for_s:.1f} s")
            self.process.pause(int(for_s * SECOND_US))
