"""Messages to the controller's core. `decide` turns one message into facts and an answer.

Requests come from users through the API and carry their principal; the others come from nodes, links and timers and use
the inbox lane that is never refused.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from eslurm.core.model.accounts import Policy
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.federation import Outcome
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.guests import Guest, GuestOf, JointStep
from eslurm.core.model.job import Dependency, JobSpec, Principal, StepEnd
from eslurm.core.model.member import Revocation
from eslurm.core.model.moves import ExtendGrant, MoveGrant
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.placement import Placement
from eslurm.core.model.promise import Promise
from eslurm.core.model.protocol import Report
from eslurm.core.model.request import Request as ResourceRequest
from eslurm.core.model.step_claim import ClaimWish, StepFiles
from eslurm.core.model.step_input import StepInput


class RefusalCode(enum.Enum):
    """Class of a refusal; the API maps it to a status, commands to an exit code."""

    INVALID = "invalid"
    INFEASIBLE = "infeasible"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    CONFLICT = "conflict"
    EXHAUSTED = "exhausted"
    INTERNAL = "internal"


class Refused(Exception):
    """The refusal of one message, which has no effect. `text` names the thing, the value and the way out."""

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


# ---- requests ----


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A job that another cell offers: its home, its id there, the serial of the offer."""

    home: str
    job_id: int
    serial: int


class SubmitJobs(msgspec.Struct, frozen=True, gc=False):
    """Accept all of these jobs or none; some of them form packs. Answer: `Submitted`.

    `arrival`: the one job is another cell's, which offers it to this one. `guest_of`: it holds nodes for another cell's job.
    """

    specs: tuple[JobSpec, ...]
    packs: tuple[PackDraft, ...] = ()
    arrival: Arrival | None = None
    guest_of: GuestOf | None = None


class JobRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """A job, one task of an array (`task >= 0`), one part of either (`part >= 0`), as users write it: 17, 17_4, 17+1.

    `job_id` may also be the id of a part.
    """

    job_id: int
    task: int = -1
    part: int = -1


class CancelJobs(msgspec.Struct, frozen=True, gc=False):
    """End jobs, or only signal them (`signal > 0`). Answer: `Changed`.

    An empty `jobs` selects by user, name, partition or state; a state selects only those tasks of an array that are in it.
    `lost`: the other cell of these jobs is lost for good, so that no outcome of theirs will ever come.
    """

    by: Principal
    jobs: tuple[JobRef, ...] = ()
    user: str = ""
    name: str = ""
    partition: str = ""
    state: str = ""
    signal: int = 0
    lost: bool = False
    reach: str = ""
    """Of a signal: `steps`, `all`, or empty: the script with what it has started, which `all` reaches, too."""
    cron: bool = False
    """End jobs of crontabs, too: their lines are disabled."""


class HoldJobs(msgspec.Struct, frozen=True, gc=False):
    """Hold pending jobs, or release them (`release`). Answer: `Changed`.

    Only an administrator releases an administrator's hold.
    """

    by: Principal
    jobs: tuple[JobRef, ...]
    release: bool = False


class RequeueJobs(msgspec.Struct, frozen=True, gc=False):
    """End the jobs' attempts and put the jobs back into the queue, on hold if `hold`. Answer: `Changed`."""

    by: Principal
    jobs: tuple[JobRef, ...]
    hold: bool = False


class UpdateJob(msgspec.Struct, frozen=True, gc=False):
    """Change a pending job's parameters; None leaves one as it is. Answer: `Changed`.

    `request` is the complete new request; `was` the request on which it was based (`option_text.asked_words`): if that is
    outdated, nothing is changed. `dependencies` replace all present ones; `dependency_any` goes with them. With
    `dry_run` all is checked and nothing changed.
    """

    by: Principal
    job: JobRef
    name: str | None = None
    partition: str | None = None
    time_limit_s: int | None = None
    priority: int | None = None
    begin_us: int | None = None
    comment: str | None = None
    nodes_min: int | None = None
    nodes_max: int | None = None
    array_limit: int | None = None
    qos: str | None = None
    account: str | None = None
    reservation: str | None = None
    nice: int | None = None
    deadline_us: int | None = None
    constraint: str | None = None
    request: ResourceRequest | None = None
    was: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] | None = None
    dependency_any: bool | None = None
    dry_run: bool = False
    wckey: str | None = None
    output: str | None = None
    error: str | None = None
    input: str | None = None
    work_dir: str | None = None


