"""A job step: tasks that a running job starts on its own nodes. The batch script itself is step `batch` of the attempt.

Steps live only as long as their attempt; the rest of them ends with it.
"""

from __future__ import annotations

import enum

import msgspec

from eslurm.core.model.facts import StepCreated


class StepState(enum.Enum):
    """WAITING until it has the resources that it claims; LAUNCHING until every node has answered.

    A step that could not start on all nodes is FAILED, one that never had its turn CANCELLED.
    """

    WAITING = "WAITING"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


LIVE = frozenset({StepState.LAUNCHING, StepState.RUNNING})
"""A step may have tasks in these states; in those after them, until its nodes have said that it has none."""
OVER = frozenset({StepState.ENDED, StepState.FAILED, StepState.CANCELLED})


TRANSITIONS: dict[StepState, dict[StepState, str]] = {
    StepState.WAITING: {
        StepState.LAUNCHING: "it is its turn, and what it claims is free",
        StepState.FAILED: "the job has become too small for it",
        StepState.CANCELLED: "its command gave up, or its attempt ended",
    },
    StepState.LAUNCHING: {
        StepState.RUNNING: "every node has started its tasks",
        StepState.FAILED: "a node could not start its tasks",
        StepState.ENDED: "its command or its attempt ended first",
    },
    StepState.RUNNING: {StepState.ENDED: "its command or its nodes said so, or its attempt ended"},
    StepState.ENDED: {},
    StepState.FAILED: {},
    StepState.CANCELLED: {},
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
    holding: frozenset[int] = frozenset()
    """Nodes on which it takes what it claims: until they have said that none of its tasks is left."""
    worst: tuple[int, int] = (0, 0)
    """(exit code, signal) of the worst of its tasks on the nodes that have said so."""
