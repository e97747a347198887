"""`--module NAME` of a request: a feature that its nodes must have, and the partition where only one is in the module."""

from __future__ import annotations

from eslurm.compat.errors import nearest, quoted
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.features import both
from eslurm.core.model.gateways import GATEWAY
from eslurm.core.model.messages import RefusalCode, Refused


def in_module(constraint: str, module: str, config: ClusterConfig) -> str:
    """The constraint of a request for nodes of this module (empty: any). Raises `Refused`."""
    if not module:
        return constraint
    known = [one.name for one in config.modules if one.kind != GATEWAY]
    if module not in known:
        raise Refused(RefusalCode.INVALID, f"--module: {quoted(module)} {_way_out(module, known, config)}")
    return both(constraint, module)


def _way_out(module: str, known: list[str], config: ClusterConfig) -> str:
    if not known:
        return "is no module: none is configured, use --partition or --constraint"
    if any(one.name == module for one in config.modules):
        return f"is a module of gateways, where no job runs: use one of {', '.join(known)}"
    near = nearest(module, known)
    return f"is no module: did you mean {near}?" if near else f"is no module: use one of {', '.join(known)}"


def partition_in(module: str, config: ClusterConfig) -> str:
    """The partition all of whose nodes are in the module, if there is only one; else empty: the default one."""
    if not module:
        return ""
    nodes = {node.name for node in config.nodes if node.module == module}
    found = [
        one.name for one in config.partitions if one.nodes and not one.role and nodes.issuperset(one.nodes)
    ]
    return found[0] if len(found) == 1 else ""
