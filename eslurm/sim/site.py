"""The configuration of a simulated cluster, and how it grows.

Invariant: a node's place in the configuration never changes, so its number is its place.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from eslurm.core.config import ClusterConfig, NodeConfig, Partition

CORES = 4
MEMORY_MIB = 4_096
NODE_TOTAL = (CORES, MEMORY_MIB)
NODE_OFFER = (2 * CORES, 2 * MEMORY_MIB)
"""What the hosts really have, configured or not."""


def node_name(number: int) -> str:
    """How the node of that number is called."""
    return f"cn{number:04}"


def draw_config(rng: random.Random, cluster: str, nodes: int) -> ClusterConfig:
    """A cluster with short time-outs, so that they are reached."""
    names = tuple(map(node_name, range(nodes)))
    return ClusterConfig(
        cluster=cluster,
        nodes=tuple(NodeConfig(name, NODE_TOTAL) for name in names),
        partitions=(Partition("main", names, default=True, time_limit_default_s=60),),
        policy=rng.choice(("easy", "fcfs")),
        heartbeat_s=5.0,
        node_lost_after_s=45.0,
        orphan_timeout_s=rng.choice((15.0, 25.0)),
        kill_grace_s=3.0,
        requeue_delay_s=0.5,
        finished_retention_s=rng.choice((2.0, 30.0)),
        job_id_block=rng.choice((3, 100)),
        relay_width=rng.choice((0, 2, 4, 16)),
        satellite_width=rng.choice((0, 0, 8)),
        relay_grouping=rng.choice(("balanced", "positional")),
        relay_direct_max=rng.choice((0, 0, 2)),
        satellite_max_inflight=rng.choice((1, 2, 64)),
        satellite_reallocations_max=rng.choice((0, 2)),
        satellite_down_after_s=rng.choice((8.0, 1200.0)),
    )


def with_new_node(config: ClusterConfig) -> ClusterConfig:
    """The same with one more node, in the same partition."""
    name = node_name(len(config.nodes))
    partition = config.partitions[0]
    return replace(
        config,
        nodes=(*config.nodes, NodeConfig(name, NODE_TOTAL)),
        partitions=(replace(partition, nodes=(*partition.nodes, name)),),
    )


def with_more_on(config: ClusterConfig, number: int, rng: random.Random) -> ClusterConfig:
    """The same with more cores or memory on one node, up to what its host has."""
    nodes = list(config.nodes)
    at = rng.randrange(len(NODE_OFFER))
    total = list(nodes[number].total)
    total[at] = rng.randint(total[at], NODE_OFFER[at])
    nodes[number] = replace(nodes[number], total=tuple(total))
    return replace(config, nodes=tuple(nodes))
