"""The part of the configuration that the core decides by. Each accepted version is a fact with a revision."""

from __future__ import annotations

import msgspec


class Partition(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A named set of nodes. Limits are in seconds; 0 means none."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    up: bool = True
    time_limit_default_s: int = 0
    time_limit_max_s: int = 0
    memory_per_cpu_default_mib: int = 0


class NodeConfig(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A configured node and what it offers (aligned to `core.resources.vector.RESOURCES`)."""

    name: str
    total: tuple[int, ...]


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
    array_tasks_max: int = 1_000_000
    script_bytes_max: int = 4 * 1024 * 1024
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
