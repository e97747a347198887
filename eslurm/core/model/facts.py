"""Facts: results of `decide`, input of `apply`. The log holds facts, never messages.

Each is typed and versioned (`VERSION`); fields are only appended, with defaults, and a change of meaning gets a new
version plus an upcast in `UPCASTS`, so new code reads an old log. A fact carries everything that `apply` needs besides its
revision and time, all of it immutable: the collector need not look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import msgspec

from eslurm.core.model.accounts import Policy
from eslurm.core.model.amounts import Vector
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.crontab import Crontab
from eslurm.core.model.federation import FederationWish, Outcome
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.guests import Guest, GuestOf, JointStep
from eslurm.core.model.job import Dependency, JobSpec, Span, StepEnd, Stop
from eslurm.core.model.job_states import JobState
from eslurm.core.model.lending import Loan
from eslurm.core.model.member import JoinToken, Member, Revocation
from eslurm.core.model.moves import ExtendWish
from eslurm.core.model.node_health import FailingCheck
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.pack import MoveWish, PackPlace
from eslurm.core.model.promise import Promise
from eslurm.core.model.retry import Retried
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.model.step_claim import NumberedDevices, StepClaim, StepDemand, StepFiles
from eslurm.core.model.step_input import StepInput
from eslurm.core.model.step_key import BATCH_STEP
from eslurm.core.model.token import IssuedToken
from eslurm.core.model.transfer import Transfer


class FactBase(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Base of all facts."""

    VERSION: ClassVar[int] = 1


# ---- the cluster ----


class ConfigAccepted(FactBase, frozen=True, tag=True):
    """This configuration is in force from now on. Nodes it adds get the `numbers` given here.

    `digest` is that of the file it was read from; empty: nothing was read.
    """

    config: ClusterConfig
    numbers: tuple[tuple[str, int], ...]
    digest: bytes = b""


class PartitionSet(FactBase, frozen=True, tag=True):
    """An operator gives a partition this state, which lasts until it gets another one."""

    name: str
    state: str


class EpochBegan(FactBase, frozen=True, tag=True):
    """A controller started to lead: until a node has registered under this epoch it is UNKNOWN."""

    epoch: int


class IdsLeased(FactBase, frozen=True, tag=True):
    """Job ids below `end` belong to this controller."""

    end: int


# ---- nodes ----


class NodeRegistered(FactBase, frozen=True, tag=True):
    number: int
    node_uid: str
    boot_id: str
    session: str
    incarnation: int
    epoch: int
    endpoint: str
    total: tuple[int, ...]
    starts: int = 0
    protocol: int = 0
    phases: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()


class NodeStateChanged(FactBase, frozen=True, tag=True):
    """By the heartbeat rule, by a timer, or by an administrator (LOST)."""

    number: int
    state: NodeState
    reason: str = ""


class NodeDrainChanged(FactBase, frozen=True, tag=True):
    number: int
    drain: bool
    reason: str = ""


class NodeSetAside(FactBase, frozen=True, tag=True):
    """Launches of different jobs have failed on the node: it gets no work until it is tried again (C-43)."""

    number: int
    until_us: int
    jobs: tuple[int, ...]


class NodeTriedAgain(FactBase, frozen=True, tag=True):
    """A node that was set aside may get work; the next failed launch sets it aside for longer."""

    number: int


class NodeFaulted(FactBase, frozen=True, tag=True):
    """A prolog or epilog failed, or (without a job) the node's clock is too far ahead: it gets no new work until the fault
    is cleared, or is tried again at `until_us`.
    """

    number: int
    kind: str
    text: str
    job_id: int
    attempt: int
    until_us: int = 0
    took_us: int = 0
    """Duration of the program's run; 0: not known."""


class NodeCleared(FactBase, frozen=True, tag=True):
    """Faults of these kinds stand no longer: the check has passed, the clock is right, or the node is tried again."""

    number: int
    kinds: tuple[str, ...]


class NodeHealthReported(FactBase, frozen=True, tag=True):
    """These health checks of the node fail and no others: it gets no new work until all pass. `serial` is the report's."""

    number: int
    serial: int
    failing: tuple[FailingCheck, ...] = ()


class OrphanFound(FactBase, frozen=True, tag=True):
    """A node holds an attempt that the controller does not know, and has to end it."""

    number: int
    job_id: int
    attempt: int


# ---- satellites ----


