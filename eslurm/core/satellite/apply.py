"""How facts about satellites change the state."""

from __future__ import annotations

from eslurm.core import facts
from eslurm.core.cluster import State
from eslurm.core.satellite.model import SatelliteDown
from eslurm.core.satellite.states import SatelliteState


def apply_changed(state: State, fact: facts.SatelliteChanged) -> None:
    if fact.state is SatelliteState.DOWN:
        state.satellites_down[fact.name] = SatelliteDown(fact.name, fact.reason, state.now_us)
    else:
        state.satellites_down.pop(fact.name, None)
    state.touched.settings = True
