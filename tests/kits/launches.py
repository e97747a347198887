"""Launches as agents get them, from the fields of spec and launch side by side."""

from __future__ import annotations

from typing import Any

import msgspec

from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.protocol import JobLaunch, NodeGroup
from eslurm.core.model.request import Request

LAUNCH = JobLaunch(
    7,
    1,
    JobSpec("test", Principal("ada", 65_534, 65_534), "main", (Request(),), b"", b"", "/"),
    (NodeGroup(((0, 1),), (1,)),),
    "cn0",
)


def launch_of(base: JobLaunch = LAUNCH, **changes: Any) -> JobLaunch:
    """`base` with other fields, each put where it belongs; `cpus_per_task` is that of the one request."""
    if "cpus_per_task" in changes:
        changes["components"] = (Request(cpus_per_task=changes.pop("cpus_per_task")),)
    spec = {name: changes.pop(name) for name in JobSpec.__struct_fields__ if name in changes}
    return msgspec.structs.replace(base, spec=msgspec.structs.replace(base.spec, **spec), **changes)