class CronJob(msgspec.Struct, frozen=True, gc=False):
    """A line of a crontab as a job, whose `cron` says when it runs; `first` is the line of its first option (0: its own)."""

    line: int
    spec: JobSpec
    first: int = 0


class SetCrontab(msgspec.Struct, frozen=True, gc=False):
    """Replace the crontab of the user `uid`; without a text it is removed. Answer: `Changed`."""

    by: Principal
    uid: int
    user: str
    text: str
    jobs: tuple[CronJob, ...] = ()


class SuspendJobs(msgspec.Struct, frozen=True, gc=False):
    """Suspend running jobs, or resume them (operators only). Answer: `Changed`."""

    by: Principal
    jobs: tuple[JobRef, ...]
    resume: bool = False


class MovePack(msgspec.Struct, frozen=True, gc=False):
    """Start the jobs of a begun pack that have not begun earlier (D-06): by `earlier_us`, or such that the first of them
    starts at `to_us`; both 0: as early as possible. `job` is any of the pack. Answer: `MoveTaken`.
    """

    by: Principal
    job: JobRef
    earlier_us: int = 0
    to_us: int = 0


class ExtendJob(msgspec.Struct, frozen=True, gc=False):
    """Give a running job a time limit that is longer by `by_s`, or `to_s` in all, as far as no other job is planned there.
    Answer: `ExtensionTaken`.
    """

    by: Principal
    job: JobRef
    by_s: int = 0
    to_s: int = 0


class ResizeJob(msgspec.Struct, frozen=True, gc=False):
    """Change the nodes of a running job in place. Answer: `Resized`.

    One of these says how: `by_nodes` more (below 0: fewer), `to_nodes` in all, `nodes` are those that it is to have,
    `without` those that it gives back. With `dry_run` nothing changes.
    """

    by: Principal
    job: JobRef
    by_nodes: int = 0
    to_nodes: int = 0
    nodes: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    dry_run: bool = False


class SetForecasts(msgspec.Struct, frozen=True, gc=False):
    """Expected runtimes of jobs from an estimator. Jobs that have ended meanwhile are skipped."""

    by: Principal
    forecasts: tuple[tuple[int, Forecast], ...]
    model: str = ""


class ReservedNodes(msgspec.Struct, frozen=True, gc=False):
    """Number of nodes (0: all) for a reservation, chosen when it is set: of a partition, with a feature (empty: any)."""

    count: int
    partition: str = ""
    feature: str = ""


class ReservedTime(msgspec.Struct, frozen=True, gc=False):
    """Begin and end of a reservation (0: not given)."""

    start_us: int = 0
    end_us: int = 0
    duration_s: int = 0


class PolicyChange(msgspec.Struct, frozen=True, gc=False):
    """`action` is add, modify, set (add or replace) or delete.

    Modify takes the fields named in `given` from `policy`; names of those also in `added` or `removed` are added to the
    present ones or removed from them. `choose` and `time` complete the record of a reservation.
    """

    action: str
    kind: str
    name: str
    policy: Policy | None = None
    given: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    choose: ReservedNodes | None = None
    time: ReservedTime | None = None


class ChangePolicies(msgspec.Struct, frozen=True, gc=False):
    """All of these changes or none. Answer: `Changed`."""

    by: Principal
    changes: tuple[PolicyChange, ...]


class UpdateNodes(msgspec.Struct, frozen=True, gc=False):
    """`action` is drain, resume or lost (the administrator vouches that nothing runs there any more). Answer: `Changed`."""

    by: Principal
    names: tuple[str, ...]
    action: str
    reason: str = ""


class TopJob(msgspec.Struct, frozen=True, gc=False):
    """Put a waiting job before the other waiting jobs of its user. Answer: `Changed`.

    `ranks` are (job, priority) of those that wait for nodes, as they were ranked last.
    """

    by: Principal
    job: JobRef
    ranks: tuple[tuple[int, int], ...] = ()


class UpdatePartitions(msgspec.Struct, frozen=True, gc=False):
    """Give partitions a state: UP, DOWN, DRAIN or INACTIVE. Answer: `Changed`."""

    by: Principal
    names: tuple[str, ...]
    state: str


