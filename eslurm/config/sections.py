"""The cluster's one configuration file (TOML), typed: its sections and keys. The controller owns it; agents and satellites
get what they need on their command line or from the controller.

Every key is documented by its field here; `docs/reference/configuration.md` is generated from these classes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from eslurm.config.compat import CompatSection
from eslurm.config.federation import FederationSection
from eslurm.config.health import HealthCheckSection
from eslurm.config.mail import MailSection
from eslurm.config.modules import ModuleSection
from eslurm.config.nodes import (
    LoginSection,
    NodeRuleSection,
    NodesSection,
    ResourceSection,
    SwitchSection,
)
from eslurm.config.phases import PhasesSection
from eslurm.config.tokens import TokensSection
from eslurm.config.values import (
    ArrayTasks,
    Count,
    JobId,
    Name,
    NotNegative,
    Positive,
    ScriptBytes,
    Share,
    UserId,
    Weight,
    Whole,
    Width,
)
from eslurm.core.model.request_limits import ARRAY_TASKS_MAX, SCRIPT_BYTES_MAX
from eslurm.core.model.retry_words import RETRIES_MAX


class ClusterSection(msgspec.Struct, forbid_unknown_fields=True):
    """Name and administrators of the cluster."""

    name: Name
    """Identity of the cluster; daemons of another cluster are refused on every link."""
    key_file: str = ""
    """Of no effect: the file with the secret that all daemons shared before each had keys of its own, relative to the state
    directory. `eslurm convert` puts it aside; remove the line then."""
    operators: list[UserId] = msgspec.field(default_factory=lambda: [0])
    """User ids that may change nodes, other users' jobs, priorities, and all policies: accounts, limits, reservations."""
    administrators: list[UserId] | None = None
    """User ids that may do everything: what operators may, hand over the lead, export the log, read the audit log.
    Absent: root and the user that the controller runs as."""


class ControllerSection(msgspec.Struct, forbid_unknown_fields=True):
    """Endpoints and retention of `esctld`."""

    listen: str = "127.0.0.1:7400"
    """Address for satellites and for remote clients (gRPC)."""
    store_url: str = ""
    """SQLAlchemy URL of the job store; empty: SQLite in the state directory."""
    metrics_listen: str = ""
    """Address for Prometheus to scrape /metrics at; empty: none."""
    lease_s: Positive = 2.0
    """Seconds without a sign of life of the leading controller after which a standby takes over."""
    inbox_max: Count = 20_000
    """Most requests that may wait to be decided; beyond it clients must retry later."""
    read_share_percent: Share = 6.0
    """Share of the controller's time, in percent, for queries of all users; beyond it the heaviest users must retry later.
    0: no limit, here and below.
    """
    read_share_user_percent: Share = 3.0
    """The same for the questions of one user."""
    read_share_operators_percent: Share = 6.0
    """The same for the questions of all operators, which do not count as users'."""
    changes_user_per_s: NotNegative = 2000.0
    """Changing calls (submissions, cancellations ...) of one user a second; five seconds' worth may come at once, and
    one call may submit many jobs. Operators are exempt."""
    change_share_user_percent: Share = 50.0
    """Share of the controller's time, in percent, for reading and deciding one user's changes; beyond it the user must
    retry later. Operators are exempt.
    """
    waits_user_max: Whole = 256
    """Calls with which one user may wait for the end of jobs at a time. Operators are exempt."""
    calls_user_max: Whole = 2048
    """Calls of one user that may be under way at a time. Operators are exempt."""
    step_networks: list[str] = msgspec.field(default_factory=list)
    """Networks, as 10.2.0.0/16, in which esrun may listen for output besides at the addresses that its host and its job's
    nodes are known by: for hosts of several addresses."""
    log_kept_days: NotNegative = 30.0
    """Days for which the log of facts is kept for `esctl log export`; what was before is kept as a state. 0: for ever."""


class PrivacySection(msgspec.Struct, forbid_unknown_fields=True):
    """Visibility of other users' data. Operators see everything, coordinators the data of their accounts."""

    private: list[str] = msgspec.field(default_factory=list)
    """Kinds of data of which a user sees only the own ones: jobs, usage, users, reservations, configuration."""


class AuditSection(msgspec.Struct, forbid_unknown_fields=True):
    """The audit log: one JSON line for each change and each refusal, written by the leading controller."""

    file: str = "audit.log"
    """Its file, relative to the state directory (mode 0600); of a controller with a name audit-NAME.log. Empty: none."""
    size_mib: Annotated[int, Meta(ge=1, le=100_000)] = 32
    """Size in MiB after which a new file is begun."""
    keep: Annotated[int, Meta(ge=0, le=1000)] = 15
    """Old files that are kept, as audit.log.1 and so on."""
    lines_user_per_s: NotNegative = 20.0
    """Lines a second that one user may leave, ten seconds' worth at once; the rest is counted. Operators are exempt. 0: no
    limit."""


