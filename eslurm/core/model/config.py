"""The part of the configuration that the core uses. Each accepted version is a fact with a revision."""

from __future__ import annotations

import msgspec

from eslurm.core.model.controller_phases import ControllerPrograms
from eslurm.core.model.request_limits import ARRAY_TASKS_MAX, SCRIPT_BYTES_MAX
from eslurm.core.model.token import TokenRules


class Partition(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A named set of nodes. Limits are in seconds; 0 means none."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    up: bool = True
    time_limit_default_s: int = 0
    time_limit_max_s: int = 0
    memory_per_cpu_default_mib: int = 0
    priority: int = 0
    preempt_mode: str = "off"
    """Mode of preemption of its running jobs by one of a partition with a higher tier: off, requeue, cancel or suspend."""
    tier: int = 0
    delay_max_s: int = 0
    """Longest delay of a job of a pack after the first one's start; 0: as the cluster allows."""
    role: str = ""
    """`gateway`: the hidden partition of gateway nodes, which no user names."""


class Resource(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A resource beyond cores and memory (C-08): cluster-wide with `wide_total` (a licence), else counted per node.

    `devices`: its items are numbered and a job gets particular ones (GPUs).
    """

    name: str
    wide_total: int = 0
    devices: bool = False


class NodeRule(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Restricts some nodes to jobs that meet at least one of the given conditions (C-45); 0: not checked.

    `resource_min` are (name, items per node); one of them must be reached.
    """

    nodes: tuple[str, ...]
    cores_min: int = 0
    memory_min_mib: int = 0
    resources_min: tuple[tuple[str, int], ...] = ()
    time_max_s: int = 0


class Switch(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A switch and its children: nodes, or other switches by name."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


class PriorityWeights(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Weights of the multifactor priority; each factor is within 0..1. All 0: the order of submission."""

    age: int = 0
    fairshare: int = 0
    size: int = 0
    partition: int = 0
    qos: int = 0
    age_max_s: int = 604_800
    half_life_s: int = 604_800
    favor_small: bool = False
    recompute_s: float = 60.0
    billing: tuple[tuple[str, float], ...] = (("cores", 1.0),)
    """(resource, what one item of it is worth a second): what usage is counted in."""


class NodeConfig(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A configured node and what it offers (aligned to `core.resources.vector.RESOURCES`)."""

    name: str
    total: tuple[int, ...]
    features: tuple[str, ...] = ()
    weight: int = 0
    """Added to what a node is worth (C-35): cheap nodes are taken first."""
    cores_for_devices: int = 0
    """Cores that only jobs with a device of this node may use (C-44)."""
    device_type: str = ""
    module: str = ""


class Module(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A module of the cluster: nodes of one kind with a network of their own (D-01).

    `reaches` are modules that exchange data with it directly, without gateways. A module of the kind `gateway` has the
    gateways between the others.
    """

    name: str
    kind: str = "cluster"
    reaches: tuple[str, ...] = ()


class ClusterConfig(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Policy numbers, all with their unit in the name. The defaults are those of a production site."""

    cluster: str
    nodes: tuple[NodeConfig, ...] = ()
    partitions: tuple[Partition, ...] = ()
    operators: tuple[int, ...] = (0,)
    policy: str = "easy"
    heartbeat_s: float = 5.0
    heartbeats_missed_max: int = 2
    node_lost_after_s: float = 600.0
    orphan_timeout_s: float = 300.0
    kill_grace_s: float = 30.0
    requeue_delay_s: float = 1.0
    launch_failures_max: int = 5
    finished_retention_s: float = 60.0
    finished_jobs_max: int = 2_000
    pending_jobs_max: int = 200_000
    array_tasks_max: int = ARRAY_TASKS_MAX
    script_bytes_max: int = SCRIPT_BYTES_MAX
    job_id_first: int = 1
    job_id_block: int = 10_000
    relay_width: int = 16
    """Children per node of a broadcast tree; 0: the width that measures fastest."""
    satellite_width: int = 0
    """Children of a satellite (X-03); 0: as `relay_width`."""
    relay_grouping: str = "balanced"
    relay_direct_max: int = 0
    """Broadcasts of at most this many nodes go straight from the controller (X-08)."""
    satellite_max_inflight: int = 64
    satellite_reallocations_max: int = 2
    satellite_down_after_s: float = 1200.0
    resources: tuple[Resource, ...] = ()
    """In the order of the vectors' entries, after cores and memory; wide ones last."""
    node_rules: tuple[NodeRule, ...] = ()
    switches: tuple[Switch, ...] = ()
    priority: PriorityWeights = PriorityWeights()
    zone: str = "UTC"
    """Time zone of cron strings."""
    extension_percent: float = 10.0
    """Percentage of the first time limit by which a user may extend a running job (C-40)."""
    accounts_enforced: bool = False
    """A job needs a user and an account that exist."""
    retired_1: float = 0.0
    """Nothing: kept for its place in logged configurations, where it was a horizon of planning that was never used."""
    use_forecasts: bool = True
    """Plans use an estimator's forecasts instead of time limits."""
    login_nodes: tuple[str, ...] = ()
    """Login hosts: numbered, registered and called as nodes are, but no part of what jobs run on."""
    administrators: tuple[int, ...] = (0,)
    """Uids that may do everything; operators may not hand over the lead, read logs or make tokens and keys."""
    private: tuple[str, ...] = ()
    """Kinds of data of which users see only their own: jobs, usage, users, reservations, configuration."""
    pending_jobs_user_max: int = 0
    """Most waiting jobs of one user without operator's rights, counted by `core.model.job_weight`; 0: as many as all may
    have.
    """
    min_uid: int = 0
    """No job of a user below this is accepted."""
    allow_root_jobs: bool = True
    """Accept root's jobs, whatever the value of `min_uid`."""
    tokens: TokenRules = TokenRules()
    delay_max_s: int = 0
    """Longest delay of a job of a pack after the first one's start; 0: no limit."""
    modules: tuple[Module, ...] = ()
    gateway_signal: int = 12
    """The signal that a job's script gets when a gateway daemon of it ends; 0: none."""
    phases: ControllerPrograms | None = None
    """Programs around each job on the controller's host; None: there are none."""
    retries_max: int = 5
    """Most retries by the server for which a job may ask (`--retry-on`); 0: none."""
    inactive_limit_s: float = 120.0
    """Silence of the command of an allocation after which the allocation ends; 0: never."""
    sends_mail: bool = False
    """Users get mail about their jobs where they ask for it."""