class SatelliteChanged(FactBase, frozen=True, tag=True):
    """DOWN (too long in FAULT, or an administrator) or UNKNOWN (resumed). Other states are not worth a fact."""

    name: str
    state: SatelliteState
    reason: str = ""


# ---- jobs ----


class JobSubmitted(FactBase, frozen=True, tag=True):
    """`open` are the dependencies still to be met; `not_before_us` is 0 or the begin time."""

    job_id: int
    spec: JobSpec
    priority: int
    open: tuple[Dependency, ...] = ()
    not_before_us: int = 0
    pack: PackPlace | None = None
    transfer: Transfer | None = None
    """Of a job that arrives from another cell; its id is of that cell."""
    guest_of: GuestOf | None = None
    """Of a job that holds nodes for another cell's."""
    is_wide: bool = False
    """It may span cells, and this one alone can never run it."""


class JobChanged(FactBase, frozen=True, tag=True):
    """A user or administrator changed what was asked. `was_named` is the old name if that changed (`singleton`); `open` are
    the dependencies still to be met if those were changed.
    """

    job_id: int
    spec: JobSpec
    priority: int
    not_before_us: int
    was_named: str = ""
    open: tuple[Dependency, ...] | None = None


class JobsForecast(FactBase, frozen=True, tag=True):
    """Expected runtimes: (job, forecast) pairs by the model of this name."""

    forecasts: tuple[tuple[int, Forecast], ...]
    model: str = ""


class JobsPromised(FactBase, frozen=True, tag=True):
    """New promised starts of these waiting jobs; a job without a start has none any more."""

    promises: tuple[Promise, ...]


class JobHeld(FactBase, frozen=True, tag=True):
    """`hold` is the author of the hold: user, account, admin or system; "" releases the job."""

    job_id: int
    hold: str
    text: str = ""


class JobDue(FactBase, frozen=True, tag=True):
    """The time before which the job must not start has passed."""

    job_id: int


class DependenciesChanged(FactBase, frozen=True, tag=True):
    """These dependencies are left; `not_before_us` comes from `after:ID+minutes`."""

    job_id: int
    open: tuple[Dependency, ...]
    not_before_us: int = 0


class TasksReleased(FactBase, frozen=True, tag=True):
    """`aftercorr`: these tasks of the array may start."""

    job_id: int
    tasks: tuple[tuple[int, int], ...]


class TasksDropped(FactBase, frozen=True, tag=True):
    """These waiting tasks of the array will never run (cancelled, or `aftercorr` never met)."""

    job_id: int
    tasks: tuple[tuple[int, int], ...]
    text: str = ""


class JobPlaced(FactBase, frozen=True, tag=True):
    """A new attempt holds these spans. For a task of an array, `job_id` is new and `array_job_id`/`task` say which.

    Its start was planned `late_us` earlier. `anchor_us`: it is the first member of a pack, which begins with it; the starts
    of the other members are counted from then.
    """

    job_id: int
    attempt: int
    spans: tuple[Span, ...]
    until_us: int
    array_job_id: int = 0
    task: int = -1
    wide: tuple[int, ...] = ()
    late_us: int = 0
    anchor_us: int = 0
    loans: tuple[Loan, ...] = ()
    """Cores of the spans that running jobs lend it."""


class NodesPrepared(FactBase, frozen=True, tag=True):
    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    prolog_us: int = 0
    """Duration of its only node's prolog; 0: it had none."""


