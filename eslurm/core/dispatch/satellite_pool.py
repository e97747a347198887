"""The satellites of a controller: identity, health, and shares of broadcasts (E-07 to E-16).

A satellite has a name and a negative number, so that it never collides with a node's number in a relay: -1 - index in the
configuration, further numbers for those that are not in it. Invariants: shares taken together are the list that was given;
only RUNNING satellites get any; turns go on from one broadcast to the next; every task given is taken back by exactly one
`on_leg_done` or `on_leg_failed`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from eslurm.core.model import facts
from eslurm.core.model.satellite_states import SatelliteEvent, SatelliteState, next_state
from eslurm.core.model.units import SECOND_US
from eslurm.core.relay.construct import share_out
from eslurm.core.relay.messages import Leg
from eslurm.core.state.cluster import State

PINGS_MISSED_MAX = 2
"""Unanswered pings in a row that are a failed heartbeat; the first one makes a suspect (X-09)."""
PING_EVERY_MIN_US = SECOND_US // 2
NOT_LINKED = "no link"
NO_ANSWER = "no answer to pings"

Ping = Callable[[int, int], None]
"""Sends a ping with this sequence number to the satellite of this number."""


class SatelliteStatus(msgspec.Struct, frozen=True, gc=False):
    """A satellite's answer to a ping: broadcasts under way, their nodes, and its process."""

    seq: int = 0
    tasks: int = 0
    nodes: int = 0
    rss_bytes: int = 0
    sockets: int = 0
    lag_us: int = 0
    queued: int = 0


class Satellite:
    """One satellite as this controller process knows it. Written by `Roster` only."""

    __slots__ = (
        "failures",
        "has_timed_out",
        "heard_us",
        "is_asked",
        "is_linked",
        "missed",
        "name",
        "nodes_given",
        "number",
        "reason",
        "running",
        "since_us",
        "state",
        "status",
        "tasks_given",
    )

    def __init__(self, number: int, name: str, now_us: int) -> None:
        self.number = number
        self.name = name
        self.state = SatelliteState.UNKNOWN
        self.since_us = now_us
        self.reason = ""
        self.is_linked = False
        self.is_asked = False
        self.missed = 0
        self.has_timed_out = False
        self.heard_us = 0
        self.status = SatelliteStatus()
        self.running = 0
        self.tasks_given = 0
        self.nodes_given = 0
        self.failures = 0

    @property
    def is_suspect(self) -> bool:
        """Check whether its last heartbeat is missing, though it is not given up."""
        return self.missed > 0 and self.state in (SatelliteState.RUNNING, SatelliteState.BUSY)


def satellite_number(index: int) -> int:
    """The relay number of the satellite at this place of the configuration."""
    return -1 - index


