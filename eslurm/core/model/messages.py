"""Everything that can arrive at the controller's core. `decide` turns one message into facts and an answer.

Requests come from people through a door and carry who asked; the others come from nodes, links and timers
and travel in the inbox lane that is never refused.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from eslurm.core.model.accounts import Policy
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.member import Revocation
from eslurm.core.model.placement import Placement
from eslurm.core.model.promise import Promise
from eslurm.core.model.protocol import Report
from eslurm.core.model.request import Request as ResourceRequest


class RefusalCode(enum.Enum):
    """Why a request was refused; doors map it to a status, commands to an exit code."""

    INVALID = "invalid"
    INFEASIBLE = "infeasible"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    CONFLICT = "conflict"
    EXHAUSTED = "exhausted"
    INTERNAL = "internal"


class Refused(Exception):
    """One message is refused; nothing of it happens. `text` names the thing, the value and the way out."""

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


# ---- requests ----


class SubmitJobs(msgspec.Struct, frozen=True, gc=False):
    """Accept all of these jobs or none. Answer: `Submitted`."""

    specs: tuple[JobSpec, ...]


class JobRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """A job, or one task of an array (`task >= 0`), as people write it: 17 or 17_4."""

    job_id: int
    task: int = -1


class CancelJobs(msgspec.Struct, frozen=True, gc=False):
    """End jobs, or only signal them (`signal > 0`). Answer: `Changed`.

    An empty `jobs` selects by user, name, partition or state; with a state, of an array only what is in that state.
    """

    by: Principal
    jobs: tuple[JobRef, ...] = ()
    user: str = ""
    name: str = ""
    partition: str = ""
    state: str = ""
    signal: int = 0


class HoldJobs(msgspec.Struct, frozen=True, gc=False):
    """Hold (or with `release` let go) pending jobs. Answer: `Changed`.

    An administrator's hold only an administrator lifts.
    """

    by: Principal
    jobs: tuple[JobRef, ...]
    release: bool = False


class RequeueJobs(msgspec.Struct, frozen=True, gc=False):
    """End the jobs' attempts and let them wait again. Answer: `Changed`."""

    by: Principal
    jobs: tuple[JobRef, ...]


class UpdateJob(msgspec.Struct, frozen=True, gc=False):
    """Change a pending job's parameters; None leaves one as it is. Answer: `Changed`.

    `request` is all that it asks for from now on; `was` what it asked for when that was made (`option_text.asked_words`):
    if it asks for something else by now, nothing is changed.
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


class SuspendJobs(msgspec.Struct, frozen=True, gc=False):
    """Stop running jobs where they are, or let them go on (operators only). Answer: `Changed`."""

    by: Principal
    jobs: tuple[JobRef, ...]
    resume: bool = False


class SetForecasts(msgspec.Struct, frozen=True, gc=False):
    """An estimator says how long jobs will run. Jobs that have ended meanwhile are passed over."""

    by: Principal
    forecasts: tuple[tuple[int, Forecast], ...]
    model: str = ""


class ReservedNodes(msgspec.Struct, frozen=True, gc=False):
    """So many nodes (0: all) for a reservation, chosen when it is set: of a partition, with a feature (empty: any)."""

    count: int
    partition: str = ""
    feature: str = ""


class ReservedTime(msgspec.Struct, frozen=True, gc=False):
    """From when to when a reservation is, as far as it is said (0: not)."""

    start_us: int = 0
    end_us: int = 0
    duration_s: int = 0


class PolicyChange(msgspec.Struct, frozen=True, gc=False):
    """`action` is add, modify, set (whether it is there or not) or delete.

    To modify takes from `policy` the fields named in `given`; those also in `added` or `removed` are joined to the names
    that are there, or taken away from them. Of a reservation `choose` and `time` say what its record does not.
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


class UpdateSatellites(msgspec.Struct, frozen=True, gc=False):
    """`action` is down or resume; `known` are the satellites that there are. Answer: `Changed`."""

    by: Principal
    names: tuple[str, ...]
    action: str
    reason: str = ""
    known: tuple[str, ...] = ()


class CreateStep(msgspec.Struct, frozen=True, gc=False):
    """A running job's owner starts tasks on its nodes. Answer: `StepCreated`."""

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


class FinishStep(msgspec.Struct, frozen=True, gc=False):
    """The step's own command says how it ended (merged over all tasks). Answer: `Changed`."""

    by: Principal
    job_id: int
    step: int
    exit_code: int
    signal: int = 0