class NodesPreparing(FactBase, frozen=True, tag=True):
    """These nodes have the launch and run their prolog; reports of its end are due by `until_us`."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    until_us: int


class AttemptStarted(FactBase, frozen=True, tag=True):
    job_id: int
    attempt: int
    started_us: int


class StopRequested(FactBase, frozen=True, tag=True):
    job_id: int
    attempt: int
    stop: Stop


class JobSignalled(FactBase, frozen=True, tag=True):
    """A user sends a signal to the running job; it is delivered at most once."""

    job_id: int
    attempt: int
    signal: int
    by: str
    step: int = BATCH_STEP
    """The step that gets it, on all of its nodes."""


class AttemptSuspended(FactBase, frozen=True, tag=True):
    """The attempt's processes have to stop where they are (or to go on); it keeps what it holds.

    With `room_for` (a job) it keeps all but its cores, once its nodes have acknowledged. `by`: "by alice".
    """

    job_id: int
    attempt: int
    suspended: bool
    by: str = ""
    room_for: int = 0


class TimeChanged(FactBase, frozen=True, tag=True):
    """The running attempt has another time limit from now on; its nodes get it (C-40)."""

    job_id: int
    attempt: int
    time_limit_s: int
    until_us: int


class JobNoted(FactBase, frozen=True, tag=True):
    """The started job has another comment. Its nodes and its scripts keep the one that it was launched with."""

    job_id: int
    comment: str


class MoveAsked(FactBase, frozen=True, tag=True):
    """A pack that has begun wishes its other jobs to start earlier; the planner is to answer."""

    pack_id: int
    wish: MoveWish


class PackMoved(FactBase, frozen=True, tag=True):
    """The answer to the wish of that serial: (job, start) of the jobs that are to start earlier; none: it was refused."""

    pack_id: int
    serial: int
    starts: tuple[tuple[int, int], ...]
    text: str


class ExtensionAsked(FactBase, frozen=True, tag=True):
    """A running job wishes a longer time limit; the planner is to answer."""

    job_id: int
    attempt: int
    wish: ExtendWish


class ExtensionAnswered(FactBase, frozen=True, tag=True):
    """The answer to the wish of that serial; `TimeChanged` goes before it where the limit changes."""

    job_id: int
    attempt: int
    serial: int
    text: str


class AttemptInformed(FactBase, frozen=True, tag=True):
    """These nodes have done what `AttemptSuspended` or `TimeChanged` of that revision says."""

    job_id: int
    attempt: int
    revision: int
    nodes: tuple[int, ...]


class CoresExcluded(FactBase, frozen=True, tag=True):
    """The application of a running attempt is to leave so many cores to others on each of these nodes.

    More than before is lent when the node has confirmed it; less counts from now on.
    """

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    cores: int


class CoresConfirmed(FactBase, frozen=True, tag=True):
    """These nodes have done what `CoresExcluded` of that revision says; those `refused` have left it as it was."""

    job_id: int
    attempt: int
    revision: int
    nodes: tuple[int, ...]
    refused: tuple[int, ...] = ()


class CoresAsked(FactBase, frozen=True, tag=True):
    """The application is asked to leave that many more cores of this node to a waiting job (R-02). It may reject."""

    job_id: int
    attempt: int
    node: int
    cores: int
    for_job: int


class AttemptEnded(FactBase, frozen=True, tag=True):
    """The script has ended, or certainly never ran and never will (`end` None).

    `outcome` is the final state, or PENDING for another attempt not before `not_before_us`. `released` nodes are free now;
    the others get an order. With `residue` (the script never ran) the job need not wait for them.
    """

    job_id: int
    attempt: int
    outcome: JobState
    end: StepEnd | None = None
    released: tuple[int, ...] = ()
    avoid: tuple[int, ...] = ()
    not_before_us: int = 0
    text: str = ""
    residue: bool = False
    avoid_until_us: int = 0
    """Time until which another attempt avoids the nodes in `avoid`."""
    blamed: tuple[int, ...] = ()
    """Nodes that said that they could not launch it."""
    retry: Retried | None = None
    """The next attempt is a retry, with these limits."""


class AttemptReturned(FactBase, frozen=True, tag=True):
    """The first node of an attempt that was given up is back and says how its script ended: accounting gets that end."""

    job_id: int
    attempt: int
    end: StepEnd


class AvoidanceEnded(FactBase, frozen=True, tag=True):
    """A waiting job may be launched again on the nodes where a launch of it failed."""

    job_id: int


class NodesReleased(FactBase, frozen=True, tag=True):
    """Nothing of the attempt is left on these nodes."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    epilog_us: int = 0
    """Duration of its only node's epilog, which went well; 0: it had none."""


class NodesLost(FactBase, frozen=True, tag=True):
    """A running job goes on without these nodes, which it has just given back (`JobSpec.no_kill`)."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    text: str = ""


class PartFinished(FactBase, frozen=True, tag=True):
    """A running job gives one of its parts back. Nodes that no other part has are released when nothing is left there."""

    job_id: int
    attempt: int
    component: int
    by: str


class JobShrunk(FactBase, frozen=True, tag=True):
    """A running job gives these nodes back. They are released when nothing of it is left there."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    by: str


class GrowthAsked(FactBase, frozen=True, tag=True):
    """A running job wishes further nodes. `spec` is that of the growth's record, `apart` the nodes that it has or had."""

    job_id: int
    attempt: int
    growth_id: int
    spec: JobSpec
    priority: int
    apart: tuple[int, ...]
    by: str = ""
    """Its user; empty: the job is elastic."""


