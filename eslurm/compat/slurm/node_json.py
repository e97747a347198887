"""Nodes and partitions in the JSON of sinfo and `scontrol show`."""

from __future__ import annotations

from eslurm.compat.hostlist import fold
from eslurm.compat.slurm import node_fields
from eslurm.compat.slurm.json_shape import Shape, filled
from eslurm.compat.slurm.layout import memory_text
from eslurm.compat.states import partition_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def nodes_document(nodes: Sequence[Any], release: str, argv: Sequence[str]) -> str:
    """The text of `scontrol show node --json`."""
    shape = Shape(release)
    return shape.document({"nodes": [_node(node, shape) for node in nodes]}, argv)


def partitions_document(
    partitions: Sequence[Any], nodes: Sequence[Any], release: str, argv: Sequence[str]
) -> str:
    """The text of `scontrol show partition --json`."""
    shape = Shape(release)
    found = [
        _partition(one, [node for node in nodes if one.name in node.partitions], shape) for one in partitions
    ]
    return shape.document({"partitions": found}, argv)


def sinfo_document(partitions: Sequence[Any], nodes: Sequence[Any], release: str, argv: Sequence[str]) -> str:
    """The text of `sinfo --json`: partitions and states of their nodes; in 22.05 nodes."""
    shape = Shape(release)
    if not shape.is_wrapped:
        return nodes_document(nodes, release, argv)
    shown = ["Partition", "StateLong", "Features", "Gres"]
    groups = node_fields.groups(partitions, nodes, shown, is_exact=True)
    return shape.document({"sinfo": [_group(group, shape) for group in groups]}, argv)


def _states(node: Any) -> list[str]:
    base = node_fields.base_state(node)
    if base in ("draining", "drained"):
        held = "IDLE" if not node.cores_used else "MIXED" if node.cores_used < node.cores else "ALLOCATED"
        found = [held, "DRAIN"]
    else:
        found = [base.upper()]
    return [*found, "NOT_RESPONDING"] if node_fields.is_silent(node) else found


def _node(node: Any, shape: Shape) -> dict[str, Any]:
    features = [word for word in node.features if ":" not in word]
    states = _states(node)
    tres = f"cpu={node.cores},mem={memory_text(node.memory_mib)},billing={node.cores}"
    used = f"cpu={node.cores_used}" + (
        f",mem={memory_text(node.memory_used_mib)}" if node.memory_used_mib else ""
    )
    record = {
        "architecture": "",
        "boards": 1,
        "boot_time": shape.moment(0),
        "comment": "",
        "cores": 1,
        "cpus": node.cores,
        "cpu_load": 0 if not shape.is_wrapped else shape.number(None),
        "free_mem": shape.number(None),
        "features": features if shape.is_wrapped else ",".join(features),
        "active_features": features if shape.is_wrapped else ",".join(features),
        "gres": node_fields.gres_text(node),
        "gres_used": node_fields.gres_text(node, used=True),
        "name": node.name,
        "address": node.name,
        "hostname": node.name,
        "state": states if shape.is_wrapped else states[0].lower(),
        **({} if shape.is_wrapped else {"state_flags": states[1:]}),
        "partitions": list(node.partitions),
        "real_memory": node.memory_mib,
        "alloc_memory": node.memory_used_mib,
        "alloc_cpus": node.cores_used,
        "alloc_idle_cpus": node.cores - node.cores_used,
        "reason": node.reason,
        "reason_changed_at": shape.moment(node_fields.reason_since_us(node)),
        "sockets": node.cores,
        "threads": 1,
        "temporary_disk": 0,
        "weight": node.weight,
        "tres": tres,
        "tres_used": used if node.cores_used else "",
    }
    if not shape.is_wrapped:
        return record | {"idle_cpus": node.cores - node.cores_used}
    texts = (
        *(
            "burstbuffer_network_address",
            "cluster_name",
            "cpu_binding",
            "extra",
            "gpu_spec",
            "gres_drained",
            "instance_id",
        ),
        *(
            "instance_type",
            "mcs_label",
            "operating_system",
            "owner",
            "reason_set_by_user",
            "reservation",
            "topology",
        ),
        *("specialized_cpus", "version"),
    )
    counts = ("res_cores_per_gpu", "specialized_cores", "specialized_memory")
    times = ("last_busy", "resume_after", "slurmd_start_time", "tls_cert_last_renewal")
    return filled(
        record,
        {
            **dict.fromkeys(texts, ""),
            **dict.fromkeys(counts, 0),
            **dict.fromkeys(times, shape.number(None)),
            "cert_flags": [],
            "effective_cpus": node.cores,
            "energy": {},
            "external_sensors": {},
            "next_state_after_reboot": [],
            "port": 0,
            "power": {},
            "tres_weighted": 0.0,
        },
    )


