"""The states of jobs and nodes, and waiting reasons, in Slurm's words."""

from __future__ import annotations

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

SHORT_CODES: Mapping[str, str] = {
    "PENDING": "PD",
    "TRANSFERRED": "TR",
    "LAUNCHING": "CF",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETING": "CG",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "OUT_OF_MEMORY": "OOM",
}
LIVE_STATES = ("PENDING", "TRANSFERRED", "LAUNCHING", "RUNNING", "SUSPENDED", "COMPLETING")
FINAL_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
NODE_STATES = (
    "allocated",
    "mixed",
    "idle",
    "login",
    "draining",
    "drained",
    "unreachable",
    "unknown",
    "down",
)
_LONG_BY_SPELLING: Mapping[str, str] = {
    **{code: name for name, code in SHORT_CODES.items()},
    **{name: name for name in SHORT_CODES},
    "CONFIGURING": "LAUNCHING",
    "CANCELED": "CANCELLED",
}
_REASON_NAMES: Mapping[str, str] = {
    "begin": "BeginTime",
    "dependency_never": "DependencyNeverSatisfied",
    "held": "JobHeldUser",
    "held_admin": "JobHeldAdmin",
    "held_system": "JobHeldAdmin",
    "held_user": "JobHeldUser",
    "nodes_unavailable": "ReqNodeNotAvail",
    "not_examined": "None",
}


def partition_state(info: Any) -> str:
    """UP, DOWN, DRAIN or INACTIVE."""
    return str(info.state) or ("UP" if info.up else "DOWN")


def short_code(state: str) -> str:
    """`PD` for PENDING; an unknown state is shown as it is."""
    return SHORT_CODES.get(state, state)


def parse_states(text: str, option: str = "--states") -> tuple[str, ...]:
    """Job states from `pd,R,running`; `all` is every state. Raises OptionError."""
    states: dict[str, None] = {}
    for word in text.split(","):
        if word.strip().upper() == "ALL":
            return tuple(SHORT_CODES)
        state = _LONG_BY_SPELLING.get(word.strip().upper())
        if state is None:
            known = ", ".join(f"{name} ({code})" for name, code in SHORT_CODES.items())
            raise OptionError(option, word, "is not a job state", f"use all or some of {known}")
        states[state] = None
    return tuple(states)


def reason_name(reason: str) -> str:
    """squeue's one-word reason for the core's: `resources` -> `Resources`, `begin` -> `BeginTime`."""
    known = _REASON_NAMES.get(reason)
    if known is not None:
        return known
    return "".join(word[:1].upper() + word[1:] for word in reason.split("_"))


def node_state(state: str, flags: Iterable[str], cores_used: int, cores: int) -> str:
    """sinfo's word: idle, mixed, allocated, draining, drained, down; also unknown, unreachable, login."""
    if state != "UP":
        return {"LOST": "down"}.get(state, state.lower())
    words = {flag.lower() for flag in flags}
    if "login" in words:
        return "login"
    if "drain" in words:
        return "draining" if cores_used else "drained"
    if not cores_used:
        return "idle"
    return "mixed" if cores_used < cores else "allocated"