class UpdateSatellites(msgspec.Struct, frozen=True, gc=False):
    """`action` is down or resume; `known` are the configured satellites. Answer: `Changed`."""

    by: Principal
    names: tuple[str, ...]
    action: str
    reason: str = ""
    known: tuple[str, ...] = ()


class StepProgram(msgspec.Struct, frozen=True, gc=False):
    """The program of a step in one part of a job, and its number of tasks."""

    argv: tuple[str, ...]
    tasks: int = 0
    nodes: int = 0
    cpus_per_task: int = 1


class CreateStep(msgspec.Struct, frozen=True, gc=False):
    """A running job's owner starts tasks on its nodes. Answer: `StepCreated`.

    It runs in these parts of the job, in the order of ranks: each program in its own part; without programs, `argv` with
    its numbers in each.
    """

    by: Principal
    job_id: int
    tasks: int
    nodes: int
    argv: tuple[str, ...]
    environment_hash: bytes
    work_dir: str
    endpoint: str
    cookie: bytes
    cpus_per_task: int = 1
    name: str = ""
    components: tuple[int, ...] = (0,)
    programs: tuple[StepProgram, ...] = ()
    joint: JointStep | None = None
    """It is this cell's part of a step over several."""
    tasks_open: bool = False
    """The script's environment says `tasks`: where the job's nodes have changed since, those of the moment count."""
    nodes_open: bool = False
    input: StepInput | None = None
    mpi: str = ""
    node_names: tuple[str, ...] = ()
    """Its tasks go to these nodes of the job; empty: to the first ones."""
    claim: ClaimWish | None = None
    """None: it shares what other steps have."""
    is_immediate: bool = False
    """Refuse it when it would have to wait."""
    time_limit_s: int = 0
    """0: the step may run as long as its job."""
    files: StepFiles | None = None
    """It runs without its command, and its tasks write to these files. Then `endpoint` and `cookie` are empty."""


class FinishStep(msgspec.Struct, frozen=True, gc=False):
    """The exit status of a step from its own command, merged over all tasks. Answer: `Changed`."""

    by: Principal
    job_id: int
    step: int
    exit_code: int
    signal: int = 0


class ReleaseJob(msgspec.Struct, frozen=True, gc=False):
    """The command of an allocation without a script has ended with this code: give the nodes back. Answer: `Changed`."""

    by: Principal
    job_id: int
    exit_code: int = 0


class EndUnattended(msgspec.Struct, frozen=True, gc=False):
    """The commands of these jobs have not been heard of for `silent_s` seconds. No answer."""

    job_ids: tuple[int, ...]
    silent_s: float


class FinishPart(msgspec.Struct, frozen=True, gc=False):
    """Give back one part of a running job (`job.part`, or a part's own id). Answer: `PartGivenBack`.

    Refused while steps run in it, unless `kill`: then they get SIGKILL. With `dry_run` nothing changes.
    """

    by: Principal
    job: JobRef
    kill: bool = False
    dry_run: bool = False


class CreateToken(msgspec.Struct, frozen=True, gc=False):
    """Make a token that lets its bearer act as `of`. `id` is random. Answer: `TokenMade`."""

    by: Principal
    of: Principal
    id: bytes
    scope: str
    life_s: int


class RevokeTokens(msgspec.Struct, frozen=True, gc=False):
    """Revoke the tokens with these ids and all tokens of `user` (empty: none). Answer: `Changed`."""

    by: Principal
    ids: tuple[bytes, ...] = ()
    user: str = ""


class CreateJoinToken(msgspec.Struct, frozen=True, gc=False):
    """Let `uses` hosts join. `id` is random, `secret_hash` that of the token's secret. Answer: `JoinTokenMade`."""

    by: Principal
    id: bytes
    secret_hash: bytes
    role: str
    names: str
    uses: int
    life_s: int


class RevokeJoinTokens(msgspec.Struct, frozen=True, gc=False):
    """Revoke join tokens. Answer: `Changed`."""

    by: Principal
    ids: tuple[bytes, ...]