def _partition(one: Any, members: Sequence[Any], shape: Shape) -> dict[str, Any]:
    cores = sum(node.cores for node in members)
    limit, usual = one.time_limit_max_s // 60, one.time_limit_default_s // 60
    record = {
        "name": one.name,
        "nodes": {
            "allowed_allocation": "",
            "configured": fold([node.name for node in members]),
            "total": len(members),
        },
        "accounts": {"allowed": "", "deny": ""},
        "groups": {"allowed": ""},
        "qos": {"allowed": "", "deny": "", "assigned": ""},
        "cpus": {"task_binding": 0, "total": cores},
        "defaults": {"time": shape.number(usual or None)},
        "maximums": {
            "nodes": shape.number(None, is_endless=True),
            "time": shape.number(limit or None, is_endless=not limit),
        },
        "minimums": {"nodes": 0},
        "partition": {"state": [partition_state(one)]},
        "tres": {"configured": f"cpu={cores},node={len(members)},billing={cores}"},
    }
    unset, endless = shape.number(None), shape.number(None, is_endless=True)
    return filled(
        record,
        {
            **dict.fromkeys(
                ("alternate", "cluster", "node_sets", "topology", "defaults/job", "tres/billing_weights"), ""
            ),
            **dict.fromkeys(
                ("defaults/memory_per_cpu", "maximums/memory_per_cpu", "grace_time", "maximums/shares"), 0
            ),
            **dict.fromkeys(
                (
                    *("defaults/partition_memory_per_cpu", "defaults/partition_memory_per_node"),
                    *("maximums/partition_memory_per_cpu", "maximums/partition_memory_per_node"),
                    *("maximums/over_time_limit", "timeouts/resume", "timeouts/suspend", "suspend_time"),
                ),
                unset,
            ),
            **dict.fromkeys(("maximums/cpus_per_node", "maximums/cpus_per_socket"), endless),
            "maximums/oversubscribe": {"jobs": 1, "flags": []},
            "priority": {"job_factor": 1, "tier": 1},
            "select_type": [],
        },
    )


def _group(group: node_fields.Group, shape: Shape) -> dict[str, Any]:
    allocated, idle, other, total = node_fields.node_counts(group.nodes)
    cpus = node_fields.cpu_counts(group.nodes)
    names = [node.name for node in group.nodes]
    first = group.first
    memory = [node.memory_mib for node in group.nodes] or [0]
    cores = [node.cores for node in group.nodes] or [0]
    features = node_fields.features_text(first) if first else ""
    record = {
        "port": 0,
        "node": {"state": _states(first) if first else []},
        "nodes": {
            "allocated": allocated,
            "idle": idle,
            "other": other,
            "total": total,
            "hostnames": names,
            "addresses": names,
            "nodes": names,
        },
        "cpus": dict(
            zip(
                ("allocated", "idle", "other", "total", "minimum", "maximum"),
                (*cpus, min(cores), max(cores)),
                strict=True,
            )
        ),
        "memory": {"minimum": min(memory), "maximum": max(memory)},
        "features": {"total": features, "active": features},
        "gres": {
            "total": node_fields.gres_text(first) if first else "",
            "used": node_fields.gres_text(first, used=True) if first else "",
        },
        "cluster": "",
        "reason": {"description": first.reason if first else "", "time": shape.moment(0)},
        "partition": _partition(group.partition, group.nodes, shape),
    }
    weights = [node.weight for node in group.nodes] or [0]
    return filled(
        record,
        {
            **dict.fromkeys(("comment", "extra", "reservation", "resource_spec/cpus"), ""),
            **dict.fromkeys(("cores/minimum", "cores/maximum", "threads/minimum", "threads/maximum"), 1),
            **dict.fromkeys(("disk/minimum", "disk/maximum", "cpus/load/minimum", "cpus/load/maximum"), 0),
            **dict.fromkeys(("memory/free/minimum", "memory/free/maximum"), shape.number(None)),
            "sockets": {"minimum": min(cores), "maximum": max(cores)},
            "weight": {"minimum": min(weights), "maximum": max(weights)},
            "cpus/per_node/max": shape.number(None, is_endless=True),
            "memory/allocated": sum(node.memory_used_mib for node in group.nodes),
            "reason/user": "",
            "resource_spec/memory": 0,
        },
    )
