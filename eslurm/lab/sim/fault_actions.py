"""Single fault actions, by their names in a plan.

Each action picks its victim by its own generator and counts as a fault only if something really happened. Invariant: a
temporary fault is mended by itself, or by `Faults` when the calm begins.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from eslurm.core.model.messages import UpdateNodes, UpdateSatellites
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim import wire
from eslurm.lab.sim.network import CALM, Cut, Weather
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.site_view import SiteView

LATE_MAX = 6
HANGING_SHARE = 0.3
"""Of agents that cannot write their spool, those whose disk stands still instead of being full."""


class FaultActions:
    """One event of a plan: its world, and its luck."""

    def __init__(self, world: SiteView, rng: random.Random) -> None:
        self._world = world
        self._random = rng

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._world.scheduler.call_in(int(seconds * SECOND_US), call)

    # ---- controllers ----

    def crash_controller(self) -> None:
        """The leader dies."""
        if self._world.controller is not None:
            self._world.controller.seat.crash("at any time")

    def crash_standby(self) -> None:
        """A standby dies."""
        standbys = [seat for seat in self._world.seats if seat.process is not None and seat.leader is None]
        if standbys:
            self._random.choice(standbys).crash("at any time")

    def crash_controllers(self) -> None:
        """All of them die."""
        for seat in self._world.seats:
            seat.crash("with all others")

    def pause_controller(self) -> None:
        """One of them, mostly the leader, stands still and goes on with what it knew."""
        world = self._world
        if world.controller is not None and self._random.random() < 0.8:
            world.controller.seat.pause("at any time")
        else:
            self._random.choice(world.seats).pause("at any time")

    def take_over(self) -> None:
        """A planned switch."""
        world = self._world
        others = [seat.name for seat in world.seats if seat.leader is None]
        if others:
            name = self._random.choice(others)
            world.note_fault("take_over", name)
            world.client.take_over(name)

    def stop_controller(self) -> None:
        """The leader is stopped in good order."""
        if self._world.controller is not None:
            self._world.note_fault("stop_controller", self._world.controller.name)
            self._world.controller.hand_over()

    def change_config(self) -> None:
        """The cluster grows: its controller is restarted with the new configuration."""
        world = self._world
        world.note_fault("change_config", world.grow(self._random))
        if world.controller is not None:
            if self._random.random() < 0.5:
                world.controller.hand_over()
            else:
                world.controller.seat.crash("to read its configuration")

    def jump_clock(self) -> None:
        """The wall clock of a controller's host is set, right or wrong."""
        world = self._world
        seat = self._random.choice(world.seats)
        jump_s = self._random.choice((-3600.0, -40.0, -4.0, 4.0, 40.0, 3600.0)) * self._random.random()
        world.note_fault("jump_clock", f"{seat.name} by {jump_s:.1f} s")
        seat.skew_us += int(jump_s * SECOND_US)

    # ---- the store ----

    def store_outage(self) -> None:
        """The store is unreachable for all."""
        world = self._world
        world.note_fault("store_outage", "")
        world.store_is_out = True
        self._later(self._random.uniform(0.2, 6.0), self._store_back)

    def _store_back(self) -> None:
        self._world.store_is_out = False

    def cut_off_store(self) -> None:
        """One controller, mostly the leader, does not reach it."""
        world = self._world
        seat: Place = self._random.choice(world.seats)
        if world.controller is not None and self._random.random() < 0.7:
            seat = world.controller.seat
        world.note_fault("cut_off_store", seat.name)
        seat.is_cut_off = True

        def mend() -> None:
            seat.is_cut_off = False

        self._later(self._random.uniform(0.5, 12.0), mend)

    def slow_disk(self) -> None:
        """Each write takes up to seconds."""
        world = self._world
        world.note_fault("slow_disk", "")
        world.disk_is_slow = True
        self._later(self._random.uniform(1.0, 10.0), self._disk_fast)

    def _disk_fast(self) -> None:
        self._world.disk_is_slow = False

    # ---- satellites ----

    def crash_satellite(self) -> None:
        """One dies."""
        if self._world.satellites:
            self._world.crash_satellite(self._random.choice(sorted(self._world.satellites)))

    def crash_satellites_at_work(self) -> None:
        """One to all of those that have a broadcast under way."""
        satellites = self._world.satellites
        at_work = [index for index in sorted(satellites) if satellites[index].relay.live]
        for index in at_work[: self._random.randint(1, 3)]:
            self._world.crash_satellite(index)

    def hang_satellite(self) -> None:
        """One stands still, and passes on much later what it holds."""
        world = self._world
        if world.satellites:
            satellite = world.satellites[self._random.choice(sorted(world.satellites))]
            world.note_fault("hang_satellite", satellite.address)
            satellite.pause(int(self._random.choice((0.3, 2.0, 12.0)) * SECOND_US))

    def down_satellite(self) -> None:
        """An administrator takes a satellite out of service for a while."""
        world = self._world
        names = world.satellite_names
        if not names:
            return
        name = self._random.choice(names)
        world.note_fault("down_satellite", name)
        delay_s = self._random.uniform(0.2, 10.0)
        by = world.client.operator
        down, up = (UpdateSatellites(by, (name,), action, known=names) for action in ("down", "resume"))
        world.client.call(
            down, lambda answer: self._later(delay_s, lambda: world.client.call(up, lambda answer: None))
        )

    # ---- agents and hosts ----

    def crash_agent(self) -> None:
        """One dies; its steps run on."""
        world = self._world
        host = self._random.choice(world.hosts)
        if host.agent is not None:
            world.note_fault("crash_agent", host.address)
            host.crash_agent()
            world.scheduler.call_in(world.restart_delay_us(), host.start_agent)

    def crash_agent_between_actions(self) -> None:
        """One dies between two of its orders."""
        host = self._random.choice(self._world.hosts)
        if host.agent is not None:
            host.agent.crash_after = self._random.randint(0, 6)

    def pause_agent(self) -> None:
        """One stands still, its steps run on, and it goes on with what it knew."""
        world = self._world
        agent = self._random.choice(world.hosts).agent
        if agent is not None and not agent.is_paused:
            for_s = self._random.choice((1.5, 6.0, 20.0)) * self._random.uniform(0.7, 1.0)
            world.note_fault("pause_agent", f"{agent.address} for {for_s:.1f} s")
            agent.pause(int(for_s * SECOND_US))

    def jump_agent_clock(self) -> None:
        """The wall clock of a host is set, right or wrong."""
        host = self._random.choice(self._world.hosts)
        jump_s = self._random.choice((-3600.0, -40.0, 40.0, 3600.0)) * self._random.random()
        self._world.note_fault("jump_agent_clock", f"{host.address} by {jump_s:.1f} s")
        host.skew_us += int(jump_s * SECOND_US)

    def fill_spool(self) -> None:
        """An agent cannot write its spool for a while: there is no room, or its disk stands still."""
        world = self._world
        spool = self._random.choice(world.hosts).spool
        for_s = self._random.uniform(0.5, 15.0)
        if self._random.random() < HANGING_SHARE:
            world.note_fault("fill_spool", f"its disk hangs for {for_s:.1f} s")
            spool.hangs_until_us = world.scheduler.at_us + int(for_s * SECOND_US)
            return
        world.note_fault("fill_spool", "")
        spool.is_full = True

        def make_room() -> None:
            spool.is_full = False

        self._later(for_s, make_room)

    def reboot_host(self) -> None:
        """A host loses its power and gets it back."""
        world = self._world
        host = self._random.choice(world.hosts)
        if not host.is_down:
            world.note_fault("reboot_host", host.address)
            host.power_off()
            self._later(self._random.randint(1, 15), host.power_on)

    def lose_host(self) -> None:
        """A host dies, an administrator says so, and only then it comes back."""
        world = self._world
        host = self._random.choice(world.hosts)
        if host.is_down:
            return
        world.note_fault("lose_host", host.address)
        host.power_off()
        message = UpdateNodes(world.client.operator, host.names, "lost", "burnt down")
        self._later(1.0, lambda: world.client.call(message, lambda answer: self._later(1.0, host.power_on)))

    def late_registrations(self) -> None:
        """Registrations of agents, dead ones too, arrive once more."""
        world = self._world
        leader = world.controller
        agents = [host.agent for host in world.hosts if host.agent is not None]
        if leader is None or not agents:
            return
        live = {agent.name for agent in agents}
        overheard = world.faults.overheard
        # Those that could do harm: of processes that are dead, under the epoch that is in force.
        known = [one for one in overheard if one.process not in live and one.body.epoch == leader.epoch]
        known = known or list(overheard)
        if not known:
            return
        world.note_fault("late_registrations", "")
        for offer in self._random.choices(known, k=self._random.randint(1, LATE_MAX)):
            world.network.send(self._random.choice(agents), leader.name, wire.Reports((offer.report,)))

    # ---- the network ----

    def isolate(self) -> None:
        """Some hosts, satellites or even controllers are cut off from the rest for a while."""
        self._isolate(Cut.BOTH)

    def isolate_one_way(self) -> None:
        """The same, but they still hear, or are still heard."""
        self._isolate(self._random.choice((Cut.OUT, Cut.IN)))

    def isolate_controller(self) -> None:
        """The leader reaches the store and nothing else."""
        world = self._world
        if world.controller is not None:
            self._cut_off([world.controller.address], self._random.choice(tuple(Cut)))

    def _isolate(self, cut: Cut) -> None:
        world = self._world
        addresses = [host.address for host in world.hosts]
        share = self._random.choice((1, max(1, len(addresses) // 8), max(1, len(addresses) // 2)))
        island = self._random.sample(addresses, share)
        island += [address for address in world.ways_up if self._random.random() < 0.15]
        self._cut_off(island, cut)

    def _cut_off(self, island: list[str], cut: Cut) -> None:
        world = self._world
        world.note_fault("isolate", f"{', '.join(island[:8])} ({cut.value})")
        world.network.isolate(island, cut)
        self._later(self._random.expovariate(1 / 8), world.network.heal)

    def break_links(self) -> None:
        """Some links end, or all."""
        broken = self._world.network.break_links(self._random.choice((0.05, 0.3, 1.0)))
        self._world.note_fault("break_links", str(broken))

    def storm(self) -> None:
        """The network is very bad for a moment."""
        world = self._world
        world.note_fault("storm", "")
        world.network.weather = Weather(loss=0.3, duplication=0.3, slow=0.3, slow_max_us=2 * SECOND_US)
        self._later(self._random.randint(1, 8), self._storm_over)

    def _storm_over(self) -> None:
        faults = self._world.faults
        self._world.network.weather = CALM if faults.is_calm else faults.plan.weather


STROKES: dict[str, Callable[[FaultActions], None]] = {
    name: stroke
    for name, stroke in vars(FaultActions).items()
    if callable(stroke) and not name.startswith("_")
}
"""By name, in the order above."""
