"""Application of facts about satellites."""

from __future__ import annotations

from eslurm.core.model import facts
from eslurm.core.model.satellite import SatelliteDown
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.state.cluster import State


def apply_changed(state: State, fact: facts.SatelliteChanged) -> None:
    if fact.state is SatelliteState.DOWN:
        state.satellites_down[fact.name] = SatelliteDown(fact.name, fact.reason, state.now_us)
    else:
        state.satellites_down.pop(fact.name, None)
    state.touched.settings = True
