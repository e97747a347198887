"""A job step: tasks that a running job starts on its own nodes. The batch script itself is step `batch` of the attempt.

Steps live only as long as their attempt; the rest of them ends with it.
"""

from __future__ import annotations

import enum

import msgspec

from eslurm.core.model.facts import StepCreated


class StepState(enum.Enum):
    """LAUNCHING until every node has answered; a step that could not start on all nodes is FAILED."""

    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    FAILED = "FAILED"


TRANSITIONS: dict[StepState, dict[StepState, str]] = {
    StepState.LAUNCHING: {
        StepState.RUNNING: "every node has started its tasks",
        StepState.FAILED: "a node could not start its tasks",
        StepState.ENDED: "its command or its attempt ended first",
    },
    StepState.RUNNING: {StepState.ENDED: "its command said so, or its attempt ended"},
    StepState.ENDED: {},
    StepState.FAILED: {},
}


class Step(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One step's record; key (job_id, attempt, step). `launch` is the fact that created it: effects derive its launch from
    it.
    """

    job_id: int
    attempt: int
    step: int
    name: str
    state: StepState
    nodes: tuple[int, ...]
    tasks: int
    created_us: int
    revision: int
    launch: StepCreated
    waiting: frozenset[int] = frozenset()
    failed: tuple[tuple[int, str], ...] = ()
    exit_code: int = 0
    signal: int = 0
    ended_us: int = 0