def legs_wanted(nodes: int, width: int, satellites: int) -> int:
    """Number of satellites that share `nodes` nodes (E-07): one up to `width`, then one per `width`, at most all."""
    if satellites < 1:
        return 0
    return min(max(1, -(-nodes // width)), satellites)


class SatellitePool:
    """One per leading controller. Implements the relay's `LegKeeper`: it chooses the next satellite of a failed share."""

    def __init__(self, state: State, names: Iterable[str], ping: Ping) -> None:
        self._state = state
        self._ping = ping
        self._by_number: dict[int, Satellite] = {}
        self._by_name: dict[str, Satellite] = {}
        self._turn = 0
        self._seq = 0
        self._call_us: int | None = None
        for name in names:
            self._add(name, 0)

    # ---- reading ----

    @property
    def satellites(self) -> tuple[Satellite, ...]:
        """All of them, the configured ones first and in that order."""
        return tuple(self._by_number.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The satellites' names."""
        return tuple(self._by_name)

    def find(self, name: str) -> Satellite | None:
        """The satellite of that name."""
        return self._by_name.get(name)

    def get(self, number: int) -> Satellite:
        """The satellite of that number."""
        return self._by_number[number]

    @property
    def has_running(self) -> bool:
        """Check whether some satellite would take a task now."""
        return any(one.state is SatelliteState.RUNNING for one in self._by_number.values())

    @property
    def has_prospects(self) -> bool:
        """Check whether waiting may help: a satellite is busy, or has not answered its first ping yet."""
        return any(
            one.state is SatelliteState.BUSY or (one.state is SatelliteState.UNKNOWN and not one.missed)
            for one in self._by_number.values()
        )

    def refusal(self, name: str) -> str:
        """The reason why no satellite may have that name; empty when it may."""
        if name not in self._state.numbers:
            return ""
        return (
            f"satellite name '{name}' is also that of a compute node: satellites run no jobs,"
            " give it a name and a host of its own (--name)"
        )

    def admit(self, name: str, now_us: int) -> Satellite:
        """The satellite of that name, which gets a number if it has none."""
        return self._by_name.get(name) or self._add(name, now_us)

    # ---- heartbeats ----

    def begin(self, now_us: int) -> None:
        """This controller leads: satellites are called from now on."""
        for one in self._by_number.values():
            one.since_us = one.since_us or now_us
        self._call(now_us)

    def on_linked(self, name: str, now_us: int) -> Satellite:
        """A process of that name is linked. It counts as RUNNING only after its first answered ping."""
        satellite = self.admit(name, now_us)
        if satellite.is_linked:
            self._fire(satellite, SatelliteEvent.HB_FAILURE, "started anew", now_us)
        satellite.is_linked = True
        satellite.status = SatelliteStatus()
        if self._call_us is not None:
            self._ask(satellite)
        return satellite

    def on_unlinked(self, number: int, why: str, now_us: int) -> None:
        """Its link broke or was closed (X-11)."""
        satellite = self._by_number[number]
        satellite.is_linked = False
        self._fire(satellite, SatelliteEvent.HB_FAILURE, why or NOT_LINKED, now_us)

    def on_status(self, number: int, status: SatelliteStatus, now_us: int) -> bool:
        """It answered a ping, this one or an earlier: slow is not dead. True when it may now get work."""
        satellite = self._by_number[number]
        if not satellite.is_linked:
            return False
        satellite.heard_us = now_us
        satellite.status = status
        satellite.is_asked = False
        satellite.missed = 0
        if satellite.has_timed_out:
            # The core has been told that it is DOWN: the answer came too late.
            return False
        was = satellite.state
        self._fire(satellite, SatelliteEvent.HB_SUCCESS, "", now_us)
        return satellite.state is SatelliteState.RUNNING and was is not SatelliteState.RUNNING

    def on_changed(self, fact: facts.SatelliteChanged, now_us: int) -> None:
        """An administrator's DOWN or resume is committed."""
        satellite = self._by_name.get(fact.name)
        if satellite is None:
            return
        if fact.state is not SatelliteState.DOWN:
            event = SatelliteEvent.RESUMED
        else:
            event = SatelliteEvent.TIMEOUT if satellite.has_timed_out else SatelliteEvent.SHUTDOWN
        satellite.has_timed_out = False
        satellite.missed = 0
        self._fire(satellite, event, fact.reason, now_us)
        self._recall(satellite)
        if self._call_us is not None:
            self._ask(satellite)

    def on_timer(self, now_us: int) -> list[str]:
        """Ping the satellites when due; returns the names of those that have been in FAULT too long (E-12)."""
        if self._call_us is not None and self._call_us <= now_us:
            self._call(now_us)
        overdue = [one for one in self._by_number.values() if self._is_overdue(one, now_us)]
        for satellite in overdue:
            satellite.has_timed_out = True
        return [satellite.name for satellite in overdue]

    def next_timer_us(self) -> int | None:
        """Time of the next `on_timer`."""
        if self._call_us is None or not self._by_number:
            return None
        down_us = (self._down_us(one) for one in self._by_number.values())
        return min([self._call_us, *(at_us for at_us in down_us if at_us is not None)])

    def _is_overdue(self, satellite: Satellite, now_us: int) -> bool:
        down_us = self._down_us(satellite)
        return down_us is not None and down_us <= now_us

    def _down_us(self, satellite: Satellite) -> int | None:
        """Time at which this satellite becomes DOWN; None: no such time."""
        if satellite.state is not SatelliteState.FAULT or satellite.has_timed_out:
            return None
        return satellite.since_us + int(self._state.config.satellite_down_after_s * SECOND_US)

    def _call(self, now_us: int) -> None:
        interval_us = int(self._state.config.heartbeat_s * SECOND_US)
        self._call_us = now_us + max(PING_EVERY_MIN_US, interval_us)
        for satellite in self._by_number.values():
            if satellite.is_asked:
                self._miss(satellite, now_us)
            self._ask(satellite)

    def _ask(self, satellite: Satellite) -> None:
        """Ping a satellite; without a link it counts as unanswered, and a DOWN one gets none."""
        satellite.is_asked = satellite.state is not SatelliteState.DOWN
        if satellite.is_asked and satellite.is_linked:
            self._seq += 1
            self._ping(satellite.number, self._seq)

    def _miss(self, satellite: Satellite, now_us: int) -> None:
        satellite.missed += 1
        if not satellite.is_linked:
            self._fire(satellite, SatelliteEvent.HB_FAILURE, NOT_LINKED, now_us)
        elif satellite.missed >= PINGS_MISSED_MAX:
            self._fire(satellite, SatelliteEvent.HB_FAILURE, NO_ANSWER, now_us)

    # ---- shares ----

    def legs(
        self, nodes: Sequence[int], predicted: Collection[int], width: int, now_us: int
    ) -> tuple[Leg, ...]:
        """One share per satellite in turn, of nearly equal size (E-08, E-09); none when none is RUNNING."""
        running = [one for one in self._in_turn() if one.state is SatelliteState.RUNNING]
        wanted = legs_wanted(len(nodes), width, len(running))
        if not wanted:
            return ()
        shares = share_out(nodes, predicted, wanted)
        legs = tuple(Leg(one.number, tuple(share)) for one, share in zip(running, shares, strict=False))
        for leg in legs:
            satellite = self._by_number[leg.to_node]
            satellite.nodes_given += len(leg.nodes)
            self._give(satellite, now_us)
        return legs

    def on_leg_done(self, to_node: int, now_us: int) -> None:
        """A satellite has served its share (BT-success)."""
        satellite = self._by_number[to_node]
        self._take_back(satellite)
        if self._has_room(satellite):
            self._fire(satellite, SatelliteEvent.BT_SUCCESS, "", now_us)

    def on_leg_failed(self, to_node: int, tries: int, why: str, now_us: int) -> int | None:
        """A share failed after `tries` reallocations: the number of the satellite for its rest (E-15), None: the
        controller (E-16).
        """
        failed = self._by_number[to_node]
        self._take_back(failed)
        failed.failures += 1
        self._fire(failed, SatelliteEvent.BT_FAILURE, why, now_us)
        if tries >= self._state.config.satellite_reallocations_max:
            return None
        for satellite in self._in_turn():
            if satellite.state is SatelliteState.RUNNING:
                self._give(satellite, now_us)
                return satellite.number
        return None

    def on_reallocated(self, to_node: int, nodes: int) -> None:
        """Count the nodes of a failed share that went to this satellite."""
        self._by_number[to_node].nodes_given += nodes

    def _in_turn(self) -> list[Satellite]:
        """All satellites, the next in turn first."""
        there = list(self._by_number.values())
        return there[self._turn :] + there[: self._turn]

    def _give(self, satellite: Satellite, now_us: int) -> None:
        satellite.running += 1
        satellite.tasks_given += 1
        self._turn = -satellite.number % len(self._by_number)
        if not self._has_room(satellite):
            self._fire(satellite, SatelliteEvent.DISPATCHED, "", now_us)

    def _take_back(self, satellite: Satellite) -> None:
        assert satellite.running > 0, f"satellite {satellite.name} had no task to give back"
        satellite.running -= 1

    def _has_room(self, satellite: Satellite) -> bool:
        return satellite.running < self._state.config.satellite_max_inflight

    # ---- states ----

    def _add(self, name: str, now_us: int) -> Satellite:
        satellite = Satellite(satellite_number(len(self._by_number)), name, now_us)
        self._by_number[satellite.number] = self._by_name[name] = satellite
        self._recall(satellite)
        return satellite

    def _recall(self, satellite: Satellite) -> None:
        """Restore the committed state, with the reason and time of the commit."""
        down = self._state.satellites_down.get(satellite.name)
        if down is not None:
            satellite.state = SatelliteState.DOWN
            satellite.since_us = down.since_us
            satellite.reason = down.reason

    def _fire(self, satellite: Satellite, event: SatelliteEvent, why: str, now_us: int) -> None:
        state = next_state(satellite.state, event)
        if state is SatelliteState.RUNNING and not self._has_room(satellite):
            # It heals while shares that it was given before are still out.
            state = next_state(state, SatelliteEvent.DISPATCHED)
        if state is not satellite.state:
            satellite.state = state
            satellite.since_us = now_us
            satellite.reason = why
