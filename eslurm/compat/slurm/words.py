"""States and reasons of jobs in Slurm's words."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.states import reason_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATES: Mapping[str, tuple[str, str, int]] = {
    "PENDING": ("PENDING", "PD", 0),
    "RUNNING": ("RUNNING", "R", 1),
    "SUSPENDED": ("SUSPENDED", "S", 2),
    "COMPLETED": ("COMPLETED", "CD", 3),
    "CANCELLED": ("CANCELLED", "CA", 4),
    "FAILED": ("FAILED", "F", 5),
    "TIMEOUT": ("TIMEOUT", "TO", 6),
    "NODE_FAIL": ("NODE_FAIL", "NF", 7),
    "PREEMPTED": ("PREEMPTED", "PR", 8),
    "OUT_OF_MEMORY": ("OUT_OF_MEMORY", "OOM", 11),
    "COMPLETING": ("COMPLETING", "CG", 20),
    "LAUNCHING": ("CONFIGURING", "CF", 21),
    "TRANSFERRED": ("REVOKED", "RV", 22),
}
"""By our state: Slurm's long and short word, and the order of sorting."""
ENDED = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"})
_WORDS = [
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "RESV_DEL_HOLD",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
]
_CODES = dict(
    zip(
        _WORDS,
        [
            "PD",
            "R",
            "S",
            "CD",
            "CA",
            "F",
            "TO",
            "NF",
            "PR",
            "BF",
            "DL",
            "OOM",
            "CG",
            "CF",
            "RS",
            "RD",
            "RQ",
            "RF",
            "RH",
            "RV",
            "SI",
            "SE",
            "SO",
            "ST",
        ],
        strict=True,
    )
)
_OURS = {long: ours for ours, (long, _, _) in STATES.items()}
_REASONS: Mapping[str, str] = {
    "KeptFree": "Resources",
    "ResourceLimit": "AssociationResourceLimit",
    "StartMissed": "DeadLine",
    "HeldUser": "JobHeldUser",
}
"""Reasons that Slurm has no word of its own for."""
_END_REASONS: Mapping[str, str] = {
    "FAILED": "NonZeroExitCode",
    "TIMEOUT": "TimeLimit",
    "NODE_FAIL": "NodeDown",
    "OUT_OF_MEMORY": "OutOfMemory",
}


def long_state(state: str) -> str:
    """`CONFIGURING` for LAUNCHING."""
    return STATES[state][0] if state in STATES else state


def short_state(state: str) -> str:
    """`CF` for LAUNCHING."""
    return STATES[state][1] if state in STATES else state


def state_order(state: str) -> int:
    """The place of a state in sorted lists."""
    return STATES[state][2] if state in STATES else 99


def job_states(words: Sequence[str], problem: str) -> frozenset[str] | None:
    """Our states from `PD`, `running`, `all`; None means all. `problem` is a line of `{}` for a wrong word.

    A state that jobs never have here is no error and matches none. Raises UsageProblem.
    """
    found = set()
    for word in words:
        name = word.strip().upper()
        if name == "ALL":
            return None
        name = next((long for long, code in _CODES.items() if name in (long, code)), name)
        if name == "CANCELED":
            name = "CANCELLED"
        if name not in _CODES:
            raise UsageProblem(problem.format(word))
        found.add(_OURS.get(name, name))
    return frozenset(found)


def valid_states() -> str:
    """All long names, with commas."""
    return ",".join(_WORDS)


def reason(state: str, word: str, code: int = 0) -> str:
    """One word for a job's reason; `None` where there is none."""
    if state in ENDED:
        return _END_REASONS.get(state, "None")
    if state != "PENDING" or not word:
        return "None"
    name = reason_name(word)
    return _REASONS.get(name, name)
