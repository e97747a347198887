"""One attempt of a job on one node of this process, and every legal stage of it.

Owns the record and `TRANSITIONS`. Invariant: the batch script is started only from PREPARED, and no
stage of a start leads back to PREPARED; a tombstone (`core.agent.fence`) stands from ENDING or BURIED on. Where the site has
a prolog, nothing of the job runs before it has ended well; where it has an epilog, nothing but the epilog runs in EPILOG.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from eslurm.core.agent.actions import AttemptKey, Ref
from eslurm.core.agent.cores import Cores
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import IllegalTransition
from eslurm.core.model.protocol import JobLaunch, LaunchStep
from eslurm.core.model.step_key import BATCH_STEP, EPILOG_STEP, PROLOG_STEP


class Stage(enum.Enum):
    """Stage of an attempt on a node."""

    FETCHING = "FETCHING"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    CLOSING = "CLOSING"
    ENDING = "ENDING"
    EPILOG = "EPILOG"
    ENDED = "ENDED"
    BURIED = "BURIED"


TRANSITIONS: dict[Stage, dict[Stage, str]] = {
    Stage.FETCHING: {
        Stage.PREPARING: "script and environment are here, the prolog runs",
        Stage.PREPARED: "script and environment are here, or were and could not be had again",
        Stage.ENDING: "the controller ends it, whose script was to be fetched again, while steps of gateways run",
        Stage.EPILOG: "the controller ends it, whose script was to be fetched again",
        Stage.BURIED: "they cannot be had, the node registers anew, or the controller ends the attempt",
    },
    Stage.PREPARING: {
        Stage.PREPARED: "the prolog ended well",
        Stage.ENDING: "the controller ends it: the prolog runs to its end",
        Stage.ENDED: "the prolog failed, which is to be reported",
    },
    Stage.PREPARED: {
        Stage.STARTING: "told to start, on the first node",
        Stage.FETCHING: "told to start after a restart that lost the script",
        Stage.ENDING: "the controller ends it while steps of esrun run",
        Stage.EPILOG: "the controller ends it",
        Stage.BURIED: "the controller ends it",
    },
    Stage.STARTING: {
        Stage.RUNNING: "the first process exists",
        Stage.CLOSING: "ended before its start was heard of, other steps run on",
        Stage.ENDED: "ended before its start was heard of",
        Stage.ENDING: "the controller ends it",
        Stage.EPILOG: "this node could not start it, or it ended before its start was heard of",
        Stage.BURIED: "this node could not start it",
    },
    Stage.RUNNING: {
        Stage.CLOSING: "the batch script ended, other steps of the attempt are being ended",
        Stage.EPILOG: "the batch script ended and nothing else is left",
        Stage.ENDED: "the batch script ended and nothing else is left",
        Stage.ENDING: "the controller ends it",
    },
    Stage.CLOSING: {
        Stage.EPILOG: "the last step ended",
        Stage.ENDED: "the last step ended",
        Stage.ENDING: "the controller ends it",
    },
    Stage.ENDING: {
        Stage.EPILOG: "nothing else is left",
        Stage.ENDED: "nothing is left; the end of the batch script or of the prolog is to be reported",
        Stage.BURIED: "nothing is left, and there was no batch script here",
    },
    Stage.EPILOG: {Stage.ENDED: "the epilog ended, which is to be reported"},
    Stage.ENDED: {Stage.BURIED: "the controller has committed the end"},
    Stage.BURIED: {},
}

HELD_AS = {
    Stage.PREPARING: "preparing",
    Stage.PREPARED: "prepared",
    Stage.STARTING: "running",
    Stage.RUNNING: "running",
    Stage.CLOSING: "running",
    Stage.ENDING: "running",
    Stage.EPILOG: "epilog",
    Stage.ENDED: "ended",
}
"""Name of a stage in a registration's inventory. While anything runs or may run: running."""

MAY_START_STEPS = frozenset({Stage.PREPARED, Stage.STARTING, Stage.RUNNING})


class Waiter(msgspec.Struct, frozen=True):
    """A broadcast that waits for this node's answer to an effect. `sealed` is its command as the controller signed it."""

    ref: Ref
    owner: str
    revision: int
    index: int
    answer_by_us: int
    sealed: bytes = b""


@dataclass(slots=True)
class PendingStep:
    """A step of esrun whose environment is being fetched or whose tasks are being started."""

    request: LaunchStep
    waiters: list[Waiter] = field(default_factory=list)
    credential: bytes = b""
    """The sealed command."""


@dataclass(slots=True, eq=False)
class Attempt:
    """See the module. `live` are the steps that have or may have processes here.

    `suspend_revision` and `time_revision` are those of the latest orders to stand still or go on, and on the time limit.
    `credential` is the sealed command that starts the batch script, empty once it has begun; `time_credential` the one
    that has set the time limit. `phase_credential` is the sealed `Prepare`, for the node's phases. Once it `was_prepared`,
    its prolog has ended well and its epilog is owed; `lost_launch`: only the runner still knew of it.
    """

    node: int
    job_id: int
    number: int
    owner: str
    revision: int
    launch: JobLaunch | None
    stage: Stage
    start: bool = False
    credential: bytes = b""
    started_us: int = 0
    grace_s: float = 0.0
    suspend_revision: int = 0
    is_suspended: bool = False
    time_revision: int = 0
    time_credential: bytes = b""
    end: StepEnd | None = None
    phase_credential: bytes = b""
    was_prepared: bool = False
    lost_launch: bool = False
    has_routes: bool = False
    """The end of the helper that writes its routes was reported."""
    in_inventory: bool = False
    owes_gone: bool = False
    cores: Cores | None = None
    """The words of its application for its cores here, if there are any."""
    live: set[int] = field(default_factory=set)
    uncounted: set[int] = field(default_factory=set)
    """Steps of esrun whose end is not reported. After a restart none is known, and all ends are."""
    steps: dict[int, PendingStep] = field(default_factory=dict)
    starts: list[Waiter] = field(default_factory=list)
    ends: list[Waiter] = field(default_factory=list)

    @property
    def key(self) -> AttemptKey:
        """(job, attempt)."""
        return self.job_id, self.number

    @property
    def batch_was_started(self) -> bool:
        """Check whether a batch script of the attempt exists or existed here."""
        return self.end is not None or self.started_us > 0 or BATCH_STEP in self.live

    @property
    def phase_runs(self) -> bool:
        """Check whether its prolog or epilog runs."""
        return PROLOG_STEP in self.live or EPILOG_STEP in self.live

    def move(self, stage: Stage) -> None:
        """Go to `stage`. Raises `IllegalTransition` for a move that the table does not have."""
        if stage not in TRANSITIONS[self.stage]:
            raise IllegalTransition(
                f"attempt {self.job_id}.{self.number} on node {self.node}:"
                f" {self.stage.value} -> {stage.value}"
            )
        self.stage = stage
