"""Commands of the controller to node agents and reports of agents, as values.

A `Command` goes down (controller -> nodes): its encoded form is what the controller signs, so relays carry it without
being able to change it. A `Report` goes up (agent process -> controller): it is kept in the agent's spool until the
controller acknowledges it *after* its commit, so it may arrive twice.

Both are append-only: a newer peer's extra fields are ignored, an older peer's missing ones get defaults.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.amounts import Vector
from eslurm.core.model.gateways import GatewayStep
from eslurm.core.model.guests import Guest, JointStep
from eslurm.core.model.job import JobSpec, StepEnd
from eslurm.core.model.node_health import FailingCheck
from eslurm.core.model.step_claim import StepFiles
from eslurm.core.model.step_input import StepInput
from eslurm.core.model.step_key import BATCH_STEP

KNOWS_PARTS: Final = 1
"""From this protocol on an agent knows launches of several parts, and phases."""
TELLS_OF_TASKS: Final = 2
"""From this protocol on an agent sends `TasksOver`."""
MEASURES: Final = 3
"""From this protocol on an agent knows `Measure`."""
CHECKS_HEALTH: Final = 4
"""From this protocol on an agent sends `HealthReported`, and keeps true what the controller holds of its checks."""
AGENT_PROTOCOL: Final = CHECKS_HEALTH
"""The protocol of an agent of this release. The earliest ones say 0."""


class NodeGroup(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Consecutive nodes of an allocation that hold the same: `runs` are (first number, length) pairs, order kept."""

    runs: tuple[tuple[int, int], ...]
    amounts: Vector
    tasks: int = 1
    component: int = 0


class JobLaunch(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The data of a launch of a job's batch script. `node_names` is the folded, ordered host list."""

    job_id: int
    attempt: int
    spec: JobSpec
    groups: tuple[NodeGroup, ...]
    node_names: str
    kill_grace_s: float = 30.0
    orphan_timeout_s: float = 0.0
    array_job_id: int = 0
    array_task: int = -1
    array_count: int = 0
    array_min: int = 0
    array_max: int = 0
    devices: tuple[tuple[int, str, tuple[int, ...]], ...] = ()
    """(node number, resource, device numbers) of numbered resources."""
    device_parts: tuple[int, ...] = ()
    """The component of each entry of `devices`; empty: one component."""
    phases: tuple[str, ...] = ()
    """The phases that this attempt runs on each node: prolog, epilog."""
    guests: tuple[Guest, ...] = ()
    """Nodes that other cells hold for the job."""


class Prepare(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="prepare", gc=False):
    """Make each node ready for the attempt. With `start` (one-node jobs) the batch script starts at once.

    Answers: ok (payload `Started` when `start`; payload `Preparing` while the node's prolog runs, whose end comes in a
    `PhaseReported`), or failed with the reason. Idempotent per (job, attempt, node); refused behind a tombstone or below
    the floor. A launch that names phases is started by a command of its own.
    """

    launch: JobLaunch
    start: bool = False


class Start(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="start", gc=False):
    """Start the prepared attempt's batch script on this (its first) node. Answers ok with payload `Started`.

    With `launch` the sealed command itself names the user and the processes.
    """

    job_id: int
    attempt: int
    launch: JobLaunch | None = None


class End(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="end", gc=False):
    """End everything of the attempt here and never start it again (a tombstone stays).

    SIGTERM, `grace_s` later SIGKILL. Answers ok with payload `Gone` when nothing is left (at once if nothing was there),
    else ok without payload; a `NodeGone` report follows later.
    """

    job_id: int
    attempt: int
    grace_s: float
    cause: str


class Signal(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="signal", gc=False):
    """Send a signal to the attempt's batch step or to one of its steps."""

    job_id: int
    attempt: int
    signal: int
    step: int = BATCH_STEP


class Suspend(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="suspend", gc=False):
    """Suspend the attempt's processes, or resume them. Its time limit is paused meanwhile. Idempotent."""

    job_id: int
    attempt: int
    resume: bool = False


class SetTime(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="set_time", gc=False):
    """Set the attempt's time limit, counted from its start. Idempotent."""

    job_id: int
    attempt: int
    time_limit_s: int


class LaunchStep(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="launch_step", gc=False
):
    """Start a step's tasks on each node of `groups`, their output streamed straight to `endpoint`.

    `first_task` numbers follow from the groups' order. `cookie` authenticates the connection to the receiver. `launch` is
    the attempt's, without the script's arguments: the sealed command itself names the user and the processes.
    """

    job_id: int
    attempt: int
    step: int
    groups: tuple[NodeGroup, ...]
    argv: tuple[str, ...]
    environment_hash: bytes
    work_dir: str
    endpoint: str
    cookie: bytes
    tasks: int
    cpus_per_task: int = 1
    launch: JobLaunch | None = None
    component: int = 0
    rank_first: int = 0
    """Rank of the first task, where several steps form one (one for each part)."""
    tasks_total: int = 0
    """Tasks of all of them together; 0: this step is alone."""
    first: int = -1
    """Number of the first of them; -1: this step is alone."""
    whole: tuple[NodeGroup, ...] = ()
    """Nodes and tasks of all of them, in the order of ranks; empty: this step is alone."""
    gateway: GatewayStep | None = None
    """Of the steps of a job's gateways (`step_key.GATEWAY_STEPS`). Their `argv`, `endpoint` and `cookie` are empty: the
    node's own configuration and the request in `launch.spec.gateway` say what runs.
    """
    joint: JointStep | None = None
    """It is this cell's part of a step over several cells, whose ranks begin with `rank_first`."""
    input: StepInput | None = None
    mpi: str = ""
    """The interface to MPI libraries that the step's command serves (`model.mpi`); empty: none."""
    is_counted: bool = False
    """It takes resources of its job until each node has said that none of its tasks is left (`TasksOver`)."""
    time_limit_s: int = 0
    """0: none but that of its job."""
    memory_mib: int = 0
    """Memory that its tasks may use on each node, besides `memory_per_task_mib`; 0 both: what the job has there."""
    memory_per_task_mib: int = 0
    files: StepFiles | None = None
    """It runs without its command: `endpoint` and `cookie` are empty."""


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="heartbeat", gc=False):
    """A ping. Nodes that do not know this epoch register anew. `floor` prunes tombstones and kept outcomes.

    `round` numbers the heartbeats of a leader; `heard` and `unheard` give the last round in which each node was heard, see
    `contact.Heard`. A controller of an earlier release numbers none (0).
    """

    floor: int
    round: int = 0
    heard: int = 0
    unheard: tuple[int, ...] = ()