class GrowthPlaced(FactBase, frozen=True, tag=True):
    """The running job holds these spans, too; their nodes are to be prepared for it."""

    job_id: int
    attempt: int
    growth_id: int
    spans: tuple[Span, ...]


class GrowthPreparing(FactBase, frozen=True, tag=True):
    """These nodes have the launch and run their prolog; reports of its end are due by `until_us`."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    until_us: int


class NodesJoined(FactBase, frozen=True, tag=True):
    """These nodes of a growth are ready. When all are, steps get them; the growth's record ends with the next fact."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]
    prolog_us: int = 0
    """Duration of its only node's prolog; 0: it had none."""


class GrowthFailed(FactBase, frozen=True, tag=True):
    """The nodes of a growth could not be prepared: the job gives them back, and the growth waits for others."""

    job_id: int
    attempt: int
    growth_id: int
    not_before_us: int
    text: str
    blamed: tuple[int, ...] = ()
    """Nodes that said that they could not launch it."""


class GatewaysStaged(FactBase, frozen=True, tag=True):
    """The gateways of an attempt enter this stage (`model.gateways`), which has to be over by `until_us` (0: no limit).

    The first stage begins without this fact, when the last node is prepared.
    """

    job_id: int
    attempt: int
    stage: GatewayStage
    until_us: int = 0
    text: str = ""


class GatewaysAnswered(FactBase, frozen=True, tag=True):
    """These nodes have started the step of the present stage."""

    job_id: int
    attempt: int
    nodes: tuple[int, ...]


class GatewayUp(FactBase, frozen=True, tag=True):
    """The daemons of this gateway have told their addresses."""

    job_id: int
    attempt: int
    node: int
    addresses: tuple[str, ...]


class GatewayDown(FactBase, frozen=True, tag=True):
    """A daemon of this gateway ended while the job runs, which goes on."""

    job_id: int
    attempt: int
    node: int
    text: str


class ControllerPhaseBegan(FactBase, frozen=True, tag=True):
    """The program of a phase is started on the controller's host: the first time (`run` 1), or again by a new leader."""

    job_id: int
    attempt: int
    phase: str
    run: int


class ControllerPhaseEnded(FactBase, frozen=True, tag=True):
    """That program has ended: well, or as `end` says."""

    job_id: int
    attempt: int
    phase: str
    run: int
    end: StepEnd


class JobFinished(FactBase, frozen=True, tag=True):
    """A job without a live attempt reaches its final state (cancelled while waiting, dependency never met).

    A job that is giving resources back before another attempt, and an array with live tasks, reach it when those
    have ended. A growth reaches it when its nodes have joined (COMPLETED), or when it is withdrawn.
    """

    job_id: int
    state: JobState
    text: str = ""
    never_met: bool = False
    """Its dependency can never be met."""


class JobsForgotten(FactBase, frozen=True, tag=True):
    """Finished jobs leave memory; accounting keeps them."""

    job_ids: tuple[int, ...]


# ---- steps ----


class StepCreated(FactBase, frozen=True, tag=True):
    """`layout` gives (node, tasks) in order; of a step that waits for its turn it is empty."""

    job_id: int
    attempt: int
    step: int
    name: str
    layout: tuple[tuple[int, int], ...]
    argv: tuple[str, ...]
    environment_hash: bytes
    work_dir: str
    endpoint: str
    cookie: bytes
    cpus_per_task: int = 1
    component: int = 0
    rank_first: int = 0
    tasks_total: int = 0
    first: int = -1
    """Number of the first of several steps that form one, a step for each part; -1: this step is alone."""
    others: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Of the first of them: (component, layout) of the further ones, whose numbers follow."""
    joint: JointStep | None = None
    """It is this cell's part of a step over several."""
    input: StepInput | None = None
    """None: its tasks have no input."""
    mpi: str = ""
    claim: StepClaim | None = None
    """None: it shares what other steps have."""
    demand: StepDemand | None = None
    """It waits for its turn; None: it has what it asked for."""
    takes: tuple[Vector, ...] = ()
    """Amounts that its claim takes on each node of `layout`."""
    devices: NumberedDevices = ()
    """The numbered devices among them."""
    time_limit_s: int = 0
    files: StepFiles | None = None
    """It runs without its command."""

    @property
    def is_counted(self) -> bool:
        """Check whether its nodes say when none of its tasks is left."""
        return self.claim is not None or self.files is not None


