"""The cluster's one configuration file (TOML), typed. The controller owns it; agents and satellites get what they need
on their command line or from the controller.

Every key is documented by its field here; `docs/reference/configuration.md` is generated from these classes.
Unknown keys are errors: a misspelt limit that silently does nothing is worse than a refusal.
"""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError, escaped, quoted
from eslurm.compat.hostlist import expand
from eslurm.config.modules import ModuleSection, gateways_of, modules_of, with_gateways, with_modules
from eslurm.config.nodes import (
    LoginSection,
    NodeRuleSection,
    NodesSection,
    ResourceSection,
    SwitchSection,
    login_of,
    nodes_of,
    resources_of,
    rules_of,
    switches_of,
)
from eslurm.config.phases import PhasesSection, programs_of
from eslurm.config.policies import policy_names
from eslurm.config.tokens import TokensSection, check_tokens, token_rules
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
from eslurm.core.control.privacy import KINDS as PRIVATE_KINDS
from eslurm.core.model.config import ClusterConfig, Partition, PriorityWeights
from eslurm.core.model.request_limits import ARRAY_TASKS_MAX, SCRIPT_BYTES_MAX
from eslurm.core.model.timekeeping import loss_slack_s, lost_after_min_s
from eslurm.security.files import UnsafeFile, read_trusted

FILE_BYTES_MAX = 64 << 20
HEARTBEATS_UNCONFIRMED = 3
"""Age of a healthy node's contact in heartbeats, at most: one under way, one lost, one to confirm it."""
PREEMPT_MODES = ("off", "requeue", "cancel", "suspend")
GROUPINGS = ("balanced", "positional")


