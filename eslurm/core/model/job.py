"""A job's records: the request (`JobSpec`), the current state (`Job`), each run (`Attempt`).

Records are immutable; `core.state.apply` replaces them. Nothing else in the program changes a job. They hold only
immutable values, so they can form no cycles: `gc=False` keeps the collector from walking all of them.

A job is a tuple of components (normally one). Each try to run it is an *attempt*, which holds an
*allocation*: a set of spans, one per component and node. An array is one record plus exceptions:
its tasks get records of their own only when they start, so 100,000 waiting tasks cost one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias, TypeVar, get_type_hints

import msgspec

from eslurm.core.model.amounts import Vector
from eslurm.core.model.controller_phases import ControllerPhase, PhaseStage
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.gateways import GatewayRequest, GatewayState
from eslurm.core.model.growth import Growth, GrowthPlace, Joined
from eslurm.core.model.guests import GuestOf, Guests, GuestStage
from eslurm.core.model.job_states import AttemptPhase, JobState, StopCause
from eslurm.core.model.lending import Exclusion, Loan
from eslurm.core.model.mail import MailRecord
from eslurm.core.model.moves import ExtendWish
from eslurm.core.model.pack import PackPlace
from eslurm.core.model.ranges import Ranges
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.retry import RetryRecord, RetryRequest
from eslurm.core.model.transfer import AWAY, FOREIGN, OWING, Transfer

NO_LIMIT = 0


ATTESTED = frozenset(("agent", "login", "cell"))
"""Ways in on which a node or another cell vouches for the identity: enough for users, not for operators."""


def acts_for_others(who: Principal) -> bool:
    """Check whether rights over other users' jobs apply: not when a node vouches, nor with a limited token."""
    return who.via not in ATTESTED and who.scope in ("", "admin")