class StepGranted(FactBase, frozen=True, tag=True):
    """It is the turn of a step that has waited: what `StepCreated` had left open."""

    job_id: int
    step: int
    layout: tuple[tuple[int, int], ...]
    rank_first: int = 0
    tasks_total: int = 0
    others: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    takes: tuple[Vector, ...] = ()
    devices: NumberedDevices = ()


class StepAnswered(FactBase, frozen=True, tag=True):
    job_id: int
    step: int
    started: tuple[int, ...]
    failed: tuple[tuple[int, str], ...] = ()


class StepFinished(FactBase, frozen=True, tag=True):
    job_id: int
    step: int
    exit_code: int
    signal: int


class MailReached(FactBase, frozen=True, tag=True):
    """So many percent of the running attempt's time limit are over, which its user wants to hear of."""

    job_id: int
    attempt: int
    percent: int


class MailTold(FactBase, frozen=True, tag=True):
    """The job's message of this number was sent, or is given up."""

    job_id: int
    number: int


class TasksEnded(FactBase, frozen=True, tag=True):
    """None of a step's tasks is left on these nodes, where the worst of them ended so; 128 + N by signal N."""

    job_id: int
    step: int
    nodes: tuple[int, ...]
    exit_code: int = 0
    signal: int = 0


# ---- policies ----


class PolicySet(FactBase, frozen=True, tag=True):
    """An account, user, QOS, limit, FreePool, reservation or default is from now on like this."""

    policy: Policy


class PolicyRemoved(FactBase, frozen=True, tag=True):
    kind: str
    name: str


# ---- tokens ----


class TokenIssued(FactBase, frozen=True, tag=True):
    """This token is good from now on. The token itself is written nowhere."""

    token: IssuedToken


class TokensRevoked(FactBase, frozen=True, tag=True):
    ids: tuple[bytes, ...]
    by: str


class TokensExpired(FactBase, frozen=True, tag=True):
    ids: tuple[bytes, ...]


class CrontabSet(FactBase, frozen=True, tag=True):
    """A user's crontab is from now on like this; without a text there is none."""

    crontab: Crontab


# ---- members ----


class JoinTokenMade(FactBase, frozen=True, tag=True):
    """Hosts may join with this token from now on. Its secret is written nowhere."""

    token: JoinToken


class JoinTokensEnded(FactBase, frozen=True, tag=True):
    """These join tokens are void. `by` revoked them; empty: their time is over."""

    ids: tuple[bytes, ...]
    by: str = ""


class HostJoined(FactBase, frozen=True, tag=True):
    """A host is a member; where it names a token, one of the token's uses is spent."""

    member: Member


class MembersRevoked(FactBase, frozen=True, tag=True):
    """These memberships are no longer valid. `revision` is that of the sealed list which says so."""

    revocations: tuple[Revocation, ...]
    revision: int


# ---- the federation ----


class FederationChanged(FactBase, frozen=True, tag=True):
    """An administrator lets this cell drain, take work again, leave or come back; the shared store follows."""

    wish: FederationWish


class IdBlockTaken(FactBase, frozen=True, tag=True):
    """The cell draws its next ids from this range (`IdRange`) instead of those that it has by its own word."""

    first: int
    count: int
    version: int = 0


class JobOffered(FactBase, frozen=True, tag=True):
    """Another cell may take this waiting job. The offer's serial is this fact's revision."""

    job_id: int
    cell: str


class OfferCancelled(FactBase, frozen=True, tag=True):
    """The job is to be cancelled in the cell that turns out to own it."""

    job_id: int
    by: str


class OfferEnded(FactBase, frozen=True, tag=True):
    """The offer was withdrawn: this cell owns the job."""

    job_id: int
    serial: int


class JobTransferred(FactBase, frozen=True, tag=True):
    """The cell that it was offered to owns the job."""

    job_id: int
    serial: int


class TransferEnded(FactBase, frozen=True, tag=True):
    """The outcome in the cell that owned the job, or an administrator has given it up."""

    job_id: int
    serial: int
    outcome: Outcome


class ArrivalConfirmed(FactBase, frozen=True, tag=True):
    """This cell owns the job of another cell that has arrived."""

    job_id: int
    serial: int


class ArrivalDropped(FactBase, frozen=True, tag=True):
    """The offer was withdrawn: nothing is left of the job here."""

    job_id: int
    serial: int