class ApproveHost(msgspec.Struct, frozen=True, gc=False):
    """Admit a host that has asked and proved its key; `serial` is random. Answer: `Changed`."""

    by: Principal
    role: str
    names: str
    public: bytes
    serial: bytes
    address: str


class RevokeMembers(msgspec.Struct, frozen=True, gc=False):
    """Revoke memberships. `by` None: by a sealed list of `revision` in the controller's directory. Answer: `Changed`."""

    by: Principal | None
    revocations: tuple[Revocation, ...]
    revision: int = 0


class ChangeFederation(msgspec.Struct, frozen=True, gc=False):
    """Let this cell drain, resume, leave the federation or rejoin it. Answer: `Changed`."""

    by: Principal
    federation: str
    action: str


# ---- from nodes, links, timers and the configuration ----


class JoinHost(msgspec.Struct, frozen=True, gc=False):
    """A host has proved its key and the token's secret; `serial` is random. Answer: `Changed`."""

    token: bytes
    role: str
    names: str
    public: bytes
    serial: bytes
    address: str


class Reports(msgspec.Struct, frozen=True, gc=False):
    """Reports of agents. Answer: `Acks`, to be sent after the commit."""

    reports: tuple[Report, ...]


class NodeOutcome(msgspec.Struct, frozen=True, gc=False):
    """Result of one effect on a set of nodes. `status` is ok, failed or unreached; unreached means unknown.

    `code` is that of a failure, as in `relay.results`.
    """

    nodes: tuple[int, ...]
    status: str
    text: str = ""
    payload: bytes = b""
    code: int = 0


class EffectDone(msgspec.Struct, frozen=True, gc=False):
    """A broadcast came back: every node of effect (revision, index) is in exactly one outcome."""

    revision: int
    index: int
    outcomes: tuple[NodeOutcome, ...]


class HeartbeatDone(msgspec.Struct, frozen=True, gc=False):
    """Nodes that became reachable or unreachable by the heartbeat rule (differences only).

    `ahead` are (number, microseconds) of nodes whose clocks are so far ahead that they refuse commands as expired; to those
    `in_date` they no longer are.
    """

    back: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    ahead: tuple[tuple[int, int], ...] = ()
    in_date: tuple[int, ...] = ()


class SatelliteSilent(msgspec.Struct, frozen=True, gc=False):
    """A satellite has been in FAULT longer than allowed (E-12)."""

    name: str


class EpochStarted(msgspec.Struct, frozen=True, gc=False):
    """This controller begins to lead under a new epoch: every node must register again before it gets work."""

    epoch: int


class ConfigLoaded(msgspec.Struct, frozen=True, gc=False):
    """A configuration was read at a start; it becomes a fact if it differs from the one in force. `digest` is its file's.

    `is_takeover`: no administrator watches, so a file that was replaced since (`State.config_digests`) does not count.
    """

    config: ClusterConfig
    digest: bytes = b""
    is_takeover: bool = False


class Reconfigure(msgspec.Struct, frozen=True, gc=False):
    """The leading controller has read its file again: its live parts come into force. Answer: `Changed`, with a note for
    each change.

    `by` is None for a signal to the process. `is_trial`: only say what would change.
    """

    by: Principal | None
    config: ClusterConfig
    digest: bytes = b""
    is_trial: bool = False


class ControllerPhaseDone(msgspec.Struct, frozen=True, gc=False):
    """A program of an attempt on this controller's host has ended, or could not be started."""

    key: PhaseKey
    end: StepEnd


class NoteMailTold(msgspec.Struct, frozen=True, gc=False):
    """The message of this number about a job has left, or is given up."""

    job_id: int
    number: int


class IdsTaken(msgspec.Struct, frozen=True, gc=False):
    """The shared store has leased these ids to this cell, at this revision of it."""

    first: int
    count: int
    version: int


class IdsBounded(msgspec.Struct, frozen=True, gc=False):
    """This cell is about to lease ids: until then it draws only a bounded number of its own ones.

    `is_open`: it is no member any more, and all ids after those that it has leased are its own.
    """

    is_open: bool = False


class OfferJob(msgspec.Struct, frozen=True, gc=False):
    """Offer a waiting job to another cell."""

    job_id: int
    cell: str


class EndOffer(msgspec.Struct, frozen=True, gc=False):
    """The shared store says that no other cell can take this offer any more."""

    job_id: int
    serial: int


