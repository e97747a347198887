"""The satellite's state table: every event in every state, against the reconstructed Fig. 2 (E-10, E-11)."""

from __future__ import annotations

import pytest

from eslurm.core.model.satellite_states import TRANSITIONS, SatelliteEvent, SatelliteState, next_state

STATES = {"U": SatelliteState.UNKNOWN, "R": SatelliteState.RUNNING, "B": SatelliteState.BUSY}
STATES |= {"F": SatelliteState.FAULT, "D": SatelliteState.DOWN}

# One row per event, one letter per state before it: UNKNOWN, RUNNING, BUSY, FAULT, DOWN.
EXPECTED = {
    SatelliteEvent.BT_SUCCESS: "URRFD",
    SatelliteEvent.BT_FAILURE: "FFFFD",
    SatelliteEvent.HB_SUCCESS: "RRBRD",
    SatelliteEvent.HB_FAILURE: "FFFFD",
    SatelliteEvent.DISPATCHED: "UBBFD",
    SatelliteEvent.SHUTDOWN: "DDDDD",
    SatelliteEvent.TIMEOUT: "URBDD",
    SatelliteEvent.RESUMED: "URBFU",
}


@pytest.mark.parametrize("event", SatelliteEvent)
@pytest.mark.parametrize(("at", "state"), tuple(enumerate(STATES.values())))
def test_every_event_in_every_state(event: SatelliteEvent, at: int, state: SatelliteState) -> None:
    assert next_state(state, event) is STATES[EXPECTED[event][at]]


def test_the_table_leaves_nothing_open() -> None:
    assert set(TRANSITIONS) == set(SatelliteState)
    assert all(set(row) == set(SatelliteEvent) for row in TRANSITIONS.values())


def test_only_an_administrator_ends_down_and_only_a_heartbeat_heals_a_fault() -> None:
    out_of_down = {
        event for event in SatelliteEvent if next_state(SatelliteState.DOWN, event) is not STATES["D"]
    }
    assert out_of_down == {SatelliteEvent.RESUMED}
    healing = {event for event in SatelliteEvent if next_state(SatelliteState.FAULT, event) is STATES["R"]}
    assert healing == {SatelliteEvent.HB_SUCCESS}
