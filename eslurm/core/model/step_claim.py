"""A step's claim to resources of its job: what it takes, so that other steps of the job do not have it meanwhile.

A step without a claim shares: it takes nothing, and never waits.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from eslurm.core.model.amounts import Vector


class ClaimWish(msgspec.Struct, frozen=True, gc=False):
    """A claim as it is asked for; `per_node` and `per_task` are (resource, items)."""

    whole: bool = False
    memory_mib: int = 0
    """On each of its nodes."""
    memory_per_cpu_mib: int = 0
    per_node: tuple[tuple[str, int], ...] = ()
    per_task: tuple[tuple[str, int], ...] = ()


class StepClaim(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Amounts that a step takes besides the cores of its tasks, in the order of the job's resources."""

    whole: bool = False
    """It takes all cores that the job has on the nodes of its tasks."""
    on_node: Vector = ()
    """On each of its nodes."""
    by_task: Vector = ()
    """For each of its tasks; `cpus_per_task` has their cores."""
    by_cpu_mib: int = 0
    """Memory for each core of its tasks."""


class StepDemand(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Size of a step that waits for its turn, from which its tasks are laid out then, as of `messages.CreateStep`."""

    tasks: int = 0
    nodes: int = 0
    tasks_open: bool = False
    nodes_open: bool = False
    node_names: tuple[str, ...] = ()


class StepFiles(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Files of a step that runs without its command, as patterns (`compat.filenames`), relative to its directory."""

    output: str
    error: str = ""
    """Empty: where output goes."""


NumberedDevices: TypeAlias = tuple[tuple[int, int, tuple[int, ...]], ...]
"""(node, index of a resource, numbers of the devices)."""