class NoteTransferred(msgspec.Struct, frozen=True, gc=False):
    """The shared store says that the cell owns the job that was offered to it."""

    job_id: int
    serial: int


class NoteOutcome(msgspec.Struct, frozen=True, gc=False):
    """The shared store has the outcome of a job of this cell in the cell that owns it."""

    job_id: int
    serial: int
    outcome: Outcome


class ConfirmArrival(msgspec.Struct, frozen=True, gc=False):
    """The shared store says that this cell owns the job that arrived."""

    job_id: int
    serial: int


class DropArrival(msgspec.Struct, frozen=True, gc=False):
    """The shared store says that the offer of the job that arrived is over."""

    job_id: int
    serial: int


class NoteTold(msgspec.Struct, frozen=True, gc=False):
    """The shared store has the outcome of another cell's job."""

    job_id: int
    serial: int


class AskGuests(msgspec.Struct, frozen=True, gc=False):
    """Ask other cells for a part of the nodes of a waiting job that may span several."""

    job_id: int
    own_nodes: int
    guests: tuple[Guest, ...]


class HoldGuests(msgspec.Struct, frozen=True, gc=False):
    """All guests of a job hold their nodes."""

    job_id: int
    serial: int
    guests: tuple[Guest, ...]


class GiveUpGuests(msgspec.Struct, frozen=True, gc=False):
    """A waiting job does not start with these guests."""

    job_id: int
    serial: int
    text: str = ""


class LoseGuest(msgspec.Struct, frozen=True, gc=False):
    """A guest of a running job has ended by itself."""

    job_id: int
    serial: int
    cell: str
    text: str = ""


class NoteGuestGone(msgspec.Struct, frozen=True, gc=False):
    """A guest that is not needed any more has ended, or will."""

    job_id: int
    serial: int
    cell: str


class KeepGuest(msgspec.Struct, frozen=True, gc=False):
    """The home cell keeps this guest for its job, or ends it. Answer: `Changed`."""

    job_id: int
    home: str
    home_job_id: int
    serial: int
    keep: bool


TransferMessage: TypeAlias = (
    OfferJob
    | EndOffer
    | NoteTransferred
    | NoteOutcome
    | ConfirmArrival
    | DropArrival
    | NoteTold
    | AskGuests
    | HoldGuests
    | GiveUpGuests
    | LoseGuest
    | NoteGuestGone
    | KeepGuest
)
"""Messages of the cell's part in its federation. One that comes late or again changes nothing."""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed: due timers fire."""


class Preemption(msgspec.Struct, frozen=True, gc=False):
    """Preempt a running job in the way that its QOS or partition says."""

    victim: int
    attempt: int
    mode: str
    for_job: int


class PlanMade(msgspec.Struct, frozen=True, gc=False):
    """A planning cycle ended; each placement is checked again, because the state may have changed.

    `promises` are the changed ones, to be committed together with the placements (ADR 17); so are the answers to wishes.
    """

    placements: tuple[Placement, ...]
    generation: int
    preemptions: tuple[Preemption, ...] = ()
    promises: tuple[Promise, ...] = ()
    moves: tuple[MoveGrant, ...] = ()
    extensions: tuple[ExtendGrant, ...] = ()


Request: TypeAlias = (
    SubmitJobs
    | CancelJobs
    | HoldJobs
    | RequeueJobs
    | SetCrontab
    | TopJob
    | UpdatePartitions
    | UpdateJob
    | UpdateNodes
    | UpdateSatellites
    | SuspendJobs
    | SetForecasts
    | ChangePolicies
    | CreateStep
    | FinishStep
    | ReleaseJob
    | FinishPart
    | CreateToken
    | RevokeTokens
    | CreateJoinToken
    | RevokeJoinTokens
    | ApproveHost
    | RevokeMembers
    | MovePack
    | ExtendJob
    | ChangeFederation
    | KeepGuest
    | ResizeJob
    | Reconfigure
)
Event: TypeAlias = (
    Reports
    | EffectDone
    | HeartbeatDone
    | SatelliteSilent
    | EpochStarted
    | ConfigLoaded
    | Tick
    | PlanMade
    | JoinHost
    | ControllerPhaseDone
    | IdsTaken
    | IdsBounded
    | OfferJob
    | EndOffer
    | NoteTransferred
    | NoteOutcome
    | ConfirmArrival
    | DropArrival
    | NoteTold
    | AskGuests
    | HoldGuests
    | GiveUpGuests
    | LoseGuest
    | NoteGuestGone
    | EndUnattended
    | NoteMailTold
)
Message: TypeAlias = Request | Event


# ---- answers ----


class Submitted(msgspec.Struct, frozen=True, array_like=True, tag="submitted", gc=False):
    job_ids: tuple[int, ...]


class JobProblem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that could not be changed, and the reason."""

    what: str
    code: RefusalCode
    text: str