class OutcomeTold(FactBase, frozen=True, tag=True):
    """The shared store has the outcome of another cell's job."""

    job_id: int
    serial: int


class GuestsAsked(FactBase, frozen=True, tag=True):
    """Other cells are asked for nodes for a waiting job. The serial of its guests is this fact's revision."""

    job_id: int
    own_nodes: int
    guests: tuple[Guest, ...]


class GuestsHeld(FactBase, frozen=True, tag=True):
    """All guests hold their nodes: the job is to start on its own part of the nodes."""

    job_id: int
    serial: int
    guests: tuple[Guest, ...]


class GuestsGivenUp(FactBase, frozen=True, tag=True):
    """The guests are not needed any more: not all of them came, the job did not start in time, or it runs again."""

    job_id: int
    serial: int
    text: str = ""


class GuestGone(FactBase, frozen=True, tag=True):
    """A guest has ended in its cell, or never was there."""

    job_id: int
    serial: int
    cell: str


class GuestKept(FactBase, frozen=True, tag=True):
    """The job of another cell has started: its guest here holds the nodes as long as that runs."""

    job_id: int


Fact: TypeAlias = (
    ConfigAccepted
    | EpochBegan
    | IdsLeased
    | NodeRegistered
    | NodeStateChanged
    | NodeDrainChanged
    | OrphanFound
    | SatelliteChanged
    | JobSubmitted
    | JobChanged
    | JobHeld
    | JobDue
    | DependenciesChanged
    | TasksReleased
    | TasksDropped
    | JobPlaced
    | NodesPrepared
    | AttemptStarted
    | StopRequested
    | JobSignalled
    | AttemptSuspended
    | JobsForecast
    | JobsPromised
    | TimeChanged
    | AttemptInformed
    | AttemptEnded
    | AttemptReturned
    | NodesReleased
    | JobFinished
    | JobsForgotten
    | MailReached
    | MailTold
    | StepCreated
    | StepAnswered
    | StepFinished
    | StepGranted
    | TasksEnded
    | PolicySet
    | PolicyRemoved
    | NodeSetAside
    | NodeTriedAgain
    | AvoidanceEnded
    | TokenIssued
    | TokensRevoked
    | TokensExpired
    | CrontabSet
    | PartitionSet
    | JoinTokenMade
    | JoinTokensEnded
    | HostJoined
    | MembersRevoked
    | NodesPreparing
    | NodeFaulted
    | NodeCleared
    | NodeHealthReported
    | NodesLost
    | PartFinished
    | GatewaysStaged
    | GatewaysAnswered
    | GatewayUp
    | GatewayDown
    | MoveAsked
    | PackMoved
    | ExtensionAsked
    | ExtensionAnswered
    | ControllerPhaseBegan
    | ControllerPhaseEnded
    | FederationChanged
    | IdBlockTaken
    | JobOffered
    | OfferCancelled
    | OfferEnded
    | JobTransferred
    | TransferEnded
    | ArrivalConfirmed
    | ArrivalDropped
    | OutcomeTold
    | GuestsAsked
    | GuestsHeld
    | GuestsGivenUp
    | GuestGone
    | GuestKept
    | JobShrunk
    | GrowthAsked
    | GrowthPlaced
    | GrowthPreparing
    | NodesJoined
    | GrowthFailed
    | CoresExcluded
    | CoresConfirmed
    | CoresAsked
    | JobNoted
)

UPCASTS: dict[tuple[str, int], Callable[[list[Any]], list[Any]]] = {}
"""(kind, version) -> a function from that version's raw fields to the next version's."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Fact] = msgspec.msgpack.Decoder(Fact)


def encode_fact(fact: Fact) -> tuple[str, int, bytes]:
    """A fact as (kind, version, bytes) for the log."""
    return type(fact).__name__, fact.VERSION, _encoder.encode(fact)


def decode_fact(kind: str, version: int, blob: bytes) -> Fact:
    """A fact from the log, upcast to today's version.

    Raises `msgspec.ValidationError` for bytes that are no such fact.
    """
    if (kind, version) not in UPCASTS:
        return _decoder.decode(blob)
    raw: list[Any] = msgspec.msgpack.decode(blob)
    while (upcast := UPCASTS.get((kind, version))) is not None:
        raw, version = upcast(raw), version + 1
    fact: Fact = msgspec.convert(raw, Fact)
    return fact