class Principal(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The authenticated author of a request. `via` is `socket`, `agent`, `login`, `token` or `cell`.

    `scope` is the token's limit (`core.model.token.SCOPES`); empty on other ways in.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    via: str = "socket"
    scope: str = ""


class Dependency(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One condition on another job. All of a job's dependencies must hold, or any (`JobSpec.dependency_any`).

    `kind` is one of after, afterany, afterok, afternotok, aftercorr, singleton (`job_id` 0).
    `settled` is filled by the API when the other job has already left memory: "met" or "never".
    `task` is one task of the array `job_id`; -1: the whole job. `part` is a part of it, as the user named it: only the
    API looks at it, a job of several parts begins and ends as one. The id of a pack is its first job's: it means the whole
    pack, except with a part (0), which is the first job alone.
    `due_us` is the end of the delay of an `after:ID+minutes` whose job has begun, where it is one of several (any).
    """

    kind: str
    job_id: int = 0
    delay_s: int = 0
    settled: str = ""
    task: int = -1
    part: int = -1
    due_us: int = 0

    @property
    def needs_record(self) -> bool:
        """Check whether its verdict depends on the other job's record, not on the clock or on what the API found.

        A standby that began after the end of that job does not have the record.
        """
        return not (self.due_us or self.settled)

    @property
    def is_of_pack(self) -> bool:
        """Check whether it concerns all of a pack, if the job is the first of one. A pack begins with its first job."""
        return self.task < 0 and self.part < 0 and self.kind != "after"


class ArraySpec(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The tasks of an array, and how many may run at once (0: all)."""

    tasks: Ranges
    limit: int = 0


_T = TypeVar("_T")
Passed: TypeAlias = Annotated[_T, "passed"]
"""A value that the API checks by its type alone (a line of text, a count, a flag) and that is shown under its own name."""


class JobSpec(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A job as submitted, normalised at the API; only an update fact changes it.

    Hashes are SHA-256 of blobs in the store: neither scripts nor environments live in memory. `output`, `error` and
    `input` are file name patterns, expanded on the node (`%j %A %a %N %x %u`).
    """

    name: str
    user: Principal
    partition: Passed[str]
    components: tuple[Request, ...]
    script_hash: bytes
    environment_hash: bytes
    work_dir: str
    time_limit_s: int = NO_LIMIT
    output: str = ""
    error: str = ""
    input: str = ""
    append_output: bool = True
    begin_us: int = 0
    priority: int | None = None
    requeue: bool = True
    held: bool = False
    dependencies: tuple[Dependency, ...] = ()
    array: ArraySpec | None = None
    arguments: tuple[str, ...] = ()
    account: Passed[str] = ""
    comment: Passed[str] = ""
    umask: int = 0o022
    qos: Passed[str] = ""
    reservation: Passed[str] = ""
    nice: int = 0
    start_at_us: int = 0
    """Fixed start (C-30): exactly then or not at all; 0: as early as possible."""
    deadline_us: int = 0
    """The job must have ended by then."""
    warn_signal: int = 0
    warn_before_s: int = 0
    """`--signal`: this signal so many seconds before the time limit (C-40)."""
    warn_batch_only: bool = False
    warn_script: str = ""
    """Run on the first node at that time, beside the job, instead of or besides the signal."""
    trace: bytes = b""
    """The W3C trace id that log lines about it carry (16 bytes; none: empty), the same for all tasks of an array."""
    parts: tuple[PartSpec, ...] = ()
    """One for each component of a job of several parts (D-02); empty: one component, in `partition`."""
    dependency_any: bool = False
    """One met dependency is enough."""
    no_kill: Passed[bool] = False
    """The loss of a node other than the first does not end the job."""
    gateway: GatewayRequest | None = None
    """Gateways between the modules of its nodes; its last component is then theirs."""
    cells: tuple[str, ...] = ()
    """Cells of the federation that may take it, or `any`; empty: this cell alone."""
    span: bool = False
    """Its nodes may be of several of these cells; else one of them takes the whole job."""
    retry: RetryRequest | None = None
    """Retries by the server after ends by some causes; None: it asks for none."""
    elastic: Passed[bool] = False
    """Once it runs on fewer nodes than it may have, it gets more when they come free."""
    cooperate: Passed[str] = ""
    """Cooperation of its application's scheduler with this system (R-06): off, report, full; empty: off."""
    borrow: Passed[str] = ""
    """It accepts cores of running jobs, on these terms (`lending.terms_of`); empty: it does not."""
    wckey: Passed[str] = ""
    command: Passed[str] = ""
    """The file that the script was read from; empty: none."""
    no_script: Passed[bool] = False
    """It has no script: it holds its nodes for steps until it is released, cancelled, or at its limit."""
    attended: Passed[bool] = False
    """The command that has asked for it keeps it (`core.dispatch.attendance`); when that is gone, the job ends."""
    cron: str = ""
    """The times at which it runs again and again, as a cron string: it is a line of its user's crontab; empty: once."""
    mail_type: Passed[str] = ""
    """Events that its user gets mail about (`mail_words.events_of`); empty: none."""
    mail_user: Passed[str] = ""
    """Receivers of that mail: addresses or user names (`mail_words.addresses_of`); empty: its user."""


PASSED: Final[Mapping[str, type]] = {
    name: hint.__origin__
    for name, hint in get_type_hints(JobSpec, include_extras=True).items()
    if getattr(hint, "__metadata__", ()) == ("passed",)
}
"""The fields of a spec that are passed on as they are, with their types."""


class Span(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Resources of one component on one node, from the attempt's start until they are given back.

    `lent` spans use resources whose owner keeps the span (invariants count use, not ownership).
    """

    node: int
    amounts: Vector
    tasks: int = 1
    component: int = 0
    lent: bool = False
    devices: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(index of a resource, numbers of the devices held) for resources with numbered items, such as GPUs."""


class Stop(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A demand to end the attempt: cause, author and time."""

    cause: StopCause
    at_us: int
    by: str = ""
    signal: int = 0
    grace_s: float = -1.0
    """Seconds between the signal and the kill; -1: the cluster's `kill_grace_s`."""
    is_final: bool = False
    """True when the job may not start again: a part of it may go on, on a node that was given up."""
    exit_code: int = 0
    """Of a release: the exit code of the command that the allocation was for."""


TOOK_MAX_US = 7 * 86_400 * 1_000_000
"""A node's word for how long something took counts up to this."""


class StepEnd(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The end of a step, as its supervisor saw it."""

    exit_code: int
    signal: int = 0
    cause: str = "exited"
    text: str = ""
    started_us: int = 0
    ended_us: int = 0
    user_cpu_us: int = 0
    system_cpu_us: int = 0
    max_rss_kib: int = 0

    @property
    def is_good(self) -> bool:
        """Check whether it ran to its own end and succeeded."""
        return self.exit_code == 0 and not self.signal and self.cause == "exited"

    @property
    def took_us(self) -> int:
        """Its duration, as far as a node's word counts; 0: not known."""
        return min(max(0, self.ended_us - self.started_us), TOOK_MAX_US) if self.started_us else 0


class AttemptMore(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Rare parts of an attempt: nodes that run their prolog, parts and nodes that left a running job."""

    preparing: frozenset[int] = frozenset()
    """Nodes that have answered the launch and run their prolog; a subset of `waiting`."""
    gone: frozenset[int] = frozenset()
    """Nodes that were lost while the job goes on without them (`JobSpec.no_kill`)."""
    phases: tuple[str, ...] = ()
    """The phases that its nodes had configured when it was placed: prolog, epilog."""
    preparing_until_us: int = 0
    """Time by which the last of `preparing` must have reported; 0: none has said so yet."""
    finished: tuple[tuple[int, int], ...] = ()
    """(part, time) of the parts that the running job has given back."""
    leaving: frozenset[int] = frozenset()
    """Nodes that only finished parts had, or that the job gives back, and that have not confirmed yet that nothing is left
    there; a subset of `held`."""
    part_revision: int = 0
    """Identifies the end that `leaving` are owed."""
    given: frozenset[tuple[int, int]] = frozenset()
    """(part, node) of what finished parts, or single nodes, have given back and been charged for."""
    gateway: GatewayState | None = None
    """Its gateways, from when all nodes are prepared."""
    wish: ExtendWish | None = None
    """Its latest wish for a longer time limit."""
    controller: ControllerPhase | None = None
    """Its phases on the controller's host, where there were any when it was placed."""
    prolog_us: int = 0
    epilog_us: int = 0
    """Lengths of its phases that plans expected when it was placed."""
    shrunk: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(time, nodes) of nodes that the running job has given back one by one, once they were free."""
    growth: Growth | None = None
    """Further nodes that it has asked for."""
    grown: tuple[Joined, ...] = ()
    """The nodes that it got while it ran."""
    loans: tuple[Loan, ...] = ()
    """Cores of its spans that other jobs own, or owned when it was placed."""
    exclusions: tuple[Exclusion, ...] = ()
    """Cores of its spans that its application leaves to others, in the order of nodes."""
    lent_core_us: int = 0
    """Core-microseconds that others have used of it in loans that are over."""
    asked: tuple[int, int] = (0, 0)
    """(count, time) of requests to exclude cores since its application has last granted one."""
    borrowed_core_us: int = 0
    """Core-microseconds that it has used of others on nodes that it has left; `loans` has those of its other nodes."""


class Attempt(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One try to run a job, from placement until every node gave its resources back.

    `number` counts from 1 within the job. `placed_revision` identifies the launch effect; `owed_revision`
    the latest effect still owed to `waiting` nodes in the current phase (see `core.control.effects`).
    `held` is the set of spans whose resources are still in use: it only shrinks, save by a growth.
    """

    number: int
    phase: AttemptPhase
    spans: tuple[Span, ...]
    placed_us: int
    placed_revision: int
    until_us: int
    held: frozenset[int]
    waiting: frozenset[int] = frozenset()
    owed_revision: int = 0
    started_us: int = 0
    stop: Stop | None = None
    stop_revision: int = 0
    end: StepEnd | None = None
    ended_us: int = 0
    next_step: int = 0
    wide: Vector = ()
    """Its cluster-wide resources."""
    time_limit_s: int = 0
    """The limit as it was extended while running; 0: the job's."""
    time_revision: int = 0
    suspended_us: int = 0
    """Since when it stands still; 0: it runs."""
    suspend_revision: int = 0
    informing: frozenset[int] = frozenset()
    """Nodes that have not acknowledged `suspend_revision`. `time_revision` is owed to the first node alone."""
    paused_us: int = 0
    """Total time of earlier suspensions."""
    room_for: int = 0
    """The job that it was suspended for: its cores are lent to others meanwhile (see `core.state.allocation_amounts`)."""
    forecast: Forecast | None = None
    """Its forecast at placement, against which its run is compared."""
    planned_us: int = 0
    """Its planned end: without a late start, suspensions, or extensions; 0: no limit."""
    more: AttemptMore | None = None

    @property
    def first(self) -> int:
        """The node that runs the batch script."""
        return self.spans[0].node

    @property
    def gone(self) -> frozenset[int]:
        """Nodes that were lost while the job goes on without them."""
        return self.more.gone if self.more is not None else frozenset()

    @property
    def finished(self) -> tuple[int, ...]:
        """The parts that the running job has given back."""
        return tuple([part for part, _ in self.more.finished]) if self.more is not None else ()

    @property
    def leaving(self) -> frozenset[int]:
        """Nodes of finished parts alone, or given back, of which nothing is known to be free yet."""
        return self.more.leaving if self.more is not None else frozenset()

    @property
    def growth(self) -> Growth | None:
        """Further nodes that it has asked for."""
        return self.more.growth if self.more is not None else None

    @property
    def joining(self) -> frozenset[int]:
        """Nodes that it holds and that are not ready for its steps yet."""
        growth = self.growth
        return growth.joining if growth is not None else frozenset()

    @property
    def is_resized(self) -> bool:
        """Check whether its nodes are others than those that its script began with, by its own wish."""
        more = self.more
        return more is not None and not self.has_parts and bool(more.grown or more.shrunk or more.leaving)

    @property
    def given(self) -> frozenset[tuple[int, int]]:
        """(part, node) of what finished parts have given back."""
        return self.more.given if self.more is not None else frozenset()

    @property
    def loans(self) -> tuple[Loan, ...]:
        """Cores that it uses and others own: on the nodes that it holds, until their owners go."""
        if self.more is None or not self.more.loans:
            return ()
        return tuple([loan for loan in self.more.loans if not loan.until_us and loan.node in self.held])

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """Cores that its application leaves to others, on the nodes that it holds."""
        if self.more is None or not self.more.exclusions:
            return ()
        return tuple([one for one in self.more.exclusions if one.node in self.held])

    @property
    def has_parts(self) -> bool:
        """Check whether several components hold something. Spans are in the order of their components."""
        return self.spans[-1].component > 0

    @property
    def is_on_one_node(self) -> bool:
        """Check whether all its spans are on its first node."""
        if not self.has_parts:
            return len(self.spans) == 1
        return all(span.node == self.first for span in self.spans)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that its nodes run."""
        return self.more.phases if self.more is not None else ()

    @property
    def preparing(self) -> frozenset[int]:
        """Its nodes whose prolog runs."""
        return self.more.preparing if self.more is not None else frozenset()

    @property
    def gateway(self) -> GatewayState | None:
        """Its gateways, once all its nodes are prepared."""
        return self.more.gateway if self.more is not None else None

    @property
    def controller(self) -> ControllerPhase | None:
        """Its phase on the controller's host."""
        return self.more.controller if self.more is not None else None

    @property
    def awaits_prolog(self) -> bool:
        """Check whether its prolog on the controller's host has not ended well: nothing of it has reached a node."""
        if self.more is None or self.more.controller is None or self.phase is not AttemptPhase.PREPARING:
            return False
        return self.more.controller.stage is not PhaseStage.OVER

    @property
    def prepares_first(self) -> bool:
        """Check whether its nodes are prepared before its script is started, by a command of its own."""
        return bool(self.more is not None and self.more.phases) or not self.is_on_one_node

    @property
    def nodes(self) -> list[int]:
        """Its nodes in the order of its spans, each once: two parts may share one."""
        numbers = [span.node for span in self.spans]
        return list(dict.fromkeys(numbers)) if self.has_parts else numbers


class Job(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A job's current record.

    `hold` is "", user, account (a coordinator's), admin or system (launches failed too often), with `reason_text` for
    people. `open` are the dependencies not met yet; `not_before_us` is 0 once due.
    `outcome` is the final state, known as soon as the script has ended (state COMPLETING), or PENDING for a requeue.
    `residues` are attempts that never ran the script but whose unreached nodes may still hold something.

    For an array's record `tasks_left` are the tasks without a record of their own, `tasks_ready` those of
    them that `aftercorr` lets start (None: all), and the other `tasks_*` count or list what became of the rest.
    A started task has `array_job_id` and `array_task`.
    """

    job_id: int
    spec: JobSpec
    state: JobState
    submitted_us: int
    priority: int
    reason_text: str = ""
    hold: str = ""
    open: tuple[Dependency, ...] = ()
    not_before_us: int = 0
    avoid: frozenset[int] = frozenset()
    attempt: Attempt | None = None
    attempts: int = 0
    launch_failures: int = 0
    residues: tuple[Attempt, ...] = ()
    outcome: JobState | None = None
    exit_code: int = 0
    exit_signal: int = 0
    exit_text: str = ""
    started_us: int = 0
    ended_us: int = 0
    array_job_id: int = 0
    array_task: int = -1
    tasks_left: Ranges | None = None
    tasks_ready: Ranges | None = None
    tasks_running: int = 0
    tasks_ok: Ranges = ()
    tasks_failed: Ranges = ()
    paused_us: int = 0
    """Time of suspensions of the attempt that ended last."""
    forecast: Forecast | None = None
    """The latest forecast of an estimator, for plans. It never ends a job."""
    first_estimate_s: int = 0
    """The first point estimate, made at its submission; 0: none. What accounting measures estimators by."""
    avoid_until_us: int = 0
    """Time at which the nodes in `avoid` become normal again."""
    given_up: tuple[Attempt, ...] = ()
    """The latest attempts that ran and whose end no node has told: their first node was lost."""
    pack: PackPlace | None = None
    """Its place in a pack of jobs (D-04)."""
    transfer: Transfer | None = None
    """Its transfer to or from another cell of the federation."""
    guests: Guests | None = None
    """Its guests in other cells, where it may span several."""
    guest_of: GuestOf | None = None
    """The job of another cell that it holds nodes for."""
    retry: RetryRecord | None = None
    """Its retries and what they wasted, where it asks for some and an attempt was followed by another one."""
    grows: GrowthPlace | None = None
    """It is no job but the growth of one that runs."""
    mail: MailRecord | None = None
    """Messages about it, where there were some."""

    @property
    def owes_mail(self) -> bool:
        """Check whether a message about it was not sent yet."""
        return self.mail is not None and bool(self.mail.notes)

    @property
    def is_away(self) -> bool:
        """Check whether another cell may own it: it is not started here."""
        return self.transfer is not None and self.transfer.stage in AWAY

    @property
    def home(self) -> str:
        """The other cell that accepted it, whose id it has; empty: this one did."""
        return self.transfer.cell if self.transfer is not None and self.transfer.stage in FOREIGN else ""

    @property
    def owes_outcome(self) -> bool:
        """Check whether it is another cell's, which does not know its end."""
        return self.transfer is not None and self.transfer.stage in OWING

    @property
    def is_owed_elsewhere(self) -> bool:
        """Check whether another cell, or its user by mail, has to learn of its end: its record is kept until then."""
        return self.owes_outcome or self.owes_mail or (self.guests is not None and bool(self.guests.guests))

    @property
    def gathers(self) -> bool:
        """Check whether nodes of other cells come or go for it, or have to come first: it is not started here."""
        guests = self.guests
        if guests is None:
            return False
        if guests.stage is GuestStage.NONE:
            return guests.is_wide
        return guests.stage is not GuestStage.HELD or self.attempts >= guests.attempt

    @property
    def frees_guests(self) -> bool:
        """Check whether its guests are not needed any more."""
        guests = self.guests
        if guests is None or not guests.guests:
            return False
        if guests.stage is GuestStage.LEAVING or self.outcome not in (None, JobState.PENDING):
            return True
        return self.attempt is None and self.attempts >= guests.attempt

    @property
    def is_array(self) -> bool:
        """Check whether this is an array's own record, not a plain job or one task."""
        return self.tasks_left is not None