class TlsSection(msgspec.Struct, forbid_unknown_fields=True):
    """TLS on all links and at the remote API: for `esctld` and `esestd`, whose --tls-* options override it; satellites and
    agents have options only. Either all daemons of a cluster use it or none. Files are relative to the state directory,
    and read anew when they change.
    """

    certificate: str = ""
    """This host's certificate (PEM), followed by those between it and the authority; empty: no TLS."""
    key: str = ""
    """The certificate's private key (PEM, without a password)."""
    ca: str = ""
    """Certificates (PEM) of the authorities whose word is taken for other hosts."""
    require_client_certificate: bool = False
    """Serve only peers that show a certificate of such an authority, remote commands included."""
    name: str = ""
    """The name in all daemons' certificates; empty: each names its own host, as others dial it."""


class SatelliteSection(msgspec.Struct, forbid_unknown_fields=True):
    """One satellite: relays down, gathers up, keeps no state."""

    name: Name
    """Its name in `esinfo --satellites`."""
    listen: str
    """Its endpoint for agents."""


class AgentSection(msgspec.Struct, forbid_unknown_fields=True):
    """Users whose jobs run on nodes, and programs around each job. A node also refuses by its own options: `esnoded
    --min-uid`, `--allow-root-jobs`. The programs are those of the agents that `eslurm up` starts; any other agent has them
    from its command line (`esnoded --prolog`), never from the controller."""

    min_uid: Whole = 1000
    """Jobs of users below this are refused: those are accounts of services."""
    allow_root_jobs: bool = False
    """Accept root's jobs; they run as root."""
    prolog: str = ""
    """Program that runs on each node of a job before anything of it does; if it fails, the job starts elsewhere."""
    epilog: str = ""
    """Program that runs on each node when nothing of the job is left there; if it fails, the node takes no more jobs."""
    check: str = ""
    """Program that runs, as the agents' user, while a fault of a node stands; if it passes, the fault is over."""
    health_check: list[HealthCheckSection] = []
    """Health checks of nodes."""
    task_prolog: str = ""
    """Program that runs in each task of a step, as the job's user, before the task."""
    task_epilog: str = ""
    """Program that runs after each task of a step, as the job's user."""
    gateway_daemon: str = ""
    """Program that serves as a gateway between modules, as the job's user, for jobs that name no other."""
    phase_user: Literal["root", "job"] = "root"
    """Prolog and epilog run as root or as the job's user; without root they run as the agents' user."""
    phase_limit_s: Count = 300
    """Seconds after which prolog, epilog and check are ended, and have failed."""
    containment: Literal["auto", "none", "required"] = "auto"
    """Each job in a control group (cgroup v2): where the host has them, never, or else the agent does not start."""
    job_processes: Whole = 32_768
    """Most processes and threads of a job on a node, where it is in a control group; 0: unlimited."""
    oom_ends: Literal["step", "job"] = "step"
    """End of one step on a node, or of all of a job's there, where the job has used all its memory on that node."""
    bind_cores: bool = False
    """Each job has cores of its own on a node, where its control group has cpuset and enough cores are free."""
    private_dirs: list[str] = []
    """Directories of each job's own on a node, empty at its start and gone at its end: /tmp, /var/tmp, /dev/shm."""
    private_dirs_mib: Whole = 0
    """Most MiB in each of them, which are memory of the job; 0: half of the node's memory."""
    allow_set_user_id: bool = False
    """Let set-user-id programs (sudo, ping) gain rights in users' jobs, where agents are started by root."""


class PartitionSection(msgspec.Struct, forbid_unknown_fields=True):
    """A named set of nodes for submissions."""

    name: Name
    """Its name in --partition."""
    nodes: str = ""
    """Folded list of its nodes; empty: all."""
    default: bool = False
    """The default partition of jobs that name none."""
    up: bool = True
    """Start jobs here."""
    time_limit_default_s: Whole = 0
    """Time limit in seconds of jobs that give none; 0: the maximum."""
    time_limit_max_s: Whole = 0
    """Longest time limit in seconds; 0: unlimited."""
    memory_per_cpu_default_mib: Whole = 0
    """Memory in MiB per core of jobs that ask for none; 0: memory is not counted for them."""
    tier: Whole = 0
    """Jobs of a higher tier may push out running jobs of lower ones, by these partitions' preempt_mode."""
    preempt_mode: str = "off"
    """Preemption mode of its running jobs: off, requeue, cancel or suspend."""
    priority: Whole = 0
    """Priority of its jobs, relative to the highest of all partitions (see priority.partition)."""
    delay_max_s: Whole = 0
    """Longest delay in seconds of a job of a pack after the pack's first; 0: as policy.delay_max_s."""