class ConfigError(Exception):
    """The file is unusable. The text names the file, the key, the value and the way out, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(escaped(text))


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


def read_config(path: Path, *, is_obeyed: bool = False) -> Config:
    """Read and check the file. Raises `ConfigError`.

    With `is_obeyed` a file that another user could change is refused: daemons act on it.
    """
    try:
        raw = read_trusted(path, FILE_BYTES_MAX) if is_obeyed else path.read_bytes()
    except UnsafeFile as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_config(raw, str(path))


def parse_config(raw: bytes, origin: str) -> Config:
    """The same from memory; `origin` names it in errors."""
    try:
        config = msgspec.convert(tomllib.loads(raw.decode()), Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{origin}: is not valid TOML: brackets are nested too deeply") from None
    except ValueError as error:
        # Bytes that are no text and numbers of thousands of digits besides what tomllib calls its own.
        raise ConfigError(f"{origin}: is not valid TOML: {error}") from None
    cluster_config(config, origin)
    return config


def cluster_config(config: Config, origin: str = "configuration", own_uid: int = 0) -> ClusterConfig:
    """The core's part of the configuration. Raises `ConfigError` when the sections contradict each other.

    `own_uid` is the controller's own: an administrator unless the configuration names them.
    """
    try:
        resources = resources_of(config.resource, config.nodes)
        modules = modules_of(config.module)
        nodes = with_modules(nodes_of(config.nodes, resources), config.module)
        gateways = gateways_of(nodes, modules)
        names = [node.name for node in nodes]
        login_nodes = login_of(config.login, names)
        switches = switches_of(config.switch, names)
        rules = rules_of(config.node_rule, names, resources)
        check_tokens(config.tokens)
        phases = programs_of(config.phases)
        own = {node.name: node.name for node in nodes}
        partitions = _partitions(config, own, gateways, login_nodes, origin)
        partitions = with_gateways(partitions, gateways, modules)
    except OptionError as error:
        raise ConfigError(f"{origin}: {error}") from None
    policy = config.policy
    if policy.scheduler not in policy_names():
        known = ", ".join(policy_names())
        raise ConfigError(
            f"{origin}: policy.scheduler: {quoted(policy.scheduler)} is unknown: use one of {known}, or install the package"
            " that offers it"
        )
    _check_zone(policy.zone, origin)
    _check_networks(config.controller.step_networks, origin)
    _check_relay(config, {node.name for node in nodes}, origin)
    _check_private(config.privacy.private, origin)
    administrators = config.cluster.administrators
    numbers = {name: getattr(policy, name) for name in policy.__struct_fields__ if name != "scheduler"}
    made = ClusterConfig(
        cluster=config.cluster.name,
        nodes=nodes,
        partitions=partitions,
        operators=tuple(config.cluster.operators),
        policy=policy.scheduler,
        resources=resources,
        switches=switches,
        node_rules=rules,
        priority=_priority(config.priority),
        use_forecasts=config.estimator.use,
        login_nodes=login_nodes,
        administrators=tuple(dict.fromkeys((0, own_uid) if administrators is None else administrators)),
        private=tuple(dict.fromkeys(config.privacy.private)),
        min_uid=config.agent.min_uid,
        allow_root_jobs=config.agent.allow_root_jobs,
        tokens=token_rules(config.tokens),
        modules=modules,
        phases=phases,
        **numbers,
    )
    _check_billing(made, origin)
    _check_silence(made, origin)
    return made


def estimator_settings(section: EstimatorSection) -> dict[str, str | int | float | bool]:
    """The estimator's settings: the section's own keys where they are given, and its table."""
    given = {name: getattr(section, name) for name in ("target_under", "window_jobs", "retrain_every_s")}
    return {name: value for name, value in given.items() if value} | section.settings


def _priority(section: PrioritySection) -> PriorityWeights:
    names = [name for name in section.__struct_fields__ if name != "billing"]
    return PriorityWeights(
        **{name: getattr(section, name) for name in names}, billing=tuple(sorted(section.billing.items()))
    )


def _check_billing(config: ClusterConfig, origin: str) -> None:
    known = ("cores", "memory_mib", *(resource.name for resource in config.resources))
    for name, _ in config.priority.billing:
        if name not in known:
            raise ConfigError(
                f"{origin}: priority.billing: {quoted(name)} is no resource: use one of {', '.join(known)}"
            )


def _check_silence(config: ClusterConfig, origin: str) -> None:
    """Check that a node ends its orphaned jobs before the controller gives the node up, whatever their clocks do."""
    dead_s = config.orphan_timeout_s + config.kill_grace_s
    if loss_slack_s(config) <= 0:
        raise ConfigError(
            f"{origin}: policy.node_lost_after_s: {config.node_lost_after_s:g} is too short for orphan_timeout_s + "
            f"kill_grace_s ({dead_s:g}), or a job could run twice: set it above {lost_after_min_s(dead_s):g}"
        )
    if config.orphan_timeout_s < HEARTBEATS_UNCONFIRMED * config.heartbeat_s:
        raise ConfigError(
            f"{origin}: policy.orphan_timeout_s: {config.orphan_timeout_s:g} must be at least {HEARTBEATS_UNCONFIRMED} "
            f"heartbeat_s ({HEARTBEATS_UNCONFIRMED * config.heartbeat_s:g}), or jobs on healthy nodes are ended: a contact "
            "is confirmed by a later heartbeat"
        )


def _check_zone(zone: str, origin: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{origin}: policy.zone: {quoted(zone)} is no time zone: write e.g. Europe/Berlin or UTC"
        ) from None


def _check_networks(networks: list[str], origin: str) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(
                f"{origin}: controller.step_networks: {quoted(network)} is no network ({error}): write e.g. 10.2.0.0/16"
            ) from None


def _check_private(private: list[str], origin: str) -> None:
    for kind in private:
        if kind not in PRIVATE_KINDS:
            raise ConfigError(
                f"{origin}: privacy.private: {quoted(kind)} is unknown: use some of {', '.join(PRIVATE_KINDS)}"
            )


def _check_relay(config: Config, nodes: set[str], origin: str) -> None:
    policy = config.policy
    for key in ("relay_width", "satellite_width"):
        width = getattr(policy, key)
        if width < 0 or width == 1:
            raise ConfigError(f"{origin}: policy.{key}: {width} must be 0 (automatic) or at least 2")
    if policy.relay_grouping not in GROUPINGS:
        raise ConfigError(
            f"{origin}: policy.relay_grouping: {quoted(policy.relay_grouping)} is unknown: use {' or '.join(GROUPINGS)}"
        )
    seen: set[str] = set()
    for satellite in config.satellite:
        if satellite.name in nodes:
            raise ConfigError(
                f"{origin}: satellite.name: '{satellite.name}' is also a compute node: satellites run no jobs,"
                " give it a host of its own"
            )
        if satellite.name in seen:
            raise ConfigError(f"{origin}: satellite.name: '{satellite.name}' is used twice")
        seen.add(satellite.name)


def _partitions(
    config: Config, known: dict[str, str], gateways: dict[str, str], login: tuple[str, ...], origin: str
) -> tuple[Partition, ...]:
    """The partitions. They share the nodes' own name strings: copies for twenty thousand nodes take a megabyte."""
    found: list[Partition] = []
    for section in config.partition:
        users = known.keys() - gateways.keys() if gateways else known.keys()
        names = (
            expand(section.nodes, "partition.nodes")
            if section.nodes
            else tuple(filter(users.__contains__, known))
        )
        unknown = [name for name in names if name not in known]
        if unknown and unknown[0] in login:
            raise ConfigError(
                f"{origin}: partition.nodes: '{unknown[0]}' of {section.name} is a login host, where no job runs"
            )
        if unknown:
            raise ConfigError(
                f"{origin}: partition.nodes: '{unknown[0]}' of {section.name} is not among the nodes"
            )
        hidden = next((name for name in names if name in gateways), "")
        if hidden:
            raise ConfigError(
                f"{origin}: partition.nodes: '{hidden}' of {section.name} is in the gateway module {gateways[hidden]}: "
                "gateways are in no partition, leave it out"
            )
        if any(section.name == other.name for other in found):
            raise ConfigError(f"{origin}: partition.name: '{section.name}' is used twice")
        if section.preempt_mode not in PREEMPT_MODES:
            raise ConfigError(
                f"{origin}: partition.preempt_mode: {quoted(section.preempt_mode)} is unknown: "
                f"use {', '.join(PREEMPT_MODES)}"
            )
        found.append(
            Partition(
                section.name,
                tuple(known[name] for name in names),
                section.default,
                section.up,
                section.time_limit_default_s,
                section.time_limit_max_s,
                section.memory_per_cpu_default_mib,
                section.priority,
                section.preempt_mode,
                section.tier,
                delay_max_s=section.delay_max_s,
            )
        )
    if sum(partition.default for partition in found) > 1:
        raise ConfigError(f"{origin}: partition.default: only one partition can be the default")
    return tuple(found)
