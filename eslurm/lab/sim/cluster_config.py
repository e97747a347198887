"""The configuration of a simulated cluster, and how it grows.

Invariant: a node's place in the configuration never changes, so its number is its place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.model.config import (
    ClusterConfig,
    Module,
    NodeConfig,
    NodeRule,
    Partition,
    PriorityWeights,
    Resource,
    Switch,
)
from eslurm.core.model.gateways import GATEWAY, PARTITION
from eslurm.lab.sim.allocation_draws import INACTIVE_LIMIT_S

CORES = 4
MEMORY_MIB = 4_096
NODE_TOTAL = (CORES, MEMORY_MIB)
NODE_OFFER = (2 * CORES, 2 * MEMORY_MIB)
"""The hosts' actual resources, configured or not."""
GPU = Resource("gpu", devices=True)
LICENCE = Resource("lic", wide_total=3)
POLICIES = ("fcfs", "easy", "conservative", "planned")
MAIN = "main"
RUSH = "rush"
"""A partition of a higher tier over the same nodes, in some clusters."""
FAST = "fast"
"""A feature of some nodes."""
WEIGHTS = PriorityWeights(
    age=100, fairshare=400, size=50, qos=200, age_max_s=60, half_life_s=30, recompute_s=5.0
)


def node_name(number: int) -> str:
    """Name of the node of that number."""
    return f"cn{number:04}"


def draw_config(rng: random.Random, cluster: str, nodes: int) -> ClusterConfig:
    """A cluster with short time-outs, so that they are reached."""
    names = tuple(map(node_name, range(nodes)))
    resources = rng.choice(((), (GPU,), (LICENCE,), (GPU, LICENCE)))
    return ClusterConfig(
        cluster=cluster,
        nodes=tuple(_draw_node(rng, name, has_gpus=GPU in resources) for name in names),
        partitions=_draw_partitions(rng, names),
        policy=rng.choice(POLICIES),
        resources=resources,
        node_rules=(NodeRule(names[:1], cores_min=2),) if rng.random() < 0.2 else (),
        switches=_draw_switches(rng, names),
        priority=WEIGHTS if rng.random() < 0.3 else PriorityWeights(),
        accounts_enforced=rng.random() < 0.2,
        heartbeat_s=5.0,
        node_lost_after_s=45.0,
        orphan_timeout_s=rng.choice((15.0, 25.0)),
        kill_grace_s=3.0,
        inactive_limit_s=INACTIVE_LIMIT_S,
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


def _draw_node(rng: random.Random, name: str, *, has_gpus: bool) -> NodeConfig:
    gpus = rng.choice((0, 1, 2)) if has_gpus else 0
    return NodeConfig(
        name,
        (*NODE_TOTAL, gpus) if has_gpus else NODE_TOTAL,
        features=(FAST,) if rng.random() < 0.6 else (),
        weight=rng.choice((0, 0, 10)),
        cores_for_devices=1 if gpus and rng.random() < 0.2 else 0,
        device_type="a100" if gpus else "",
    )


def _draw_partitions(rng: random.Random, names: tuple[str, ...]) -> tuple[Partition, ...]:
    mode = rng.choice(("off", "requeue", "cancel", "suspend"))
    main = Partition(MAIN, names, default=True, time_limit_default_s=60, preempt_mode=mode)
    if mode == "off":
        return (main,)
    return (main, Partition(RUSH, names, time_limit_default_s=60, tier=1))


def _draw_switches(rng: random.Random, names: tuple[str, ...]) -> tuple[Switch, ...]:
    if rng.random() < 0.7:
        return ()
    middle = len(names) // 2
    leaves = (Switch("leaf0", names[:middle]), Switch("leaf1", names[middle:]))
    return (*leaves, Switch("root", switches=("leaf0", "leaf1")))


def with_modules(config: ClusterConfig, names: Sequence[str], modules: tuple[Module, ...]) -> ClusterConfig:
    """The same with its nodes in these modules, `names` by node; gateways are in no other partition, as whole nodes."""
    gateways = {module.name for module in modules if module.kind == GATEWAY}
    hidden = {node.name for node, name in zip(config.nodes, names, strict=True) if name in gateways}
    partitions = tuple(
        replace(partition, nodes=tuple(name for name in partition.nodes if name not in hidden))
        for partition in config.partitions
    )
    return replace(
        config,
        nodes=tuple(
            replace(
                node,
                module=name,
                features=(*node.features, name),
                cores_for_devices=0 if name in gateways else node.cores_for_devices,
            )
            for node, name in zip(config.nodes, names, strict=True)
        ),
        partitions=(*partitions, Partition(PARTITION, tuple(sorted(hidden)), role=GATEWAY)),
        modules=modules,
    )


def with_new_node(config: ClusterConfig, name: str) -> ClusterConfig:
    """The same with one more node, in the same partitions. It is in no module."""
    total = (*NODE_TOTAL, *(0 for _ in config.nodes[0].total[len(NODE_TOTAL) :]))
    return replace(
        config,
        nodes=(*config.nodes, NodeConfig(name, total)),
        partitions=tuple(
            partition if partition.role else replace(partition, nodes=(*partition.nodes, name))
            for partition in config.partitions
        ),
    )


def without_node(config: ClusterConfig, name: str) -> ClusterConfig:
    """The same without a node that was added."""
    return replace(
        config,
        nodes=tuple(node for node in config.nodes if node.name != name),
        partitions=tuple(
            replace(partition, nodes=tuple(one for one in partition.nodes if one != name))
            for partition in config.partitions
        ),
    )


def with_more_on(config: ClusterConfig, number: int, rng: random.Random) -> ClusterConfig:
    """The same with more cores or memory on one node, up to what its host has."""
    nodes = list(config.nodes)
    at = rng.randrange(len(NODE_OFFER))
    total = list(nodes[number].total)
    total[at] = rng.randint(total[at], NODE_OFFER[at])
    nodes[number] = replace(nodes[number], total=tuple(total))
    return replace(config, nodes=tuple(nodes))
