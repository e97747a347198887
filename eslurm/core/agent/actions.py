"""Actions of a node agent's core for its shell. Actions of one call are carried out in order.

`Spool` precedes the actions that rely on it: the shell writes the record before it goes on. A shell that cannot write
calls `Agent.on_storage` and holds back actions that rely on unwritten records.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import msgspec

from eslurm.core.agent.records import Record
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import JobLaunch, LaunchStep, Report
from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.relay.results import Outcome

Ref: TypeAlias = Hashable
"""The shell's handle of a command's broadcast."""

AttemptKey: TypeAlias = tuple[int, int]
"""(job, attempt)."""


class Answer(msgspec.Struct, frozen=True):
    """The outcome of broadcast `ref` on these nodes; said once per broadcast and node.

    One that `stands_alone` relies on no record: it is true even if the process dies without having written any.
    """

    ref: Ref
    nodes: tuple[int, ...]
    outcome: Outcome
    stands_alone: bool = False


class FetchBlobs(msgspec.Struct, frozen=True):
    """Get these blobs; each is answered with `Agent.on_blobs` or `Agent.on_blobs_missing`."""

    hashes: tuple[bytes, ...]


class RunBatch(msgspec.Struct, frozen=True):
    """Start the batch script. Answered with on_step_started, on_step_ended or on_step_refused.

    `credential` is the sealed command that says so, `contact_us` the node's last contact (0: none), from which on the
    attempt may be orphaned.
    """

    step: StepKey
    launch: JobLaunch
    credential: bytes = b""
    contact_us: int = 0


class RunTasks(msgspec.Struct, frozen=True):
    """Start a step's tasks of this node: `tasks` of them, numbered from `first_task`; the rest as of `RunBatch`."""

    step: StepKey
    launch: JobLaunch
    request: LaunchStep
    tasks: int
    first_task: int
    node_index: int
    credential: bytes = b""
    contact_us: int = 0


class AwaitStep(msgspec.Struct, frozen=True):
    """Ask the runner about a step of gateways that it knows. Answered like `RunTasks`, as soon as the step is ready."""

    step: StepKey


class RunPhase(msgspec.Struct, frozen=True):
    """Start the node's prolog or epilog for an attempt (`step` says which). Answered like `RunBatch`.

    The site's own configuration on the node names the program, its user and its limit. `credential` is the sealed `Prepare`
    of the attempt; an epilog runs long after its date. `end`: how the batch script ended here, for the epilog.
    """

    step: StepKey
    launch: JobLaunch
    credential: bytes = b""
    end: StepEnd | None = None


class RunCheck(msgspec.Struct, frozen=True):
    """Run the node's check, because a fault stands. Answered with `Agent.on_checked`."""

    node: int


class RunHealthCheck(msgspec.Struct, frozen=True):
    """Run this health check of the node of this name. Answered with `Agent.on_health_checked`."""

    name: str
    check: str


class SignalStep(msgspec.Struct, frozen=True):
    """Send a signal to all processes of a live step."""

    step: StepKey
    signal: int


class TerminateStep(msgspec.Struct, frozen=True):
    """SIGTERM now, SIGKILL after `grace_s`; `cause` is the controller's word for why."""

    step: StepKey
    grace_s: float
    cause: str


class SuspendStep(msgspec.Struct, frozen=True):
    """Stop all processes of a step where they are and its time limit with them, or let them go on. Idempotent."""

    step: StepKey
    resume: bool = False


class LimitStep(msgspec.Struct, frozen=True):
    """The step's time limit, counted from its start, is so long from now on; 0: none. Idempotent.

    `credential` is the sealed command that says so.
    """

    step: StepKey
    time_limit_s: int
    credential: bytes = b""


class AcknowledgeSteps(msgspec.Struct, frozen=True):
    """The runner may forget these outcomes."""

    steps: tuple[StepKey, ...]


class Contact(msgspec.Struct, frozen=True):
    """The controller has confirmed what these nodes said at `at_us`: their orphan timeouts count from then."""

    nodes: tuple[int, ...]
    at_us: int


class Vacate(msgspec.Struct, frozen=True):
    """These attempts have left their node: the runner lets go of what their steps shared."""

    attempts: tuple[NodeAttempt, ...]


class Spool(msgspec.Struct, frozen=True):
    """Append a record. With `durable` it must be on the disk before the next action."""

    record: Record
    durable: bool = False


class SendReport(msgspec.Struct, frozen=True):
    """Send up. A loss needs no answer: it is sent again until it is acknowledged."""

    report: Report


class Numbered(msgspec.Struct, frozen=True):
    """The controller accepted this node under this number: commands for it may come."""

    name: str
    number: int


class Refusal(msgspec.Struct, frozen=True):
    """The controller refused a node; people should read why. It is offered again later."""

    name: str
    why: str


class Overtaken(msgspec.Struct, frozen=True):
    """The controller took a late message of this node's past for its present: the node registers anew."""

    name: str


class MeasureSteps(msgspec.Struct, frozen=True):
    """Answer broadcast `ref` for this node with what these live steps of the attempt use (`step_usage.Measured`)."""

    ref: Ref
    attempt: NodeAttempt
    steps: tuple[int, ...]
    with_pids: bool = False


class ExclusionChanged(msgspec.Struct, frozen=True):
    """The controller has excluded cores of the job on this node, or given some back: who waits for that may look."""

    node: int
    job_id: int


Action: TypeAlias = (
    Answer
    | FetchBlobs
    | RunBatch
    | RunTasks
    | AwaitStep
    | RunPhase
    | RunCheck
    | RunHealthCheck
    | SignalStep
    | TerminateStep
    | SuspendStep
    | LimitStep
    | AcknowledgeSteps
    | Contact
    | Vacate
    | Spool
    | SendReport
    | Numbered
    | Refusal
    | Overtaken
    | MeasureSteps
    | ExclusionChanged
)
