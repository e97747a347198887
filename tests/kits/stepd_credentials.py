"""A site's sealed commands for tests of what a supervisor accepts."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import Body, Command, JobLaunch, NodeGroup, Prepare
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepOrder
from eslurm.security.sealing import Purpose
from eslurm.security.site_keys import SiteKeys, new_site
from eslurm.telemetry.clocks import wall_us
from tests.kits.launches import launch_of

CLUSTER = "c"
SITE = new_site(CLUSTER, 1)
SCRIPT = b"#!/bin/sh\nid -u > ran\n"
ENVIRONMENT = b"PATH=/usr/bin:/bin\0"
KEY = StepKey(7, 1, -1, 3)
UID = 65_534


def launch(**changes: Any) -> JobLaunch:
    """A job on nodes cn3 and cn4, numbered 3 and 4."""
    made = launch_of(
        user=Principal("ada", UID, UID),
        groups=(NodeGroup(((3, 2),), (1,)),),
        node_names="cn[3-4]",
        script_hash=hashlib.sha256(SCRIPT).digest(),
        environment_hash=hashlib.sha256(ENVIRONMENT).digest(),
        work_dir="/tmp",
        output="out",
        kill_grace_s=1.0,
    )
    return launch_of(made, **changes)


def sealed(
    body: Body | None = None,
    *,
    site: SiteKeys = SITE,
    purpose: Purpose = Purpose.COMMAND,
    nodes: tuple[tuple[int, int], ...] = ((3, 2),),
    cluster: str = CLUSTER,
    revision: int = 5,
    expires_us: int | None = None,
) -> bytes:
    """The command as a controller seals it: a launch of the job with its start, unless `body` says otherwise."""
    body = body if body is not None else Prepare(launch(), start=True)
    expires_us = wall_us() + 30_000_000 if expires_us is None else expires_us
    command = Command(cluster, "main", 1, revision, 0, nodes, (1,) * len(nodes), expires_us, body)
    return site.seal_together(purpose, [msgspec.msgpack.encode(command)])[0]


def order(credential: bytes, **changes: Any) -> StepOrder:
    """The order that an agent sends with the credential."""
    return msgspec.structs.replace(StepOrder(KEY, credential, SCRIPT, ENVIRONMENT, "/door"), **changes)
