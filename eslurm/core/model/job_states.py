"""The states of a job and of an attempt, and every legal move between them.

`TRANSITIONS` is the only table: `core.state.apply` refuses any other move, and `docs/states.md` is generated
from it. Each edge carries its cause.
"""

from __future__ import annotations

import enum


class JobState(enum.Enum):
    """State of a job, in the words of the commands."""

    # Each is there once. An enum's own hash is a call of Python, and each fact asks many tables by it.
    __hash__ = object.__hash__

    PENDING = "PENDING"
    TRANSFERRED = "TRANSFERRED"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"


FINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.OUT_OF_MEMORY,
    }
)
ACTIVE = frozenset({JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING})
STARTED = frozenset({JobState.RUNNING, JobState.SUSPENDED})
"""The states of a job whose script has begun and has not ended."""

HOLDS = ("", "system", "user", "account", "admin")
"""Kinds of holds of waiting jobs, the strongest last: a caller lifts those up to what the caller could set."""

TRANSITIONS: dict[JobState, dict[JobState, str]] = {
    JobState.PENDING: {
        JobState.LAUNCHING: "placed on nodes",
        JobState.TRANSFERRED: "another cell of the federation owns it now",
        JobState.CANCELLED: "cancelled while waiting, or its dependency can never be met",
        JobState.COMPLETED: "an array whose last task has ended, all well",
        JobState.FAILED: "an array whose last task has ended, at least one not well",
    },
    JobState.TRANSFERRED: {
        JobState.COMPLETED: "so its owner has told",
        JobState.FAILED: "so its owner has told",
        JobState.CANCELLED: "so its owner has told",
        JobState.TIMEOUT: "so its owner has told",
        JobState.NODE_FAIL: "so its owner has told, or an administrator has given it up with its cell",
        JobState.PREEMPTED: "so its owner has told",
        JobState.OUT_OF_MEMORY: "so its owner has told",
    },
    JobState.LAUNCHING: {
        JobState.RUNNING: "the script's first process exists; of an allocation without one: its nodes are ready",
        JobState.COMPLETING: "ended, cancelled, or could not be prepared: nodes are giving resources back",
    },
    JobState.RUNNING: {
        JobState.SUSPENDED: "told to stop where it is, by an operator or to make room for another job",
        JobState.COMPLETING: "the script ended, or its node was lost",
    },
    JobState.SUSPENDED: {
        JobState.RUNNING: "told to go on",
        JobState.COMPLETING: "ended while it stood still, or its node was lost",
    },
    JobState.COMPLETING: {
        JobState.PENDING: "requeued or retried and every node gave its resources back, or it could not be launched",
        JobState.COMPLETED: "exit code 0",
        JobState.FAILED: "a non-zero exit code or a signal",
        JobState.CANCELLED: "cancelled by its user or an administrator",
        JobState.TIMEOUT: "its time limit passed",
        JobState.NODE_FAIL: "its node was lost and it may not be requeued",
        JobState.PREEMPTED: "ended to make room for another job, and not to be requeued",
        JobState.OUT_OF_MEMORY: "the kernel ended its script, for the job used all memory that it may on a node",
    },
    JobState.COMPLETED: {},
    JobState.FAILED: {},
    JobState.CANCELLED: {},
    JobState.TIMEOUT: {},
    JobState.NODE_FAIL: {},
    JobState.PREEMPTED: {},
    JobState.OUT_OF_MEMORY: {},
}


class AttemptPhase(enum.Enum):
    """The answers for which the controller waits in one attempt."""

    __hash__ = object.__hash__

    PREPARING = "PREPARING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RELEASING = "RELEASING"
    ENDED = "ENDED"
    SETTLING = "SETTLING"
    """Its nodes are free; its programs on the controller's host have not ended."""


ATTEMPT_TRANSITIONS: dict[AttemptPhase, dict[AttemptPhase, str]] = {
    AttemptPhase.PREPARING: {
        AttemptPhase.STARTING: "every node is prepared",
        AttemptPhase.RUNNING: "a one-node job: prepared and started in one command",
        AttemptPhase.RELEASING: "a node could not be prepared, or the job is to stop",
        AttemptPhase.ENDED: "a one-node job that ended before its start was heard of",
        AttemptPhase.SETTLING: "a one-node job that ended before its start was heard of, or a job that ended before its "
        "controller prolog had",
    },
    AttemptPhase.STARTING: {
        AttemptPhase.RUNNING: "the script's first process exists",
        AttemptPhase.RELEASING: "could not start, ended at once, or its node was lost",
        AttemptPhase.ENDED: "ended on its only node, which is already free",
        AttemptPhase.SETTLING: "the same, and its controller epilog follows",
    },
    AttemptPhase.RUNNING: {
        AttemptPhase.RELEASING: "the script ended; its nodes are told",
        AttemptPhase.ENDED: "the script ended on its only node, which is already free",
        AttemptPhase.SETTLING: "the same, and its controller epilog follows",
    },
    AttemptPhase.RELEASING: {
        AttemptPhase.ENDED: "every node gave its resources back or is lost",
        AttemptPhase.SETTLING: "the same, and its controller epilog follows",
    },
    AttemptPhase.SETTLING: {AttemptPhase.ENDED: "its controller epilog has ended"},
    AttemptPhase.ENDED: {},
}


class StopCause(enum.Enum):
    """Cause for which a live attempt ends."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    PREEMPT = "preempt"
    """Ended for another job; it waits again if it may."""
    EVICT = "evict"
    """Ended for another job, for good."""
    NODE_LOST = "node_lost"
    LAUNCH_FAILED = "launch_failed"
    RELEASE = "release"
    """An allocation without a script is given back by its user: it has ended by itself."""


class IllegalTransition(Exception):
    """A fact asked for a move that the table does not have: a bug, never bad input."""
