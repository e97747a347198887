"""Administration and time-outs of satellites, turned into facts: DOWN is decided here and survives a restart (E-12)."""

from __future__ import annotations

from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts
from eslurm.core.model.messages import (
    Changed,
    JobProblem,
    RefusalCode,
    Refused,
    SatelliteSilent,
    UpdateSatellites,
)
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.model.wording import quoted
from eslurm.core.state.cluster import State

ACTIONS = ("resume", "down")


def on_silent(state: State, message: SatelliteSilent) -> list[facts.Fact]:
    """A satellite has been in FAULT too long."""
    if message.name in state.satellites_down:
        return []
    why = f"in FAULT for {state.config.satellite_down_after_s:g} s"
    return [facts.SatelliteChanged(message.name, SatelliteState.DOWN, why)]


def on_update_satellites(state: State, message: UpdateSatellites) -> tuple[list[facts.Fact], Changed]:
    """Take satellites out of service or resume them. For operators only."""
    if not is_operator(state, message.by):
        raise Refused(
            RefusalCode.DENIED, f"{message.by.name} is no operator: satellites are theirs to change"
        )
    if message.action not in ACTIONS:
        raise Refused(RefusalCode.INVALID, f"{quoted(message.action)} is unknown: use {' or '.join(ACTIONS)}")
    if not message.names:
        raise Refused(RefusalCode.INVALID, f"{message.action} needs satellites: name some")
    found: list[facts.Fact] = []
    problems: list[JobProblem] = []
    for name in dict.fromkeys(message.names):
        is_down = name in state.satellites_down
        if name not in message.known and not is_down:
            problems.append(JobProblem(name, RefusalCode.NOT_FOUND, _unknown(name, message.known)))
        elif message.action == "down" and not is_down:
            reason = message.reason or f"taken down by {message.by.name}"
            found.append(facts.SatelliteChanged(name, SatelliteState.DOWN, reason))
        elif message.action == "resume" and is_down:
            found.append(facts.SatelliteChanged(name, SatelliteState.UNKNOWN))
    return found, Changed(len(found), tuple(problems))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    there = f"there are {', '.join(known)}" if known else "there are none"
    return f"satellite {name} does not exist: {there}"