class CreateToken(msgspec.Struct, frozen=True, gc=False):
    """Make a token that lets its bearer act as `of`. `id` is random. Answer: `TokenMade`."""

    by: Principal
    of: Principal
    id: bytes
    scope: str
    life_s: int


class RevokeTokens(msgspec.Struct, frozen=True, gc=False):
    """Take tokens back: those of these ids, and all of `user` (empty: none). Answer: `Changed`."""

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
    """Join tokens end before their time. Answer: `Changed`."""

    by: Principal
    ids: tuple[bytes, ...]


class ApproveHost(msgspec.Struct, frozen=True, gc=False):
    """Let a host join that has asked and proved its key; `serial` is random. Answer: `Changed`."""

    by: Principal
    role: str
    names: str
    public: bytes
    serial: bytes
    address: str


class RevokeMembers(msgspec.Struct, frozen=True, gc=False):
    """End memberships. `by` None: a sealed list of `revision` in the controller's directory says so. Answer: `Changed`."""

    by: Principal | None
    revocations: tuple[Revocation, ...]
    revision: int = 0


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
    """What became of one effect on a set of nodes. `status` is ok, failed or unreached; unreached means unknown.

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
    """Nodes that became reachable or unreachable by the heartbeat rule (differences only)."""

    back: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()


class SatelliteSilent(msgspec.Struct, frozen=True, gc=False):
    """A satellite has been in FAULT for as long as it may be (E-12)."""

    name: str


class EpochStarted(msgspec.Struct, frozen=True, gc=False):
    """This controller begins to lead under a new epoch: every node must register again before it is given work."""

    epoch: int


class ConfigLoaded(msgspec.Struct, frozen=True, gc=False):
    """A configuration was read; it becomes a fact if it differs from the one in force."""

    config: ClusterConfig


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed: due timers fire."""


class Preemption(msgspec.Struct, frozen=True, gc=False):
    """A running job has to make room for another one, in the way its QOS or partition says."""

    victim: int
    attempt: int
    mode: str
    for_job: int


class PlanMade(msgspec.Struct, frozen=True, gc=False):
    """A planning cycle ended; each placement is checked again, for the state may have moved on.

    `promises` are those that have changed by it, to be kept together with its placements (ADR 17).
    """

    placements: tuple[Placement, ...]
    generation: int
    preemptions: tuple[Preemption, ...] = ()
    promises: tuple[Promise, ...] = ()


Request: TypeAlias = (
    SubmitJobs
    | CancelJobs
    | HoldJobs
    | RequeueJobs
    | UpdateJob
    | UpdateNodes
    | UpdateSatellites
    | SuspendJobs
    | SetForecasts
    | ChangePolicies
    | CreateStep
    | FinishStep
    | CreateToken
    | RevokeTokens
    | CreateJoinToken
    | RevokeJoinTokens
    | ApproveHost
    | RevokeMembers
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
)
Message: TypeAlias = Request | Event


# ---- answers ----


class Submitted(msgspec.Struct, frozen=True, array_like=True, tag="submitted", gc=False):
    job_ids: tuple[int, ...]


class JobProblem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of the named things could not be changed, and why."""

    what: str
    code: RefusalCode
    text: str


class Changed(msgspec.Struct, frozen=True, array_like=True, tag="changed", gc=False):
    """How many things changed, and which could not be; `notes` are for people to know of those that were."""

    count: int
    problems: tuple[JobProblem, ...] = ()
    notes: tuple[str, ...] = ()


class StepCreated(msgspec.Struct, frozen=True, array_like=True, tag="step_created", gc=False):
    """`layout` gives, per node in order, its name and its number of tasks."""

    job_id: int
    attempt: int
    step: int
    layout: tuple[tuple[str, int], ...]


class TokenMade(msgspec.Struct, frozen=True, array_like=True, tag="token_made", gc=False):
    """What the token says, for the shell to seal."""

    id: bytes
    of: Principal
    scope: str
    issued_us: int
    expires_us: int


class JoinTokenMade(msgspec.Struct, frozen=True, array_like=True, tag="join_token_made", gc=False):
    """The token is good until then; its secret is the shell's."""

    id: bytes
    expires_us: int


Answer: TypeAlias = Submitted | Changed | StepCreated | TokenMade | JoinTokenMade
