"""The leader's audit log: its place, and the call that reads it.

Each controller has a log of its own terms; the leading controller answers a call from its own.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.ports.api import Caller
from eslurm.ports.audit import AuditLine
from eslurm.telemetry.audit import AuditLog, read_back, timestamp
from eslurm.telemetry.clocks import wall_us
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from eslurm.config.sections import AuditSection

LINES_DEFAULT = 1_000
LINES_MAX = 10_000
_MIB = 1024 * 1024


def open_audit(
    section: AuditSection, state_dir: Path, name: str, metrics: ControllerMetrics
) -> AuditLog | None:
    """The configured audit log; None without one.

    `name` is the controller's among several, for a file of its own; empty: it is the only one.
    """
    if not section.file:
        return None
    path = state_dir / section.file
    if name:
        path = path.with_stem(f"{path.stem}-{name}")
    return AuditLog(
        path,
        section.size_mib * _MIB,
        section.keep,
        wall_us,
        lambda count: metrics.audit_written.inc(count),
        lambda count: metrics.audit_lost.inc(count),
    )


class Audits:
    """Answers the call `Audit`."""

    def __init__(self, audit_log: AuditLog | None, name: str) -> None:
        self._log = audit_log
        self._name = name
        self._turns = asyncio.Lock()

    async def call(self, request: pb.AuditRequest, caller: Caller) -> pb.AuditReply:
        """The last lines, the oldest first; read in a thread, one question at a time."""
        if self._log is None:
            raise Refused(RefusalCode.CONFLICT, "no audit log is kept: set audit.file in the configuration")
        limit = min(request.limit or LINES_DEFAULT, LINES_MAX)
        since = timestamp(request.since_us) if 0 < request.since_us < wall_us() else ""
        user, refused = request.user, request.refused

        def is_wanted(line: AuditLine) -> bool:
            if user and user not in (line.user, str(line.uid)):
                return False
            return not refused or line.result in ("refused", "partly")

        async with self._turns:
            lines = await asyncio.to_thread(read_back, self._log.files(), is_wanted, since, limit)
        return pb.AuditReply(lines=[line.decode() for line in lines], controller=self._name)
