"""The states of a satellite and the transitions between them (E-10, E-11; Fig. 2 of the paper, completed).

Invariant: the table has an entry for every state and event.
"""

from __future__ import annotations

import enum


class SatelliteState(enum.Enum):
    """Only RUNNING satellites get work (E-13). UNKNOWN: nothing heard yet. FAULT may recover, DOWN does not."""

    UNKNOWN = "UNKNOWN"
    RUNNING = "RUNNING"
    BUSY = "BUSY"
    FAULT = "FAULT"
    DOWN = "DOWN"


class SatelliteEvent(enum.Enum):
    """BT: result of a broadcast task. HB: heartbeat. DISPATCHED: it now has its maximum of tasks.

    BT_SUCCESS: a task is done and there is room for another. HB_SUCCESS: an answered ping (a mere link is none).
    HB_FAILURE: a link that is refused or breaks, or two pings in a row without an answer (X-09, X-11). TIMEOUT: too long
    in FAULT (E-12). SHUTDOWN and RESUMED come from an administrator.
    """

    BT_SUCCESS = "BT-success"
    BT_FAILURE = "BT-failure"
    HB_SUCCESS = "HB-success"
    HB_FAILURE = "HB-failure"
    DISPATCHED = "dispatched"
    SHUTDOWN = "shutdown"
    TIMEOUT = "timeout"
    RESUMED = "resumed"


_S = SatelliteState
_E = SatelliteEvent

TRANSITIONS: dict[SatelliteState, dict[SatelliteEvent, SatelliteState]] = {
    _S.UNKNOWN: {
        _E.BT_SUCCESS: _S.UNKNOWN,
        _E.BT_FAILURE: _S.FAULT,
        _E.HB_SUCCESS: _S.RUNNING,
        _E.HB_FAILURE: _S.FAULT,
        _E.DISPATCHED: _S.UNKNOWN,
        _E.SHUTDOWN: _S.DOWN,
        _E.TIMEOUT: _S.UNKNOWN,
        _E.RESUMED: _S.UNKNOWN,
    },
    _S.RUNNING: {
        _E.BT_SUCCESS: _S.RUNNING,
        _E.BT_FAILURE: _S.FAULT,
        _E.HB_SUCCESS: _S.RUNNING,
        _E.HB_FAILURE: _S.FAULT,
        _E.DISPATCHED: _S.BUSY,
        _E.SHUTDOWN: _S.DOWN,
        _E.TIMEOUT: _S.RUNNING,
        _E.RESUMED: _S.RUNNING,
    },
    _S.BUSY: {
        _E.BT_SUCCESS: _S.RUNNING,
        _E.BT_FAILURE: _S.FAULT,
        # A heartbeat finishes no task.
        _E.HB_SUCCESS: _S.BUSY,
        _E.HB_FAILURE: _S.FAULT,
        _E.DISPATCHED: _S.BUSY,
        _E.SHUTDOWN: _S.DOWN,
        _E.TIMEOUT: _S.BUSY,
        _E.RESUMED: _S.BUSY,
    },
    _S.FAULT: {
        # A late result counts, but only a heartbeat heals.
        _E.BT_SUCCESS: _S.FAULT,
        _E.BT_FAILURE: _S.FAULT,
        _E.HB_SUCCESS: _S.RUNNING,
        _E.HB_FAILURE: _S.FAULT,
        _E.DISPATCHED: _S.FAULT,
        _E.SHUTDOWN: _S.DOWN,
        _E.TIMEOUT: _S.DOWN,
        _E.RESUMED: _S.FAULT,
    },
    _S.DOWN: {
        **dict.fromkeys(SatelliteEvent, _S.DOWN),
        _E.RESUMED: _S.UNKNOWN,
    },
}


def next_state(state: SatelliteState, event: SatelliteEvent) -> SatelliteState:
    """The state after the event."""
    return TRANSITIONS[state][event]