class PolicySection(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of scheduling and of failure handling."""

    scheduler: str = "easy"
    """fcfs (strictly in order), easy (backfill that never delays the first), conservative or planned (every job has a
    planned start), or a site's own by the entry point eslurm.policies."""
    heartbeat_s: Positive = 5.0
    """Seconds between heartbeats."""
    heartbeats_missed_max: Count = 2
    """Missed heartbeats after which a node is unreachable: no new work, its jobs are kept."""
    node_lost_after_s: Positive = 600.0
    """Seconds after which an unreachable node's jobs are given up. So far above orphan_timeout_s + kill_grace_s that jobs
    end first even if the controller's time leaps by a quarter of the difference and runs a tenth too fast."""
    orphan_timeout_s: Positive = 300.0
    """Seconds after the last answer of a node that the controller has confirmed, after which the node ends its requeueable
    jobs by itself; at least 3 heartbeat_s."""
    kill_grace_s: NotNegative = 30.0
    """Seconds between SIGTERM and SIGKILL when a job is ended."""
    requeue_delay_s: NotNegative = 1.0
    """Seconds before a job that could not be launched is tried again; doubles with each try."""
    inactive_limit_s: NotNegative = 120.0
    """Seconds without a word of the command of an allocation (`esalloc`, `esrun` outside of jobs), which says every few
    seconds that it is there, after which the allocation ends; 0: never. A controller that takes over counts anew."""
    launch_failures_max: Count = 5
    """Launch tries after which a job is held for an administrator to look at."""
    extension_percent: NotNegative = 10.0
    """Percentage of its first time limit by which a job's owner may extend it in all while it runs; 0: not at all."""
    finished_retention_s: Positive = 60.0
    """Seconds for which finished jobs stay in memory (accounting keeps them for good)."""
    finished_jobs_max: Count = 2_000
    """Most finished jobs kept in memory."""
    pending_jobs_max: Count = 200_000
    """Most jobs that may wait, an array counting as one; the last twentieth is for operators' jobs."""
    pending_jobs_user_max: Whole = 20_000
    """Most jobs of one user that may wait; a job counts once more for each 16 KiB of arguments, node names, array ranges
    and parts. Operators are exempt. 0: no limit of its own."""
    array_tasks_max: ArrayTasks = ARRAY_TASKS_MAX
    """Most tasks of one array."""
    script_bytes_max: ScriptBytes = SCRIPT_BYTES_MAX
    """Most bytes of a batch script."""
    job_id_first: JobId = 1
    """Id of a new cluster's first job. Set on a running cluster, ids go on from there; they never go back."""
    relay_width: Width = 16
    """Children per node of a broadcast tree, at least 2; 0: whichever width measures fastest."""
    satellite_width: Width = 0
    """Children of a satellite, at least 2; 0: as relay_width."""
    relay_grouping: str = "balanced"
    """Shape of the trees: balanced (most leaves, least depth) or positional (equal groups, as published)."""
    relay_direct_max: Whole = 0
    """Broadcasts of at most this many nodes go straight from the controller, not through a satellite."""
    satellite_max_inflight: Count = 64
    """Broadcasts that a satellite may have under way; with that many it is BUSY and gets no more."""
    satellite_reallocations_max: Whole = 2
    """Satellites that a failed share is handed on to before the controller sends it itself."""
    satellite_down_after_s: Positive = 1200.0
    """Seconds in FAULT after which a satellite is DOWN, until `esctl satellite resume`."""
    accounts_enforced: bool = False
    """Only registered users may submit (`esctl user add`), each through an account of theirs."""
    zone: str = "UTC"
    """Time zone in which dates and cron strings of limits, FreePools and reservations are read, like Europe/Berlin."""
    delay_max_s: Whole = 0
    """Longest delay in seconds of a job of a pack after the pack's first; 0: no limit. Its room is kept from the first one's
    start on."""
    gateway_signal: Annotated[int, Meta(ge=0, le=64)] = 12
    """Signal to a job's script when a gateway daemon of it ends (12: SIGUSR2); 0: none."""
    retries_max: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] = 5
    """Most retries by the server for which a job may ask (`essubmit --retry-on=timeout:N`); 0: none. Each may use as much
    again as the attempt before it, and more by the job's factor. A lower number counts for present jobs, too."""