class Changed(msgspec.Struct, frozen=True, array_like=True, tag="changed", gc=False):
    """Number of changes, and the things that could not be changed; `notes` are remarks for users on the changed ones."""

    count: int
    problems: tuple[JobProblem, ...] = ()
    notes: tuple[str, ...] = ()


class PartCreated(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The step in one part of a job; `layout` as of the whole."""

    component: int
    step: int
    rank_first: int
    layout: tuple[tuple[str, int], ...]


class StepCreated(msgspec.Struct, frozen=True, array_like=True, tag="step_created", gc=False):
    """`layout` gives, per node in order, its name and its number of tasks.

    Of a step over several parts `parts` gives each of them, in rank order, and `step` is the number of the first.
    """

    job_id: int
    attempt: int
    step: int
    layout: tuple[tuple[str, int], ...]
    parts: tuple[PartCreated, ...] = ()
    waits: bool = False
    """It waits for its turn: the layouts are empty."""


class Amounts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Nodes of a job, each once, as a folded list, and the sums of what it has there."""

    nodes: int
    node_names: str
    cpus: int
    memory_mib: int


class PartGivenBack(msgspec.Struct, frozen=True, array_like=True, tag="part_given_back", gc=False):
    """Amounts of the job, `before` and `after` a part is given back.

    `leaving` are the nodes (folded lists) that no other part has: each is free when nothing of the job is left there.
    `steps` get SIGKILL; what the part has on nodes `busy` is free when its steps there have ended.
    """

    job_id: int
    part: int
    before: Amounts
    after: Amounts
    leaving: str = ""
    busy: str = ""
    steps: tuple[int, ...] = ()


class MoveTaken(msgspec.Struct, frozen=True, array_like=True, tag="move_taken", gc=False):
    """The planner has the wish; `starts` are (job, index, planned start) of the jobs that it concerns."""

    pack_id: int
    serial: int
    starts: tuple[tuple[int, int, int], ...]


class ExtensionTaken(msgspec.Struct, frozen=True, array_like=True, tag="extension_taken", gc=False):
    """The planner has the wish; the job's time limit is `before_s`, its latest end `until_us`."""

    job_id: int
    attempt: int
    serial: int
    before_s: int
    until_us: int


class Resized(msgspec.Struct, frozen=True, array_like=True, tag="resized", gc=False):
    """Amounts of a job, `before` and `after` its nodes change.

    `leaving` are the nodes (a folded list) that it gives back: each is free when nothing of the job is left there. `steps`
    have tasks there, which get the signal and the grace of any end.
    """

    job_id: int
    before: Amounts
    after: Amounts
    leaving: str = ""
    steps: tuple[int, ...] = ()
    growth_id: int = 0
    """The growth that waits for `more` nodes; 0: none was asked for."""
    more: int = 0
    withdrawn: int = 0
    """The growth that waited and is withdrawn; 0: none did."""


class TokenMade(msgspec.Struct, frozen=True, array_like=True, tag="token_made", gc=False):
    """Contents of the new token; the daemon seals it."""

    id: bytes
    of: Principal
    scope: str
    issued_us: int
    expires_us: int


class JoinTokenMade(msgspec.Struct, frozen=True, array_like=True, tag="join_token_made", gc=False):
    """The token is valid until then; the daemon knows its secret."""

    id: bytes
    expires_us: int


StoredAnswer: TypeAlias = (
    Submitted
    | Changed
    | StepCreated
    | TokenMade
    | JoinTokenMade
    | PartGivenBack
    | MoveTaken
    | ExtensionTaken
    | Resized
)
"""Answers that the store keeps under the ids of their requests."""