class Exclude(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="exclude", gc=False):
    """Let the application of the attempt leave so many cores of this node to others from now on.

    Fails where it uses them (again); giving cores back to it always succeeds. Idempotent.
    """

    job_id: int
    attempt: int
    cores: int


class AskCores(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="ask_cores", gc=False):
    """Ask the application of the attempt to leave that many more cores of this node to others (R-02).

    It hears of it with the answer to its next report, and may reject.
    """

    job_id: int
    attempt: int
    cores: int


class Measure(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="measure", gc=False):
    """Measure what these live steps of the attempt use on each node, the script among them. It changes nothing.

    Answers ok with payload `step_usage.Measured`, or failed. No outcome is kept: a copy is measured again.
    """

    job_id: int
    attempt: int
    steps: tuple[int, ...]
    with_pids: bool = False


Body: TypeAlias = (
    Prepare | Start | End | Signal | Suspend | SetTime | LaunchStep | Heartbeat | Exclude | AskCores | Measure
)


class Command(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The signed content. `(owner, revision, index)` is the effect's identity; heartbeats and questions have
    revision 0.

    `nodes` and `incarnations` (parallel to the runs) name the addressees: a relay cannot add any. `expires_us` is in the
    controller's time; nodes refuse a command that is older than their tolerance, if its date matters (`is_dated`).
    """

    cluster: str
    owner: str
    epoch: int
    revision: int
    index: int
    nodes: tuple[tuple[int, int], ...]
    incarnations: tuple[int, ...]
    expires_us: int
    body: Body


class Started(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Payload of an ok answer to a start: the first process exists since `at_us` (UTC microseconds)."""

    at_us: int


class Preparing(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Payload of an ok answer to `Prepare`: the prolog runs here, for at most `limit_s`; its end is reported."""

    limit_s: int = 0


class Gone(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Payload of an ok answer to `End`: nothing of the attempt is left on this node."""

    started: bool = False


class Unhealthy(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Payload of an ok answer to a heartbeat from an unhealthy node: short words, sorted. Healthy nodes send none.

    `clock_us`: the node's time, when the heartbeat had expired by it (see `core.relay.command_dates`); else 0.
    """

    problems: tuple[str, ...]
    clock_us: int = 0


class StepEnded(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="step_ended", gc=False):
    """The batch step of an attempt ended on its first node. `gone`: nothing else of the attempt is left there."""

    node: int
    incarnation: int
    job_id: int
    attempt: int
    end: StepEnd
    gone: bool


class NodeGone(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="node_gone", gc=False):
    """Nothing of the attempt is left on this node (after an `End` that took longer). `epilog`: how its epilog ended.

    `is_unstarted`: its batch script has not run there, so that no `StepEnded` says that it is over.
    """

    node: int
    incarnation: int
    job_id: int
    attempt: int
    epilog: StepEnd | None = None
    is_unstarted: bool = False


class TasksOver(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="tasks_over", gc=False):
    """None of the tasks of a step that is counted is left on this node."""

    node: int
    incarnation: int
    job_id: int
    attempt: int
    step: int
    end: StepEnd


class PhaseReported(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="phase_reported", gc=False
):
    """A phase of the attempt ended on this node, or a step of its gateways (`step_key.GATEWAY_STEPS`).

    Where the prolog failed nothing of the attempt is left, nor ever will be. `gateway` is reported as soon as one daemon of
    the node has ended without an `End`.
    """

    node: int
    incarnation: int
    job_id: int
    attempt: int
    phase: str
    end: StepEnd


class GatewayReported(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="gateway_reported", gc=False
):
    """The daemons of a job's gateway have told their addresses, `ip:port` of each in the order of its tasks."""

    node: int
    incarnation: int
    job_id: int
    attempt: int
    addresses: tuple[str, ...]


class CheckPassed(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="check_passed", gc=False
):
    """The node's check has passed since these faults of it, each (kind, job), began."""

    node: int
    incarnation: int
    faults: tuple[tuple[str, int], ...]


class HealthReported(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="health_reported", gc=False
):
    """All of the node's health checks that fail now: others of which the controller knows have passed.

    It is sent when that has changed. `serial` rises with each report of an agent: a late copy is none.
    """

    node: int
    incarnation: int
    serial: int
    failing: tuple[FailingCheck, ...] = ()


class HeldAttempt(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One line of a node's inventory: an attempt it knows, with the highest stage it reached here.

    `stage` is preparing, prepared, running, epilog, ended (what was reported of its end is not acknowledged) or tombstone.
    """

    job_id: int
    attempt: int
    stage: str


class Registration(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="registration", gc=False
):
    """A node's registration: first start, restart of its agent or host, or a new controller epoch.

    `session` is a nonce: the same registration sent twice gets the same incarnation. From the moment of this snapshot on
    the node refuses commands of older epochs and incarnations, so whatever was launched before is in `held` or never will
    be. `starts` numbers the sessions of this `node_uid`: a lower one is a late message of a predecessor (0: from an agent
    that does not count them).
    """

    name: str
    node_uid: str
    boot_id: str
    session: str
    epoch: int
    endpoint: str
    total: Vector
    held: tuple[HeldAttempt, ...] = ()
    starts: int = 0
    resources: tuple[tuple[str, int], ...] = ()
    """Configured resources that the node has counted itself, by name; the others are unknown to it."""
    device_model: str = ""
    login: bool = False
    """True for a login host, where no job may run."""
    protocol: int = 0
    """See `AGENT_PROTOCOL`."""
    phases: tuple[str, ...] = ()
    """Programs that this node's own configuration names: prolog, epilog, check."""
    contained: tuple[str, ...] = ()
    """Effects of control groups on jobs here (`core.model.node.CONTAINMENT`); empty: there are none."""


class CoresReported(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="cores_reported", gc=False
):
    """The application's word for the cores of its attempt on this node, see `lending.CoreReport` (R-01, R-03).

    The latest one of an attempt replaces those before; it is no fact.
    """

    node: int
    incarnation: int
    job_id: int
    attempt: int
    idle: int
    excluded: int = 0
    remaining_s: int = -1
    rejects: bool = False


ReportBody: TypeAlias = (
    Registration
    | StepEnded
    | NodeGone
    | PhaseReported
    | CheckPassed
    | GatewayReported
    | CoresReported
    | TasksOver
    | HealthReported
)


class Report(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One spooled message of an agent process. `(process, seq)` is its identity for the acknowledgement."""

    process: str
    seq: int
    body: ReportBody


class RegistrationReply(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Comes with the acknowledgement of a `Registration`. `refused` is the reason (wrong cluster, live twin, unknown
    name).
    """

    name: str
    number: int = -1
    incarnation: int = 0
    epoch: int = 0
    owner: str = ""
    refused: str = ""
    login: bool = False
    """True when it was accepted as a login host."""
    faults: tuple[tuple[str, int], ...] = ()
    """The node's standing faults, each (kind, job)."""
    failing: tuple[str, ...] | None = None
    """Names of health checks that fail as far as the controller knows; None: it is of an earlier release, and knows none."""


class ReportAck(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The controller has committed these reports by `revision`; the agent forgets them."""

    process: str
    seqs: tuple[int, ...]
    registrations: tuple[RegistrationReply, ...] = ()
    revision: int = 0