class PrioritySection(msgspec.Struct, forbid_unknown_fields=True):
    """Weights of the multifactor priority: factors within 0..1, each times its weight. All 0: order of submission."""

    age: Whole = 0
    """Weight of the time since submission."""
    fairshare: Whole = 0
    """Weight of fair share: the least served users come first."""
    size: Whole = 0
    """Weight of the part of the cluster that a job asks for."""
    partition: Whole = 0
    """Weight of the partition's priority, relative to the highest."""
    qos: Whole = 0
    """Weight of the QOS's priority, relative to the highest."""
    age_max_s: Whole = 604_800
    """Seconds after which a job gains no more by its age."""
    half_life_s: Whole = 604_800
    """Seconds after which what was used counts half; 0: it counts for ever."""
    favor_small: bool = False
    """Size favours small jobs instead of large ones."""
    recompute_s: Positive = 60.0
    """Seconds between computations of all priorities."""
    billing: dict[str, Weight] = msgspec.field(default_factory=lambda: {"cores": 1.0})
    """Weight of one item of a resource in usage, per second: cores, memory_mib, or a resource's name. Unnamed ones are
    free.
    """


class FailureSection(msgspec.Struct, forbid_unknown_fields=True):
    """Sources of predicted node failures. They change a node's place in a tree, never its state."""

    predictors: list[str] = msgspec.field(default_factory=lambda: ["history", "health", "alerts"])
    """Names of predictors; the union counts. Sites add their own by the entry point eslurm.failure_predictors."""
    prometheus_url: str = ""
    """Prometheus server whose firing alerts predict failures, e.g. http://mon:9090; empty: none is asked."""
    prometheus_interval_s: Positive = 15.0
    """Seconds between questions to it."""
    node_label: str = "node"
    """Label of an alert that names the node."""
    webhook_listen: str = ""
    """Address for Alertmanager's webhook, with `webhook_token_file` in [failure.settings.alerts]; empty: none."""
    plugin_timeout_s: Positive = 2.0
    """Seconds that a site's predictor may take for one call before it is switched off."""
    settings: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Settings of a site's predictor: a table under its name."""


class EstimatorSection(msgspec.Struct, forbid_unknown_fields=True):
    """Estimates of run times, made by `esestd` from ended jobs. They never end a job."""

    name: Name = "history"
    """The estimator: history, or one that `eslurm estimate evaluate --help` lists, or a site's own by the entry point
    eslurm.estimators.
    """
    use: bool = True
    """Plans use forecasts; otherwise they are shown only, and plans use time limits."""
    target_under: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Share of jobs that may run longer than estimated; 0: the estimator's own choice (history: 0.1)."""
    window_jobs: Whole = 0
    """Number of last ended jobs that a starting `esestd` gets. The controller then holds them in memory for a minute or
    so, about a kilobyte each.
    """
    retrain_every_s: Whole = 0
    """Seconds between trainings; 0: the estimator's own choice."""
    refresh_s: Positive = 300.0
    """Seconds after which a waiting job is estimated again; each is at its start, and when it outlives its estimate."""
    history_jobs: Annotated[int, Meta(ge=0, le=100_000)] = 20_000
    """Number of last ended jobs that a starting `esestd` gets. The controller then holds them in memory for a minute or
    so, about a kilobyte each.
    """
    metrics_listen: str = ""
    """Address for Prometheus to scrape /metrics of `esestd` at; empty: none."""
    settings: dict[str, str | bool | int | float] = msgspec.field(default_factory=dict)
    """Further settings of the estimator, see its documentation."""


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    cluster: ClusterSection
    controller: ControllerSection = msgspec.field(default_factory=ControllerSection)
    privacy: PrivacySection = msgspec.field(default_factory=PrivacySection)
    audit: AuditSection = msgspec.field(default_factory=AuditSection)
    tls: TlsSection = msgspec.field(default_factory=TlsSection)
    satellite: list[SatelliteSection] = msgspec.field(default_factory=list)
    nodes: list[NodesSection] = msgspec.field(default_factory=list)
    login: LoginSection = msgspec.field(default_factory=LoginSection)
    agent: AgentSection = msgspec.field(default_factory=AgentSection)
    phases: PhasesSection = msgspec.field(default_factory=PhasesSection)
    mail: MailSection = msgspec.field(default_factory=MailSection)
    resource: list[ResourceSection] = msgspec.field(default_factory=list)
    switch: list[SwitchSection] = msgspec.field(default_factory=list)
    node_rule: list[NodeRuleSection] = msgspec.field(default_factory=list)
    module: list[ModuleSection] = msgspec.field(default_factory=list)
    partition: list[PartitionSection] = msgspec.field(default_factory=list)
    policy: PolicySection = msgspec.field(default_factory=PolicySection)
    failure: FailureSection = msgspec.field(default_factory=FailureSection)
    priority: PrioritySection = msgspec.field(default_factory=PrioritySection)
    estimator: EstimatorSection = msgspec.field(default_factory=EstimatorSection)
    tokens: TokensSection = msgspec.field(default_factory=TokensSection)
    federation: FederationSection = msgspec.field(default_factory=FederationSection)
    compat: CompatSection = msgspec.field(default_factory=CompatSection)
