"""Nodes on which a launch of a job has just failed: avoided while the other nodes can hold the job.

Invariant: a job that fits its partition's empty nodes fits the positions that its compiled request allows, whatever it
avoids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_job
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology


def compile_job_avoiding(
    requests: Sequence[Request],
    partitions: Sequence[PartitionView],
    topology: Topology,
    avoid: Collection[int],
    time_limit_us: int,
    empty: Callable[[], Ledger],
) -> CompiledRequest:
    """The compiled request without the nodes to `avoid`, or with them when no other nodes can ever hold it.

    Requests and partitions are of the job's parts; `empty` gives all nodes in service with nothing held
    (`feasible.empty_ledger`).
    """
    if avoid:
        need = compile_job(requests, partitions, topology, avoid, time_limit_us)
        if choose(empty(), need) is not None:
            return need
    return compile_job(requests, partitions, topology, time_limit_us=time_limit_us)
